"""Reducers: many series of one class to one series, bucket by bucket. An entry is its documentation and its test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from query_dsl.cells import DOUBLE, INTEGER, Bools, Cells, Example, Ints, as_floats, doubles, of_type, whole
from query_dsl.names import read_only_table

INT_MAX = np.iinfo(np.int64).max
INT_MIN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Members:
    """Series sorted by class; class i begins at row starts[i] and no class is empty."""

    column: Cells
    starts: Ints
    """(classes,)"""

    def counts(self) -> Ints:
        """(classes, buckets) members that have a value."""
        return np.add.reduceat(self.column.present.astype(np.int64), self.starts, axis=0)


@dataclass(frozen=True, slots=True)
class Reducer:
    """`run` takes the members and answers a row a class; what has fewer values than `min_count` is masked later."""

    name: str
    summary: str
    example: str
    case: Example
    run: Callable[[Members], Cells]
    min_count: int = 1
    """What `min_count` is when the query does not say."""
    total: bool = False
    """Whether a bucket without values has a result when `min_count` is 0 (0 for sum and count)."""
    strings: bool = False
    """Whether STRING series take part."""


def _sum(members: Members) -> Cells:
    types, cells, present = members.column
    values = np.where(present, as_floats(types, cells), 0.0)
    if whole(types).all() and _fits(np.where(present, cells, 0)):
        # integers are added as integers and rounded once, so that the order of the members never shows
        values_int = np.add.reduceat(np.where(present, cells, 0), members.starts, axis=0)
        return doubles(values_int.astype(np.float64), members.counts() > 0)
    with np.errstate(invalid="ignore", over="ignore"):
        return doubles(np.add.reduceat(values, members.starts, axis=0), members.counts() > 0)


def _fits(cells: Ints) -> bool:
    if not cells.size:
        return True
    return max(abs(int(cells.max())), abs(int(cells.min()))) <= INT_MAX // max(1, len(cells))


def _mean(members: Members) -> Cells:
    total, counts = _sum(members), members.counts()
    with np.errstate(invalid="ignore", divide="ignore"):
        return doubles(total.cells.view(np.float64) / counts, counts > 0)


def _count(members: Members) -> Cells:
    counts = members.counts()
    return of_type(INTEGER, counts, np.ones(counts.shape, np.bool_))


def _extreme(members: Members, function: np.ufunc, last_int: int, last_float: float) -> Cells:
    types, cells, present = members.column
    exact = np.logical_and.reduceat(whole(types), members.starts)
    integers = function.reduceat(np.where(present, cells, last_int), members.starts, axis=0)
    out = np.ascontiguousarray(integers)
    if not exact.all():
        floats = function.reduceat(np.where(present, as_floats(types, cells), last_float), members.starts, axis=0)
        out[~exact] = np.ascontiguousarray(floats).view(np.int64)[~exact]
    return Cells(np.where(exact, INTEGER, DOUBLE).astype(np.uint8), out, _any(members))


def _any(members: Members) -> Bools:
    return np.logical_or.reduceat(members.column.present, members.starts, axis=0)


def _min(members: Members) -> Cells:
    return _extreme(members, np.minimum, INT_MAX, np.inf)


def _max(members: Members) -> Cells:
    return _extreme(members, np.maximum, INT_MIN, -np.inf)


GIVEN = ((1.0, None, 2.0), (4.0, None, None))

REDUCERS = read_only_table(
    Reducer(
        "mean",
        "Mean of the members that have a value (DOUBLE); of BOOLEAN series the share of true.",
        'fetch(\'temperature\').mean(by=["dc", "rack"])',
        Example(GIVEN, (2.5, None, 2.0)),
        _mean,
    ),
    Reducer(
        "sum",
        "Sum of the members that have a value (DOUBLE); with min_count=0 the sum of nothing is 0.",
        'fetch(\'requests\').rate("5m").sum(by=["dc"])',
        Example(GIVEN, (5.0, None, 2.0)),
        _sum,
        total=True,
    ),
    Reducer(
        "min",
        "Smallest value; exact INTEGER where every member is INTEGER or BOOLEAN, else DOUBLE.",
        "fetch('disk.free').min(by=[\"host\"])",
        Example(GIVEN, (1.0, None, 2.0)),
        _min,
    ),
    Reducer(
        "max",
        "Greatest value; exact INTEGER where every member is INTEGER or BOOLEAN, else DOUBLE.",
        "fetch('queue.length').max(by=[])",
        Example(GIVEN, (4.0, None, 2.0)),
        _max,
    ),
    Reducer(
        "count",
        "How many members have a value (INTEGER), of any type; the count of nothing is 0.",
        "fetch('build.version').count(by=[\"dc\"])",
        Example(GIVEN, (2.0, 0.0, 1.0)),
        _count,
        min_count=0,
        total=True,
        strings=True,
    ),
)
