"""Browser of the tests: the Chromium that ./scripts/setup finds or fetches, if it can its headless shell. Root has no
sandbox."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.programs import require


@contextmanager
def chromium() -> Iterator[Browser]:
    """Open browser. Its event loop occupies this thread until it is closed."""
    program = require("chromium")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(program.path), args=flags, env={**os.environ, **program.environment}
        )
        yield browser
        browser.close()
