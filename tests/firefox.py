"""Debian's Firefox as it is, without a window, driven through its own protocol (Marionette)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from tests.programs import require
from tests.sockets import free_port
from tests.waiting import eventually

START_S, CALL_S = 90, 90
WIDTH, HEIGHT = 1440, 2400
ERRORS = """
const found = Services.console.getMessageArray().filter((one) => one instanceof Ci.nsIScriptError)
  .filter((one) => /^http/.test(one.sourceName) && (!(one.flags & one.warningFlag) || /CSP/.test(one.category)));
Services.console.reset();
return found.map((one) => `${one.category}: ${one.errorMessage}`);
"""
"""Script with the rights of the browser: errors of pages and violations of their content security policy."""


class FirefoxError(Exception):
    """The browser refused a command."""


class Firefox:
    """Session of a running browser with one tab."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._number = connection, 0
        self._answers: BinaryIO = connection.makefile("rb")
        self._read()
        self.call("WebDriver:NewSession", capabilities={})
        self.call("WebDriver:SetWindowRect", width=WIDTH, height=HEIGHT)

    def call(self, command: str, **parameters: Any) -> Any:
        """Return the value of a command. Raises FirefoxError."""
        self._number += 1
        sent = json.dumps([0, self._number, command, parameters])
        self._connection.sendall(f"{len(sent)}:{sent}".encode())  # JSON in ASCII
        _, _, error, result = self._read()
        if error:
            raise FirefoxError(f"{command}: {error['error']}: {error['message']}")
        return result.get("value") if isinstance(result, dict) else result

    def _read(self) -> Any:
        length = b""
        while not length.endswith(b":"):
            one = self._answers.read(1)
            if not one:
                raise FirefoxError("Firefox has closed the connection")
            length += one
        return json.loads(self._answers.read(int(length[:-1])))

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function in the page; waits for a promise that it returns."""
        return self.call("WebDriver:ExecuteScript", script=script, args=arguments, sandbox=None, newSandbox=False)

    def element(self, selector: str) -> str:
        """Return the id of the first element. Raises FirefoxError without one."""
        return str(next(iter(self.call("WebDriver:FindElement", using="css selector", value=selector).values())))

    def errors(self) -> list[str]:
        """Return the errors of the pages since the last call."""
        self.call("Marionette:SetContext", value="chrome")
        try:
            return list(self.run(ERRORS))
        finally:
            self.call("Marionette:SetContext", value="content")


@contextmanager
def firefox() -> Iterator[Firefox]:
    """Start the browser with an empty profile."""
    program, port = require("firefox"), free_port()
    with tempfile.TemporaryDirectory(prefix="artimon-firefox-") as folder:
        (Path(folder) / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
        options = ["--marionette", "--remote-allow-system-access", "--headless", "--no-remote", "--profile", folder]
        environment = {**os.environ, **program.environment, "HOME": folder, "MOZ_HEADLESS": "1"}
        process = subprocess.Popen(
            [str(program.path), *options, "about:blank"],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            with eventually(lambda: _connected(port), "Firefox answers", START_S) as connection:
                yield Firefox(connection)
        finally:
            process.terminate()
            process.wait(20)


def _connected(port: int) -> socket.socket | None:
    with suppress(OSError):
        return socket.create_connection(("127.0.0.1", port), timeout=CALL_S)
    return None
