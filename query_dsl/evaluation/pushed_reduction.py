"""Pushdown of reductions into the store: the trees that qualify, and the matrix of the answer.

Answer, notes and errors equal those of the evaluator. A tree that the store cannot reduce, or for which it finds an
error in the query, is evaluated here, from buckets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from artimon.compute.aggregate import Aggregate, AggregateRequest, NotPushed
from artimon.compute.functions import FUNCTIONS
from artimon.compute.ranks import BEST, RANKS
from artimon.compute.reduction import WindowPlan
from artimon.model.grid import Grid
from artimon.model.select import NAME, Buckets, SelectRequest
from query_dsl.evaluation.class_reduction import finish_partial, note_lacking, reduce_classes
from query_dsl.evaluation.execution import QueryExecution
from query_dsl.evaluation.fetches import held_grid, note_unsampled
from query_dsl.evaluation.windows import (
    WindowColumns,
    cut_windows,
    note_approximate,
    note_cut,
    note_gauges,
    note_left_out,
    note_open,
    note_wide,
    open_windows,
    window_columns,
)
from query_dsl.functions.equivalence_classes import class_key
from query_dsl.functions.registry import with_defaults
from query_dsl.functions.tables import REDUCERS
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import Cells, SeriesKey
from query_dsl.stores.engine_store import EngineStore, ForwardingStore
from query_dsl.tree import nodes
from query_dsl.tree.query_errors import QueryError

MAX_PUSHED_SERIES = 2_000_000


@dataclass(frozen=True, slots=True)
class _PushedReduce:
    """Reduction of windows over a fetch; the data is from `offset_ms` before the times that are shown."""

    reduce: nodes.Reduce
    window: nodes.Window
    fetch: nodes.Fetch
    offset_ms: int
    base_step_ms: int | None
    """Step of the fetch below a bucketize."""
    inner_ms: int
    """The part of the offset below the window: its windows are shown that much later."""


def push_down(node: nodes.Reduce, grid: Grid, execution: QueryExecution) -> Matrix | None:
    """Let the store compute the matrix of `node` on `grid`; None if it must be evaluated from buckets."""
    if not execution.store.can_aggregate:
        return None
    pushed = _match(node, grid, execution)
    if pushed is None:
        return None
    try:
        return _aggregate(pushed, grid, execution)
    except NotPushed:
        return None
    except QueryError as problem:
        if problem.of_query:
            return None  # the evaluator raises it, with its position and similar names
        raise


def may_push(node: nodes.Reduce, grid: Grid, execution: QueryExecution) -> bool:
    """True if the store will be asked to reduce `node`."""
    reduces = execution.store.can_aggregate and execution.plan.engine == "memory"
    return reduces and _match(node, grid, execution) is not None


def _match(node: nodes.Reduce, grid: Grid, execution: QueryExecution) -> _PushedReduce | None:
    """Match the pattern reduce(window(fetch)); None for any other tree."""
    if (
        node.rules.nulls == "error"
        or isinstance(node.function, nodes.UserFunction)
        or not REDUCERS[node.function].pushed
    ):
        return None
    if node.function in BEST and not _is_exact_choice(node):
        return None
    child, outer_ms = nodes.below_times(node.child)
    base_step_ms, window = None, None
    if isinstance(child, nodes.Bucketize):
        if child.unit is not None or child.step_ms != grid.step_ms:
            return None
        base_step_ms = execution.plan.base_step_ms
        window = nodes.Window(child.child, child.function, child.step_ms, 0, child.rules, child.max_gap_ms, child.args)
    elif isinstance(child, nodes.Window):
        window = child
    inner_ms = 0
    if window is not None:
        if window.rules.nulls == "error" or window.since or window.function not in FUNCTIONS:  # shards know no others
            return None
        child, inner_ms = nodes.below_times(window.child)
    if not isinstance(child, nodes.Fetch) or child.resolution is not None:
        return None
    if outer_ms % grid.step_ms or inner_ms % (base_step_ms or grid.step_ms):
        return None
    window = window or nodes.Window(child, "last")
    return _PushedReduce(node, window, child, outer_ms + inner_ms, base_step_ms, inner_ms)


def _is_exact_choice(node: nodes.Reduce) -> bool:
    """True if the choice depends on the values alone, not on the order of summation."""
    rank = with_defaults(REDUCERS[str(node.function)], node.args)["rank"]
    return rank in RANKS and node.rules.min_count is None and node.rules.nulls == "skip"


def _aggregate(pushed: _PushedReduce, grid: Grid, execution: QueryExecution) -> Matrix | None:
    earlier = Grid(grid.end_ms - pushed.offset_ms, grid.step_ms, grid.n)
    framed = window_columns(pushed.window, earlier, execution, pushed.base_step_ms)
    ring = execution.plan.level(framed.wide.step_ms)
    if ring is None:
        return None
    held = held_grid(framed.wide, ring)
    if _must_mask(framed, held, execution):
        return None
    found = execution.aggregate(_request(pushed, framed, held))
    counts = found.counts
    numeric = counts.sampled - counts.left_out
    if not counts.selected or (counts.sampled and numeric <= counts.texts):
        return None  # nothing, or nothing but STRING
    keys = [class_key(tuple(sorted(pairs))) for pairs in found.classes]
    if keys and pushed.reduce.by is not None and not all(any(k.get(b) for k in keys) for b in pushed.reduce.by):
        return None  # a label that no series has
    if keys and pushed.reduce.function in BEST:
        chosen = _evaluate_choice(pushed.reduce, grid, found, execution)
        _add_notes(pushed, framed, held, found, keys, execution)
        return chosen
    _add_notes(pushed, framed, held, found, keys, execution)
    return _matrix(pushed.reduce, grid, found, keys)


def _must_mask(framed: WindowColumns, held: Grid, execution: QueryExecution) -> bool:
    """True if windows are NA because the store does not hold them whole, which shards do not know."""
    if execution.plan.partial_windows:
        return False
    first_held, frame = _first_held(framed, held), framed.frame
    cut = cut_windows(frame, first_held)
    unknown = cut & ((frame.ends >= first_held) | (framed.mapper.name == "count"))
    return bool((unknown | open_windows(framed, 0, execution)).any())


def _first_held(framed: WindowColumns, held: Grid) -> int:
    """Return the first column of `framed.wide` that the store holds."""
    return (held.start_ms - framed.wide.start_ms) // held.step_ms


def _request(pushed: _PushedReduce, framed: WindowColumns, held: Grid) -> AggregateRequest:
    frame, wide, rules = framed.frame, framed.wide, pushed.window.rules
    windows = WindowPlan(
        function=framed.mapper.name,
        outputs=len(frame.ends),
        width=frame.width,
        first_end=int(frame.ends[0]),
        each=int(frame.ends[1] - frame.ends[0]) if len(frame.ends) > 1 else 1,
        left=_first_held(framed, held),
        right=(wide.end_ms - held.end_ms) // wide.step_ms,
        max_gap_ms=frame.max_gap_ms,
        min_count=rules.min_count,
        full=rules.nulls == "propagate",
        after=frame.lookahead_ms // wide.step_ms,
        args=pushed.window.args,
    )
    node = pushed.reduce
    matchers = pushed.fetch.selector.matchers
    reducer = REDUCERS[str(node.function)]
    args = tuple(with_defaults(reducer, node.args).items())
    return AggregateRequest(
        matchers, held, windows, reducer.pushed, node.by, node.without, MAX_PUSHED_SERIES, args=args
    )  # fmt: skip


def _evaluate_choice(node: nodes.Reduce, grid: Grid, found: Aggregate, execution: QueryExecution) -> Matrix:
    """Evaluate the choice among the members named by the store. Their notes are dropped: `found` covers all series."""
    alone = execution.with_store(SelectedSeriesStore(execution.store, tuple(found.candidates.tolist())))
    chosen = reduce_classes(node, alone.matrix(node.child, grid, str(node.function)), alone)
    execution.merge_origin(alone)
    return chosen


@dataclass(frozen=True, slots=True)
class SelectedSeriesStore(ForwardingStore):
    """Store wrapper that selects only the series with these fingerprints."""

    store: EngineStore
    fingerprints: tuple[int, ...]

    def select(self, request: SelectRequest) -> Buckets:
        return self.store.select(replace(request, only=self.fingerprints))

    @property
    def can_aggregate(self) -> bool:
        return False


def _add_notes(
    pushed: _PushedReduce,
    framed: WindowColumns,
    held: Grid,
    found: Aggregate,
    keys: list[SeriesKey],
    execution: QueryExecution,
) -> None:
    """Add the same notes as the evaluator, in the same order."""
    counts, mapper = found.counts, framed.mapper
    execution.note(*found.notes)
    execution.partial |= found.partial
    if counts.sampled < counts.selected:
        lacking = counts.selected - counts.sampled
        note_unsampled(pushed.fetch.selector, lacking, counts.selected, found.newest_ms, held, execution)
    if counts.left_out:
        note_left_out(mapper.name, counts.left_out, execution)
    if counts.gauges:
        note_gauges(mapper, counts.gauges, SeriesKey(dict(found.gauge)[NAME], found.gauge[1:]), execution)
    shown = Grid(framed.wide.end_ms + pushed.inner_ms, framed.wide.step_ms, framed.wide.n)
    note_cut(framed, _first_held(framed, held), shown, execution)
    note_open(framed, 0, execution)
    note_wide(mapper, counts.wide, execution)
    note_approximate(mapper, counts.approximate, execution)
    if counts.texts:
        note_left_out(str(pushed.reduce.function), counts.texts, execution)
    if pushed.reduce.by is not None:
        members = found.values.members.tolist()
        for label in pushed.reduce.by:
            note_lacking(label, sum(m for k, m in zip(keys, members, strict=True) if not k.get(label)), execution)


def _matrix(node: nodes.Reduce, grid: Grid, found: Aggregate, keys: list[SeriesKey]) -> Matrix:
    if not keys:
        nothing = np.zeros((0, grid.n), np.int64)
        return Matrix((), grid, Cells(np.zeros(0, np.uint8), nothing, nothing > 0))
    return Matrix.in_order(keys, grid, finish_partial(found.values, REDUCERS[str(node.function)], node.rules))
