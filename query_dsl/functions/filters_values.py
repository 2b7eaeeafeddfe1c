"""Array kernels of filters and rankings: one exact summary value per series, and comparisons of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.frames import newest, oldest, pick
from query_dsl.functions.order_keys import order_keys
from query_dsl.results.cells import (
    DOUBLE,
    INTEGER,
    STRING,
    Bools,
    Cells,
    Ints,
    as_floats,
    doubles,
)
from query_dsl.tree.errors import QueryError

Rows = npt.NDArray[np.intp]
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_INT_MAX, _INT_MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def compared(column: Cells, op: str, value: float | bool | str, strings: tuple[str, ...]) -> Bools:
    """Mask (series, columns) of the present values for which `op` holds. INTEGER and BOOLEAN compare with integers
    exactly, other numbers as float64. A text and a number are always unequal, and neither < nor > holds."""
    types, cells, present = column
    out = np.full(cells.shape, op == "!=")
    rows = np.flatnonzero(comparable(types, value))
    if isinstance(value, str):
        fits = np.array([_OPERATORS[op](text, value) for text in strings] or [False], np.bool_)
        out[rows] = fits[np.clip(cells[rows], 0, len(fits) - 1)]
    elif isinstance(value, int):
        exact = rows[types[rows] != DOUBLE]
        out[exact] = _OPERATORS[op](cells[exact], value)
        real = rows[types[rows] == DOUBLE]
        out[real] = _OPERATORS[op](as_floats(types[real], np.ascontiguousarray(cells[real])), float(value))
    else:
        out[rows] = _OPERATORS[op](as_floats(types[rows], np.ascontiguousarray(cells[rows])), value)
    return np.asarray(out & present)


def comparable(types: npt.NDArray[np.uint8], value: float | bool | str) -> Bools:
    """Mask (series,) of the types comparable with `value`: STRING with a text, all others with a number."""
    return np.asarray((types == STRING) == isinstance(value, str))


def check_comparison(function: str, op: str, value: float | bool | str) -> None:
    """Raise QueryError for an ordering of texts, and for an integer beyond 64 bits."""
    if isinstance(value, str) and op not in ("==", "!="):
        raise QueryError(f"{function}: texts have no order: use == or != with {value!r:.80}")
    if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
        raise QueryError(f"{function}: {value} is not a 64-bit integer: write it as {float(value):g}")


def summary(column: Cells, what: str) -> Cells:
    """Summarise each series to one cell (series, 1): last, first, min, max (type kept; extremes of BOOLEAN are INTEGER)
    or mean (DOUBLE). Missing if a series has no value. min, max and mean need numbers."""
    types, cells, present = column
    some: Bools = np.asarray(present.any(axis=1, keepdims=True))
    if what in ("last", "first"):
        at = newest(present)[:, -1:] if what == "last" else oldest(present)[:, :1]
        return Cells(types, pick(cells, at), some)
    if what == "mean":
        values = np.where(present, as_floats(types, np.ascontiguousarray(cells)), 0.0)
        with np.errstate(all="ignore"):
            return doubles(values.sum(axis=1, keepdims=True) / present.sum(axis=1, keepdims=True), some)
    return Cells(np.where(types == DOUBLE, DOUBLE, INTEGER).astype(np.uint8), _extreme(column, what), some)


def _extreme(column: Cells, what: str) -> Ints:
    types, cells, present = column
    function, least, real = (np.minimum, _INT_MAX, np.inf) if what == "min" else (np.maximum, _INT_MIN, -np.inf)
    out = np.asarray(function.reduce(np.where(present, cells, least), axis=1, keepdims=True))
    double = types == DOUBLE
    if double.any():
        values = np.ascontiguousarray(cells[double]).view(np.float64)
        reduced = function.reduce(np.where(present[double], values, real), axis=1, keepdims=True)
        out[double] = np.ascontiguousarray(reduced).view(np.int64)
    return out


def ranked(column: Cells, what: str, greatest_first: bool) -> Rows:
    """Sort rows stably by their summary `what`: numbers, then NaN, then STRING and series without a value, in both
    directions. Exact beyond 2^53."""
    types, cells, present = column
    text = types == STRING
    if text.any():
        column = Cells(np.where(text, INTEGER, types).astype(np.uint8), cells, present & ~text[:, None])
    values = summary(column, what)
    keys, number = order_keys(values)
    nan = values.present & ~number
    group = np.where(number, 0, np.where(nan, 1, 2))[:, 0]
    return np.lexsort((np.where(number, ~keys if greatest_first else keys, 0)[:, 0], group))  # ~ reverses the order


def best(column: Cells, what: str, k: int, greatest: bool) -> Rows:
    """Return the k rows with the greatest (or least) summary `what`, in row order, without STRING series and series
    without a value. NaN comes after every number."""
    order = ranked(column, what, greatest)
    valued = column.present.any(axis=1) & (column.types != STRING)
    return np.sort(order[valued[order]][:k])
