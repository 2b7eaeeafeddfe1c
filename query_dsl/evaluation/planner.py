"""Plan of a query: its grid, and the level that serves it. Pure: levels, the tree and `now` in, a plan out.

One query has one grid. It ends at the newest multiple of the step that lies `SETTLE_MS` in the past, so that the open
bucket never shows a dip, and uses the finest level whose ring holds the whole range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from artimon.model.grid import Grid
from query_dsl.functions.seasonal_deviation import DEVIATION_WEEKS, WEEK_MS
from query_dsl.stores.levels import (
    MEMORY,
    SETTLE_MS,
    Engine,
    LevelSnapshot,
    StoreReach,
    choose_uncovered,
    level_snapshots,
)
from query_dsl.tree import nodes
from query_dsl.tree.calendar_units import CalendarGrid, CalendarUnit, step_text
from query_dsl.tree.nodes import Node
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_duration, format_time

DEFAULT_RANGE_MS = 600_000
MAX_POINTS = 11_000
"""Maximum number of buckets of the grid of a query."""
FROM_BUCKETS = ("last", "min", "max", "sum", "mean", "count")
"""Window functions that the statistics of one bucket determine completely."""

TimeNode = nodes.Range | nodes.Between | nodes.At
CalendarPlan = tuple[CalendarGrid, tuple[str, ...]]
"""Grid of calendar buckets, and notes on it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The grid of the answer, the rings (finest first), and the step at which fetches below a bucketize read.

    `engine` answers the fetches; `why` is the reason for it and for the level."""

    grid: Grid
    levels: tuple[LevelSnapshot, ...]
    base_step_ms: int
    notes: tuple[str, ...]
    engine: Engine = "memory"
    why: str = ""
    any_step: bool = False
    partial_windows: bool = False
    """True if windows that the store holds in part are answered; else they are NA."""
    is_cut: bool = False
    """True if the grid is the newest part of the range of the query."""

    def level(self, step_ms: int) -> LevelSnapshot | None:
        """Return the level of that step; a boundless store has one for any multiple of its finest step, or any step."""
        for ring in self.levels:
            if ring.step_ms == step_ms:
                return ring
        model = self.levels[-1]
        if not model.unbounded or not (self.any_step or step_ms % self.levels[0].step_ms == 0):
            return None
        return replace(model, step_ms=step_ms, newest_ms=max(model.newest_ms, self.grid.end_ms))


def plan(
    tree: Node,
    levels: Sequence[tuple[int, int]],
    now_ms: int,
    reach: StoreReach = MEMORY,
    partial_windows: bool = False,
) -> Plan:
    """Plan a query. Raises QueryError if its parts need different grids, or a grid that is not possible."""
    if not levels:
        raise QueryError("the store has no levels: is a shard running?")
    wanted, bucketize = _time(tree), _bucketize(tree)
    step_ms = None if bucketize is None else bucketize.step_ms
    rings = level_snapshots(levels, now_ms, reach.store_now_ms)
    try:
        calendar = _calendar(wanted, bucketize, now_ms)
        if _samples_only(tree):
            return _plan_samples(wanted, step_ms, calendar, rings, reach, now_ms)
        steps_ms = (step_ms or 0,) if calendar is None else calendar[0].edges
        fit = [ring for ring in rings if not any(ms % ring.step_ms for ms in steps_ms)]
        if not fit and reach.any_step:
            fit = [replace(rings[0], step_ms=gcd(*steps_ms))]
        if not fit and bucketize is not None:
            steps, asked = ", ".join(format_duration(ring.step_ms) for ring in rings), _step_of(bucketize)
            misfit = (
                "is not a multiple of a level's step" if calendar is None else "ends between the buckets of all levels"
            )
            raise _at_node(bucketize, QueryError(f"bucketize step {asked} {misfit}: {steps}"))
        planned = _plan_levels(tree, wanted, step_ms, calendar, rings, fit, now_ms, reach)
        return replace(planned, partial_windows=partial_windows)
    except QueryError as problem:
        raise _at_node(wanted, problem) from None


def _plan_levels(
    tree: Node,
    wanted: TimeNode | None,
    step_ms: int | None,
    calendar: CalendarPlan | None,
    rings: tuple[LevelSnapshot, ...],
    fit: Sequence[LevelSnapshot],
    now_ms: int,
    reach: StoreReach,
) -> Plan:
    """Plan over the levels; `fit`: the levels whose step divides `step_ms`, if it is given, or the calendar's ends."""
    offset_ms = _look_back_ms(tree, None)
    covered = False
    for ring in fit:
        grid, notes = calendar or _grid(wanted, ring, step_ms, now_ms)
        back = _look_back_ms(tree, ring.step_ms, grid)
        covered = grid.start_ms - offset_ms >= ring.span_start_ms and grid.start_ms - back >= ring.held_start_ms
        if covered:
            break
    if not covered and reach.unbounded:
        length = _length(wanted, now_ms) + _look_back_ms(tree, fit[0].step_ms) - offset_ms
        ring = choose_uncovered(fit, length, step_ms is not None, MAX_POINTS, now_ms)
        grid, notes = calendar or _grid(wanted, ring, step_ms, now_ms)
    if calendar is None:
        _check_ends(wanted, ring, grid.step_ms, now_ms)
    if grid.n > MAX_POINTS:
        raise QueryError(f"the range has {grid.n} buckets of {step_text(grid)}: use at most {MAX_POINTS}")
    raw = any(isinstance(node, nodes.Fetch) and node.resolution is not None for node in nodes.walk(tree))
    past = reach.unbounded and not (covered and reach.prefers_memory and not raw)
    if past:
        rings = tuple(replace(one, unbounded=True) for one in rings)
        rings += () if any(one.step_ms == ring.step_ms for one in rings) else (ring,)
    base_ms = ring.step_ms
    if step_ms is not None and not covered and past:
        base_ms = _whole_step_ms(tree, (step_ms,) if calendar is None else calendar[0].edges) or base_ms
    engine, why = _engine(reach, replace(ring, step_ms=base_ms), covered, raw)
    return Plan(grid, rings, base_ms, notes, engine, why, reach.any_step)


def _whole_step_ms(tree: Node, steps_ms: Sequence[int]) -> int | None:
    """Return the greatest step at which fetches below each bucketize may read the history, which has buckets of a day,
    too; None if a function needs the buckets of a level."""
    step_ms = gcd(*steps_ms)
    for node in nodes.walk(tree):
        if not isinstance(node, nodes.Bucketize):
            continue
        child, offset_ms = nodes.below_times(node.child)
        stored = isinstance(child, nodes.Fetch) and child.resolution is None
        if not stored or node.function not in FROM_BUCKETS or node.rules.nulls != "skip" or offset_ms % step_ms:
            return None
    return step_ms


def _engine(reach: StoreReach, ring: LevelSnapshot, covered: bool, raw: bool) -> tuple[Engine, str]:
    """Return the engine that answers, and the reason for the level."""
    level = format_duration(ring.step_ms)
    if covered:
        why = f"{level} is the finest level that covers the range and its windows"
        if raw:
            why += '; resolution "raw" asks for the history'
    elif not reach.unbounded:
        why = f"no level covers the whole range; {level} reaches furthest"
    else:
        why = f"no level reaches back to the range; {level} suits its length"
    if reach.prefers_memory and (raw or not covered):
        return "memory and history", why
    return reach.engine, why


def _samples_only(tree: Node) -> bool:
    leaves = [node for node in nodes.walk(tree) if isinstance(node, nodes.Fetch | nodes.Samples | nodes.Absent)]
    return bool(leaves) and all(isinstance(node, nodes.Samples) for node in leaves)


def _plan_samples(
    wanted: TimeNode | None,
    step_ms: int | None,
    calendar: CalendarPlan | None,
    rings: Sequence[LevelSnapshot],
    reach: StoreReach,
    now_ms: int,
) -> Plan:
    """Plan for raw samples, which have no levels: the grid is exactly the requested time, in buckets of any step.
    Without a bucketize it is one bucket, which bounds the samples."""
    grid, notes = calendar or _exact_grid(wanted, step_ms, now_ms)
    if grid.n > MAX_POINTS:
        raise QueryError(f"the range has {grid.n} buckets of {step_text(grid)}: use at most {MAX_POINTS}")
    base_ms = grid.step_ms if calendar is None else gcd(*calendar[0].edges)
    ring = LevelSnapshot(base_ms, grid.n, grid.end_ms, 0, unbounded=True)
    engine: Engine = reach.engine if not reach.prefers_memory else "history"
    return Plan(grid, (*rings, ring), ring.step_ms, notes, engine, "raw samples have no level", True)


def _exact_grid(wanted: TimeNode | None, step_ms: int | None, now_ms: int) -> tuple[Grid, tuple[str, ...]]:
    end = now_ms
    length = DEFAULT_RANGE_MS
    notes: tuple[str, ...] = (f"no range given: the last {format_duration(DEFAULT_RANGE_MS)}",)
    match wanted:
        case nodes.Between(start=start, end=until):
            end, notes = until.resolve(now_ms), ()
            length = end - start.resolve(now_ms)
            if length <= 0:
                raise QueryError(f"between: the start does not lie before the end {format_time(end)}")
            if step_ms is not None and not start.relative and not until.relative:
                _check_end("end", end, end - length, step_ms)
        case nodes.At(instant=instant):
            end, length, notes = instant.resolve(now_ms), step_ms or DEFAULT_RANGE_MS, ()
        case nodes.Range(range_ms=range_ms):
            length, notes = range_ms, ()
    if step_ms is None:
        return Grid(end, length, 1), notes
    if not isinstance(wanted, nodes.Between | nodes.At):
        end = end // step_ms * step_ms
    return Grid(end, step_ms, -(-length // step_ms)), notes


def _length(wanted: TimeNode | None, now_ms: int) -> int:
    """Approximate length of the grid in milliseconds."""
    match wanted:
        case nodes.Between(start=start, end=end):
            return max(1, min(now_ms, end.resolve(now_ms)) - start.resolve(now_ms))
        case nodes.Range(range_ms=range_ms):
            return range_ms
        case nodes.At():
            return 1
    return DEFAULT_RANGE_MS


def _time(tree: Node) -> TimeNode | None:
    found = [node for node in nodes.walk(tree) if isinstance(node, TimeNode)]
    for node in found[1:]:
        if _time_text(node) != _time_text(found[0]):
            both = f"{_time_text(found[0])} and {_time_text(node)}"
            raise _at_node(node, QueryError(f"two grids in one query: {both}; say the time once, for all of it"))
    return found[0] if found else None


def _time_text(node: TimeNode) -> str:
    if isinstance(node, nodes.Range):
        return f".range({format_duration(node.range_ms)})"
    if isinstance(node, nodes.Between):
        return f".between({node.start}, {node.end})"
    return f".at({node.instant})"


def _bucketize(tree: Node) -> nodes.Bucketize | None:
    found = [node for node in nodes.walk(tree) if isinstance(node, nodes.Bucketize)]
    for node in found[1:]:
        if (node.step_ms, node.unit) != (found[0].step_ms, found[0].unit):
            both = " and by ".join(map(_step_of, sorted((found[0], node), key=lambda one: one.step_ms)))
            raise _at_node(node, QueryError(f"two grids in one query: bucketize by {both}"))
    return found[0] if found else None


def _step_of(node: nodes.Bucketize) -> str:
    return format_duration(node.step_ms) if node.unit is None else f"{node.unit} in {node.unit.zone}"


def _calendar(wanted: TimeNode | None, bucketize: nodes.Bucketize | None, now_ms: int) -> CalendarPlan | None:
    """Return the grid of calendar buckets, up to the newest that has settled; None if `bucketize` has no unit."""
    if bucketize is None or bucketize.unit is None:
        return None
    unit, newest_ms, notes = bucketize.unit, now_ms - SETTLE_MS, tuple[str, ...]()
    match wanted:
        case nodes.Between(start=start, end=end):
            first, last = start.resolve(now_ms), end.resolve(now_ms)
            if first >= last:
                raise QueryError(f"between: the start does not lie before the end {format_time(last)}")
            for what, asked, ms in (("start", start, first), ("end", end, last)):
                if not asked.relative and ms <= newest_ms:
                    _check_calendar_end(what, ms, unit)
            edges = unit.edges(first, min(last, newest_ms))
        case nodes.At(instant=instant):
            last = unit.start_of(min(instant.resolve(now_ms), newest_ms))
            edges = [unit.start_of(last - 1), last]
        case nodes.Range(range_ms=range_ms):
            edges = _newest_edges(unit, range_ms, newest_ms)
        case None:
            edges, notes = _newest_edges(unit, DEFAULT_RANGE_MS, newest_ms), (f"no range given: the newest {unit}",)
    if len(edges) < 2:
        raise QueryError(f"no bucket of {unit} in {unit.zone} ends in the range yet")
    return CalendarGrid(tuple(edges)), notes


def _newest_edges(unit: CalendarUnit, length_ms: int, newest_ms: int) -> list[int]:
    """Return the edges of the newest units with at least a half in a range, but of one unit at least.

    Days of a zone have 23 to 25 hours."""
    last = unit.start_of(newest_ms)
    edges = unit.edges(last - length_ms - unit.most_ms, last)
    inside = [i for i in range(len(edges) - 1) if (edges[i] + edges[i + 1]) // 2 >= last - length_ms]
    return edges[min(inside, default=len(edges) - 2) :]


def _check_calendar_end(what: str, ms: int, unit: CalendarUnit) -> None:
    """Raise QueryError unless a bucket of the calendar ends at that time."""
    before = unit.start_of(ms)
    if before != ms:
        both = f"{format_time(before)} or {format_time(unit.edges(ms, ms + unit.most_ms)[1])}"
        raise QueryError(
            f"between: no bucket of {unit} in {unit.zone} ends at the {what} {format_time(ms)}: use {both}"
        )


def _at_node(node: Node | None, problem: QueryError) -> QueryError:
    """Return the error with the position of a node."""
    return problem if node is None or node.span is None else problem.with_position(node.span[0], None, node.span[1])


def _look_back_ms(tree: Node, step_ms: int | None, grid: Grid | None = None) -> int:
    """Longest distance from the grid to the data of a leaf, in milliseconds: offsets and, if a step is given, the parts
    of windows before the first bucket."""
    most, waiting = 0, [(tree, 0)]
    while waiting:
        node, back = waiting.pop()
        back += _offset_ms(node)
        if step_ms is not None and isinstance(node, nodes.Window) and node.before_ms is not None:
            back += max(0, node.before_ms - step_ms)
        if step_ms is not None and isinstance(node, nodes.Window) and node.since is not None:
            first_ms = None if grid is None else int(grid.ends()[0]) - back
            back += node.since.most_ms if first_ms is None else first_ms - node.since.start_of(first_ms - 1) - step_ms
        most = max(most, back)
        waiting.extend((child, back) for child in nodes.children(node))
    return most


def _offset_ms(node: Node) -> int:
    """Time by which a node shifts its child into the past, in milliseconds."""
    if isinstance(node, nodes.Offset):
        return node.offset_ms
    if isinstance(node, nodes.Transform) and (node.family, node.function) == ("transform", "shift"):
        return int(dict(node.args)["d"])
    if isinstance(node, nodes.Transform) and node.family == "transform" and node.function in ("corr", "profile"):
        return int(dict(node.args)["window"])
    if isinstance(node, nodes.Transform) and (node.family, node.function) == ("map", "deviation"):
        return int(dict(node.args).get("weeks", DEVIATION_WEEKS)) * WEEK_MS
    return 0


def _grid(
    wanted: TimeNode | None, ring: LevelSnapshot, step_ms: int | None, now_ms: int
) -> tuple[Grid, tuple[str, ...]]:
    step = step_ms or ring.step_ms
    newest = (now_ms - SETTLE_MS) // step * step
    match wanted:
        case nodes.Between():
            return _between(wanted, ring, step, now_ms)
        case nodes.At(instant=instant):
            asked = instant.resolve(now_ms)
            moved = min(asked, newest) // step * step
            note = (f"at {format_time(asked)}: the bucket that ends at {format_time(moved)}",)
            return Grid(moved, step, 1), () if moved == asked or instant.relative else note
        case nodes.Range(range_ms=range_ms):
            return Grid(newest, step, -(-range_ms // step)), ()
    note = (f"no range given: the last {format_duration(DEFAULT_RANGE_MS)}",)
    return Grid(newest, step, -(-DEFAULT_RANGE_MS // step)), note


def _between(wanted: nodes.Between, ring: LevelSnapshot, step: int, now_ms: int) -> tuple[Grid, tuple[str, ...]]:
    """Return the buckets from the start to the end, or to the last settled one. Relative ends move to bucket ends."""
    start_ms, asked = wanted.start.resolve(now_ms), wanted.end.resolve(now_ms)
    if start_ms >= asked:
        raise QueryError(f"between: the start {format_time(start_ms)} does not lie before the end {format_time(asked)}")
    moved = min(asked, ring.newest_ms) // ring.step_ms * ring.step_ms
    n = -(-(moved - start_ms) // step)
    if not wanted.start.relative and (wanted.end.relative or asked > ring.newest_ms):
        n = (moved - start_ms) // step
        moved = start_ms + n * step
    if n <= 0:
        raise QueryError(
            f"between: no bucket of {format_duration(step)} ends in the range yet; the newest that has settled ends at "
            f"{format_time(ring.newest_ms)}"
        )
    notes: tuple[str, ...] = ()
    if moved != asked and not wanted.end.relative:
        notes = (f"the grid ends at {format_time(moved)}, not at {format_time(asked)}: later buckets are still open",)
    return Grid(moved, step, n), notes


def _check_ends(wanted: TimeNode | None, ring: LevelSnapshot, step: int, now_ms: int) -> None:
    """Refuse fixed ends of `between` that are no ends of buckets: the first or last one would hold other samples."""
    if not isinstance(wanted, nodes.Between):
        return
    start_ms, end_ms = wanted.start.resolve(now_ms), wanted.end.resolve(now_ms)
    settled = not wanted.end.relative and end_ms <= ring.newest_ms
    if not wanted.start.relative:
        _check_end("start", start_ms, 0, ring.step_ms)
        if settled:
            _check_end("end", end_ms, start_ms, step)
    if settled:
        _check_end("end", end_ms, 0, ring.step_ms)


def _check_end(what: str, asked: int, origin: int, step: int) -> None:
    """Raise QueryError unless a bucket of that step, counted from `origin`, ends at that time."""
    before = (asked - origin) // step * step + origin
    if before != asked:
        both = f"{format_time(before)} or {format_time(before + step)}"
        raise QueryError(
            f"between: no bucket of {format_duration(step)} ends at the {what} {format_time(asked)}: use {both}"
        )
