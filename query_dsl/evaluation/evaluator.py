"""Runs a tree: each node is asked for an exact grid and answers a matrix on it.

A window asks its child for a wider grid than it was asked for itself, and cuts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from artimon.model.grid import Grid
from artimon.model.select import Store
from query_dsl.evaluation.classes import reduce_classes
from query_dsl.evaluation.context import Context
from query_dsl.evaluation.fetching import absence, fetch_data
from query_dsl.evaluation.mapping import run_window
from query_dsl.evaluation.operands import combine
from query_dsl.evaluation.owned import own_apply, own_reduce, own_window
from query_dsl.evaluation.planner import plan
from query_dsl.evaluation.pushdown import push_down
from query_dsl.evaluation.sampling import bucketed, bucketize_samples, run_samples
from query_dsl.evaluation.scalars import TimedScalar, Value, to_scalar
from query_dsl.evaluation.steps import run_step
from query_dsl.functions.join import check_distinct
from query_dsl.functions.points import invert
from query_dsl.functions.registry import Points, arguments_of
from query_dsl.functions.tables import POINTS
from query_dsl.language.expression import Expr
from query_dsl.results.bucket_data import BucketData, from_cells
from query_dsl.results.cells import BOOLEAN, Key
from query_dsl.results.irregular import Irregular
from query_dsl.results.matrix import Matrix, in_order
from query_dsl.stores.levels import reach_of
from query_dsl.stores.limits import Limits, Watch, watch_of, watched
from query_dsl.tree import nodes
from query_dsl.tree.errors import QueryError
from query_dsl.tree.nodes import Binary, Node
from query_dsl.tree.timing import format_duration


def evaluate(
    expr: Expr,
    store: Store,
    now_ms: int,
    check: Callable[[], None] | None = None,
    limits: Limits | None = None,
    stop: threading.Event | None = None,
) -> Matrix:
    """The answer to `expr` at `now_ms`, series on a grid; QueryError (or the store's SelectError) says why there is
    none; of it LimitExceeded beyond one of the `limits`.

    `check` is called before each node, and often while a store is asked, and may raise to end an evaluation that nobody
    waits for; `stop`, once set, ends it with QueryCancelled."""
    return on_grid(answer(expr, store, now_ms, check, limits, stop))


def on_grid(found: Matrix | Irregular) -> Matrix:
    """QueryError for raw samples."""
    if isinstance(found, Matrix):
        return found
    raise QueryError('the query gives raw samples, which have no grid: say .bucketize("last", "1m") at its end')


def answer(
    expr: Expr,
    store: Store,
    now_ms: int,
    check: Callable[[], None] | None = None,
    limits: Limits | None = None,
    stop: threading.Event | None = None,
) -> Matrix | Irregular:
    """As `evaluate`; raw samples where the query gives these."""
    return run(expr, prepare(expr, store, now_ms, watch_of(limits, check, stop)))


def prepare(expr: Expr, store: Store, now_ms: int, watch: Watch) -> Context:
    """The plan of an evaluation, and all that it carries along. Raises QueryError, SelectError."""
    try:
        own = watched(store, watch)
        planned = plan(expr.node, own.levels(), now_ms, reach_of(store))
    except QueryError as problem:
        _place(problem, expr)
        raise
    context = Context(own, planned, watch=watch, watched_already=True)
    context.now_ms = now_ms
    context.note(*planned.notes)
    return context


def run(expr: Expr, context: Context) -> Matrix | Irregular:
    """The answer, and what must be said of it. Raises QueryError, SelectError."""
    grid = context.plan.grid
    value: Value | Irregular
    try:
        if nodes.on_samples(expr.node):
            value = run_samples(expr.node, grid.start_ms, grid.end_ms, context)
        else:
            value = _run(expr.node, grid, context)
        if not isinstance(value, Matrix | Irregular):
            problem = QueryError("the query is a plain value: begin with fetch('NAME'), and do not end with .scalar()")
            raise problem if expr.node.span is None else problem.at(expr.node.span[0], None, expr.node.span[1])
    except QueryError as problem:
        _place(problem, expr)
        raise
    context.check()
    notes = (*context.notes, *context.watch.notes())
    return value.with_notes(notes, context.complete, context.partial, context.origin())


def _place(problem: QueryError, expr: Expr) -> None:
    """Give the error the text that it speaks of."""
    if problem.text is None and problem.position is not None:
        problem.text = expr.text


def _run(node: Node, grid: Grid, context: Context) -> Value:
    """Value of a node on `grid`; errors get the place of the innermost node."""
    context.check()
    try:
        return _RUN[type(node)](node, grid, context)
    except QueryError as problem:
        if node.span is not None:
            problem.at(node.span[0], None, node.span[1])
        raise


def _matrix(node: Node, grid: Grid, context: Context, what: str) -> Matrix:
    value = _run(node, grid, context)
    if isinstance(value, Matrix):
        return value
    plain = "a value that changes with time" if isinstance(value, TimedScalar) else f"the plain value {value.value!r}"
    raise QueryError(f"{what} works on series, not on {plain}")


def _scalar(node: nodes.Scalar, _grid: Grid, _context: Context) -> Value:
    value = node.value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise QueryError(f"{value} is no 64-bit integer: write it as {float(value):g}")
    return node


def _fetch(node: nodes.Fetch, grid: Grid, context: Context) -> Value:
    return _window(nodes.Window(node, "last"), grid, context)


def _absent(node: nodes.Absent, grid: Grid, context: Context) -> Value:
    return absence(node, grid, context)


def _through(node: nodes.Range | nodes.Between | nodes.At, grid: Grid, context: Context) -> Value:
    return _run(node.child, grid, context)  # the planner has read them


def _offset(node: nodes.Offset, grid: Grid, context: Context) -> Value:
    earlier = _shift(grid, -_offset_ms(node, grid))
    found = _matrix(node.child, earlier, context, "offset")
    return Matrix(found.keys, grid, found.column, found.strings)


def _offset_ms(node: nodes.Offset, grid: Grid) -> int:
    if node.offset_ms % grid.step_ms:
        raise QueryError(
            f"offset {format_duration(node.offset_ms)} is no multiple of the step {format_duration(grid.step_ms)}"
        )
    return node.offset_ms


def _shift(grid: Grid, ms: int) -> Grid:
    return Grid(grid.end_ms + ms, grid.step_ms, grid.n)


def _data(node: Node, grid: Grid, statistics: Sequence[str], context: Context) -> BucketData:
    """Statistics where the node is a fetch (perhaps shifted in time), else its values as buckets of one sample."""
    if isinstance(node, nodes.Range | nodes.Between | nodes.At):
        return _data(node.child, grid, statistics, context)
    if isinstance(node, nodes.Offset):
        ms = _offset_ms(node, grid)
        return _data(node.child, _shift(grid, -ms), statistics, context).shifted(ms)
    if isinstance(node, nodes.Fetch):
        return fetch_data(node, grid, statistics, context)
    if nodes.on_samples(node):
        return bucketed(run_samples(node, grid.start_ms, grid.end_ms, context), grid, context)
    found = _matrix(node, grid, context, "a window function")
    return from_cells(found.keys, grid, found.column, found.strings)


def _window(node: nodes.Window, grid: Grid, context: Context) -> Value:
    if isinstance(node.function, nodes.Own):
        return own_window(node, node.function, grid, context, _data, None)
    return run_window(node, grid, context, _data)


def _bucketize(node: nodes.Bucketize, grid: Grid, context: Context) -> Value:
    if grid.step_ms != node.step_ms:
        raise QueryError(
            f"mixed grids: bucketize by {format_duration(node.step_ms)} in a grid of {format_duration(grid.step_ms)}"
        )
    if nodes.on_samples(node.child):
        found = bucketize_samples(node, grid, context)
        if found is not None:
            return found
    window = nodes.Window(
        node.child, node.function, node.step_ms, 0, node.rules, node.max_gap_ms, node.args, span=node.span
    )
    if isinstance(node.function, nodes.Own):
        return own_window(window, node.function, grid, context, _data, context.plan.base_step_ms)
    return run_window(window, grid, context, _data, context.plan.base_step_ms)


def _point(node: nodes.Point, grid: Grid, context: Context) -> Value:
    return _pointwise(node.function, node.args, _matrix(node.child, grid, context, node.function), context)


def _pointwise(name: str, said: nodes.Given, found: Matrix, context: Context) -> Matrix:
    """A function of single values over the series that it takes."""
    point = POINTS[name]
    found = context.suited(found, name, numbers=point.numbers, texts=point.texts)
    points = Points(found.grid.ends(), list(found.strings))
    column = point.run(found.column, arguments_of(point, said), points)
    return Matrix(found.keys, found.grid, column, tuple(points.strings))


def _unary(node: nodes.Unary, grid: Grid, context: Context) -> Value:
    found = _matrix(node.child, grid, context, node.op)
    if node.op == "neg":
        return _pointwise("mul", (("number", -1),), found, context)
    found = context.numeric(found, node.op)
    if (found.types != BOOLEAN).any():
        raise QueryError("~ needs BOOLEAN: compare first, as in ~(a > 1)")
    return Matrix(found.keys, grid, invert(found.column))


def _scalar_of(node: nodes.ToScalar, grid: Grid, context: Context) -> Value:
    return to_scalar(_matrix(node.child, grid, context, "scalar"))


def _step(node: nodes.Step, grid: Grid, context: Context) -> Value:
    return run_step(node, grid, context, _matrix, _data)


def _apply(node: nodes.Apply, grid: Grid, context: Context) -> Value:
    values = [_run(operand, grid, context) for operand in node.operands]
    return own_apply(node, values, grid, context)


def _named(node: nodes.Named, grid: Grid, context: Context) -> Value:
    found = _matrix(node.child, grid, context, "named")
    keys = [Key(node.name, key.labels) for key in found.keys]
    check_distinct(keys, found.keys, "named", "name them apart")
    ordered, column = in_order(keys, found.column)
    return Matrix(ordered, grid, column, found.strings)


def _reduce(node: nodes.Reduce, grid: Grid, context: Context) -> Value:
    if isinstance(node.function, nodes.Own):
        return own_reduce(node, node.function, _matrix(node.child, grid, context, node.function.name), context)
    pushed = push_down(node, grid, context, _matrix)
    if pushed is not None:
        return pushed
    return reduce_classes(node, _matrix(node.child, grid, context, node.function), context)


def _binary(node: Binary, grid: Grid, context: Context) -> Value:
    """The chain of left operands runs in a loop, so that a sum of 500 terms is no recursion."""
    chain = [node]
    while isinstance(chain[-1].left, Binary):
        chain.append(chain[-1].left)
    value = _run(chain[-1].left, grid, context)
    for link in reversed(chain):
        try:
            value = combine(link, value, _run(link.right, grid, context), grid, context)
        except QueryError as problem:
            if link.span is not None:
                problem.at(link.span[0], None, link.span[1])
            raise
    return value


_RUN: dict[type[Node], Callable[..., Value]] = {
    nodes.Scalar: _scalar,
    nodes.Fetch: _fetch,
    nodes.Absent: _absent,
    nodes.Range: _through,
    nodes.Between: _through,
    nodes.At: _through,
    nodes.Offset: _offset,
    nodes.Window: _window,
    nodes.Bucketize: _bucketize,
    nodes.Point: _point,
    nodes.Unary: _unary,
    nodes.ToScalar: _scalar_of,
    nodes.Step: _step,
    nodes.Apply: _apply,
    nodes.Named: _named,
    nodes.Reduce: _reduce,
    Binary: _binary,
}
