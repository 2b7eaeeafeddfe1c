"""Window functions map the samples of one series in (t - before, t + after] to a value, from statistics of buckets.

An entry is the function, its documentation and its test, beside the code; functions.py collects all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import DOUBLE, INTEGER, Bools, Cells, Types, is_whole_number
from artimon.compute.matrix_columns import MIN_ROLLING_SERIES, roll
from artimon.compute.params import Args, Param
from artimon.compute.rolling_windows import (
    MaskOrBool,
    MatrixNeeded,
    Rolling,
    RollingContext,
    WindowValues,
    intersect,
    simplify_mask,
)
from artimon.compute.shared_windows import SharedFold
from artimon.compute.true_sums import wide_cells
from artimon.compute.window_frames import WindowFrame, integer_totals

OF_SERIES = "of the series"
"""Unit of most results."""


@dataclass(frozen=True, slots=True)
class Example:
    """Input rows and output row of one function; None is NA. Run by the tests and shown in the documentation."""

    given: tuple[tuple[float | str | None, ...], ...]
    expect: tuple[float | None, ...]


ROW = ((2.0, 8.0, None, 20.0),)
"""Input of most examples."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """Name, documentation and test of a function. `unit` is the unit of the result."""

    name: str
    summary: str
    example: str
    """Query that parses."""
    case: Example
    """Test case with the arguments `case_args`, for window functions with windows of two buckets."""
    case_args: str = ""
    unit: str = OF_SERIES


@dataclass(frozen=True, kw_only=True)
class WindowFunction:
    """Window function. `run` computes a value for every window with samples; `mask_windows` applies `min_count` and
    `full`."""

    name: str
    statistics: tuple[str, ...]
    """Statistics that it reads besides `count`."""
    run: Callable[[Arrays, WindowFrame, Args], Mapped]
    """Implementation on whole matrices."""
    rolling: Callable[[RollingContext], Rolling] | None = None
    """Equivalent implementation bucket by bucket, for many series."""
    shared: SharedFold | None = None
    """Equivalent implementation on raw samples, for windows that share most of theirs."""
    gives: Literal["same", "number", "real", "integer"] = "real"
    """Type of the values of the rolling form: that of the series; INTEGER or DOUBLE; DOUBLE; INTEGER."""
    params: tuple[Param, ...] = ()
    """Arguments besides the window; `run` gets all of them."""
    min_count: int = 1
    pair: bool = False
    """True if one value has no result, unless `ddof` is 0."""
    total: bool = False
    """True if a window without samples has a result at `min_count` 0 (0 for sum and count)."""
    strings: bool = False
    predecessor: bool = False
    """True if it reads the sample before the window, at most `max_gap` older than the window's start."""
    births: bool = False
    """True if it reads the incarnations of the series."""
    counter: bool = False
    """True for functions of counters: gauges, and sums of counters, give a warning."""
    edges: bool = False
    """True if it reads only the first and the last two samples of a window, the one before it, and incarnations."""
    opening: bool = False
    """True if it reads `min` of opening buckets alone, see SelectRequest, unless `max_gap` is less than a bucket."""
    grid_only: bool = False
    """True if it needs buckets of known times and widths: raw samples are refused."""

    def of(self, data: Arrays, frame: WindowFrame, args: Args) -> Mapped:
        """Compute a value for every window with samples by the fastest implementation."""
        wide_sums = "sum" in self.statistics and wide_cells(data.stats, is_whole_number(data.types)) is not None
        if self.rolling is not None and frame.width > 1 and data.rows >= MIN_ROLLING_SERIES and not wide_sums:
            try:
                return roll(self.rolling, self.statistics, data, frame, result_types(self.gives, data.types), args)
            except MatrixNeeded:
                pass
        return self.run(data, frame, args)


@dataclass(frozen=True, kw_only=True)
class Function(WindowFunction, Described):
    """Entry of a window function of the language."""


def result_types(gives: str, types: Types) -> Types:
    """Return the types (series,) of the values of a function, see `Function.gives`."""
    if gives == "same":
        return types
    if gives == "number":
        return np.where(types == DOUBLE, DOUBLE, INTEGER).astype(np.uint8)
    return np.full(len(types), DOUBLE if gives == "real" else INTEGER, np.uint8)


def count_wide(function: WindowFunction, given: Types, types: Types) -> int:
    """Count the series whose results are DOUBLE instead of INTEGER because int64 does not hold one of them."""
    return int(((result_types(function.gives, given) == INTEGER) & (types == DOUBLE)).sum())


def mask_windows(
    found: Mapped, function: WindowFunction, data: Arrays, frame: WindowFrame, min_count: int | None, full: bool
) -> Mapped:
    """Mask the windows with fewer than `min_count` samples (None: the function's default); with `full` also the windows
    with an empty bucket."""
    column, least = found.column, function.min_count if min_count is None else min_count
    if least <= 1 and function.rolling is not None and not (function.total or full):
        return found  # as in `mask_shown`
    kept = np.asarray(integer_totals(data.stats["count"], frame) >= least)
    if full:
        kept &= has_no_gaps(data, frame)
    present = kept if function.total else column.present & kept
    doubt = None if found.approximate is None else found.approximate & kept
    return replace(found, column=Cells(column.types, column.cells, present), approximate=doubt)


def has_no_gaps(data: Arrays, frame: WindowFrame) -> Bools:
    """Return the mask (series, outputs) of windows without empty buckets."""
    return np.asarray(integer_totals(data.present.astype(np.int64), frame) == frame.width)


def mask_shown(
    rolling: Rolling, shown: WindowValues, function: WindowFunction, min_count: int | None, full: bool
) -> WindowValues:
    """Apply the rules of `mask_windows` to the newest window of a rolling function."""
    least = function.min_count if min_count is None else min_count
    if least <= 1 and not (function.total or full):
        return shown
    kept: MaskOrBool = True
    if function.total or least > 1:
        counts = rolling.counts()
        kept = counts >= least if isinstance(counts, int) else simplify_mask(counts >= least)
    if full:
        kept = intersect(kept, rolling.has_no_gaps())
    doubt = shown.approximate
    if doubt is not None and kept is not True:
        doubt = doubt[kept[doubt]] if kept is not False else None
    return shown._replace(present=kept if function.total else intersect(shown.present, kept), approximate=doubt)
