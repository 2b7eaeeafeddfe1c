"""Progress of a long query: a line on a terminal, a bar in a notebook, nothing elsewhere."""

from __future__ import annotations

import html
import sys
from time import monotonic
from typing import Any, TextIO

DELAY_S = 0.5
"""Delay before the first display; shorter queries show nothing."""
REFRESH_S = 0.1
WIDTH = 30


class ProgressBar:
    """Progress bar: call it with the fraction done, 0 to 1, and a text. A context manager that clears it at the end.

    Not thread-safe."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._begun = self._shown_at = monotonic()
        self._display: NotebookDisplay | TerminalDisplay | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.clear()
            self._display = None

    def __call__(self, done: float, text: str) -> None:
        now = monotonic()
        if now - self._begun < DELAY_S or (self._display is not None and now - self._shown_at < REFRESH_S):
            return
        self._shown_at = now
        if self._display is None:
            self._display = NotebookDisplay() if in_notebook() else TerminalDisplay(self._out)
        self._display.show(min(1.0, max(0.0, done)), text)


class TerminalDisplay:
    """One line that overwrites itself; nothing if the output is not a terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._width = out, 0
        self._is_tty = out.isatty()

    def show(self, done: float, text: str) -> None:
        if self._is_tty:
            full = int(done * WIDTH)
            self._write(f"[{'#' * full}{'.' * (WIDTH - full)}] {done:4.0%} {text}")

    def clear(self) -> None:
        if self._width:
            self._write("")
            self._out.write("\r")
            self._out.flush()

    def _write(self, text: str) -> None:
        self._out.write(f"\r{text:<{self._width}}")
        self._out.flush()
        self._width = len(text)


class NotebookDisplay:
    """One HTML element that is updated in place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, done: float, text: str) -> None:
        self._display(f'<progress value="{done:.3f}" max="1"></progress> {done:.0%} {html.escape(text)}')

    def clear(self) -> None:
        self._display("")

    def _display(self, page: str) -> None:
        from IPython import display

        library: Any = display  # its functions have no types
        if self._handle is None:
            self._handle = library.display(library.HTML(page), display_id=True)
        else:
            self._handle.update(library.HTML(page))


def ipython_shell() -> Any:
    """Return the IPython shell that runs this code, None in plain Python. Never imports IPython itself."""
    ipython: Any = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def in_notebook() -> bool:
    """True if a Jupyter kernel runs this code, not a terminal."""
    return type(ipython_shell()).__name__ == "ZMQInteractiveShell"
