"""Set operators: keep series of either operand, step by step, by the presence of series with equal labels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from query_dsl.evaluation.defaults import defaulted
from query_dsl.evaluation.execution import QueryExecution, Value
from query_dsl.functions.join import classify_operands, series_name
from query_dsl.functions.operators import Operator
from query_dsl.results.label_table import Codes
from query_dsl.results.matrix import Matrix, sort_rows
from query_dsl.results.result_cells import DOUBLE, STRING, Bools, Cells, SeriesKey, Types, as_floats, take
from query_dsl.tree.nodes import LabelMatching, Scalar
from query_dsl.tree.query_errors import QueryError

_ALLOWED = {"group_left": None, "group_right": None, "fill": None, "unmatched": "drop"}


def combine_sets(
    operator: Operator, match: LabelMatching, left: Value, right: Value, execution: QueryExecution
) -> Matrix:
    """Combine by step. and: the left if some partner has a value; unless: the left if none has; or: the left, and the
    right if no matching left has a value. Any number may match. Series without values are left out."""
    name = operator.method.rstrip("_")
    if operator.name == "set_or" and isinstance(left, Matrix) and isinstance(right, Scalar):
        if match != LabelMatching():
            raise QueryError("or with a number pairs no series: leave on= and ignoring= out")
        return defaulted(left, right, execution)
    if not isinstance(left, Matrix) or not isinstance(right, Matrix):
        raise QueryError(f"{name} takes series on both sides, but one side is a plain value")
    for argument, default in _ALLOWED.items():
        if getattr(match, argument) != default:
            raise QueryError(f"{name} takes on= or ignoring=, and not {argument}=: any number of series may match")
    found = classify_operands(left.keys, right.keys, match)
    if operator.name == "set_or":
        others = any_present(left.present, found.left, found.classes)
        kept = operator.run(right.present, others[found.right])
        return _without_empty(unite_series(left, _masked(right, kept), name))
    partners = any_present(right.present, found.right, found.classes)
    return _sorted(_without_empty(_masked(left, operator.run(left.present, partners[found.left]))))


def any_present(present: Bools, codes: Codes, classes: int) -> Bools:
    """(classes, n): True if some series of the class has a value."""
    out = np.zeros((classes, present.shape[1]), np.bool_)
    if len(codes):
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        out[ordered[starts]] = np.logical_or.reduceat(present[order], starts, axis=0)
    return out


def _masked(side: Matrix, present: Bools) -> Matrix:
    return Matrix(side.keys, side.grid, Cells(side.types, side.cells, present), side.strings)


def _without_empty(found: Matrix) -> Matrix:
    return found.take(np.asarray(found.present.any(axis=1)))


def _sorted(found: Matrix) -> Matrix:
    """Sort in canonical order, as operators answer; only a `sort` below can have changed it."""
    if all(a < b for a, b in pairwise(found.keys)):
        return found
    return Matrix.in_order(found.keys, found.grid, found.column, found.strings)


def unite_series(left: Matrix, right: Matrix, name: str) -> Matrix:
    """Unite the series of both. Equal ones, which never have values at the same step, become one."""
    moved = _shift_texts(right, len(left.strings))
    types = np.concatenate([left.types, right.types])
    cells, present = np.concatenate([left.cells, moved]), np.concatenate([left.present, right.present])
    keys = [*left.keys, *right.keys]
    ordered, column = sort_rows(keys, Cells(types, cells, present))
    strings = (*left.strings, *right.strings)
    twice = [row for row, (a, b) in enumerate(pairwise(ordered)) if a == b]
    if not twice:
        return Matrix(ordered, left.grid, column, strings)
    return _merged(ordered, column, np.array(twice), strings, left, name)


def _shift_texts(right: Matrix, offset: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Cells of the right side; those of STRING are shifted behind the texts of the left."""
    texts = right.types == STRING
    if not offset or not texts.any():
        return right.cells
    return np.where(texts[:, None], right.cells + offset, right.cells)


def _merged(
    keys: tuple[SeriesKey, ...], column: Cells, twice: Codes, strings: tuple[str, ...], left: Matrix, name: str
) -> Matrix:
    """Merge each row of `twice` with the row after it; numbers of two types become DOUBLE."""
    first, second = take(column, twice), take(column, twice + 1)
    types = _common_types(first.types, second.types, [keys[row] for row in twice.tolist()], name)
    cells = np.where(second.present, _convert(types, second), _convert(types, first))
    column.types[twice], column.cells[twice] = types, cells
    column.present[twice] = first.present | second.present
    stay = np.ones(len(keys), np.bool_)
    stay[twice + 1] = False
    rows = np.flatnonzero(stay)
    return Matrix(tuple(keys[row] for row in rows.tolist()), left.grid, take(column, rows), strings)


def _common_types(a: Types, b: Types, keys: list[SeriesKey], name: str) -> Types:
    unlike = np.flatnonzero((a != b) & ((a == STRING) | (b == STRING)))
    if len(unlike):
        raise QueryError(f"{name}: {series_name(keys[unlike[0]])} is STRING on one side and a number on the other")
    return np.where(a == b, a, DOUBLE).astype(np.uint8)


def _convert(types: Types, side: Cells) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Convert cells to `types`; rows that change their type become DOUBLE."""
    changed = types != side.types
    if not changed.any():
        return side.cells
    floats = np.ascontiguousarray(as_floats(side.types, side.cells)).view(np.int64)
    return np.where(changed[:, None], floats, side.cells)
