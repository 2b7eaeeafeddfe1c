"""Sort keys of values of all types, for ranking and sorting."""

from __future__ import annotations

import numpy as np

from query_dsl.results.cells import Bools, Cells, Floats, Ints, as_floats, whole

EXACT = 2**53
INT_MIN = np.iinfo(np.int64).min


def order_keys(column: Cells) -> tuple[Ints, Bools]:
    """Return int64 keys with the order of the values, comparable over types and series, and a mask of valid keys: not
    missing, not NaN. Exact beyond 2^53."""
    types, cells, present = column
    integers = whole(types)
    if integers.all():
        return cells, present
    with np.errstate(invalid="ignore"):
        values = as_floats(types, cells) + 0.0  # -0.0 is 0.0
    number = present & ~np.isnan(values)
    if integers.any() and _too_great(cells[integers], present[integers]):
        return _ranks(values, cells, integers, number), number
    bits = values.view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1)), number


def _too_great(cells: Ints, present: Bools) -> bool:
    used = cells[present]
    return bool(len(used)) and not bool(((used <= EXACT) & (used >= -EXACT)).all())


def _ranks(values: Floats, cells: Ints, integers: Bools, number: Bools) -> Ints:
    """Rank integers and doubles together: by the nearest double, then by an integer's difference from it."""
    high = values[number]
    exact = np.broadcast_to(integers[:, None], number.shape)[number]
    low = np.zeros(len(high), np.int64)
    near = high[exact]
    at = np.where(near >= 2.0**63, INT_MIN, np.where(near < 2.0**63, near, 0.0).astype(np.int64))
    low[exact] = cells[number][exact] - at  # wraps back where the nearest double is 2^63
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    differ = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    out = np.zeros(number.shape, np.int64)
    ranks = np.zeros(len(high), np.int64)
    ranks[order[1:]] = np.cumsum(differ)
    out[number] = ranks
    return out
