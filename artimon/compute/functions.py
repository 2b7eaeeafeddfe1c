"""Window functions: samples of one series in (t - before, t + after] to one value, read from statistics of buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from artimon.compute import changes as neighbours
from artimon.compute import increase as differences
from artimon.compute import regression, smoothing, spread
from artimon.compute.arrays import Arrays
from artimon.compute.cells import DOUBLE, INTEGER, Bools, Cells, Floats, Ints, as_floats, doubles, of_type, whole
from artimon.compute.frames import Frame, float_totals, newest, oldest, over, pick, totals
from artimon.compute.panes import CHUNK_CELLS, Kernel, over_panes
from artimon.compute.params import Args, Param
from artimon.compute.quantiles import METHODS

INT_MAX = np.iinfo(np.int64).max
INT_MIN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Mapped:
    """Cells of (series, outputs), and where they are approximate because a bucket held more than one sample."""

    column: Cells
    approximate: Bools | None = None


@dataclass(frozen=True, kw_only=True)
class Function:
    """`run` answers a value for every window that has samples; `masked` takes out what the rules leave out."""

    name: str
    statistics: tuple[str, ...]
    """Statistics it reads, besides `count`."""
    run: Callable[[Arrays, Frame, Args], Mapped]
    params: tuple[Param, ...] = ()
    """What it takes besides the window; `run` gets all of them."""
    min_count: int = 1
    total: bool = False
    """Whether a window without samples has a result when `min_count` is 0 (0 for sum and count)."""
    strings: bool = False
    predecessor: bool = False
    """Whether it looks at the sample before the window, at most `max_gap` older than its start."""
    births: bool = False
    """Whether it reads the lives of the series."""
    counter: bool = False
    """Whether it is meant for counters: gauges, and sums of counters, give a warning."""


def masked(column: Cells, function: Function, data: Arrays, frame: Frame, min_count: int | None, full: bool) -> Cells:
    """The column without windows of fewer than `min_count` samples (None: what the function says); with `full` also
    without those that have an empty bucket."""
    counts = totals(data.stats["count"], frame)
    least = function.min_count if min_count is None else min_count
    present = counts >= least if function.total else column.present & (counts >= least)
    if full:
        present = present & filled(data, frame)
    return Cells(column.types, column.cells, np.asarray(present))


def filled(data: Arrays, frame: Frame) -> Bools:
    """(series, outputs) whether no bucket of the window is empty."""
    return np.asarray(totals(data.present.astype(np.int64), frame) == frame.width)


def _last(data: Arrays, frame: Frame, _args: Args) -> Mapped:
    if frame.width == 1:  # a bare fetch: the bucket itself
        cells, present = data.stats["last"][:, frame.ends], data.present[:, frame.ends]
    else:
        column = newest(data.present)[:, frame.ends]
        cells, present = pick(data.stats["last"], column), column > frame.starts
    if data.ended_ms.any():  # after its end a series is missing, without look-back
        present &= ~((data.ended_ms > 0)[:, None] & (frame.end_ms[None, :] >= data.ended_ms[:, None]))
    return Mapped(Cells(data.types, cells, present))


def _first(data: Arrays, frame: Frame, _args: Args) -> Mapped:
    column = oldest(data.present)[:, frame.starts + 1]
    present = column <= frame.ends
    several = (pick(data.stats["count"], column) > 1) & present
    return Mapped(Cells(data.types, pick(data.stats["last"], column), present), several)


def _extreme(data: Arrays, frame: Frame, statistic: str, function: np.ufunc, fill: tuple[int, float]) -> Mapped:
    present, cells = data.present, data.stats[statistic]
    out = np.ascontiguousarray(function.reduce(over(np.where(present, cells, fill[0]), frame), axis=2))
    double = data.types == DOUBLE
    if double.any():
        values = np.where(present[double], np.ascontiguousarray(cells[double]).view(np.float64), fill[1])
        floats = np.ascontiguousarray(function.reduce(over(values, frame), axis=2))
        out[double] = floats.view(np.int64)
    types = np.where(double, DOUBLE, INTEGER).astype(np.uint8)
    return Mapped(Cells(types, out, totals(data.stats["count"], frame) > 0))


def _min(data: Arrays, frame: Frame, _args: Args) -> Mapped:
    return _extreme(data, frame, "min", np.minimum, (INT_MAX, np.inf))


def _max(data: Arrays, frame: Frame, _args: Args) -> Mapped:
    return _extreme(data, frame, "max", np.maximum, (INT_MIN, -np.inf))


def _sums(data: Arrays, frame: Frame) -> tuple[Floats, Ints]:
    counts = totals(data.stats["count"], frame)
    cells = np.where(data.present, data.stats["sum"], 0)
    out = np.empty(counts.shape, np.float64)
    largest = np.abs(cells.astype(np.float64)).max(axis=1, initial=0.0)
    exact = whole(data.types)
    fits = exact & (largest * frame.width < 2.0**62)
    if fits.any():
        out[fits] = totals(cells[fits], frame)
    wide = exact & ~fits
    if wide.any():  # sums beyond int64 are rounded rather than wrapped
        out[wide] = float_totals(cells[wide].astype(np.float64), frame)
    if not exact.all():
        out[~exact] = float_totals(as_floats(data.types[~exact], np.ascontiguousarray(cells[~exact])), frame)
    return out, counts


def _sum(data: Arrays, frame: Frame, _args: Args) -> Mapped:
    sums, counts = _sums(data, frame)
    return Mapped(doubles(sums, counts > 0))


def _mean(data: Arrays, frame: Frame, _args: Args) -> Mapped:
    sums, counts = _sums(data, frame)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Mapped(doubles(sums / counts, counts > 0))


def _count(data: Arrays, frame: Frame, _args: Args) -> Mapped:
    counts = totals(data.stats["count"], frame)
    return Mapped(of_type(INTEGER, counts, np.ones(counts.shape, np.bool_)))


def _difference(run: Callable[[Arrays, Frame], differences.Differences]) -> Callable[[Arrays, Frame, Args], Mapped]:
    def mapped(data: Arrays, frame: Frame, _args: Args) -> Mapped:
        found = run(data, frame)
        return Mapped(found.column, found.approximate)

    return mapped


def _of_last(
    kernel: Kernel, *, moves: bool = False, blocks: bool | str = False
) -> Callable[[Arrays, Frame, Args], Mapped]:
    """A function of the last value of each bucket. `blocks` may be the flag that makes it look at whole windows."""

    def mapped(data: Arrays, frame: Frame, args: Args) -> Mapped:
        whole_windows = bool(args[blocks]) if isinstance(blocks, str) else blocks
        column = over_panes(kernel, data, frame, args, moves=moves, blocks=whole_windows)
        return Mapped(column, _crowded(data, frame))

    return mapped


def _of_neighbours(run: Callable[[Arrays, Frame], Cells]) -> Callable[[Arrays, Frame, Args], Mapped]:
    return lambda data, frame, _args: Mapped(neighbours.by_rows(run, data, frame), _crowded(data, frame))


def _resets(data: Arrays, frame: Frame, _args: Args) -> Mapped:
    return Mapped(neighbours.by_rows(neighbours.resets, data, frame))


def _crowded(data: Arrays, frame: Frame) -> Bools:
    """(series, outputs) windows in which a bucket holds more than one sample."""
    several = data.stats["count"] > 1
    out = np.zeros((data.rows, len(frame.ends)), np.bool_)
    rows = np.flatnonzero(several.any(axis=1))
    each = max(1, CHUNK_CELLS // data.grid.n)
    for start in range(0, len(rows), each):
        here = rows[start : start + each]
        out[here] = totals(several[here].astype(np.int64), frame) > 0
    return out


_DIFFERENCE = ("last", "last_time", "min")
_TIMED = ("last", "last_time")
_DDOF = Param("ddof", "integer", 1, least=0)
_ALPHA, _BETA = (Param(name, "number", above=0, below=1) for name in ("alpha", "beta"))
_METHOD = Param("method", "choice", "linear", choices=tuple(METHODS))


def _counted(name: str, run: Callable[[Arrays, Frame], differences.Differences], *, counter: bool = True) -> Function:
    return Function(
        name=name, statistics=_DIFFERENCE, run=_difference(run), predecessor=True, births=True, counter=counter
    )


def _lasting(name: str, kernel: Kernel, *params: Param, moves: bool = False, blocks: bool | str = False) -> Function:
    return Function(name=name, statistics=("last",), run=_of_last(kernel, moves=moves, blocks=blocks), params=params)


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        function.name: function
        for function in (
            Function(name="last", statistics=("last",), run=_last, strings=True),
            Function(name="first", statistics=("last",), run=_first, strings=True),
            Function(name="min", statistics=("min",), run=_min),
            Function(name="max", statistics=("max",), run=_max),
            Function(name="sum", statistics=("sum",), run=_sum, total=True),
            Function(name="mean", statistics=("sum",), run=_mean),
            Function(name="count", statistics=(), run=_count, min_count=0, total=True, strings=True),
            _counted("increase", differences.increase),
            _counted("delta", differences.delta, counter=False),
            _counted("rate", differences.rate),
            Function(
                name="irate", statistics=_TIMED, run=_of_neighbours(neighbours.last_rate), births=True, counter=True
            ),
            Function(name="changes", statistics=("last",), run=_of_neighbours(neighbours.changes), strings=True),
            Function(name="resets", statistics=_TIMED, run=_resets, predecessor=True, births=True, counter=True),
            _lasting(
                "quantile", spread.quantile, Param("q", "number", least=0, most=1), _METHOD, moves=True, blocks=True
            ),
            _lasting("median", spread.median, moves=True, blocks=True),
            _lasting("sd", spread.deviation, _DDOF),
            _lasting("var", spread.variance, _DDOF),
            _lasting("mad", spread.median_deviation, blocks=True),
            _lasting("zscore", spread.score, Param("robust", "flag", False), _DDOF, blocks="robust"),
            _lasting("ewma", smoothing.exponential, Param("alpha", "number", above=0, most=1), moves=True),
            _lasting("holt", smoothing.double_exponential, _ALPHA, _BETA, moves=True),
            Function(name="derivative", statistics=_TIMED, run=_of_last(regression.slope)),
            Function(
                name="predict_linear",
                statistics=_TIMED,
                run=_of_last(regression.prediction, moves=True),
                params=(Param("horizon", "duration"),),
            ),
        )
    }
)
