"""Array kernels of filters and rankings: one exact summary value per series, comparisons of it, and sort keys."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.sample_order import double_order
from artimon.model.values import INT64_MAX, INT64_MIN
from query_dsl.results.result_cells import (
    DOUBLE,
    INTEGER,
    STRING,
    Bools,
    Cells,
    Floats,
    Ints,
    Rows,
    as_floats,
    doubles,
    is_whole_number,
)
from query_dsl.tree.literals import checked_int64
from query_dsl.tree.query_errors import QueryError

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EXACT = 2**53


def compare(column: Cells, op: str, value: float | bool | str, strings: tuple[str, ...]) -> Bools:
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
    checked_int64(value, f"{function}: ")


def summarize(column: Cells, what: str) -> Cells:
    """Summarise each series to one cell (series, 1): last, first, min, max (type kept; extremes of BOOLEAN are INTEGER)
    or mean (DOUBLE). Missing if a series has no value. min, max and mean need numbers; any NaN gives NaN."""
    types, cells, present = column
    some: Bools = np.asarray(present.any(axis=1, keepdims=True))
    if what in ("last", "first"):
        step = -1 if what == "last" else 1
        at = np.argmax(present[:, ::step], axis=1)
        return Cells(types, np.take_along_axis(cells[:, ::step], at[:, None], axis=1), some)
    if what == "mean":
        values = np.where(present, as_floats(types, np.ascontiguousarray(cells)), 0.0)
        with np.errstate(all="ignore"):
            return doubles(values.sum(axis=1, keepdims=True) / present.sum(axis=1, keepdims=True), some)
    return Cells(np.where(types == DOUBLE, DOUBLE, INTEGER).astype(np.uint8), _extreme(column, what), some)


def _extreme(column: Cells, what: str) -> Ints:
    types, cells, present = column
    function, least, real = (np.minimum, INT64_MAX, np.inf) if what == "min" else (np.maximum, INT64_MIN, -np.inf)
    out = np.asarray(function.reduce(np.where(present, cells, least), axis=1, keepdims=True))
    double = types == DOUBLE
    if double.any():
        values = np.ascontiguousarray(cells[double]).view(np.float64)
        reduced = function.reduce(np.where(present[double], values, real), axis=1, keepdims=True)
        out[double] = np.ascontiguousarray(reduced).view(np.int64)
    return out


def rank_rows(column: Cells, what: str, greatest_first: bool) -> Rows:
    """Sort rows stably by their summary `what`: numbers, then NaN, then STRING and series without a value, in both
    directions. Exact beyond 2^53."""
    types, cells, present = column
    text = types == STRING
    if text.any():
        column = Cells(np.where(text, INTEGER, types).astype(np.uint8), cells, present & ~text[:, None])
    values = summarize(column, what)
    keys, number = order_keys(values)
    nan = values.present & ~number
    group = np.where(number, 0, np.where(nan, 1, 2))[:, 0]
    return np.lexsort((np.where(number, ~keys if greatest_first else keys, 0)[:, 0], group))  # ~ reverses the order


def best_rows(column: Cells, what: str, k: int, greatest: bool) -> Rows:
    """Return the k rows with the greatest (or least) summary `what`, in row order, without STRING series and series
    without a value. NaN comes after every number."""
    order = rank_rows(column, what, greatest)
    valued = column.present.any(axis=1) & (column.types != STRING)
    return np.sort(order[valued[order]][:k])


def order_keys(column: Cells) -> tuple[Ints, Bools]:
    """Return int64 keys with the order of the values, comparable over types and series, and a mask of valid keys: not
    missing, not NaN. Exact beyond 2^53."""
    types, cells, present = column
    integers = is_whole_number(types)
    if integers.all():
        return cells, present
    with np.errstate(invalid="ignore"):
        values = as_floats(types, cells) + 0.0  # -0.0 is 0.0
    number = present & ~np.isnan(values)
    if integers.any() and _too_great(cells[integers], present[integers]):
        return _ranks(values, cells, integers, number), number
    return double_order(values.view(np.int64)), number


def _too_great(cells: Ints, present: Bools) -> bool:
    used = cells[present]
    return bool(len(used)) and not bool(((used <= EXACT) & (used >= -EXACT)).all())


def _ranks(values: Floats, cells: Ints, integers: Bools, number: Bools) -> Ints:
    """Rank integers and doubles together: by the nearest double, then by an integer's difference from it."""
    high = values[number]
    exact = np.broadcast_to(integers[:, None], number.shape)[number]
    low = np.zeros(len(high), np.int64)
    near = high[exact]
    at = np.where(near >= 2.0**63, INT64_MIN, np.where(near < 2.0**63, near, 0.0).astype(np.int64))
    low[exact] = cells[number][exact] - at  # wraps back where the nearest double is 2^63
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    differ = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    out = np.zeros(number.shape, np.int64)
    ranks = np.zeros(len(high), np.int64)
    ranks[order[1:]] = np.cumsum(differ)
    out[number] = ranks
    return out
