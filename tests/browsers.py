"""Browser of the tests: the Chromium that ./scripts/setup finds or fetches, or with ARTIMON_TEST_BROWSER=firefox the
Firefox of Debian, which `./scripts/setup --programs firefox` fetches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.programs import require

NAME = os.environ.get("ARTIMON_TEST_BROWSER", "chromium")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Open browser; Chromium without a sandbox when run as root. Its event loop occupies this thread until it is
    closed."""
    program = require(NAME)
    environment: dict[str, str | float | bool] = {**os.environ, **program.environment}
    with sync_playwright() as playwright:
        if NAME == "firefox":  # as it is, without patches, through WebDriver BiDi
            browser = playwright.firefox.launch(
                channel="moz-firefox", executable_path=str(program.path), env=environment
            )
        else:
            flags = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=str(program.path), args=flags, env=environment)
        yield browser
        browser.close()
