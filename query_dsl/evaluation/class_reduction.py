"""Reduces the series of a matrix class by class."""

from __future__ import annotations

import numpy as np

from artimon.compute.partials import Partial, mask_of, partial_in_order, result_of
from query_dsl.evaluation.execution import QueryExecution
from query_dsl.evaluation.udf import result_type_of, run_udf_reduce
from query_dsl.functions.equivalence_classes import SeriesClasses, classes_of
from query_dsl.functions.join import check_labels, series_name
from query_dsl.functions.reducers import ClassMembers, Reducer
from query_dsl.functions.registry import Args, with_defaults
from query_dsl.functions.tables import REDUCERS
from query_dsl.results.label_table import LabelTable
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import STRING, Bools, Cells, Ints, SeriesKey, take
from query_dsl.tree import nodes
from query_dsl.tree.nodes import Labels, NullRules, UserFunction
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_time


def reduce_classes(node: nodes.Reduce, found: Matrix, execution: QueryExecution) -> Matrix:
    """Return one series per class of `found`, in canonical order; some reducers give several. A class without members
    gives no row."""
    if isinstance(node.function, UserFunction):
        return _reduce_udf(node, node.function, found, execution)
    reducer = REDUCERS[node.function]
    args = with_defaults(reducer, node.args)
    found = sort_members(node, found)
    if not reducer.strings:
        found = execution.numeric_only(found, node.function)
    classes = _classes(reducer, args, node, found, execution)
    if not found.keys:
        return found
    if reducer.one_kind:
        found, classes = _drop_mixed_strings(reducer, found, classes, execution)
    _refuse_missing(node.rules, reducer.name, found)
    order = classes.order
    codes = classes.codes[order]
    if reducer.run is None:
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        partial = partial_in_order(reducer.pushed, found.column, order, starts)
        return Matrix(classes.keys, found.grid, finish_partial(partial, reducer, node.rules))
    keys = [found.keys[row] for row in order.tolist()]
    members = ClassMembers(keys, take(found.column, order), codes, classes.keys, found.strings, execution.note)
    return _run_reducer(reducer, args, members, node.rules, found)


def sort_members(node: nodes.Reduce, found: Matrix) -> Matrix:
    """Sort members in canonical order; only a `sort` below can have changed it."""
    if not any(isinstance(below, nodes.Transform) and below.function == "sort" for below in nodes.walk(node.child)):
        return found
    return Matrix.in_order(found.keys, found.grid, found.column, found.strings)


def _reduce_udf(node: nodes.Reduce, function: UserFunction, found: Matrix, execution: QueryExecution) -> Matrix:
    """Apply a user-defined function to the members of each class, in canonical order."""
    found, rules = sort_members(node, found), node.rules
    keys: tuple[SeriesKey, ...] = ()
    members: list[tuple[list[SeriesKey], Cells]] = []
    if found.keys:
        classes = _grouped(node.by, node.without, LabelTable(found.keys), execution)
        keys, order = classes.keys, classes.order
        split = np.split(order, np.flatnonzero(np.diff(classes.codes[order])) + 1)
        members = [([found.keys[i] for i in rows], take(found.column, rows)) for rows in split]
    if rules.nulls == "error" and not found.present.all():
        raise QueryError(f'{function.name}: a series has no value at some time, and nulls="error"')
    owned = run_udf_reduce(
        function.call, found.grid, members, result_type_of(node.args), execution.budget, strings=found.strings,
        min_count=1 if rules.min_count is None else rules.min_count, full=rules.nulls == "propagate",
    )  # fmt: skip
    return Matrix(keys, found.grid, owned.column, owned.strings)


def finish_partial(partial: Partial, reducer: Reducer, rules: NullRules) -> Cells:
    """Return one row per class, masked by the rules."""
    out = result_of(partial)
    if reducer.from_partial is not None:
        out = reducer.from_partial(out)
    return Cells(out.types, out.cells, _mask(reducer, rules, partial.count, partial.members))


def _classes(
    reducer: Reducer, args: Args, node: nodes.Reduce, found: Matrix, execution: QueryExecution
) -> SeriesClasses:
    """Return the classes of the members. Raises QueryError for a label that no member has."""
    table, by, without = LabelTable(found.keys), node.by, node.without
    if reducer.carried:
        label = args[reducer.carried]
        check_labels((label,), found.keys, f"{reducer.carried}={label!r}", table)
    if reducer.split:
        split = args[reducer.split]
        if by is not None and split in by:
            raise QueryError(
                f"{reducer.name}: by= must not contain {split}, by which the members of a class differ: leave it out"
            )
        without = None if without is None else (*without, split)
    return _grouped(by, without, table, execution)


def _grouped(by: Labels | None, without: Labels | None, table: LabelTable, execution: QueryExecution) -> SeriesClasses:
    if by is not None:
        check_labels(by, table.keys, f"by={list(by)!r}", table)
        for label in by:
            if len(table):
                note_lacking(label, int((table.column(label).codes == 0).sum()), execution)
    return classes_of(table, by, without)


def _drop_mixed_strings(
    reducer: Reducer, found: Matrix, classes: SeriesClasses, execution: QueryExecution
) -> tuple[Matrix, SeriesClasses]:
    """Drop the STRING series of classes that also have numbers."""
    texts = found.types == STRING
    if not texts.any() or texts.all():
        return found, classes
    numbers = np.bincount(classes.codes[~texts], minlength=len(classes.keys)) > 0
    left_out = texts & numbers[classes.codes]
    if not left_out.any():
        return found, classes
    execution.note(f"{reducer.name}: {int(left_out.sum())} STRING series left out, in classes that have numbers too")
    return found.take(~left_out), SeriesClasses(classes.keys, classes.codes[~left_out])


def _run_reducer(reducer: Reducer, args: Args, members: ClassMembers, rules: NullRules, found: Matrix) -> Matrix:
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


def _mask(reducer: Reducer, rules: NullRules, counts: Ints, sizes: Ints) -> Bools:
    """(classes, n) mask of the allowed results; `counts`: members with a value, `sizes`: members."""
    least = reducer.min_count if rules.min_count is None else rules.min_count
    return mask_of(counts, sizes, least, reducer.total, rules.nulls == "propagate")


def _refuse_missing(rules: NullRules, name: str, found: Matrix) -> None:
    if rules.nulls == "error" and not found.present.all():
        row, column = (int(i[0]) for i in np.nonzero(~found.present))
        series, time = series_name(found.keys[row]), format_time(found.times[column])
        raise QueryError(f'{name}: {series} has no value at {time}, and nulls="error"')


def note_lacking(label: str, series: int, execution: QueryExecution) -> None:
    """Add a note on series without this label."""
    if series:
        execution.note(f"{series} series without {label}: they form the class in which it is absent")
