"""Evaluator and its entry points: each node of a tree is evaluated on an exact grid.

The value of a node is a matrix on the grid; over `samples` it is raw series with times in (start, end] of the grid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from time import perf_counter

import numpy as np

from artimon.compute.checkpoint import enforced
from artimon.model.grid import Grid
from artimon.model.select import Store
from query_dsl.evaluation.bucketize import bucketize_data, bucketize_samples
from query_dsl.evaluation.calendar_buckets import equal_runs, join_columns
from query_dsl.evaluation.class_reduction import reduce_classes
from query_dsl.evaluation.defaults import Operand, constant_series, empty_operand
from query_dsl.evaluation.execution import (
    Answer,
    NodeCost,
    QueryExecution,
    TimedScalar,
    Value,
    grid_required,
    to_scalar,
)
from query_dsl.evaluation.fetches import evaluate_absent, fetch_data
from query_dsl.evaluation.newest_buckets import cut_to_newest
from query_dsl.evaluation.newest_times import read_newest_times
from query_dsl.evaluation.operands import combine_operands, combine_udf
from query_dsl.evaluation.planner import plan
from query_dsl.evaluation.pushed_reduction import push_down
from query_dsl.evaluation.windows import mapper_of, replaces_times, run_at_samples, run_window
from query_dsl.functions.join import check_distinct
from query_dsl.functions.registry import PointContext, with_defaults
from query_dsl.functions.step import NewestTimes, StepCall
from query_dsl.functions.tables import POINTS, STEPS
from query_dsl.functions.transforms_labels import name_by_labels
from query_dsl.functions.transforms_samples import shift_samples
from query_dsl.language.expression import Expr
from query_dsl.language.parser import parse
from query_dsl.results.bucket_data import BucketData, from_cells
from query_dsl.results.matrix import Matrix
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import BOOLEAN, Cells, doubles, of_type
from query_dsl.stores.empty_selection import explain_empty
from query_dsl.stores.engine_store import as_engine_store
from query_dsl.stores.levels import ALWAYS_MS
from query_dsl.stores.query_limits import Limits, QueryBudget, make_budget
from query_dsl.tree import nodes
from query_dsl.tree.calendar_units import CalendarGrid
from query_dsl.tree.literals import checked_int64
from query_dsl.tree.nodes import Binary, Node
from query_dsl.tree.query_errors import NothingHeld, NothingSelected, QueryError
from query_dsl.tree.times import format_duration, format_time

# --- entry points


def evaluate(
    query: str | Expr,
    store: Store,
    now_ms: int,
    check: Callable[[], None] | None = None,
    limits: Limits | None = None,
    stop: threading.Event | None = None,
    partial_windows: bool = False,
) -> Matrix:
    """Return the answer to a query at `now_ms`: series on a grid. Raises SelectError of the store, or QueryError, as
    LimitExceeded beyond one of the `limits` and QueryCancelled once `stop` is set.

    `check` is called before each node and often while the store answers; it may raise to end the evaluation.
    Windows that the store does not hold whole are NA; `partial_windows` answers them from what is held."""
    return require_matrix(answer(query, store, now_ms, check, limits, stop, partial_windows))


def answer(
    query: str | Expr,
    store: Store,
    now_ms: int,
    check: Callable[[], None] | None = None,
    limits: Limits | None = None,
    stop: threading.Event | None = None,
    partial_windows: bool = False,
) -> Answer:
    """Evaluate like `evaluate`, but return raw samples if the query yields them."""
    return prepare(query, store, now_ms, make_budget(limits, check, stop), partial_windows).answer()


def prepare(
    query: str | Expr,
    store: Store,
    now_ms: int,
    watch: QueryBudget,
    partial_windows: bool = False,
    newest: int | None = None,
) -> QueryEvaluator:
    """Plan a query and return its evaluator, of the `newest` buckets only if that gives the same values. Raises
    QueryError, SelectError."""
    expr = read_query(query)
    try:
        own = as_engine_store(store).watching(watch)
        planned = cut_to_newest(plan(expr.node, own.levels(), now_ms, own.reach(), partial_windows), expr.node, newest)
    except QueryError as problem:
        _attach_position(problem, expr.node)
        _attach_text(problem, expr.text)
        raise
    evaluator = QueryEvaluator(own, planned, expr.node, expr.text, now_ms, watch)
    evaluator.note(*planned.notes)
    return evaluator


def read_query(query: str | Expr) -> Expr:
    """Parse a text; return an expression as it is. Raises QueryError."""
    return _parsed(query) if isinstance(query, str) else query


@lru_cache(maxsize=64)
def _parsed(text: str) -> Expr:
    """Parse a text. Cached, because dashboards and rules repeat the same queries."""
    return parse(text)


def require_matrix(found: Answer) -> Matrix:
    """Return the matrix. Raises QueryError for raw samples."""
    if isinstance(found, Matrix):
        return found
    raise QueryError('the query gives raw samples, which have no grid: say .bucketize("last", "1m") at its end')


def _attach_text(problem: QueryError, text: str | None) -> None:
    """Attach the query text to an error that has a position but no text."""
    if problem.text is None and problem.position is not None:
        problem.text = text


def _attach_position(problem: QueryError, node: Node) -> None:
    """Set the position of the error to that of the node, unless it has one already."""
    if node.span is not None:
        problem.with_position(node.span[0], None, node.span[1])


# --- the evaluator


class QueryEvaluator(QueryExecution):
    """Evaluates the tree of one query over one store, on the grid of its plan.

    It does not depend on the query text: any front end may supply the tree and the plan."""

    def answer(self) -> Answer:
        """Return the series of the whole query with their notes. Raises QueryError, SelectError."""
        try:
            with enforced(self.budget):
                value = self._whole()
            if not isinstance(value, Matrix | RawSeries):
                raise self._plain_value_error()
            self.check()
        except QueryError as problem:
            _attach_position(problem, self.tree)
            _attach_text(problem, self.text)
            raise
        notes = (*self.notes, *self.budget.notes())
        return value.with_notes(notes, self.complete, self.partial, self.origin())

    def apply_operators(self, operators: Sequence[Binary], matrix: Matrix) -> Matrix:
        """Apply operators with a number on their other side, in this order, to series of an answer of this evaluator,
        as if the query had them at its end. Raises QueryError."""
        found = Operand(matrix)
        for node in operators:
            on_left = isinstance(node.left, nodes.Scalar)
            number = self.side(node.left if on_left else node.right, matrix.grid, node.op)
            left, right = (number, found) if on_left else (found, number)
            found = combine_operands(node, left, right, matrix.grid, self)
        return self.matrix_of(found.value, operators[-1].op)

    def _whole(self) -> Value | RawSeries:
        """Evaluate the tree. If it selects nothing and has a default, return one series of that value."""
        try:
            return self.evaluate(self.tree, self.plan.grid)
        except NothingSelected as problem:
            default = self.default_of(self.tree)
            if default is None:
                raise
            self.note(f"{problem.message}; {default.value!r} stands for it")
            return constant_series(default, self.plan.grid)

    def side(self, node: Node, grid: Grid, function: str) -> Operand:
        """Return the value of an operand with its default; an empty one if it selects nothing."""
        try:
            value = self.operand(node, grid, function)
        except NothingSelected as problem:
            return empty_operand(problem, grid, self.default_of(node), isinstance(node, nodes.ToScalar))
        default = value if isinstance(value, nodes.Scalar) else self.default_of(node)
        return Operand(value, default, literal=not nodes.selects_series(node))

    def default_of(self, node: Node) -> nodes.Scalar | None:
        """Return the default of a node: that of the fetch or operator below its functions. Functions of single values
        are applied to the default; other functions do not change it."""
        above: list[nodes.Point | nodes.Unary] = []
        while not isinstance(node, nodes.Fetch | Binary):
            if isinstance(node, nodes.Point | nodes.Unary):
                above.append(node)
            child = getattr(node, "child", None)
            if child is None:
                return None
            node = child
        if isinstance(node, Binary):
            value = self.folded.get(id(node))
        else:
            value = None if node.default is None else nodes.Scalar(node.default)
        for one in reversed(above):
            value = None if value is None else self._applied(one, value)
        return value

    def _applied(self, node: nodes.Point | nodes.Unary, value: nodes.Scalar) -> nodes.Scalar | None:
        """Apply a function of single values, or a sign, to a default."""
        if isinstance(node, nodes.Unary) and node.op == "invert":
            return nodes.Scalar(not value.value)
        function, args = (node.function, node.args) if isinstance(node, nodes.Point) else ("mul", (("number", -1),))
        one = constant_series(value, Grid(self.plan.grid.end_ms, 1, 1))
        try:
            result = _pointwise(function, args, one, self).latest()[0]
        except QueryError:  # the function does not take it: what its series are decides
            return None
        return None if result is None or isinstance(result, str) else nodes.Scalar(result)

    def _plain_value_error(self) -> QueryError:
        return QueryError("the query is a plain value: begin with fetch('NAME'), and do not end with .scalar()")

    def evaluate(self, node: Node, grid: Grid) -> Value | RawSeries:
        """Return the value of a node on `grid`. Errors get the position of the innermost node."""
        self.check()
        began = perf_counter()
        try:
            value = _EVALUATE[type(node)](self, node, grid)
        except QueryError as problem:
            _attach_position(problem, node)
            raise
        found = value.filled() if isinstance(value, RawSeries) else value
        if self.costs is not None:
            points = found.samples if isinstance(found, RawSeries) else _points(found)
            series = len(found) if isinstance(found, Matrix | RawSeries) else 1
            _measure(self.costs, node, began, series, points)
        return found

    def statistics(self, node: Node, grid: Grid, names: Sequence[str], opening: bool = False) -> BucketData:
        """Return the statistics of a fetch, possibly shifted in time. For other nodes return their values as buckets of
        one sample."""
        match node:
            case nodes.Range() | nodes.Between() | nodes.At():
                return self.statistics(node.child, grid, names, opening)
            case nodes.Offset():
                ms = _offset_ms(node, grid)
                return self.statistics(node.child, _earlier(grid, ms), names, opening).shifted(ms)
            case nodes.Fetch():
                began = perf_counter()
                data = fetch_data(node, grid, names, self, opening)
                if self.costs is not None:
                    _measure(self.costs, node, began, len(data.keys), int(data.present.sum()))
                return data
        if nodes.gives_samples(node):
            return bucketize_data(self.raw(node, grid.start_ms, grid.end_ms), grid, self)
        found = self.matrix(node, grid, "a window function")
        return from_cells(found.keys, grid, found.column, found.strings)

    def window(self, node: nodes.Window, grid: Grid) -> Matrix:
        """Apply a window function at every bucket end of the grid."""
        return run_window(node, grid, self)

    def newest_times(self, node: Node, grid: Grid, back_ms: int | None, function: str) -> NewestTimes:
        """Return the times of the newest samples of a fetch (possibly shifted in time)."""
        return read_newest_times(node, grid, back_ms, function, self)


def _measure(costs: dict[int, NodeCost], node: Node, began: float, series: int, points: int) -> None:
    """Add what a node took and gave."""
    cost = costs.setdefault(id(node), NodeCost())
    cost.ms = max(cost.ms, (perf_counter() - began) * 1000)  # a fetch alone is measured as its window, too
    cost.series, cost.points = series, points


def _points(value: Value) -> int:
    """Return the number of present values; 1 of a plain value."""
    return int(value.present.sum()) if isinstance(value, Matrix) else 1


# --- leaves and times


def _scalar(_run: QueryEvaluator, node: nodes.Scalar, _grid: Grid) -> Value:
    checked_int64(node.value)
    return node


def _clock(run: QueryEvaluator, node: nodes.Clock, grid: Grid) -> Value:
    if node.reading == "now":
        return nodes.Scalar(run.now_ms / 1000)
    return TimedScalar(grid, doubles(grid.ends()[None, :] / 1000, np.ones((1, grid.n), np.bool_)))


def _fetch(run: QueryEvaluator, node: nodes.Fetch, grid: Grid) -> Value:
    return run.window(nodes.Window(node, "last"), grid)


def _samples(run: QueryEvaluator, node: nodes.Samples, grid: Grid) -> RawSeries:
    found = run.samples(node.selector, grid.start_ms, grid.end_ms)
    if not len(found):
        if not run.store.find(node.selector.matchers, 1):
            raise NothingSelected(explain_empty(node.selector, run.store, run.plan.grid.end_ms))
        span = f"({format_time(grid.start_ms)} .. {format_time(grid.end_ms)}]"
        run.note(f"{node.selector}: no series that fits has a sample in {span}")
    return found


def _absent(run: QueryEvaluator, node: nodes.Absent, grid: Grid) -> Value:
    return evaluate_absent(node, grid, run)


def _child_only(run: QueryEvaluator, node: nodes.Range | nodes.Between | nodes.At, grid: Grid) -> Value | RawSeries:
    return run.evaluate(node.child, grid)  # the planner has applied the time already


def _offset(run: QueryEvaluator, node: nodes.Offset, grid: Grid) -> Value | RawSeries:
    if nodes.gives_samples(node.child):
        return shift_samples(_earlier_samples(run, node.child, grid, node.offset_ms), {"d": node.offset_ms}, run)
    found = run.matrix(node.child, _earlier(grid, _offset_ms(node, grid)), "offset")
    return Matrix(found.keys, grid, found.column, found.strings)


def _offset_ms(node: nodes.Offset, grid: Grid) -> int:
    if node.offset_ms % grid.step_ms:
        raise QueryError(
            f"offset {format_duration(node.offset_ms)} is not a multiple of the step {format_duration(grid.step_ms)}"
        )
    return node.offset_ms


def _earlier(grid: Grid, ms: int) -> Grid:
    return Grid(grid.end_ms - ms, grid.step_ms, grid.n)


def _earlier_samples(run: QueryEvaluator, child: Node, grid: Grid, ms: int) -> RawSeries:
    """Return raw samples from `ms` earlier, or from the same range if a step below has replaced their times."""
    earlier = 0 if replaces_times(child) else ms
    return run.raw(child, grid.start_ms - earlier, grid.end_ms - earlier)


# --- functions of one operand


def _window(run: QueryEvaluator, node: nodes.Window, grid: Grid) -> Value | RawSeries:
    if nodes.gives_samples(node.child):
        return run_at_samples(node, grid.start_ms, grid.end_ms, run)
    return run.window(node, grid)


def _bucketize(run: QueryEvaluator, node: nodes.Bucketize, grid: Grid) -> Value:
    if node.unit is not None and isinstance(grid, CalendarGrid):
        return _bucketize_calendar(run, node, grid)
    if grid.step_ms != node.step_ms:
        raise QueryError(
            f"mixed grids: bucketize by {format_duration(node.step_ms)} in a grid of {format_duration(grid.step_ms)}"
        )
    if nodes.gives_samples(node.child):
        found = bucketize_samples(node, grid, run)
        if found is not None:
            return found
    window = nodes.Window(
        node.child, node.function, node.step_ms, 0, node.rules, node.max_gap_ms, node.args, span=node.span
    )
    return run_window(window, grid, run, run.plan.base_step_ms)


def _bucketize_calendar(run: QueryEvaluator, node: nodes.Bucketize, grid: CalendarGrid) -> Matrix:
    parts, unheld = list[Matrix](), None
    for part in equal_runs(grid):
        same = replace(node, step_ms=part.step_ms, unit=None)
        try:
            parts.append(run.matrix_of(_bucketize(run, same, part), "bucketize"))
        except NothingHeld as problem:
            unheld, run.complete = problem, False
            run.note(problem.message)
    if unheld is not None and not parts:
        raise unheld
    mapper, least, ring = mapper_of(node, run), node.rules.min_count, run.plan.level(run.plan.base_step_ms)
    counts = mapper.total and (mapper.min_count if least is None else least) <= 0
    held_ms = ALWAYS_MS if ring is None or run.plan.partial_windows else ring.held_start_ms
    return join_columns(parts, grid, held_ms if counts else None)


def _point(run: QueryEvaluator, node: nodes.Point, grid: Grid) -> Value | RawSeries:
    found = run.evaluate(node.child, grid)
    if isinstance(found, RawSeries):
        return _pointwise_samples(node.function, node.args, found, run)
    return _pointwise(node.function, node.args, run.matrix_of(found, node.function), run)


def _pointwise(name: str, said: nodes.BoundArguments, found: Matrix, run: QueryEvaluator) -> Matrix:
    """Apply a function of single values to the series that it accepts."""
    point = POINTS[name]
    found = run.accepted_series(found, name, numbers=point.numbers, texts=point.texts)
    points = PointContext(found.grid.ends() - 1, list(found.strings))
    column = point.run(found.column, with_defaults(point, said), points)
    return Matrix(found.keys, found.grid, column, tuple(points.strings))


def _pointwise_samples(name: str, said: nodes.BoundArguments, found: RawSeries, run: QueryEvaluator) -> RawSeries:
    """Apply the same to raw samples; samples without a result are dropped."""
    point = POINTS[name]
    found = run.accepted_series(found, name, numbers=point.numbers, texts=point.texts)
    owner_types = found.types[found.owner]
    types, cells, keep = found.types.copy(), np.array(found.cells), np.ones(found.samples, np.bool_)
    points = PointContext(found.times, list(found.strings))
    args = with_defaults(point, said)
    for kind in np.unique(found.types).tolist():  # all samples of one type in one row
        mine = np.flatnonzero(owner_types == kind)
        points.times = found.times[mine]
        row = Cells(np.array([kind], np.uint8), found.cells[mine][None, :], np.ones((1, len(mine)), np.bool_))
        column = point.run(row, args, points)
        types[found.types == kind] = column.types[0]
        cells[mine], keep[mine] = column.cells[0], column.present[0]
    return found.as_computed(types=types, cells=cells, strings=tuple(points.strings)).keep(keep)


def _unary(run: QueryEvaluator, node: nodes.Unary, grid: Grid) -> Value:
    found = run.matrix(node.child, grid, node.op)
    if node.op == "neg":
        return _pointwise("mul", (("number", -1),), found, run)
    found = run.numeric_only(found, node.op)
    if (found.types != BOOLEAN).any():
        raise QueryError("~ needs BOOLEAN: compare first, as in ~(a > 1)")
    return Matrix(found.keys, grid, of_type(BOOLEAN, 1 - found.cells, found.present))


def _scalar_of(run: QueryEvaluator, node: nodes.ToScalar, grid: Grid) -> TimedScalar:
    return to_scalar(run.matrix(node.child, grid, "scalar"))


def _step(run: QueryEvaluator, node: nodes.Transform, grid: Grid) -> Value | RawSeries:
    """Apply a filter, filler or transform of whole series."""
    entry = STEPS[node.family][node.function]
    args = with_defaults(entry, node.args)
    if nodes.gives_samples(node.child):
        if entry.on_samples is None:
            raise grid_required(entry.name)
        earlier = args["d"] if entry.name == "shift" else 0
        return entry.on_samples(_earlier_samples(run, node.child, grid, earlier), args, run)
    if entry.run is None:
        raise QueryError(f"{entry.name} takes raw samples: begin with samples('NAME')")
    return entry.run(StepCall(node=node, entry=entry, grid=grid, args=args, context=run))


def _named(run: QueryEvaluator, node: nodes.Named, grid: Grid) -> Value | RawSeries:
    found = run.evaluate(node.child, grid)
    if isinstance(found, RawSeries):
        return found.renamed(name_by_labels(found.keys, node.name))
    found = run.matrix_of(found, "named")
    keys = name_by_labels(found.keys, node.name)
    check_distinct(keys, found.keys, "named", "name them apart")
    return Matrix.in_order(keys, grid, found.column, found.strings)


# --- functions of classes and of several operands


def _reduce(run: QueryEvaluator, node: nodes.Reduce, grid: Grid) -> Value:
    pushed = push_down(node, grid, run)
    if pushed is not None:
        return pushed
    name = node.function if isinstance(node.function, str) else node.function.name
    return reduce_classes(node, run.matrix(node.child, grid, name), run)


def _apply(run: QueryEvaluator, node: nodes.Apply, grid: Grid) -> Value:
    operands = [run.side(operand, grid, node.function.name) for operand in node.operands]
    return combine_udf(node, operands, grid, run)


def _binary(run: QueryEvaluator, node: Binary, grid: Grid) -> Value:
    """Evaluate the chain of left operands in a loop, so that a sum of 500 terms does not recurse."""
    chain = [node]
    while isinstance(chain[-1].left, Binary):
        chain.append(chain[-1].left)
    found = run.side(chain[-1].left, grid, chain[-1].op)
    for link in reversed(chain):
        try:
            found = combine_operands(link, found, run.side(link.right, grid, link.op), grid, run)
        except QueryError as problem:
            _attach_position(problem, link)
            raise
    if found.default is not None:
        run.folded[id(node)] = found.default
    if found.nothing is not None:
        raise found.nothing
    return found.value


_EVALUATE: dict[type[Node], Callable[..., Value | RawSeries]] = {
    nodes.Scalar: _scalar,
    nodes.Clock: _clock,
    nodes.Fetch: _fetch,
    nodes.Samples: _samples,
    nodes.Absent: _absent,
    nodes.Range: _child_only,
    nodes.Between: _child_only,
    nodes.At: _child_only,
    nodes.Offset: _offset,
    nodes.Window: _window,
    nodes.Bucketize: _bucketize,
    nodes.Point: _point,
    nodes.Unary: _unary,
    nodes.ToScalar: _scalar_of,
    nodes.Transform: _step,
    nodes.Apply: _apply,
    nodes.Named: _named,
    nodes.Reduce: _reduce,
    Binary: _binary,
}
"""One entry for each type of node."""
