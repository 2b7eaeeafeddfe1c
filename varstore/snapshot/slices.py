"""Plan of the time slices in which a period of the raw table is applied, so that open cells fit in memory.

The table is sorted by series, a level by time: a day read in one pass touches every segment of every row. So a period
is read several times if necessary, each time for the newest part of the rest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

BUDGET_BYTES = 1 << 30
HOUR_MS = 3_600_000
LENGTHS_MS = tuple(minutes * 60_000 for minutes in (1440, 720, 480, 240, 120, 60, 30, 15, 10, 5))


class Target(NamedTuple):
    """A level that is filled."""

    step_ms: int
    floor_ms: int
    """Samples at or before this time are too old for the level."""
    segment_bytes: int
    """Bytes of one open segment."""

    def rows(self, after_ms: int, until_ms: int) -> int:
        """Return the number of buckets with samples later than `after_ms`, up to `until_ms`."""
        after_ms = max(after_ms, self.floor_ms)
        return max(0, -(-until_ms // self.step_ms) + (-(after_ms + 1) // self.step_ms) + 1)


class Slice(NamedTuple):
    """Samples later than `after_ms`, up to `until_ms` (None: no limit)."""

    after_ms: int
    until_ms: int | None
    open: tuple[int, ...]
    """Segments of each level that are open meanwhile."""


def plan(start_ms: int, end_ms: int, floor_ms: int, targets: Sequence[Target], segments: int) -> list[Slice]:
    """Return the slices of samples appended in [start, end) and later than `floor_ms`, newest first. The first also
    takes later samples, the last earlier ones. `segments`: number in each row."""
    start_ms = max(start_ms, floor_ms)
    for length in LENGTHS_MS:
        edges = [*range(end_ms, start_ms, -length), start_ms]
        spans = [(after, until) for until, after in pairwise(edges)] or [(floor_ms, end_ms)]
        rows = [tuple(target.rows(*span) for target in targets) for span in spans]
        worst = max(sum(n * target.segment_bytes for n, target in zip(one, targets, strict=True)) for one in rows)
        if worst * segments <= BUDGET_BYTES or length == LENGTHS_MS[-1]:
            break
    last = len(spans) - 1
    return [
        Slice(
            after if i < last else floor_ms, until if i else None, tuple((n + 1) * segments for n in rows[i])
        )  # one more row: the previous period ended inside a bucket
        for i, (after, until) in enumerate(spans)
    ]
