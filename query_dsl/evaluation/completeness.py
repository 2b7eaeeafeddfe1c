"""Completeness of what a query in either language reads over its range; the query is not evaluated."""

from __future__ import annotations

from collections.abc import Iterator

from artimon.model.grid import Grid
from artimon.model.select import Buckets, Matcher, Store
from query_dsl.evaluation.evaluator import QueryEvaluator, prepare
from query_dsl.evaluation.fetches import fetches_of, held_grid, level_of
from query_dsl.language.expression import Expr
from query_dsl.promql.evaluation_context import LOOK_BACK_MS
from query_dsl.promql.similar_names import similar_matchers
from query_dsl.promql.tree import At, Node, Query, Selector, Subquery, children
from query_dsl.results.expected_points import LEAST_COLUMNS, Completeness, completeness_of
from query_dsl.stores.levels import LevelSnapshot, level_snapshots
from query_dsl.stores.query_limits import QueryBudget, limited_select
from query_dsl.tree.query_errors import NothingHeld


def measure_completeness(query: str | Expr, store: Store, now_ms: int, watch: QueryBudget) -> Completeness:
    """Measure the completeness of what the query reads, over its range. Raises QueryError, SelectError."""
    return measure_prepared(prepare(query, store, now_ms, watch))


def measure_prepared(evaluator: QueryEvaluator) -> Completeness:
    plan = evaluator.plan
    grid, step_ms = plan.grid, max(ring.step_ms for ring in plan.levels if not plan.base_step_ms % ring.step_ms)
    columns = max(1, (grid.end_ms - grid.start_ms) // step_ms)
    found: list[tuple[Buckets, int]] = []
    for node, offset_ms in fetches_of(evaluator.tree):
        moved = Grid((grid.end_ms - offset_ms) // step_ms * step_ms, step_ms, columns)
        try:
            held = held_grid(moved, level_of(moved, "ask with another step", evaluator))
        except NothingHeld:
            continue
        buckets = evaluator.select(node.selector.matchers, held, ("count",), node.resolution is not None)
        found.append((buckets, 0))
    return completeness_of(found)


def measure_promql(
    query: Query,
    store: Store,
    now_ms: int,
    start_ms: int,
    end_ms: int,
    budget: QueryBudget,
    *,
    look_back_ms: int = LOOK_BACK_MS,
    similar_names: bool = False,
) -> Completeness:
    """Measure the completeness of what a query in PromQL reads from memory for its steps from start to end: each
    selector with its range, else the look-back. Options as of `query_store`. Raises QueryError, SelectError."""
    levels, found, whole = level_snapshots(store.levels(), now_ms), list[tuple[Buckets, int]](), (start_ms, end_ms)
    for matchers, after_ms, until_ms in dict.fromkeys(_ranges(query.node, whole, whole, look_back_ms)):
        ring = next((one for one in levels if one.holds(after_ms)), levels[-1])
        held = _held(ring, after_ms, until_ms)
        if held is not None:
            wanted = similar_matchers(matchers) if similar_names else matchers
            found.append((limited_select(store, wanted, held[0], ("count",), budget), held[1]))
    return completeness_of(found)


def _held(ring: LevelSnapshot, after_ms: int, until_ms: int) -> tuple[Grid, int] | None:
    """Return the settled buckets that a level holds of a range, after those from which a short range has the periods of
    its series, and the number of the latter; None if it holds none."""
    step_ms, first = ring.step_ms, max(after_ms // ring.step_ms * ring.step_ms, ring.ring_start_ms)
    end_ms = min(-(-until_ms // step_ms) * step_ms, ring.newest_ms)
    if first >= end_ms:
        return None
    start_ms = max(min(first, end_ms - LEAST_COLUMNS * step_ms), ring.ring_start_ms)
    return Grid(end_ms, step_ms, (end_ms - start_ms) // step_ms), (first - start_ms) // step_ms


Times = tuple[int, int]
"""First and last evaluation of a node, epoch ms."""
_Range = tuple[tuple[Matcher, ...], int, int]


def _ranges(node: Node, times: Times, whole: Times, look_back_ms: int) -> Iterator[_Range]:
    """Yield the matchers of each selector with the range (after, until] that it reads."""
    if isinstance(node, Selector):
        first, last = _shifted(times, whole, node.offset_ms, node.at)
        yield node.matchers, first - (node.range_ms or look_back_ms), last
        return
    if isinstance(node, Subquery):
        first, last = _shifted(times, whole, node.offset_ms, node.at)
        times = first - node.range_ms, last
    for child in children(node):
        yield from _ranges(child, times, whole, look_back_ms)


def _shifted(times: Times, whole: Times, offset_ms: int, at: At | None) -> Times:
    """Return the times of the data, as `Context.shifted`."""
    if at is not None:
        fixed = {"start": whole[0], "end": whole[1]}.get(at.edge, at.time_ms) or 0
        times = fixed, fixed
    return times[0] - offset_ms, times[1] - offset_ms
