"""Periodic display of a query: redrawn in place on a terminal, appended elsewhere."""

from __future__ import annotations

import select
import shutil
from collections.abc import Callable
from time import monotonic
from typing import TextIO

MIN_PAUSE_S = 1.0
_HOME, _END_OF_LINE, _BELOW, _CLEAR = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"


class Painter:
    """Redraws a text in place if `out` is a terminal; otherwise appends it after an empty line."""

    def __init__(self, out: TextIO, terminal: bool | None = None) -> None:
        self._out = out
        self.terminal = out.isatty() if terminal is None else terminal
        self._has_painted = False

    def size(self) -> tuple[int, int] | None:
        """Return (columns, lines) available for painting; None if `out` is not a terminal."""
        if not self.terminal:
            return None
        columns, lines = shutil.get_terminal_size()
        return columns, max(1, lines - 1)  # the last line stays free for the cursor

    def paint(self, text: str) -> None:
        """Replace the previous text."""
        if not self.terminal:
            self._out.write(("\n" if self._has_painted else "") + text + "\n")
        else:
            size = self.size()
            lines = text.split("\n")
            if size is not None and len(lines) > size[1]:
                lines = [*lines[: size[1] - 1], f"... and {len(lines) - size[1] + 1} more lines"]
            whole = "".join(line + _END_OF_LINE + "\n" for line in lines)
            self._out.write(f"{_HOME if self._has_painted else _CLEAR + _HOME}{whole}{_BELOW}")
        self._has_painted = True
        self._out.flush()


def repeat_query(ask: Callable[[], None], every_s: float) -> None:
    """Call `ask` every `every_s` seconds, with pauses of at least LEAST_S, until it raises (KeyboardInterrupt)."""
    every = max(MIN_PAUSE_S, every_s)
    while True:
        begun = monotonic()
        ask()
        # pause even after an answer slower than the interval, to limit the load on the store
        _pause(max(begun + every - monotonic(), MIN_PAUSE_S))


def _pause(seconds: float) -> None:
    """Sleep for `seconds`. Waiting for an Event handles KeyboardInterrupt poorly."""
    select.select([], [], [], seconds)
