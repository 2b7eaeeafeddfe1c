"""Reduces the series of a matrix class by class."""

from __future__ import annotations

import numpy as np

from artimon.compute.classes import Partial, mask_of, partial_of, result_of
from query_dsl.evaluation.execution import Execution
from query_dsl.evaluation.own import gives_of, run_own_reduce
from query_dsl.functions.grouping import Classes, classes_of
from query_dsl.functions.join import check_labels, text
from query_dsl.functions.reducers import Members, Reducer
from query_dsl.functions.registry import Args, arguments_of
from query_dsl.functions.tables import REDUCERS
from query_dsl.results.cells import STRING, Bools, Cells, Ints, Key, take
from query_dsl.results.label_codes import LabelTable
from query_dsl.results.matrix import Matrix
from query_dsl.tree import nodes
from query_dsl.tree.errors import QueryError
from query_dsl.tree.nodes import Labels, Own, Rules
from query_dsl.tree.timing import format_time


def reduce_classes(node: nodes.Reduce, found: Matrix, execution: Execution) -> Matrix:
    """Return one series per class of `found`, in canonical order; some reducers give several. A class without members
    gives no row."""
    if isinstance(node.function, Own):
        return _own_reduce(node, node.function, found, execution)
    reducer = REDUCERS[node.function]
    args = arguments_of(reducer, node.args)
    found = canonical(node, found)
    if not reducer.strings:
        found = execution.numeric(found, node.function)
    classes = _classes(reducer, args, node, found, execution)
    if not found.keys:
        return found
    if reducer.one_kind:
        found, classes = _of_one_kind(reducer, found, classes, execution)
    _refuse_missing(node.rules, reducer.name, found)
    order = classes.order
    column, codes = take(found.column, order), classes.codes[order]
    if reducer.run is None:
        partial = partial_of(reducer.pushed, column, np.flatnonzero(np.diff(codes, prepend=-1)))
        return Matrix(classes.keys, found.grid, reduced(partial, reducer, node.rules))
    keys = [found.keys[row] for row in order.tolist()]
    members = Members(keys, column, codes, classes.keys, found.strings, execution.note)
    return _result(reducer, args, members, node.rules, found)


def canonical(node: nodes.Reduce, found: Matrix) -> Matrix:
    """Sort members in canonical order; only a `sort` below can have changed it."""
    if not any(isinstance(below, nodes.Step) and below.function == "sort" for below in nodes.walk(node.child)):
        return found
    return Matrix.in_order(found.keys, found.grid, found.column, found.strings)


def _own_reduce(node: nodes.Reduce, function: Own, found: Matrix, execution: Execution) -> Matrix:
    """Apply an own function to the members of each class, in canonical order."""
    found, rules = canonical(node, found), node.rules
    keys: tuple[Key, ...] = ()
    members: list[tuple[list[Key], Cells]] = []
    if found.keys:
        classes = _grouped(node.by, node.without, LabelTable(found.keys), execution)
        keys, order = classes.keys, classes.order
        split = np.split(order, np.flatnonzero(np.diff(classes.codes[order])) + 1)
        members = [([found.keys[i] for i in rows], take(found.column, rows)) for rows in split]
    if rules.nulls == "error" and not found.present.all():
        raise QueryError(f'{function.name}: a series has no value at some time, and nulls="error"')
    owned = run_own_reduce(
        function.call, found.grid, members, gives_of(node.args), execution.watch, strings=found.strings,
        min_count=1 if rules.min_count is None else rules.min_count, full=rules.nulls == "propagate",
    )  # fmt: skip
    return Matrix(keys, found.grid, owned.column, owned.strings)


def reduced(partial: Partial, reducer: Reducer, rules: Rules) -> Cells:
    """Return one row per class, masked by the rules."""
    out = result_of(partial)
    if reducer.from_partial is not None:
        out = reducer.from_partial(out)
    return Cells(out.types, out.cells, _mask(reducer, rules, partial.count, partial.members))


def _classes(reducer: Reducer, args: Args, node: nodes.Reduce, found: Matrix, execution: Execution) -> Classes:
    """Return the classes of the members. Raises QueryError for a label that no member has."""
    table, by, without = LabelTable(found.keys), node.by, node.without
    if reducer.carried:
        label = args[reducer.carried]
        check_labels((label,), found.keys, f"{reducer.carried}={label!r}", table)
    if reducer.split:
        split = args[reducer.split]
        if by is not None and split in by:
            raise QueryError(f"{reducer.name}: {split} tells the members of a class apart: leave it out of by=")
        without = None if without is None else (*without, split)
    return _grouped(by, without, table, execution)


def _grouped(by: Labels | None, without: Labels | None, table: LabelTable, execution: Execution) -> Classes:
    if by is not None:
        check_labels(by, table.keys, f"by={list(by)!r}", table)
        for label in by:
            if len(table):
                say_lacking(label, int((table.column(label).codes == 0).sum()), execution)
    return classes_of(table, by, without)


def _of_one_kind(reducer: Reducer, found: Matrix, classes: Classes, execution: Execution) -> tuple[Matrix, Classes]:
    """Drop the STRING series of classes that also have numbers."""
    texts = found.types == STRING
    if not texts.any() or texts.all():
        return found, classes
    numbers = np.bincount(classes.codes[~texts], minlength=len(classes.keys)) > 0
    left_out = texts & numbers[classes.codes]
    if not left_out.any():
        return found, classes
    execution.note(f"{reducer.name}: {int(left_out.sum())} STRING series left out, in classes that have numbers too")
    return found.take(~left_out), Classes(classes.keys, classes.codes[~left_out])


def _result(reducer: Reducer, args: Args, members: Members, rules: Rules, found: Matrix) -> Matrix:
    """Run the reducer and return its result, masked by the rules, in canonical order."""
    if reducer.run is None:
        raise QueryError(f"{reducer.name} is computed from partials")
    out = reducer.run(members, args)
    types, cells, present = out.column
    mask = _mask(reducer, rules, members.counts, members.sizes)
    present = present & (mask if out.codes is None else mask[out.codes])
    column = Cells(types, cells, present)
    if out.keys is None:
        return Matrix(members.classes, found.grid, column, out.strings)
    keys = list(out.keys)
    if out.sparse:
        some = np.asarray(present.any(axis=1))
        keys, column = [key for key, kept in zip(keys, some.tolist(), strict=True) if kept], take(column, some)
    return Matrix.in_order(keys, found.grid, column, out.strings)


def _mask(reducer: Reducer, rules: Rules, counts: Ints, sizes: Ints) -> Bools:
    """(classes, n) mask of the allowed results; `counts`: members with a value, `sizes`: members."""
    least = reducer.min_count if rules.min_count is None else rules.min_count
    return mask_of(counts, sizes, least, reducer.total, rules.nulls == "propagate")


def _refuse_missing(rules: Rules, name: str, found: Matrix) -> None:
    if rules.nulls == "error" and not found.present.all():
        row, column = (int(i[0]) for i in np.nonzero(~found.present))
        raise QueryError(
            f'{name}: {text(found.keys[row])} has no value at {format_time(found.times[column])}, and nulls="error"'
        )


def say_lacking(label: str, series: int, execution: Execution) -> None:
    """Add a note on series without this label."""
    if series:
        execution.note(f"{series} series without {label}: they form the class in which it is absent")
