"""Sets of batch numbers as ranges, by lane: the batches that a store has received.

A lane numbers its batches without gaps, so a complete set is one range; each missing number costs one more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class LaneId(NamedTuple):
    """Lane: a numbered sequence of batches of one agent and one epoch of its log."""

    agent: str
    epoch: int
    lane: int

    def __str__(self) -> str:
        return f"{self.epoch:016x}/{self.lane}/{self.agent}"

    @classmethod
    def parse(cls, text: str) -> LaneId:
        """Inverse of `str`."""
        epoch, lane, agent = text.split("/", 2)
        return cls(agent, int(epoch, 16), int(lane))


class RangeSet:
    """Set of non-negative integers as sorted, disjoint, non-adjacent half-open ranges."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add_range(start, end)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends, strict=True))

    def __len__(self) -> int:
        """Number of ranges, not of numbers."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def add(self, number: int) -> bool:
        """Add one number; False if it was there."""
        ends = self._ends
        if ends and number == ends[-1]:  # the common case: the next number of the lane
            ends[-1] = number + 1
            return True
        if number in self:
            return False
        self.add_range(number, number + 1)
        return True

    def add_range(self, start: int, end: int) -> None:
        """Add every number of [start, end)."""
        if end <= start:
            return
        # every range that overlaps or touches [start, end) is merged into it
        low = bisect_right(self._ends, start - 1)
        high = bisect_right(self._starts, end)
        if low < high:
            start = min(start, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def update(self, other: RangeSet) -> None:
        """Add every number of `other`."""
        for start, end in other:
            self.add_range(start, end)

    def copy(self) -> RangeSet:
        fresh = RangeSet()
        fresh._starts, fresh._ends = self._starts[:], self._ends[:]
        return fresh

    def count(self) -> int:
        """Return the number of integers in the set."""
        return sum(self._ends) - sum(self._starts)


class LaneRanges:
    """Batch numbers received, by lane."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: dict[LaneId, RangeSet] = {}

    def contains(self, lane: LaneId, sequence: int) -> bool:
        ranges = self._lanes.get(lane)
        return ranges is not None and sequence in ranges

    def add(self, lane: LaneId, sequence: int) -> bool:
        """Add one number; False if it was there."""
        ranges = self._lanes.get(lane)
        if ranges is None:
            ranges = self._lanes[lane] = RangeSet()
        return ranges.add(sequence)

    def add_range(self, lane: LaneId, start: int, end: int) -> None:
        """Add every number of [start, end) to a lane."""
        self._lanes.setdefault(lane, RangeSet()).add_range(start, end)

    def update(self, other: LaneRanges) -> None:
        for lane, ranges in other._lanes.items():
            self._lanes.setdefault(lane, RangeSet()).update(ranges)

    def copy(self) -> LaneRanges:
        fresh = LaneRanges()
        fresh._lanes = {lane: ranges.copy() for lane, ranges in self._lanes.items()}
        return fresh

    def lanes(self) -> Iterator[LaneId]:
        return iter(self._lanes)

    def forget(self, lane: LaneId) -> None:
        self._lanes.pop(lane, None)

    def __getitem__(self, lane: LaneId) -> RangeSet:
        return self._lanes[lane]

    def __len__(self) -> int:
        return len(self._lanes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaneRanges) and self._lanes == other._lanes

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> dict[str, list[list[int]]]:
        return {str(lane): [[a, b] for a, b in ranges] for lane, ranges in sorted(self._lanes.items())}

    @classmethod
    def from_json(cls, data: dict[str, list[list[int]]]) -> LaneRanges:
        fresh = cls()
        for text, ranges in data.items():
            fresh._lanes[LaneId.parse(text)] = RangeSet((a, b) for a, b in ranges)
        return fresh
