"""Expiry of series that are no longer written.

A series ends only after a poll has read its last value, so no count is lost; a later write through its handle restarts
it. The hot path reads no clock: each poll compares the values with those of the previous poll, and writes to expiring
names take the lock, where even a write of an equal value is noted.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from bookkeeper.variables.cell import UNKNOWN, AnyCell, Double, Integer, LockedDouble, LockedInteger
from bookkeeper.variables.cell_table import CellTable


class Expiry:
    """Names that expire, and the times since which their series are unchanged. Used under the lock of Variables."""

    def __init__(self) -> None:
        self.after_s: dict[str, float] = {}
        """Names that expire, with the seconds without a write after which their series end."""
        self._since: dict[AnyCell, tuple[Any, float]] = {}  # value read by polls, and time of the first such poll
        self.in_use = False

    def watch(self, name: str, after_s: float, cells: list[AnyCell]) -> None:
        """Expire series of that name after `after_s` seconds (<= 0: never). `cells`: its present cells."""
        if after_s <= 0:
            self.after_s.pop(name, None)
            return
        self.after_s[name] = after_s
        self.in_use = True
        for cell in cells:
            if type(cell) is Integer:
                cell.__class__ = LockedInteger
            elif type(cell) is Double:
                cell.__class__ = LockedDouble

    def note_write(self, cell: AnyCell) -> None:
        """Note a write."""
        if self.in_use:
            self._since.pop(cell, None)

    def take_expired(self, table: CellTable) -> list[tuple[AnyCell, int]]:
        """Take the values of expired cells; return these cells with their kinds. Call it right before a poll reads."""
        now, since = monotonic(), self._since
        self._since = {}
        ended = []
        for name, after_s in list(self.after_s.items()):
            for cell in table.cells_of(name):
                if not cell.writable:  # a part of a histogram ends with it
                    continue
                shown = since.get(cell)
                if shown is None or shown[0] is not cell.value:
                    shown = (cell.value, now)
                kind = cell.kind
                if now - shown[1] >= after_s and _last_value(cell, shown[0]):
                    ended.append((cell, kind))
                elif cell.value is not None:
                    self._since[cell] = shown
        return ended

    def forget(self) -> None:
        """Reset in a forked child."""
        self._since.clear()


def _last_value(cell: AnyCell, value: object) -> bool:
    """Take the value unless it has changed meanwhile: no call between check and store."""
    if value is not None and cell.value is value:
        cell.kind = UNKNOWN
        cell.value = None
        return True
    return False
