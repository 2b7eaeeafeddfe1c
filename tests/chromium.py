"""The browser of the tests: the Chromium that ./scripts/setup finds or fetches, without a sandbox where we are root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.programs import require


@contextmanager
def chromium() -> Iterator[Browser]:
    """While it is open an event loop runs in this thread, and nobody else can have one."""
    program = require("chromium")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(program.path), args=flags, env={**os.environ, **program.environment}
        )
        yield browser
        browser.close()
