"""An answer that is asked again and again: painted in place on a terminal, block after block elsewhere."""

from __future__ import annotations

import select
import shutil
from collections.abc import Callable
from time import monotonic
from typing import TextIO

LEAST_S = 1.0
DEFAULT_S = 10.0
_HOME, _END_OF_LINE, _BELOW, _CLEAR = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"


class Painter:
    """Writes one text over the one before if `out` is a terminal, below it with an empty line between if not."""

    def __init__(self, out: TextIO, terminal: bool | None = None) -> None:
        self._out = out
        self.terminal = out.isatty() if terminal is None else terminal
        self._painted = False

    def size(self) -> tuple[int, int] | None:
        """(columns, lines) that may be painted; None where there is no end to either."""
        if not self.terminal:
            return None
        columns, lines = shutil.get_terminal_size()
        return columns, max(1, lines - 1)  # the last line stays free for the cursor

    def paint(self, text: str) -> None:
        """Show this in place of the text before."""
        if not self.terminal:
            self._out.write(("\n" if self._painted else "") + text + "\n")
        else:
            size = self.size()
            lines = text.split("\n")
            if size is not None and len(lines) > size[1]:
                lines = [*lines[: size[1] - 1], f"... and {len(lines) - size[1] + 1} more lines"]
            whole = "".join(line + _END_OF_LINE + "\n" for line in lines)
            self._out.write(f"{_HOME if self._painted else _CLEAR + _HOME}{whole}{_BELOW}")
        self._painted = True
        self._out.flush()


def watch(ask: Callable[[], None], every_s: float) -> None:
    """Call `ask` every so many seconds, never sooner than LEAST_S after it has begun, until something is raised:
    KeyboardInterrupt is the usual end."""
    every = max(LEAST_S, every_s)
    while True:
        begun = monotonic()
        ask()
        # an answer that took longer than the time is followed by a pause all the same: others ask too
        _pause(max(begun + every - monotonic(), LEAST_S))


def _pause(seconds: float) -> None:
    """Nothing for so long. An Event would do, but one that is waited for does not take KeyboardInterrupt well."""
    select.select([], [], [], seconds)
