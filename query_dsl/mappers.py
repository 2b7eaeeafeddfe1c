"""Window functions: samples of one series in (t - before, t + after] to one value, read from statistics of buckets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from query_dsl import increase as differences
from query_dsl.cells import DOUBLE, INTEGER, Bools, Cells, Example, Floats, Ints, as_floats, doubles, of_type, whole
from query_dsl.data import BucketData
from query_dsl.names import read_only_table
from query_dsl.windows import Frame, float_totals, newest, oldest, over, pick, totals

INT_MAX = np.iinfo(np.int64).max
INT_MIN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Mapped:
    """Cells of (series, outputs), and where they are approximate because a bucket held more than one sample."""

    column: Cells
    approximate: Bools | None = None


@dataclass(frozen=True, slots=True)
class Mapper:
    """`run` answers a value for every window that has samples; the evaluator masks by `nulls` and `min_count`."""

    name: str
    summary: str
    example: str
    case: Example
    statistics: tuple[str, ...]
    """Statistics it reads, besides `count`."""
    run: Callable[[BucketData, Frame], Mapped]
    min_count: int = 1
    total: bool = False
    """Whether a window without samples has a result when `min_count` is 0 (0 for sum and count)."""
    strings: bool = False
    predecessor: bool = False
    """Whether it looks at the sample before the window, at most `max_gap` older than its start."""
    counter: bool = False
    """Whether it is meant for counters: gauges, and sums of counters, give a warning."""


def _last(data: BucketData, frame: Frame) -> Mapped:
    if frame.width == 1:  # a bare fetch: the bucket itself
        column = np.where(data.present[:, frame.ends], frame.ends, -1)
    else:
        column = newest(data.present)[:, frame.ends]
    # after its end a series is missing, without look-back
    over = (data.ended_ms > 0)[:, None] & (frame.end_ms[None, :] >= data.ended_ms[:, None])
    present = (column > frame.starts) & ~over
    return Mapped(Cells(data.types, pick(data.stats["last"], column), present))


def _first(data: BucketData, frame: Frame) -> Mapped:
    column = oldest(data.present)[:, frame.starts + 1]
    present = column <= frame.ends
    several = (pick(data.stats["count"], column) > 1) & present
    return Mapped(Cells(data.types, pick(data.stats["last"], column), present), several)


def _extreme(data: BucketData, frame: Frame, statistic: str, function: np.ufunc, fill: tuple[int, float]) -> Mapped:
    present, cells = data.present, data.stats[statistic]
    out = np.ascontiguousarray(function.reduce(over(np.where(present, cells, fill[0]), frame), axis=2))
    double = data.types == DOUBLE
    if double.any():
        values = np.where(present[double], np.ascontiguousarray(cells[double]).view(np.float64), fill[1])
        floats = np.ascontiguousarray(function.reduce(over(values, frame), axis=2))
        out[double] = floats.view(np.int64)
    types = np.where(double, DOUBLE, INTEGER).astype(np.uint8)
    return Mapped(Cells(types, out, totals(data.stats["count"], frame) > 0))


def _min(data: BucketData, frame: Frame) -> Mapped:
    return _extreme(data, frame, "min", np.minimum, (INT_MAX, np.inf))


def _max(data: BucketData, frame: Frame) -> Mapped:
    return _extreme(data, frame, "max", np.maximum, (INT_MIN, -np.inf))


def _sums(data: BucketData, frame: Frame) -> tuple[Floats, Ints]:
    counts = totals(data.stats["count"], frame)
    cells = np.where(data.present, data.stats["sum"], 0)
    exact = whole(data.types)
    out = np.empty(counts.shape, np.float64)
    if exact.any():
        largest = float(np.abs(cells[exact].astype(np.float64)).max(initial=0.0))
        if largest * frame.width < 2.0**62:
            out[exact] = totals(cells[exact], frame)
        else:  # sums beyond int64 are rounded rather than wrapped
            out[exact] = float_totals(cells[exact].astype(np.float64), frame)
    if not exact.all():
        out[~exact] = float_totals(as_floats(data.types[~exact], np.ascontiguousarray(cells[~exact])), frame)
    return out, counts


def _sum(data: BucketData, frame: Frame) -> Mapped:
    sums, counts = _sums(data, frame)
    return Mapped(doubles(sums, counts > 0))


def _mean(data: BucketData, frame: Frame) -> Mapped:
    sums, counts = _sums(data, frame)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Mapped(doubles(sums / counts, counts > 0))


def _count(data: BucketData, frame: Frame) -> Mapped:
    counts = totals(data.stats["count"], frame)
    return Mapped(of_type(INTEGER, counts, np.ones(counts.shape, np.bool_)))


def _difference(run: Callable[[BucketData, Frame], differences.Differences]) -> Callable[[BucketData, Frame], Mapped]:
    def mapped(data: BucketData, frame: Frame) -> Mapped:
        found = run(data, frame)
        return Mapped(found.column, found.approximate)

    return mapped


ROW = ((2.0, 8.0, None, 20.0),)
DIFFERENCE = ("last", "last_time", "min")

MAPPERS = read_only_table(
    Mapper(
        "last",
        "Newest value; keeps the type. Missing once the source has said that the series ended.",
        'fetch(\'disk.free\').map("last", "5m")',
        Example(ROW, (2.0, 8.0, 8.0, 20.0)),
        ("last",),
        _last,
        strings=True,
    ),
    Mapper(
        "first",
        "Oldest value; keeps the type. Approximate where the first bucket holds several samples.",
        'fetch(\'disk.free\').map("first", "5m")',
        Example(ROW, (2.0, 2.0, 8.0, 20.0)),
        ("last",),
        _first,
        strings=True,
    ),
    Mapper(
        "min",
        "Smallest value; INTEGER and BOOLEAN give exact INTEGER, DOUBLE gives DOUBLE.",
        'fetch(\'disk.free\').map("min", "1h")',
        Example(ROW, (2.0, 2.0, 8.0, 20.0)),
        ("min",),
        _min,
    ),
    Mapper(
        "max",
        "Greatest value; INTEGER and BOOLEAN give exact INTEGER, DOUBLE gives DOUBLE.",
        'fetch(\'queue.length\').map("max", "5m")',
        Example(ROW, (2.0, 8.0, 8.0, 20.0)),
        ("max",),
        _max,
    ),
    Mapper(
        "sum",
        "Sum of all samples (DOUBLE); with min_count=0 the sum of nothing is 0.",
        'fetch(\'mail.sent\').map("sum", "5m")',
        Example(ROW, (2.0, 10.0, 8.0, 20.0)),
        ("sum",),
        _sum,
        total=True,
    ),
    Mapper(
        "mean",
        "Sum of all samples over their number (DOUBLE); of BOOLEAN the share of true.",
        'fetch(\'temperature\').map("mean", "5m")',
        Example(ROW, (2.0, 5.0, 8.0, 20.0)),
        ("sum",),
        _mean,
    ),
    Mapper(
        "count",
        "Number of samples (INTEGER), of any type; the count of nothing is 0.",
        'fetch(\'temperature\').map("count", "5m")',
        Example(ROW, (1.0, 2.0, 1.0, 1.0)),
        (),
        _count,
        min_count=0,
        total=True,
        strings=True,
    ),
    Mapper(
        "increase",
        "Growth of a counter; a new birth counts from 0; INTEGER stays exact. Adjacent windows add up exactly.",
        "fetch('http.requests').increase(\"5m\")",
        Example(ROW, (None, 6.0, 6.0, 12.0)),
        DIFFERENCE,
        _difference(differences.increase),
        predecessor=True,
        counter=True,
    ),
    Mapper(
        "delta",
        "Difference to the value before the window, births disregarded; INTEGER stays exact.",
        "fetch('disk.used').delta(\"1h\")",
        Example(ROW, (None, 6.0, 6.0, 12.0)),
        DIFFERENCE,
        _difference(differences.delta),
        predecessor=True,
    ),
    Mapper(
        "rate",
        "Increase a second, from the first predecessor used to the last sample, without extrapolation (DOUBLE).",
        "fetch('http.requests').rate(\"5m\")",
        Example(ROW, (None, 600.0, 600.0, 600.0)),
        DIFFERENCE,
        _difference(differences.rate),
        predecessor=True,
        counter=True,
    ),
)
