"""Window function and reducer over many series, one chunk at a time."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.arrays import Arrays, Mapped, padded_stats, picked_lives
from artimon.compute.cells import STRING, Ints, take
from artimon.compute.function import WindowFunction, count_wide, mask_windows
from artimon.compute.functions import WINDOW_FUNCTIONS
from artimon.compute.params import Args, bind_params
from artimon.compute.partials import Partial, empty_partial, merge_into, partial_of
from artimon.compute.ranks import BEST, ORDERED, MemberBlock, Ranks, best_rows, make_block, ordered_partial
from artimon.compute.window_frames import WindowFrame
from artimon.model.grid import Grid
from artimon.model.values import Kind

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Windows of a function over the columns of a grid that is padded with `left` and `right` empty columns. Output j
    covers `width` columns and ends with column first_end + j * each."""

    function: str
    outputs: int
    width: int = 1
    first_end: int = 0
    each: int = 1
    left: int = 0
    right: int = 0
    max_gap_ms: int = 0
    min_count: int | None = None
    full: bool = False
    """True if an empty bucket makes the result of its windows missing."""
    after: int = 0
    """Columns of a window after the time stamp of its result."""
    args: tuple[tuple[str, Any], ...] = ()
    """Arguments of the function that differ from their defaults."""

    def padded_grid(self, grid: Grid) -> Grid:
        """Return `grid` with the empty columns."""
        return Grid(grid.end_ms + self.right * grid.step_ms, grid.step_ms, self.left + grid.n + self.right)

    def frame(self, grid: Grid) -> WindowFrame:
        """Return columns and times of the windows; `grid` is the range that the store holds."""
        wide = self.padded_grid(grid)
        ends = self.first_end + self.each * np.arange(self.outputs, dtype=np.int64)
        end_ms = wide.start_ms + (ends + 1) * wide.step_ms
        step_ms = wide.step_ms
        return WindowFrame(ends, self.width, end_ms, self.width * step_ms, self.max_gap_ms, self.after * step_ms)


def map_windows(windows: WindowPlan, held: Arrays) -> Mapped:
    """Compute the windows of series on the grid that the store holds."""
    function, frame = WINDOW_FUNCTIONS[windows.function], windows.frame(held.grid)
    data = replace(
        held,
        grid=windows.padded_grid(held.grid),
        stats=padded_stats(held.stats, windows.left, windows.right),
        first_held=windows.left,
    )
    found = function.of(data, frame, bind_params(function.name, function.params, windows.args))
    return mask_windows(found, function, data, frame, windows.min_count, windows.full)


@dataclass(slots=True)
class SeriesCounts:
    """Counts of series for the warnings of a result."""

    selected: int = 0
    sampled: int = 0
    """Series with a sample in the range; others are not members."""
    left_out: int = 0
    """STRING series, which the window function does not support."""
    texts: int = 0
    """STRING series, which the reducer does not support."""
    gauges: int = 0
    """Gauges under a function for counters."""
    approximate: int = 0
    """Number of values that are approximate, or missing for the same reason; one series may have several."""
    wide: int = 0
    """Series with a value that int64 does not hold: all their values are DOUBLE."""

    def add(self, other: SeriesCounts) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(slots=True)
class Reduction:
    """Accumulator of chunks of series; `total` is the partial so far. `gauge_rows` collects the rows of gauges."""

    windows: WindowPlan
    reducer: str
    classes: int
    counts: SeriesCounts = field(default_factory=SeriesCounts)
    reducer_args: Args = field(default_factory=dict)
    gauge_rows: list[Rows] = field(default_factory=list)
    blocks: list[MemberBlock] = field(default_factory=list)
    """Values of all members, for order statistics."""
    best: list[Rows] = field(default_factory=list)
    """Rows of the caller that are candidates, for reducers that choose members."""
    ranks: Ranks | None = None
    """Return the ranks of the names and labels of all rows of the caller, for reducers that choose members."""
    function: WindowFunction = field(init=False)
    args: Args = field(init=False)
    total: Partial = field(init=False)

    def __post_init__(self) -> None:
        self.function = WINDOW_FUNCTIONS[self.windows.function]
        self.args = bind_params(self.function.name, self.function.params, self.windows.args)
        self.total = empty_partial(self.reducer, self.classes, self.windows.outputs)

    def add(self, data: Arrays, codes: Ints, rows: Rows) -> None:
        """Add series on the grid that the store holds; `codes` are their classes, `rows` their rows at the caller."""
        kept = np.flatnonzero(data.present.any(axis=1))
        self.counts.sampled += len(kept)
        if not self.function.strings:
            numeric = data.types[kept] != STRING
            self.counts.left_out += int(len(kept) - numeric.sum())
            kept = kept[numeric]
        kept = kept[np.argsort(codes[kept], kind="stable")]
        if not len(kept):
            return
        if self.function.counter:
            gauges = rows[kept][data.kinds[kept] == Kind.GAUGE]
            self.counts.gauges += len(gauges)
            self.gauge_rows.append(gauges)
        self._reduce(select_rows(data, kept), codes[kept], rows[kept])

    def result(self, gather: bool = False) -> Partial:
        """Return the partial of all series after the last chunk. With `gather`, the partial of an order statistic holds
        the values of all members; the receiver of `blocks` reduces them."""
        if gather or self.reducer not in ORDERED:
            return self.total
        members, outputs = self.total.members, self.windows.outputs
        return ordered_partial(self.reducer, self.reducer_args, self.blocks, members, outputs)

    def _reduce(self, held: Arrays, codes: Ints, rows: Rows) -> None:
        found = map_windows(self.windows, held)
        self.counts.wide += count_wide(self.function, held.types, found.column.types)
        column = found.column
        if found.approximate is not None:
            self.counts.approximate += int(found.approximate.sum())
        if self.reducer != "count":
            texts = column.types == STRING
            if texts.any():
                self.counts.texts += int(texts.sum())
                column, codes, rows = take(column, ~texts), codes[~texts], rows[~texts]
        if len(codes) and (self.reducer in ORDERED or self.reducer in BEST):
            self.total.members[:] += np.bincount(codes, minlength=self.classes)
            if self.reducer in ORDERED:
                self.blocks.append(make_block(column, codes))
            else:
                ranks = None if self.ranks is None else self.ranks()[rows]
                self.best.append(rows[best_rows(self.reducer, self.reducer_args, column, codes, ranks)])
        elif len(codes):
            starts = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
            part = partial_of(self.reducer, column, starts)
            merge_into(self.total, part, codes[starts])


def select_rows(data: Arrays, rows: Rows) -> Arrays:
    """Return the chosen series, in the order of `rows`, with C-ordered arrays."""
    return data.chosen(rows, picked_lives(data.lives, rows, data.rows))
