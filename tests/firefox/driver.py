"""Debian's Firefox as it is, without a window, driven through its own protocol (Marionette)."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_playwright_python
from marionette_driver import By
from marionette_driver.errors import MarionetteException
from marionette_driver.marionette import Marionette

from tests.programs import require
from tests.sockets import free_port
from tests.waiting import eventually

START_S, WAIT_S = 90, 20
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
ERRORS = """
window.problems = [];
addEventListener("error", (event) => window.problems.push(String(event.message)));
addEventListener("unhandledrejection", (event) => window.problems.push(String(event.reason)));
"""


class Firefox:
    """One open browser."""

    def __init__(self, marionette: Any) -> None:
        self._marionette = marionette

    def open(self, address: str) -> None:
        """Go to an address and watch the page for errors of its own code."""
        self._marionette.navigate(address)
        self.run(ERRORS)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page; errors of the page are seen by the same window."""
        return self._marionette.execute_script(script, script_args=arguments, sandbox=None)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def type(self, selector: str, text: str) -> None:
        """Replace the text of a field and press Enter, if the text ends with a new line."""
        field = self._marionette.find_element(By.CSS_SELECTOR, selector)
        field.clear()
        field.send_keys(text.replace("\n", "\ue007"))

    def click(self, selector: str) -> None:
        self._marionette.find_element(By.CSS_SELECTOR, selector).click()

    def wait(self, check: Callable[[], Any], what: str) -> Any:
        """Wait until `check` is true; a page that is replaced meanwhile counts as false."""

        def checked() -> Any:
            try:
                return check()
            except MarionetteException:
                return False

        return eventually(checked, what, WAIT_S)

    def problems(self) -> list[str]:
        return list(self.run("return window.problems ?? ['the page was replaced']"))

    def findings(self) -> list[str]:
        """Return all findings of axe-core."""
        self.run(AXE.read_text(encoding="utf-8"))
        script = (
            "const done = arguments[0]; axe.run().then((found) => done(found.violations), (e) => done([String(e)]));"
        )
        found = self._marionette.execute_async_script(script, sandbox=None, script_timeout=60_000)
        return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]

    def forget(self) -> None:
        """Forget cookies and what pages stored."""
        self._marionette.delete_all_cookies()


@contextmanager
def firefox(dark: bool = False) -> Iterator[Firefox]:
    """Start the browser with an empty profile."""
    program, port = require("firefox"), free_port()
    with tempfile.TemporaryDirectory(prefix="artimon-firefox-") as folder:
        scheme = "layout.css.prefers-color-scheme.content-override"
        settings = {"marionette.port": port, scheme: int(not dark)}
        lines = [f'user_pref("{name}", {value});\n' for name, value in settings.items()]
        (Path(folder) / "user.js").write_text("".join(lines))
        command = [str(program.path), "--marionette", "--headless", "--no-remote", "--profile", folder, "about:blank"]
        environment = {**os.environ, **program.environment, "HOME": folder, "MOZ_HEADLESS": "1"}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        marionette = Marionette(host="127.0.0.1", port=port)
        try:
            eventually(lambda: _begins(marionette), "Firefox answers", START_S)
            marionette.timeout.page_load = 60
            yield Firefox(marionette)
        finally:
            process.terminate()
            process.wait(20)


def _begins(marionette: Any) -> bool:
    try:
        marionette.start_session()
    except (OSError, MarionetteException):
        return False
    return True
