"""Window function: samples of one series in (t - before, t + after] to one value, read from statistics of buckets.

An entry is the function, its documentation and its test. It stands beside the code; functions.py collects all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import DOUBLE, INTEGER, Bools, Cells, Types
from artimon.compute.frames import Frame, totals
from artimon.compute.matrix_columns import MANY_SERIES, roll
from artimon.compute.params import Args, Param
from artimon.compute.rolling import Odd, Rolling, Shown, Some, Span, all_of, both
from artimon.compute.running import Shared

OF_SERIES = "of the series"
"""The unit of most results."""


@dataclass(frozen=True, slots=True)
class Example:
    """Rows in, one row out, for one function; None is NA. Run by the tests and shown in the documentation."""

    given: tuple[tuple[float | str | None, ...], ...]
    expect: tuple[float | None, ...]


ROW = ((2.0, 8.0, None, 20.0),)
"""The series of most examples."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """`run` answers a value for every window that has samples; `masked` takes out what the rules leave out."""

    name: str
    summary: str
    example: str
    """A query that parses."""
    case: Example
    """Run with the arguments `case_args`, windows of two buckets."""
    case_args: str = ""
    unit: str = OF_SERIES
    statistics: tuple[str, ...]
    """Statistics it reads, besides `count`."""
    run: Callable[[Arrays, Frame, Args], Mapped]
    """Of whole matrices."""
    rolling: Callable[[Span], Rolling] | None = None
    """Bucket by bucket, for many series: the same values."""
    shared: Shared | None = None
    """Of raw samples, where windows share most of theirs: the same values."""
    gives: Literal["same", "number", "real", "integer"] = "real"
    """Type of the values where there is a rolling form: that of the series; INTEGER or DOUBLE; DOUBLE; INTEGER."""
    params: tuple[Param, ...] = ()
    """Arguments besides the window; `run` gets all of them."""
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
    edges: bool = False
    """Whether it only looks at the first and the two last samples of a window, at the one before it, and at lives."""

    def of(self, data: Arrays, frame: Frame, args: Args) -> Mapped:
        """A value for every window that has samples, in the quickest way."""
        if self.rolling is not None and frame.width > 1 and data.rows >= MANY_SERIES:
            try:
                return roll(self.rolling, self.statistics, data, frame, given_types(self.gives, data.types))
            except Odd:
                pass
        return self.run(data, frame, args)


def given_types(gives: str, types: Types) -> Types:
    """(series,) types of the values of a function, see `Function.gives`."""
    if gives == "same":
        return types
    if gives == "number":
        return np.where(types == DOUBLE, DOUBLE, INTEGER).astype(np.uint8)
    return np.full(len(types), DOUBLE if gives == "real" else INTEGER, np.uint8)


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


def ruled(rolling: Rolling, shown: Shown, function: Function, min_count: int | None, full: bool) -> Shown:
    """The values shown last without those that `masked` leaves out."""
    least, present = function.min_count if min_count is None else min_count, shown.present
    if least <= 1 and not (function.total or full):
        return shown
    if function.total or least > 1:
        counts = rolling.counts()
        enough: Some = counts >= least if isinstance(counts, int) else all_of(counts >= least)
        present = enough if function.total else both(present, enough)
    if full:
        present = both(present, rolling.filled())
    return Shown(shown.cells, present, shown.approximate)
