"""Segments of closed rows that are open, or patched, in the order in which something came for them: which is packed
next."""

from __future__ import annotations

from collections.abc import Iterable

MOST_UNPACKED = 128
"""Open segments of closed rows of a level, 1 to 2.6 MB each; and four times as many as a row has, if that is more."""
Place = tuple[int, int]
"""Bucket number and segment."""


class Unpacked:
    """Of one level. Not locked: the owner's lock guards it."""

    def __init__(self) -> None:
        self._written: dict[Place, int] = {}  # head of the level when last written, oldest first
        self.spare = 0
        """So many are left alone, for a while: see `Ring.leave_unpacked`."""

    def write(self, place: Place, head_ms: int) -> None:
        """Something came for it: it is now the last one."""
        self._written.pop(place, None)
        self._written[place] = head_ms

    def patch(self, place: Place, head_ms: int) -> None:
        """It is packed, and so much of it changed that it is to be packed again; it keeps its turn."""
        self._written.setdefault(place, head_ms)

    def forget(self, number: int, segments: Iterable[int]) -> None:
        """A row is gone, or a segment packed."""
        for segment in segments:
            self._written.pop((number, segment), None)

    def due(self, head_ms: int, step_ms: int, finest_ms: int, open_rows: int) -> Place | None:
        """One of a bucket that is over, to which nothing came for a step of the finest level."""
        for (number, segment), written_ms in self._written.items():
            if written_ms > head_ms - finest_ms:
                return None
            if number * step_ms + open_rows * finest_ms <= head_ms:
                return number, segment
        return None

    def surplus(self, segments: int) -> int:
        """How many there are too many, of a level whose rows have so many segments; at most 0: none."""
        return len(self._written) - max(MOST_UNPACKED, 4 * segments)

    def may_be_packed(self) -> bool:
        """Whether there are more than those that are left alone."""
        return len(self._written) > self.spare

    def oldest(self) -> Place:
        """That to which nothing came for longest; there must be one."""
        return next(iter(self._written))
