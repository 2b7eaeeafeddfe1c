"""Nodes whose function is an own one: brings their operands into the form that own functions take (own.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from artimon.compute.frames import totals
from artimon.model.grid import Grid
from query_dsl.evaluation.calling import SECONDS, Watch
from query_dsl.evaluation.classes import canonical, grouped
from query_dsl.evaluation.context import Context
from query_dsl.evaluation.mapping import framing, say_approximate, say_unheld
from query_dsl.evaluation.own import run_own_apply, run_own_reduce, run_own_window
from query_dsl.evaluation.own_pairs import paired
from query_dsl.evaluation.scalars import Value
from query_dsl.functions.mappers import Mapper
from query_dsl.functions.registry import Args
from query_dsl.results.bucket_data import BucketData
from query_dsl.results.cells import Cells, Example, take
from query_dsl.results.matrix import Matrix, in_order
from query_dsl.tree import nodes
from query_dsl.tree.errors import QueryError

Source = Callable[[nodes.Node, Grid, Sequence[str], Context], BucketData]


def gives_of(args: nodes.Given) -> str:
    """The type that an own function gives."""
    return str(dict(args).get("gives", "DOUBLE"))


def watch_of(context: Context) -> Watch:
    """How long own functions of this evaluation may still run."""
    left = context.seconds_left()
    return Watch(SECONDS if left is None else left, context.check)


def mapper_of(function: nodes.Own) -> Mapper:
    """What an own function reads, as a window function has it; it is never run as one."""

    def run(*_: object) -> None:
        raise QueryError(f"own function {function.name} runs in Python only")

    return Mapper(
        name=function.name,
        statistics=("last", "last_time"),
        run=run,  # type: ignore[arg-type]
        strings=True,
        summary="An own function.",
        example="",
        case=Example((), ()),
    )


def own_window(
    node: nodes.Window, function: nodes.Own, grid: Grid, context: Context, source: Source, base_step_ms: int | None
) -> Matrix:
    """`.map(f, window)`."""
    framed = framing(node, grid, context, base_step_ms, mapper_of(function))
    data = source(node.child, framed.wide, framed.mapper.statistics, context)
    say_unheld(framed, data.first_held, data.grid, context)
    rules = node.rules
    least = 1 if rules.min_count is None else rules.min_count
    found = run_own_window(function.call, data, framed.frame, gives_of(node.args), watch_of(context), least)
    column = found.column
    if rules.nulls != "skip":
        full = np.asarray(totals(data.present.astype(np.int64), framed.frame) == framed.frame.width)
        if rules.nulls == "error" and not full.all():
            raise QueryError(f'{function.name}: a window has an empty bucket, and nulls="error"')
        column = Cells(column.types, column.cells, column.present & full)
    if found.approximate is not None:
        say_approximate(framed.mapper, int((found.approximate & column.present).sum()), context)
    return Matrix(data.keys, grid, column, found.strings)


def own_reduce(node: nodes.Reduce, function: nodes.Own, found: Matrix, context: Context) -> Matrix:
    """`.reduce(f, by=[..])`."""
    found = canonical(node, found)
    keys, rows = grouped(node, found, context)
    members = [([found.keys[i] for i in each], take(found.column, each)) for each in rows]
    rules = node.rules
    if rules.nulls == "error" and not found.present.all():
        raise QueryError(f'{function.name}: a series has no value at some time, and nulls="error"')
    least = 1 if rules.min_count is None else rules.min_count
    full = rules.nulls == "propagate"
    owned = run_own_reduce(
        function.call, found.grid, members, gives_of(node.args), watch_of(context),
        strings=found.strings, min_count=least, full=full,
    )  # fmt: skip
    return Matrix(tuple(keys), found.grid, owned.column, owned.strings)


def own_apply(node: nodes.Apply, operands: Sequence[Value], grid: Grid, context: Context) -> Matrix:
    """`apply(f, a, b, …)`: operands are paired with the first one, as those of an operator are."""
    name = node.function.name
    keys, columns, dropped = paired(operands, node.match, grid, name)
    if dropped:
        context.note(f"{name}: {dropped} series without a partner were dropped")
    owned = run_own_apply(node.function.call, columns, keys, gives_of(node.args), watch_of(context))
    ordered, column = in_order(keys, owned.column)
    return Matrix(ordered, grid, column, owned.strings)


__all__ = ["Args", "mapper_of", "own_apply", "own_reduce", "own_window"]
