"""Reduction of classes of series in two steps: partials of subsets of the members, then the result of all partials.

Partials of disjoint subsets merge in any order with the same result (see exact.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from artimon.compute.cells import DOUBLE, INTEGER, Bools, Cells, Floats, Ints, Types, as_floats, doubles, of_type, take
from artimon.compute.cells import is_whole_number as is_whole
from artimon.compute.exact_sums import ExactSums, float_sums, integer_sums
from artimon.compute.statistics import MAX, MIN, Fold

REDUCERS = ("mean", "sum", "min", "max", "count")
CACHED_CELLS = 1 << 16
"""Cells that are reduced at a time: half a MiB, which stays in the cache of the processor."""
EXTREMES: Mapping[str, Fold] = MappingProxyType({"min": MIN, "max": MAX})


@dataclass(frozen=True, slots=True)
class Partial:
    """Partial result of a subset of the members of each class. Shapes (classes,) and (classes, outputs)."""

    reducer: str
    members: Ints
    double: Bools
    """True for classes with a DOUBLE member: their extremes are DOUBLE, too."""
    count: Ints
    """Members that have a value."""
    sums: ExactSums | None = None
    """For sum and mean."""
    extreme: Ints | None = None
    """For min and max: cells, float64 bits if `double`; arbitrary if count is 0."""

    @property
    def classes(self) -> int:
        return len(self.members)


def partial_in_order(reducer: str, column: Cells, order: Ints, starts: Ints) -> Partial:
    """Return `partial_of` the members in this order, a few outputs at a time: a copy of all is never in memory."""
    outputs, each = column.cells.shape[1], max(1, CACHED_CELLS // max(1, len(order)))
    parts = []
    for begin in range(0, max(1, outputs), each):
        some = slice(begin, begin + each)
        part = Cells(column.types, column.cells[:, some], column.present[:, some])
        parts.append(partial_of(reducer, take(part, order), starts))
    if len(parts) == 1:
        return parts[0]
    sums = [part.sums for part in parts if part.sums is not None]
    extremes = [part.extreme for part in parts if part.extreme is not None]
    return replace(
        parts[0],
        count=np.concatenate([part.count for part in parts], axis=1),
        sums=ExactSums(*(np.concatenate(half, axis=1) for half in zip(*sums, strict=True))) if sums else None,
        extreme=np.concatenate(extremes, axis=1) if extremes else None,
    )


def partial_of(reducer: str, column: Cells, starts: Ints) -> Partial:
    """Reduce members sorted by class; class i begins at row starts[i], none is empty. STRING only affects count."""
    types, _, present = column
    members = np.diff(np.append(starts, len(types)))
    double = np.logical_or.reduceat(types == DOUBLE, starts)
    if present.all():
        count = np.repeat(members[:, None], present.shape[1], axis=1)
    else:
        count = np.add.reduceat(present.astype(np.int64), starts, axis=0)
    if reducer in ("sum", "mean"):
        return Partial(reducer, members, double, count, sums=_sums(column, starts))
    if reducer in EXTREMES:
        return Partial(reducer, members, double, count, extreme=_extreme(reducer, column, starts, double))
    return Partial(reducer, members, double, count)


def _sums(column: Cells, starts: Ints) -> ExactSums:
    types, cells, present = column
    exact = is_whole(types)
    if exact.all():
        return integer_sums(cells if present.all() else np.where(present, cells, 0), starts)
    values = np.where(present, as_floats(types, cells), 0.0)
    if not exact.any():
        return float_sums(values, starts)
    values[exact] = 0.0
    integers = np.where(present & exact[:, None], cells, 0)
    return float_sums(values, starts).add(integer_sums(integers, starts))


def _extreme(reducer: str, column: Cells, starts: Ints, double: Bools) -> Ints:
    types, cells, present = column
    function, least, least_float = EXTREMES[reducer]
    out = np.ascontiguousarray(function.reduceat(np.where(present, cells, least), starts, axis=0))
    if double.any():
        floats = function.reduceat(np.where(present, as_floats(types, cells), least_float), starts, axis=0)
        out[double] = np.ascontiguousarray(floats).view(np.int64)[double]
    return out


def empty_partial(reducer: str, classes: int, outputs: int) -> Partial:
    """Return the partial of classes without members."""
    shape = (classes, outputs)
    none, no = np.zeros(classes, np.int64), np.zeros(classes, np.bool_)
    if reducer in EXTREMES:
        extreme = np.full(shape, EXTREMES[reducer].whole, np.int64)
        return Partial(reducer, none, no, np.zeros(shape, np.int64), extreme=extreme)
    sums = ExactSums(np.zeros(shape), np.zeros(shape)) if reducer in ("sum", "mean") else None
    return Partial(reducer, none, no, np.zeros(shape, np.int64), sums)


def merge_partials(parts: Sequence[Partial], places: Sequence[Ints], classes: int) -> Partial:
    """Merge parts; class i of part k becomes class places[k][i]. At least one part."""
    total = empty_partial(parts[0].reducer, classes, parts[0].count.shape[1])
    for part, place in zip(parts, places, strict=True):
        merge_into(total, part, place)
    return total


def merge_into(total: Partial, part: Partial, place: Ints) -> None:
    """Add `part` in place to `total`, which must own its arrays. Class i of `part` is class place[i] of `total`; places
    are distinct."""
    if total.extreme is not None and part.extreme is not None:
        mine = _Side(total.extreme[place], total.double[place], total.count[place] > 0)
        theirs = _Side(part.extreme, part.double, part.count > 0)
        total.extreme[place] = _join_extremes(mine, theirs, EXTREMES[total.reducer].join)
    if total.sums is not None and part.sums is not None:
        high, low = total.sums
        high[place], low[place] = ExactSums(high[place], low[place]).add(part.sums)
    total.members[place] += part.members
    total.double[place] |= part.double
    total.count[place] += part.count


class _Side(NamedTuple):
    extreme: Ints
    double: Bools
    present: Bools


def _join_extremes(mine: _Side, theirs: _Side, function: np.ufunc) -> Ints:
    """Return the greater (max) or smaller (min) of both, as float64 if either is."""
    double = mine.double | theirs.double
    a, b = mine.extreme, theirs.extreme
    both = function(a, b)
    if double.any():
        floats, others = _floats(a, mine.double), _floats(b, theirs.double)
        both[double] = function(floats, others)[double].view(np.int64)
        a = np.where(double[:, None], floats.view(np.int64), a)
        b = np.where(double[:, None], others.view(np.int64), b)
    return np.where(mine.present & theirs.present, both, np.where(theirs.present, b, a))


def _floats(cells: Ints, double: Bools) -> Floats:
    return np.where(double[:, None], cells.view(np.float64), cells.astype(np.float64))


def result_of(partial: Partial) -> Cells:
    """Return a row per class, absent where no member has a value (count: always present)."""
    some = partial.count > 0
    if partial.reducer == "count":
        return of_type(INTEGER, partial.count, np.ones(some.shape, np.bool_))
    if partial.sums is not None:
        high = partial.sums.high
        if partial.reducer == "sum":
            return doubles(high, some)
        with np.errstate(invalid="ignore", divide="ignore"):
            return doubles(high / partial.count, some)
    types: Types = np.where(partial.double, DOUBLE, INTEGER).astype(np.uint8)
    extreme = partial.extreme if partial.extreme is not None else np.zeros(some.shape, np.int64)
    return Cells(types, extreme, some)


def mask_of(count: Ints, members: Ints, min_count: int, total: bool, propagate: bool) -> Bools:
    """Return the mask (classes, outputs) of valid results. A result needs `min_count` members with a value: at least
    one, unless the reducer has a `total`; all `members`, if a missing value propagates."""
    present = count >= (min_count if total else max(min_count, 1))
    if propagate:
        present &= count == members[:, None]
    return np.asarray(present)
