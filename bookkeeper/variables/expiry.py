"""Series that end by themselves when nothing writes to them any more.

A series ends only when its last value was read by a poll, so no count is lost; whoever holds its handle and writes
again begins it anew. Nothing on the hot path looks at a clock: each poll compares the values with those of the poll
before, and cells of such names go through the lock, where a write is noted even if it leaves the value as it was.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from bookkeeper.variables.cell import UNKNOWN, AnyCell, Double, Integer, LockedDouble, LockedInteger
from bookkeeper.variables.cell_table import Table


class Expiry:
    """Which names expire, and since when their series are unchanged. Everything under the lock of Variables."""

    def __init__(self) -> None:
        self._after_s: dict[str, float] = {}
        self._since: dict[AnyCell, tuple[Any, float]] = {}  # the value that a poll showed, and when it did so first
        self.in_use = False

    @property
    def names(self) -> int:
        """How many names expire."""
        return len(self._after_s)

    def watches(self, name: str) -> bool:
        """Whether series of that name expire."""
        return name in self._after_s

    def watch(self, name: str, after_s: float, cells: list[AnyCell]) -> None:
        """Series of that name, of which `cells` are the present ones, end after so many seconds; not above 0: never."""
        if after_s <= 0:
            self._after_s.pop(name, None)
            return
        self._after_s[name] = after_s
        self.in_use = True
        for cell in cells:
            if type(cell) is Integer:
                cell.__class__ = LockedInteger
            elif type(cell) is Double:
                cell.__class__ = LockedDouble

    def touch(self, cell: AnyCell) -> None:
        """It is being written."""
        if self.in_use:
            self._since.pop(cell, None)

    def after_s(self, name: str) -> float | None:
        """After how long series of that name end."""
        return self._after_s.get(name)

    def due(self, table: Table) -> list[tuple[AnyCell, int]]:
        """What ends now, its values taken away, and of what kind it was. To be called right before a poll reads."""
        now, since = monotonic(), self._since
        self._since = {}
        ended = []
        for name, after_s in list(self._after_s.items()):
            for cell in table.of(name):
                if not cell.writable:  # a part of a histogram ends with it
                    continue
                shown = since.get(cell)
                if shown is None or shown[0] is not cell.value:
                    shown = (cell.value, now)
                kind = cell.kind
                if now - shown[1] >= after_s and _taken(cell, shown[0]):
                    ended.append((cell, kind))
                elif cell.value is not None:
                    self._since[cell] = shown
        return ended

    def forget(self) -> None:
        """In a forked child."""
        self._since.clear()


def _taken(cell: AnyCell, value: object) -> bool:
    """Takes the value away, unless it has changed by now: no call between the look and the store."""
    if value is not None and cell.value is value:
        cell.kind = UNKNOWN
        cell.value = None
        return True
    return False
