"""A picture of the page, taken by a headless browser."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from artimon.runtime.settings import Settings, child_environment
from artimon.stack.stack_errors import StackError
from scripts.programs import find

SIZE = (1440, 1180)
RANGE = "15m"
LOAD_MS = 15_000
"""Time of the page in which it may load and draw; the browser lets it pass as fast as requests are answered."""
SHOT_S = 90.0
LEAST_BYTES = 20_000
"""A page without a chart or without its tables is smaller."""
DOCS = Path(__file__).resolve().parents[2] / "docs"
NAME = "last-run.png"
"""Git ignores it: a run leaves the checkout as it was."""


class NoScreenshot(StackError):
    """The picture could not be taken; the text says why."""


def take_screenshot(address: str, question: str, path: Path, settings: Settings) -> Path:
    """Write a PNG of the page at `address` (http://host:port) with `question` answered. Raises NoScreenshot."""
    browser = find("chromium", settings.cache)
    if browser is None:
        raise NoScreenshot("chromium is not on this machine: `./scripts/setup --programs chromium` fetches it")
    url = f"{address}/?{urlencode({'q': question, 'range': RANGE})}"
    with tempfile.TemporaryDirectory(prefix="artimon-browser-", ignore_cleanup_errors=True) as profile:
        shot = Path(profile) / "page.png"
        command = [
            str(browser.path),
            *("--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            *(f"--user-data-dir={profile}", f"--window-size={SIZE[0]},{SIZE[1]}"),
            *(f"--virtual-time-budget={LOAD_MS}", f"--screenshot={shot}", url),
        ]
        home = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), profile)  # or it leaves files in the user's
        said = _run(command, child_environment({**browser.environment, **home}))
        if not shot.is_file() or shot.stat().st_size < LEAST_BYTES:
            raise NoScreenshot(f"{browser.path} drew no page of {url}: {said[-300:]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(shot.read_bytes())
    return path


def _run(command: list[str], environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SHOT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoScreenshot(f"{command[0]} did not end within {SHOT_S:.0f} s") from None
    return done.stderr.strip()


def place_for(data: Path, docs: Path = DOCS) -> Path:
    """In `docs` of a checkout that can be written; else beside the stack's data."""
    is_ours = (docs / "page.md").is_file() and os.access(docs, os.W_OK)
    return (docs if is_ours else data) / NAME
