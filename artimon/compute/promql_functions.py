"""Window functions of PromQL for shards.

Those of `ALIGNED` read statistics of buckets: at every level they give the value of the raw samples, if windows begin
and end with buckets. The others take the newest sample of each bucket as the only one, at its own time, and windows
of any begin and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from artimon.compute import basic_windows
from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import DOUBLE, Bools, Cells, Floats, Ints, as_floats, doubles
from artimon.compute.checkpoint import checkpoint
from artimon.compute.function import WindowFunction
from artimon.compute.packed_samples import PackedSamples, Windows, make_windows, newest
from artimon.compute.paired_sums import exact_sum
from artimon.compute.params import Args, Param
from artimon.compute.rolling_extrapolation import RollingExtrapolated
from artimon.compute.rolling_windows import (
    BucketColumn,
    RollingContext,
    RollingLast,
    RollingSum,
    WindowValues,
    intersect,
    simplify_mask,
)
from artimon.compute.sample_windows import WINDOWED, Result
from artimon.compute.window_frames import WindowFrame, integer_totals, newest_present, pick, window_view

_RANGE = Param("range_ms", "integer", least=1)
"""Length of the windows."""
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
    column = newest_present(data.present)[:, frame.ends]
    here = column > frame.starts
    here &= pick(data.stats["last_time"], column) > frame.end_ms[None, :] - args["range_ms"]
    if args["ended"] and data.ended_ms.any():  # after its end a series is missing, without look-back
        here &= ~((data.ended_ms > 0)[:, None] & (frame.end_ms[None, :] >= data.ended_ms[:, None]))
    return Mapped(Cells(data.types, pick(data.stats["last"], column), here))


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


# --- tables

_BASIC: Mapping[str, WindowFunction] = {one.name: one for one in basic_windows.FUNCTIONS}


def _aligned(name: str, **changed: Any) -> WindowFunction:
    """Return a function of the language without values of texts."""
    one = _BASIC[name]
    kept = {field: getattr(one, field) for field in ("statistics", "run", "rolling", "gives", "total")}
    return WindowFunction(name=f"promql.{name}", **{**kept, **changed})


def _of_samples(name: str, run: Callable[[Arrays, WindowFrame, Args], Mapped]) -> WindowFunction:
    rolling = partial(RollingExtrapolated, name=name) if name in ("rate", "increase", "delta") else None
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
