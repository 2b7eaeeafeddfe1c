"""Levels as the planner sees them at one time, the reach of a store, and the choice of a level for a range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

SETTLE_MS = 15_000
SPARE_ROWS = 2
"""Extra rows of every ring before its span, for predecessors."""
FINEST_SPARE_ROWS = 17
"""Extra rows of the finest level, where windows start before the range most often."""
ALWAYS_MS = -(2**62)
"""Time before that of any query."""
MAX_COARSE_POINTS = 1_000
"""Maximum number of points of a range that no level covers, for steps up to a week."""
_TIMES = (1, 6, 24, 168)
"""Steps beyond the levels, as multiples of the coarsest one: for an hour they are 1 h, 6 h, 1 d and 1 w."""

Engine = Literal["memory", "history", "memory and history", "samples"]


@dataclass(frozen=True, slots=True)
class StoreReach:
    """Reach of a store into the past. The defaults are those of the memory store: as far as its levels."""

    unbounded: bool = False
    """True if any time can be queried, and any multiple of a level's step."""
    prefers_memory: bool = False
    """True if levels are held in memory and preferred where they cover the range; only for a boundless store."""
    any_step: bool = False
    """True if buckets may have any width and any end."""
    engine: Engine = "memory"
    store_now_ms: int | None = None
    """Current time of the store, for queries as of an earlier time; None: the time of the query."""


MEMORY = StoreReach()


@dataclass(frozen=True, slots=True)
class LevelSnapshot:
    """Buckets that a level can hold, as the planner sees it at one time."""

    step_ms: int
    count: int
    newest_ms: int
    """End of the newest settled bucket."""
    spare: int
    head_ms: int | None = None
    """End of the newest settled bucket that the store holds; None: `newest_ms`."""
    unbounded: bool = False
    """True if the history supplies the buckets that the ring does not hold."""

    @property
    def span_start_ms(self) -> int:
        """Earliest start of a grid that the level covers."""
        head = self.newest_ms if self.head_ms is None else self.head_ms
        return head - self.count * self.step_ms

    @property
    def held_start_ms(self) -> int:
        """Time at and before which no bucket is held, not even as predecessor."""
        return ALWAYS_MS if self.unbounded else self.ring_start_ms

    @property
    def ring_start_ms(self) -> int:
        """Time at and before which the memory of the level holds no bucket."""
        return self.span_start_ms - self.spare * self.step_ms

    def holds(self, start_ms: int) -> bool:
        """True if the memory of the level holds everything from a time on."""
        return start_ms >= self.ring_start_ms


def level_snapshots(
    levels: Sequence[tuple[int, int]], now_ms: int, real_ms: int | None = None
) -> tuple[LevelSnapshot, ...]:
    """Return the levels as of `now_ms`, finest first; `real_ms`: the current time of the store, if different."""
    rings = []
    for i, (step, count) in enumerate(levels):
        newest = last_settled_ms(now_ms, step)
        head = None if real_ms is None else max(newest, last_settled_ms(real_ms, step))
        rings.append(LevelSnapshot(step, count, newest, SPARE_ROWS if i else FINEST_SPARE_ROWS, head))
    return tuple(rings)


def last_settled_ms(now_ms: int, step_ms: int) -> int:
    """End of the newest bucket that no longer fills: SETTLE_MS after its end."""
    return (now_ms - SETTLE_MS) // step_ms * step_ms


def choose_uncovered(
    fit: Sequence[LevelSnapshot], length_ms: int, bound: bool, most: int, now_ms: int
) -> LevelSnapshot:
    """Choose the level for a range of this length that no level covers: the finest of `fit` that would cover it if it
    ended now, else a multiple of the coarsest. `bound`: only levels, because a bucketize sets the step."""
    for ring in fit:
        if length_ms <= ring.count * ring.step_ms:
            return replace(ring, unbounded=True)
    last = replace(fit[-1], unbounded=True)
    if bound:
        return last
    for times in _TIMES:
        step = last.step_ms * times
        if -(-length_ms // step) <= MAX_COARSE_POINTS:
            break
    else:
        step *= -(-length_ms // (step * most))
    return replace(last, step_ms=step, newest_ms=last_settled_ms(now_ms, step), head_ms=None)
