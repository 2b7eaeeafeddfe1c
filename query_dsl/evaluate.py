"""Runs a tree: each node is asked for an exact grid and answers a matrix on it.

A window asks its child for a wider grid than it was asked for itself, and cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from artimon.model.grid import Grid
from artimon.model.select import Store
from query_dsl import nodes
from query_dsl.builder import Expr
from query_dsl.cells import BOOLEAN, Key
from query_dsl.classes import reduce_classes
from query_dsl.context import Context
from query_dsl.data import BucketData, from_cells
from query_dsl.errors import QueryError
from query_dsl.fetching import absence, fetch_data
from query_dsl.join import check_distinct
from query_dsl.mapping import run_window
from query_dsl.matrix import Matrix, in_order
from query_dsl.nodes import Binary, Node
from query_dsl.operands import Value, combine
from query_dsl.planner import plan
from query_dsl.points import POINTS, apply_point, invert
from query_dsl.timing import format_duration


def evaluate(expr: Expr, store: Store, now_ms: int, check: Callable[[], None] | None = None) -> Matrix:
    """The answer to `expr` at `now_ms`; QueryError (or the store's SelectError) says why there is none.

    `check` is called before each node and may raise, to end an evaluation that nobody waits for."""
    try:
        planned = plan(expr.node, store.levels(), now_ms)
        context = Context(store, planned, check)
        context.note(*planned.notes)
        value = _run(expr.node, planned.grid, context)
        if not isinstance(value, Matrix):
            raise QueryError("the query is a plain value: begin with fetch('NAME')")
    except QueryError as problem:
        if problem.text is None and problem.position is not None:
            problem.text = expr.text
        raise
    return value.with_notes(tuple(context.notes), context.complete, context.partial)


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
    raise QueryError(f"{what} works on series, not on the plain value {value.value!r}")


def _scalar(node: nodes.Scalar, _grid: Grid, _context: Context) -> Value:
    value = node.value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise QueryError(f"{value} is no 64-bit integer: write it as {float(value):g}")
    return node


def _fetch(node: nodes.Fetch, grid: Grid, context: Context) -> Value:
    return _window(nodes.Window(node, "last"), grid, context)


def _absent(node: nodes.Absent, grid: Grid, context: Context) -> Value:
    return absence(node, grid, context)


def _samples(_node: nodes.Samples, _grid: Grid, _context: Context) -> Value:
    raise QueryError(
        "samples(): raw samples need the history engine, which comes later; use fetch(), which reads buckets"
    )


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
    found = _matrix(node, grid, context, "a window function")
    return from_cells(found.keys, grid, found.column, found.strings)


def _window(node: nodes.Window, grid: Grid, context: Context) -> Value:
    return run_window(node, grid, context, _data)


def _bucketize(node: nodes.Bucketize, grid: Grid, context: Context) -> Value:
    if grid.step_ms != node.step_ms:
        raise QueryError(
            f"mixed grids: bucketize by {format_duration(node.step_ms)} in a grid of {format_duration(grid.step_ms)}"
        )
    window = nodes.Window(node.child, node.function, node.step_ms, 0, node.rules, node.max_gap_ms, span=node.span)
    return run_window(window, grid, context, _data, context.plan.base_step_ms)


def _point(node: nodes.Point, grid: Grid, context: Context) -> Value:
    found = context.numeric(_matrix(node.child, grid, context, node.function), node.function)
    return Matrix(found.keys, grid, apply_point(POINTS[node.function], found.column, node.args))


def _unary(node: nodes.Unary, grid: Grid, context: Context) -> Value:
    found = context.numeric(_matrix(node.child, grid, context, node.op), node.op)
    if node.op == "neg":
        return Matrix(found.keys, grid, apply_point(POINTS["mul"], found.column, (-1,)))
    if (found.types != BOOLEAN).any():
        raise QueryError("~ needs BOOLEAN: compare first, as in ~(a > 1)")
    return Matrix(found.keys, grid, invert(found.column))


def _named(node: nodes.Named, grid: Grid, context: Context) -> Value:
    found = _matrix(node.child, grid, context, "named")
    keys = [Key(node.name, key.labels) for key in found.keys]
    check_distinct(keys, found.keys, "named")
    ordered, column = in_order(keys, found.column)
    return Matrix(ordered, grid, column, found.strings)


def _reduce(node: nodes.Reduce, grid: Grid, context: Context) -> Value:
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
    nodes.Samples: _samples,
    nodes.Range: _through,
    nodes.Between: _through,
    nodes.At: _through,
    nodes.Offset: _offset,
    nodes.Window: _window,
    nodes.Bucketize: _bucketize,
    nodes.Point: _point,
    nodes.Unary: _unary,
    nodes.Named: _named,
    nodes.Reduce: _reduce,
    Binary: _binary,
}
