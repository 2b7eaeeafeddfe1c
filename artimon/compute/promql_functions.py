"""Window functions of PromQL for shards.

Those of `ALIGNED` read statistics of buckets: at every level they give the value of the raw samples, if windows begin
and end with buckets. The others take the newest sample of each bucket as the only one, at its own time, and windows
of any begin and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from artimon.compute import basic_windows
from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import DOUBLE, Bools, Floats, Ints, as_floats, doubles
from artimon.compute.checkpoint import checkpoint
from artimon.compute.function import WindowFunction
from artimon.compute.packed_samples import PackedSamples, Rows, Windows, make_windows, newest
from artimon.compute.paired_sums import exact_sum
from artimon.compute.params import Args, Param
from artimon.compute.rolling_windows import (
    BucketColumn,
    MaskOrBool,
    MatrixNeeded,
    Rolling,
    RollingContext,
    RollingLast,
    RollingSum,
    WindowValues,
    intersect,
    simplify_mask,
)
from artimon.compute.sample_windows import WINDOWED, Result, extrapolate
from artimon.compute.window_frames import WindowFrame, integer_totals, newest_present, pick, window_view

_RANGE = Param("range_ms", "integer", least=1)
"""Length of the windows."""
BLOCK = 8_192
"""Series that are computed at a time: 64 kB an array."""
_SHIFT = Param("shift_ms", "integer", 0, least=0)
"""Time between the end of a window and that of its last bucket."""

_ENDED = Param("ended", "flag", True)
"""True if a series is missing after its end."""


def pack_buckets(data: Arrays, here: Bools) -> PackedSamples:
    """Return the newest sample of each bucket of the mask (series, buckets), as numbers."""
    row, column = np.nonzero(here)
    values = as_floats(data.types, np.ascontiguousarray(data.stats["last"]))[row, column]
    offsets = np.concatenate(([0], np.cumsum(here.sum(axis=1)))).astype(np.int64)
    return PackedSamples(offsets, data.stats["last_time"][row, column], values)


# --- functions of aligned windows


class _RollingNewest(RollingLast):
    """Newest value, unless it is older than the range."""

    def __init__(self, span: RollingContext) -> None:
        super().__init__(span if span.args["ended"] else replace(span, ended_ms=None))
        self._limited = span.args["range_ms"] < self.width * span.step_ms
        self._time: Ints | None = None

    def update(self, column: BucketColumn | None) -> None:
        super().update(column)
        if column is not None and self._limited:
            time = column.cells("last_time")
            whole = column.present is True or self._time is None
            self._time = time if whole or self._time is None else np.where(column.present, time, self._time)

    def result(self) -> WindowValues:
        found = super().result()
        if self._time is None or found.present is False:
            return found
        oldest = int(self.span.frame.end_ms[self.output]) - self.span.args["range_ms"]
        return found._replace(present=intersect(found.present, simplify_mask(self._time > oldest)))


def _last(data: Arrays, frame: WindowFrame, args: Args) -> Mapped:
    if not args["ended"]:
        data = replace(data, ended_ms=np.zeros_like(data.ended_ms))
    found = _BASIC["last"].run(data, frame, args)
    column = newest_present(data.present)[:, frame.ends]
    young = pick(data.stats["last_time"], column) > frame.end_ms[None, :] - args["range_ms"]
    return Mapped(found.column._replace(present=found.column.present & young))


class _CompensatedSum(RollingSum):
    """Sum of doubles with their rounding errors."""

    def fold_window(self) -> tuple[Ints | None, Floats | None]:
        if self.span.double is False or self.width == 1:
            return super().fold_window()
        held = [cells for cells in self._columns if cells is not None]
        ints = None if self.span.double is True or not held else _added(held)
        return ints, exact_sum(np.stack([cells.view(np.float64) for cells in held]), axis=0) if held else None


def _added(held: list[Ints]) -> Ints:
    total: Ints = np.add.reduce(held)
    return total


def _sum(data: Arrays, frame: WindowFrame, args: Args) -> Mapped:
    found = _BASIC["sum"].run(data, frame, args).column
    double = np.flatnonzero(data.types == DOUBLE)
    sums = found.cells.view(np.float64)
    for row in double.tolist():
        checkpoint()
        values = np.where(data.present[row], data.stats["sum"][row].view(np.float64), 0.0)
        sums[row] = exact_sum(window_view(values[None, :], frame)[0], axis=1)
    return Mapped(found)


def _mean(data: Arrays, frame: WindowFrame, args: Args) -> Mapped:
    total = _sum(data, frame, args).column
    counts = integer_totals(data.stats["count"], frame)
    with np.errstate(all="ignore"):
        return Mapped(doubles(total.cells.view(np.float64) / counts, total.present))


# --- functions of samples


def _sampled(function: Callable[[Windows], Result]) -> Callable[[Arrays, WindowFrame, Args], Mapped]:
    def run(data: Arrays, frame: WindowFrame, args: Args) -> Mapped:
        ends_ms, samples = frame.end_ms - args["shift_ms"], pack_buckets(data, data.present)
        found = function(make_windows(samples, ends_ms, args["range_ms"], checkpoint))
        return Mapped(doubles(*found), _several(data, frame))

    return run


def _several(data: Arrays, frame: WindowFrame) -> Bools | None:
    """Return the windows with buckets of several samples, of which only the newest is known."""
    several = data.stats["count"] > 1
    return np.asarray(window_view(several, frame).any(axis=2)) if several.any() else None


def _newest(data: Arrays, frame: WindowFrame, args: Args) -> Mapped:
    ends_ms, samples = frame.end_ms - args["shift_ms"], pack_buckets(data, data.present)
    values, _, held = newest(samples, ends_ms, args["range_ms"])
    over = (data.ended_ms > 0)[:, None] & (data.ended_ms[:, None] <= ends_ms[None, :])
    return Mapped(doubles(values, held & ~over), _several(data, frame))


class _Samples(NamedTuple):
    """Samples of one bucket; `several`: series of whose samples it holds only the newest."""

    present: MaskOrBool
    cells: Ints
    time: Ints
    several: Rows


class _Falls(NamedTuple):
    """Series that fell in a bucket, their value before, and the bucket of that value."""

    rows: Rows
    before: Floats
    at: Ints


_NO_ROWS: Rows = np.zeros(0, np.intp)
_NO_FALLS = _Falls(_NO_ROWS, np.zeros(0), np.zeros(0, np.int64))


class _RollingExtrapolated(Rolling):
    """rate, increase and delta of whole buckets. Blocks of series keep temporaries in the cache of the processor."""

    def __init__(self, span: RollingContext, name: str) -> None:
        super().__init__(span)
        self._range_ms, self._name = span.args["range_ms"], name
        if span.args["shift_ms"] or self._range_ms != self.width * span.step_ms:
            raise MatrixNeeded
        self._blocks = [slice(start, start + BLOCK) for start in range(0, span.rows, BLOCK)]
        self._samples: deque[_Samples | None] = deque(maxlen=self.width)
        self._falls: deque[_Falls] = deque(maxlen=self.width)
        nothing = np.zeros(span.rows, np.int64)
        self._last = _Samples(False, nothing, nothing, _NO_ROWS)
        """Newest sample of each series, in the bucket `_at`."""
        self._at: Ints | int = -1
        self._values, self._lost = np.empty(span.rows), np.zeros(span.rows)

    def update(self, column: BucketColumn | None) -> None:
        if column is None:
            self._samples.append(None)
            self._falls.append(_NO_FALLS)
            return
        present, time, cells = column.present, column.cells("last_time"), column.cells("last")
        several = _NO_ROWS if column.count is None else np.flatnonzero(column.count > 1)
        self._samples.append(_Samples(present, cells, time, several))
        self._falls.append(self._fallen(present, cells))
        if present is not True:
            cells, time = np.where(present, cells, self._last.cells), np.where(present, time, self._last.time)
        self._last, self._at = _Samples(present, cells, time, several), self.newest

    def _numbers(self, cells: Ints, rows: slice | Rows) -> Floats:
        double, mine = self.span.double, cells[rows]
        if isinstance(double, bool):
            return mine.view(np.float64) if double else mine.astype(np.float64)
        return np.where(double[rows], mine.view(np.float64), mine)

    def _fallen(self, present: MaskOrBool, cells: Ints) -> _Falls:
        if self._name == "delta" or (isinstance(self._at, int) and self._at < 0):
            return _NO_FALLS
        with np.errstate(invalid="ignore"):
            if self.span.double is False:
                fell = cells < self._last.cells
            else:
                blocks = [self._numbers(cells, b) < self._numbers(self._last.cells, b) for b in self._blocks]
                fell = np.concatenate(blocks)
        rows = np.flatnonzero(fell)
        for mask in (present, self.span.members):
            rows = rows if isinstance(mask, bool) else rows[mask[rows]]
        return _Falls(rows, self._numbers(self._last.cells, rows), np.broadcast_to(self._at, cells.shape)[rows])

    def result(self) -> WindowValues:
        if self.has_samples() is False:
            return self.empty_result()
        held = [one for one in self._samples if one is not None]
        start = max(0, self.at - self.width + 1)
        falls = [(one.rows[one.at >= start], one.before[one.at >= start]) for one in self._falls if len(one.rows)]
        for rows, before in falls:
            self._lost[rows] += before
        counts = [self._block(held, block) for block in self._blocks]
        for rows, _ in falls:
            self._lost[rows] = 0.0
        if isinstance(counts[0], int):
            present: MaskOrBool = counts[0] >= 2
        else:
            present = np.concatenate(counts) >= 2
        several = [one.several for one in held if len(one.several)]
        doubt = np.unique(np.concatenate(several)) if several else None
        return WindowValues(self._values.view(np.int64), present, doubt)

    def _block(self, held: list[_Samples], block: slice) -> Any:
        """Compute the values of a block; return the numbers of samples."""
        first, first_ms = self._numbers(held[0].cells, block), held[0].time[block]
        counts: Any = len(held)
        if any(one.present is not True for one in held):
            counts = np.zeros(len(first), np.int64)
            for one in reversed(held):
                here: Any = one.present if isinstance(one.present, bool) else one.present[block]
                first = np.where(here, self._numbers(one.cells, block), first)
                first_ms = np.where(here, one.time[block], first_ms)
                counts += here
        with np.errstate(all="ignore"):
            increase = self._numbers(self._last.cells, block) - first + self._lost[block]
        end_ms, last_ms = int(self.span.frame.end_ms[self.output]), self._last.time[block]
        self._values[block] = extrapolate(
            increase, first, first_ms, last_ms, counts, end_ms, self._range_ms, self._name
        )
        return counts


# --- tables

_BASIC: Mapping[str, WindowFunction] = {one.name: one for one in basic_windows.FUNCTIONS}


def _aligned(name: str, **changed: Any) -> WindowFunction:
    """Return a function of the language without values of texts."""
    one = _BASIC[name]
    kept = {field: getattr(one, field) for field in ("statistics", "run", "rolling", "gives", "total")}
    return WindowFunction(name=f"promql.{name}", **{**kept, **changed})


def _of_samples(name: str, run: Callable[[Arrays, WindowFrame, Args], Mapped]) -> WindowFunction:
    rolling = partial(_RollingExtrapolated, name=name) if name in ("rate", "increase", "delta") else None
    return WindowFunction(
        name=f"promql.{name}", statistics=("last", "last_time"), run=run, rolling=rolling, params=(_RANGE, _SHIFT)
    )


PROMQL_FUNCTIONS: Mapping[str, WindowFunction] = MappingProxyType(
    {
        one.name: one
        for one in (
            _aligned(
                "last", statistics=("last", "last_time"), run=_last, rolling=_RollingNewest, params=(_RANGE, _ENDED)
            ),
            _aligned("sum", run=_sum, rolling=lambda span: _CompensatedSum(span, mean=False)),
            _aligned("mean", run=_mean, rolling=lambda span: _CompensatedSum(span, mean=True)),
            _aligned("count"),
            _of_samples("newest", _newest),
            *(_of_samples(name, _sampled(function)) for name, function in WINDOWED.items()),
        )
    }
)
