"""Levels as the planner sees them at a moment, how far back a store reaches, and which level serves a range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

SETTLE_MS = 15_000
SPARE_ROWS = 2
"""Rows that every ring keeps for predecessors, left of its span."""
FINEST_SPARE_ROWS = 17
"""The same for the finest level, where windows start before the range most often."""
ALWAYS_MS = -(2**62)
"""Before any time of a query."""
MANY_POINTS = 1_000
"""A range that no level covers is shown in at most so many points, as long as the step is a week or less."""
_TIMES = (1, 6, 24, 168)
"""Steps beyond the levels, as multiples of the coarsest one: of an hour they are 1 h, 6 h, 1 d and 1 w."""

Engine = Literal["memory", "history", "memory and history", "samples"]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back a store answers. The memory store says nothing of it: as far as its levels."""

    boundless: bool = False
    """Any time, and any multiple of a level's step."""
    levels_first: bool = False
    """The levels are held in memory and preferred where they cover the range; without it all is boundless."""
    any_step: bool = False
    """Buckets of any width, at any end."""
    engine: Engine = "memory"
    real_ms: int | None = None
    """The clock of the store, where a query may be asked as of an earlier time; None: that of the query."""


MEMORY = Reach()


@dataclass(frozen=True, slots=True)
class Ring:
    """A level as the planner sees it at a moment: which buckets it can hold."""

    step_ms: int
    count: int
    newest_ms: int
    """End of the newest settled bucket."""
    spare: int
    head_ms: int | None = None
    """End of the newest settled bucket that the store holds; None: as of the query."""
    boundless: bool = False
    """Whether what the ring does not hold comes from the history."""

    @property
    def span_start_ms(self) -> int:
        """A grid that starts here or later is covered."""
        head = self.newest_ms if self.head_ms is None else self.head_ms
        return head - self.count * self.step_ms

    @property
    def held_start_ms(self) -> int:
        """Nothing at or before this is held, not even as predecessor."""
        return ALWAYS_MS if self.boundless else self.span_start_ms - self.spare * self.step_ms


def rings_of(levels: Sequence[tuple[int, int]], now_ms: int, real_ms: int | None = None) -> tuple[Ring, ...]:
    """The levels as of `now_ms`, finest first; `real_ms`: the store's own time, if it is another."""
    rings = []
    for i, (step, count) in enumerate(levels):
        newest = settled(now_ms, step)
        head = None if real_ms is None else max(newest, settled(real_ms, step))
        rings.append(Ring(step, count, newest, SPARE_ROWS if i else FINEST_SPARE_ROWS, head))
    return tuple(rings)


def settled(now_ms: int, step_ms: int) -> int:
    """End of the newest bucket that is not filling any longer."""
    return (now_ms - SETTLE_MS) // step_ms * step_ms


def beyond(fit: Sequence[Ring], length_ms: int, bound: bool, most: int, now_ms: int) -> Ring:
    """The level for a range of this length that no level covers: the finest of `fit` that would cover it if it ended
    now, else a multiple of the coarsest. `bound`: only levels (a bucketize says the step)."""
    for ring in fit:
        if length_ms <= ring.count * ring.step_ms:
            return replace(ring, boundless=True)
    last = replace(fit[-1], boundless=True)
    if bound:
        return last
    for times in _TIMES:
        step = last.step_ms * times
        if -(-length_ms // step) <= MANY_POINTS:
            break
    else:
        step *= -(-length_ms // (step * most))
    return replace(last, step_ms=step, newest_ms=settled(now_ms, step), head_ms=None)
