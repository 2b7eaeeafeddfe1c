"""Which grid a query has and which level serves it. Pure: levels, the tree and `now` in, a plan out.

One query has one grid. It ends at the newest multiple of the step that lies `SETTLE_MS` in the past, so that the bucket
which is still filling never shows a dip, and uses the finest level whose ring holds the whole range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from artimon.model.grid import Grid
from query_dsl import nodes
from query_dsl.errors import QueryError
from query_dsl.nodes import Node
from query_dsl.timing import Instant, format_duration, format_time

SETTLE_MS = 15_000
DEFAULT_RANGE_MS = 600_000
MAX_POINTS = 11_000
SPARE_ROWS = 2
"""Rows that every ring keeps for predecessors, left of its span."""
FINEST_SPARE_ROWS = 17
"""The same for the finest level, where windows start before the range most often."""

TimeNode = nodes.Range | nodes.Between | nodes.At


@dataclass(frozen=True, slots=True)
class Ring:
    """A level as the planner sees it at a moment: which buckets it can hold."""

    step_ms: int
    count: int
    newest_ms: int
    """End of the newest settled bucket."""
    spare: int

    @property
    def span_start_ms(self) -> int:
        """A grid that starts here or later is covered."""
        return self.newest_ms - self.count * self.step_ms

    @property
    def held_start_ms(self) -> int:
        """Nothing at or before this is held, not even as predecessor."""
        return self.span_start_ms - self.spare * self.step_ms


@dataclass(frozen=True, slots=True)
class Plan:
    """The grid of the answer, the rings (finest first), and the step at which fetches below a bucketize read."""

    grid: Grid
    rings: tuple[Ring, ...]
    base_step_ms: int
    notes: tuple[str, ...]

    def ring(self, step_ms: int) -> Ring | None:
        return next((ring for ring in self.rings if ring.step_ms == step_ms), None)


def plan(tree: Node, levels: Sequence[tuple[int, int]], now_ms: int) -> Plan:
    """The plan of a query; QueryError if its parts ask for different grids, or for one that cannot be."""
    if not levels:
        raise QueryError("the store has no levels: is a shard running?")
    wanted, step_ms = _time(tree), _step(tree)
    rings = tuple(
        Ring(step, count, (now_ms - SETTLE_MS) // step * step, SPARE_ROWS if i else FINEST_SPARE_ROWS)
        for i, (step, count) in enumerate(levels)
    )
    fit = [ring for ring in rings if step_ms is None or step_ms % ring.step_ms == 0]
    if not fit:
        steps = ", ".join(format_duration(ring.step_ms) for ring in rings)
        raise QueryError(f"bucketize step {format_duration(step_ms or 0)} is no multiple of a level's step: {steps}")
    back = _most_offset(tree)
    for ring in fit:
        grid, notes = _grid(wanted, ring, step_ms, now_ms)
        if grid.start_ms - back >= ring.span_start_ms:
            break
    if grid.n > MAX_POINTS:
        raise QueryError(f"the range has {grid.n} buckets of {format_duration(grid.step_ms)}: use at most {MAX_POINTS}")
    return Plan(grid, rings, ring.step_ms, notes)


def _time(tree: Node) -> TimeNode | None:
    found = [node for node in nodes.walk(tree) if isinstance(node, TimeNode)]
    for node in found[1:]:
        if _asked(node) != _asked(found[0]):
            raise QueryError(
                f"two grids in one query: {_asked(found[0])} and {_asked(node)}; say the time once, for all of it",
                *(node.span or (None,))[:1],
            )
    return found[0] if found else None


def _asked(node: TimeNode) -> str:
    if isinstance(node, nodes.Range):
        return f".range({format_duration(node.range_ms)})"
    if isinstance(node, nodes.Between):
        return f".between({node.start}, {node.end})"
    return f".at({node.instant})"


def _step(tree: Node) -> int | None:
    steps = {node.step_ms for node in nodes.walk(tree) if isinstance(node, nodes.Bucketize)}
    if len(steps) > 1:
        raise QueryError(f"two grids in one query: bucketize by {' and by '.join(map(format_duration, sorted(steps)))}")
    return next(iter(steps), None)


def _most_offset(tree: Node) -> int:
    """The furthest that any leaf is shifted."""
    most, waiting = 0, [(tree, 0)]
    while waiting:
        node, offset = waiting.pop()
        offset += node.offset_ms if isinstance(node, nodes.Offset) else 0
        most = max(most, offset)
        waiting.extend((child, offset) for child in nodes.children(node))
    return most


def _grid(wanted: TimeNode | None, ring: Ring, step_ms: int | None, now_ms: int) -> tuple[Grid, tuple[str, ...]]:
    step = step_ms or ring.step_ms
    newest = (now_ms - SETTLE_MS) // step * step
    match wanted:
        case nodes.Between(start=start, end=end):
            return _between(start.resolve(now_ms), end, ring, step, now_ms)
        case nodes.At(instant=instant):
            asked = instant.resolve(now_ms)
            moved = min(asked, newest) // step * step
            note = (f"at {format_time(asked)}: the bucket that ends at {format_time(moved)}",)
            return Grid(moved, step, 1), () if moved == asked or instant.relative else note
        case nodes.Range(range_ms=range_ms):
            return Grid(newest, step, -(-range_ms // step)), ()
    note = (f"no range given: the last {format_duration(DEFAULT_RANGE_MS)}",)
    return Grid(newest, step, -(-DEFAULT_RANGE_MS // step)), note


def _between(start_ms: int, end: Instant, ring: Ring, step: int, now_ms: int) -> tuple[Grid, tuple[str, ...]]:
    asked = end.resolve(now_ms)
    if start_ms >= asked:
        raise QueryError(f"between: the start {format_time(start_ms)} does not lie before the end {format_time(asked)}")
    moved = min(asked, ring.newest_ms) // ring.step_ms * ring.step_ms
    notes: tuple[str, ...] = ()
    if moved != asked and not end.relative:
        why = (
            "later buckets are still open" if asked > ring.newest_ms else f"buckets of {format_duration(ring.step_ms)}"
        )
        notes = (f"the grid ends at {format_time(moved)}, not at {format_time(asked)}: {why}",)
    if moved <= start_ms:
        raise QueryError(f"between: no bucket of {format_duration(step)} ends in the range yet")
    return Grid(moved, step, -(-(moved - start_ms) // step)), notes
