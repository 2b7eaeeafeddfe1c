"""Reduces the series of a matrix class by class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from query_dsl import nodes
from query_dsl.cells import Cells, Key, take
from query_dsl.context import Context
from query_dsl.errors import QueryError
from query_dsl.join import check_labels, class_key, classifier, text
from query_dsl.matrix import Matrix
from query_dsl.nodes import Rules
from query_dsl.reducers import REDUCERS, Members, Reducer
from query_dsl.timing import format_time


def reduce_classes(node: nodes.Reduce, found: Matrix, context: Context) -> Matrix:
    """One series a class of `found`, in canonical order; a class without members gives no row."""
    reducer = REDUCERS[node.function]
    if not reducer.strings:
        found = context.numeric(found, node.function)
    if node.by is not None:
        check_labels(node.by, found.keys, "by")
        _report_lacking(node.by, found.keys, context)
    if not found.keys:
        return found
    classify = classifier(node.by, node.without)
    classes: dict[Key, list[int]] = {}
    for row, key in enumerate(found.keys):
        classes.setdefault(class_key(classify(key)), []).append(row)
    keys = sorted(classes)
    order = np.concatenate([np.array(classes[key], np.intp) for key in keys])
    starts = np.cumsum([0, *(len(classes[key]) for key in keys[:-1])], dtype=np.int64)
    members = Members(take(found.column, order), starts)
    _refuse_missing(node.rules, reducer.name, found)
    return Matrix(tuple(keys), found.grid, _masked(reducer.run(members), members, reducer, node.rules))


def _masked(out: Cells, members: Members, reducer: Reducer, rules: Rules) -> Cells:
    least = reducer.min_count if rules.min_count is None else rules.min_count
    counts = members.counts()
    present = counts >= least
    if not reducer.total:
        present &= counts > 0
    if rules.nulls == "propagate":
        present &= np.logical_and.reduceat(members.column.present, members.starts, axis=0)
    return Cells(out.types, out.cells, present)


def _refuse_missing(rules: Rules, name: str, found: Matrix) -> None:
    if rules.nulls == "error" and not found.present.all():
        row, column = (int(i[0]) for i in np.nonzero(~found.present))
        raise QueryError(
            f'{name}: {text(found.keys[row])} has no value at {format_time(found.times[column])}, and nulls="error"'
        )


def _report_lacking(by: nodes.Labels, keys: Sequence[Key], context: Context) -> None:
    for label in by:
        lacking = sum(1 for key in keys if not key.get(label))
        if lacking:
            context.note(f"{lacking} series without {label}: they form the class in which it is absent")
