"""Window functions last, first, min, max, sum, mean and count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import (
    DOUBLE,
    INTEGER,
    Bools,
    Cells,
    Floats,
    Ints,
    as_floats,
    doubles,
    is_whole_number,
    of_type,
)
from artimon.compute.function import ROW, Example, Function
from artimon.compute.params import Args
from artimon.compute.rolling_windows import RollingCount, RollingExtreme, RollingFirst, RollingLast, RollingSum
from artimon.compute.shared_windows import OF_COUNT, OF_FIRST, OF_LAST, OF_MAX, OF_MEAN, OF_MIN, OF_SUM
from artimon.compute.statistics import MAX, MIN, Fold
from artimon.compute.true_sums import sums_to_double, wide_cells
from artimon.compute.window_frames import (
    WindowFrame,
    float_totals,
    integer_totals,
    newest_present,
    oldest_present,
    pick,
    window_folds,
    window_view,
)


def _last(data: Arrays, frame: WindowFrame, _args: Args) -> Mapped:
    if frame.width == 1:  # a bare fetch: the bucket itself
        cells, present = data.stats["last"][:, frame.ends], data.present[:, frame.ends]
    else:
        column = newest_present(data.present)[:, frame.ends]
        cells, present = pick(data.stats["last"], column), column > frame.starts
    if data.ended_ms.any():  # after its end a series is missing, without look-back
        present &= ~((data.ended_ms > 0)[:, None] & (frame.end_ms[None, :] >= data.ended_ms[:, None]))
    return Mapped(Cells(data.types, cells, present))


def _first(data: Arrays, frame: WindowFrame, _args: Args) -> Mapped:
    column = oldest_present(data.present)[:, frame.starts + 1]
    present = column <= frame.ends
    several = (pick(data.stats["count"], column) > 1) & present
    return Mapped(Cells(data.types, pick(data.stats["last"], column), present), several)


def _extreme(data: Arrays, frame: WindowFrame, statistic: str, fold: Fold) -> Mapped:
    present, cells = data.present, data.stats[statistic]
    out = window_folds(fold.join, np.where(present, cells, fold.whole), frame)
    double = data.types == DOUBLE
    if double.any():
        values = np.where(present[double], np.ascontiguousarray(cells[double]).view(np.float64), fold.real)
        out[double] = window_folds(fold.join, values, frame).view(np.int64)
    types = np.where(double, DOUBLE, INTEGER).astype(np.uint8)
    return Mapped(Cells(types, out, integer_totals(data.stats["count"], frame) > 0))


def _sums(data: Arrays, frame: WindowFrame) -> tuple[Floats, Ints]:
    counts = integer_totals(data.stats["count"], frame)
    cells = np.where(data.present, data.stats["sum"], 0)
    out = np.empty(counts.shape, np.float64)
    largest = np.abs(cells.astype(np.float64)).max(axis=1, initial=0.0)
    exact = is_whole_number(data.types)
    real = wide_cells(data.stats, exact)
    if real is not None:  # sums that the 64 bits of a bucket do not hold
        return _wide_sums(data, frame, np.asarray(real.any(axis=1))), counts
    fits = exact & (largest * frame.width < 2.0**62)
    if fits.any():
        out[fits] = integer_totals(cells[fits], frame)
    wide = exact & ~fits
    if wide.any():  # sums beyond int64 are rounded rather than wrapped
        out[wide] = float_totals(cells[wide].astype(np.float64), frame)
    if not exact.all():
        out[~exact] = float_totals(as_floats(data.types[~exact], np.ascontiguousarray(cells[~exact])), frame)
    return out, counts


def _wide_sums(data: Arrays, frame: WindowFrame, wide: Bools) -> Floats:
    """Return the sums of the windows if those of buckets in the `wide` rows are known from count, min and max."""
    rows = np.flatnonzero(wide)
    parts = (np.ascontiguousarray(data.stats[name][rows]).reshape(-1) for name in ("count", "min", "max", "sum"))
    true = np.where(data.present[rows], sums_to_double(*parts).reshape(len(rows), -1), 0.0)
    narrow = {name: data.stats[name] for name in ("count", "sum")}
    out, _ = _sums(replace(data, stats=narrow), frame)
    out[rows] = window_view(true, frame).sum(axis=2)
    return out


def _sum(data: Arrays, frame: WindowFrame, _args: Args) -> Mapped:
    sums, counts = _sums(data, frame)
    return Mapped(doubles(sums, counts > 0))


def _mean(data: Arrays, frame: WindowFrame, _args: Args) -> Mapped:
    sums, counts = _sums(data, frame)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Mapped(doubles(sums / counts, counts > 0))


def _count(data: Arrays, frame: WindowFrame, _args: Args) -> Mapped:
    counts = integer_totals(data.stats["count"], frame).copy()
    return Mapped(of_type(INTEGER, counts, np.ones(counts.shape, np.bool_)))


FUNCTIONS = (
    Function(
        name="last",
        summary="Newest value; keeps the type. Missing after the source reported the end of the series.",
        example='fetch(\'disk.free\').map("last", "5m")',
        case=Example(ROW, (2.0, 8.0, 8.0, 20.0)),
        statistics=("last",),
        run=_last,
        rolling=RollingLast,
        shared=OF_LAST,
        gives="same",
        strings=True,
    ),
    Function(
        name="first",
        summary="Oldest value; keeps the type. Approximate if the first bucket holds several samples.",
        example='fetch(\'disk.free\').map("first", "5m")',
        case=Example(ROW, (2.0, 2.0, 8.0, 20.0)),
        statistics=("last",),
        run=_first,
        rolling=RollingFirst,
        shared=OF_FIRST,
        gives="same",
        strings=True,
    ),
    Function(
        name="min",
        summary="Smallest value; INTEGER and BOOLEAN give exact INTEGER, DOUBLE gives DOUBLE.",
        example='fetch(\'disk.free\').map("min", "1h")',
        case=Example(ROW, (2.0, 2.0, 8.0, 20.0)),
        statistics=("min",),
        run=lambda data, frame, _: _extreme(data, frame, "min", MIN),
        rolling=lambda span: RollingExtreme(span, "min"),
        shared=OF_MIN,
        gives="number",
    ),
    Function(
        name="max",
        summary="Greatest value; INTEGER and BOOLEAN give exact INTEGER, DOUBLE gives DOUBLE.",
        example='fetch(\'queue.length\').map("max", "5m")',
        case=Example(ROW, (2.0, 8.0, 8.0, 20.0)),
        statistics=("max",),
        run=lambda data, frame, _: _extreme(data, frame, "max", MAX),
        rolling=lambda span: RollingExtreme(span, "max"),
        shared=OF_MAX,
        gives="number",
    ),
    Function(
        name="sum",
        summary="Sum of all samples (DOUBLE); 0 without samples if min_count=0.",
        example='fetch(\'mail.sent\').map("sum", "5m")',
        case=Example(ROW, (2.0, 10.0, 8.0, 20.0)),
        statistics=("sum",),
        run=_sum,
        rolling=lambda span: RollingSum(span, mean=False),
        shared=OF_SUM,
        total=True,
    ),
    Function(
        name="mean",
        summary="Sum of all samples over their number (DOUBLE); for BOOLEAN the share of true.",
        example='fetch(\'temperature\').map("mean", "5m")',
        case=Example(ROW, (2.0, 5.0, 8.0, 20.0)),
        statistics=("sum",),
        run=_mean,
        rolling=lambda span: RollingSum(span, mean=True),
        shared=OF_MEAN,
    ),
    Function(
        name="count",
        summary="Number of samples (INTEGER), of any type; 0 without samples.",
        example='fetch(\'temperature\').map("count", "5m")',
        case=Example(ROW, (1.0, 2.0, 1.0, 1.0)),
        unit="samples",
        statistics=(),
        run=_count,
        rolling=RollingCount,
        shared=OF_COUNT,
        gives="integer",
        min_count=0,
        total=True,
        strings=True,
    ),
)
