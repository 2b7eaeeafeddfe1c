"""Queue of open or patched segments of closed rows, least recently written first, for packing."""

from __future__ import annotations

from collections.abc import Iterable

MOST_UNPACKED = 128
"""Limit of such segments of a level, 1 to 2.6 MB each; or four times the segments of a row, if that is more."""
Place = tuple[int, int]
"""Bucket number and segment."""


class Unpacked:
    """Packing queue of one level. Not locked: the owner's lock guards it."""

    def __init__(self) -> None:
        self._written: dict[Place, int] = {}  # head of the level when last written, oldest first
        self.spare = 0
        """Number of segments that writes leave unpacked: see `Ring.leave_unpacked`."""

    def write(self, place: Place, head_ms: int) -> None:
        """Move a written segment to the end of the queue."""
        self._written.pop(place, None)
        self._written[place] = head_ms

    def patch(self, place: Place, head_ms: int) -> None:
        """Queue a packed segment with a large patch for packing again; a queued one keeps its position."""
        self._written.setdefault(place, head_ms)

    def forget(self, number: int, segments: Iterable[int]) -> None:
        """Remove segments that were packed, or whose row was dropped."""
        for segment in segments:
            self._written.pop((number, segment), None)

    def due(self, head_ms: int, step_ms: int, finest_ms: int, open_rows: int) -> Place | None:
        """Return a segment of a past bucket that was not written for a step of the finest level; None: none."""
        for (number, segment), written_ms in self._written.items():
            if written_ms > head_ms - finest_ms:
                return None
            if number * step_ms + open_rows * finest_ms <= head_ms:
                return number, segment
        return None

    def surplus(self, segments: int) -> int:
        """Number of segments over the limit if rows have `segments` segments; 0 or less: none."""
        return len(self._written) - max(MOST_UNPACKED, 4 * segments)

    def may_be_packed(self) -> bool:
        """True if the queue is longer than `spare`."""
        return len(self._written) > self.spare

    def oldest(self) -> Place:
        """Return the least recently written segment; the queue must not be empty."""
        return next(iter(self._written))
