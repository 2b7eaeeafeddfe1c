"""A window function and a reducer over many series, a chunk of them at a time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.arrays import Arrays, padded_stats
from artimon.compute.cells import STRING, Ints, take
from artimon.compute.classes import Partial, add_partial, empty_partial, partial_of
from artimon.compute.frames import Frame
from artimon.compute.function import Function, masked
from artimon.compute.functions import FUNCTIONS
from artimon.compute.params import Args, arguments
from artimon.compute.ranks import BEST, ORDERED, Block, best_rows, block_of, ordered_partial
from artimon.model.grid import Grid
from artimon.model.values import Kind

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Windows:
    """Where the windows of a function lie in the columns of a grid, after `left` empty columns before it and `right`
    after it: output j ends with column first_end + j * each and covers `width` of them."""

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
    """Whether an empty bucket makes the result of its windows missing."""
    after: int = 0
    """How many of the columns of a window lie after the time that its result is shown at."""
    args: tuple[tuple[str, Any], ...] = ()
    """Arguments of the function that differ from their defaults."""

    def wide(self, grid: Grid) -> Grid:
        """`grid` with the empty columns."""
        return Grid(grid.end_ms + self.right * grid.step_ms, grid.step_ms, self.left + grid.n + self.right)

    def frame(self, grid: Grid) -> Frame:
        """Columns and times of the windows, `grid` being what the store holds."""
        wide = self.wide(grid)
        ends = self.first_end + self.each * np.arange(self.outputs, dtype=np.int64)
        end_ms = wide.start_ms + (ends + 1) * wide.step_ms
        step_ms = wide.step_ms
        return Frame(ends, self.width, end_ms, self.width * step_ms, self.max_gap_ms, self.after * step_ms)


@dataclass(slots=True)
class Counts:
    """What has to be said about a result besides its values, in numbers of series (points: of values)."""

    selected: int = 0
    sampled: int = 0
    """With a sample in the range; the others are no members."""
    left_out: int = 0
    """STRING, which the window function does not take."""
    texts: int = 0
    """STRING, which the reducer does not take."""
    gauges: int = 0
    """Where a function for counters was asked for."""
    approximate: int = 0
    """Points."""

    def add(self, other: Counts) -> None:
        self.selected += other.selected
        self.sampled += other.sampled
        self.left_out += other.left_out
        self.texts += other.texts
        self.gauges += other.gauges
        self.approximate += other.approximate


@dataclass(slots=True)
class Reducing:
    """Takes chunks of series; `total` is the partial of all so far. `gauge_rows` collects where gauges stood."""

    windows: Windows
    reducer: str
    classes: int
    counts: Counts = field(default_factory=Counts)
    reducer_args: Args = field(default_factory=dict)
    gauge_rows: list[Rows] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    """Values that only all together can be reduced."""
    best: list[Rows] = field(default_factory=list)
    """Of reducers that choose members, whom they may choose; what the caller calls them."""
    function: Function = field(init=False)
    args: Args = field(init=False)
    total: Partial = field(init=False)

    def __post_init__(self) -> None:
        self.function = FUNCTIONS[self.windows.function]
        self.args = arguments(self.function.name, self.function.params, self.windows.args)
        self.total = empty_partial(self.reducer, self.classes, self.windows.outputs)

    def add(self, data: Arrays, codes: Ints, rows: Rows) -> None:
        """Series on the grid that the store holds, `codes` their classes, `rows` what the caller calls them."""
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
        self._reduce(picked(data, kept), codes[kept], rows[kept])

    def finished(self, gather: bool = False) -> Partial:
        """The partial of all, after the last chunk. With `gather` of order statistics the members only: whoever takes
        `blocks` reduces them."""
        if gather or self.reducer not in ORDERED:
            return self.total
        return ordered_partial(
            self.reducer, self.reducer_args, self.blocks, self.total.members, self.windows.outputs
        )  # fmt: skip

    def _reduce(self, held: Arrays, codes: Ints, rows: Rows) -> None:
        windows = self.windows
        frame = windows.frame(held.grid)
        data = replace(
            held,
            grid=windows.wide(held.grid),
            stats=padded_stats(held.stats, windows.left, windows.right)
            if windows.left or windows.right
            else held.stats,
            first_held=windows.left,
        )
        found = self.function.of(data, frame, self.args)
        column = masked(found.column, self.function, data, frame, windows.min_count, windows.full)
        if found.approximate is not None:
            self.counts.approximate += int((found.approximate & column.present).sum())
        if self.reducer != "count":
            texts = column.types == STRING
            if texts.any():
                self.counts.texts += int(texts.sum())
                column, codes, rows = take(column, ~texts), codes[~texts], rows[~texts]
        if len(codes) and (self.reducer in ORDERED or self.reducer in BEST):
            self.total.members[:] += np.bincount(codes, minlength=self.classes)
            if self.reducer in ORDERED:
                self.blocks.append(block_of(column, codes))
            else:
                self.best.append(rows[best_rows(self.reducer, self.reducer_args, column, codes)])
        elif len(codes):
            starts = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
            part = partial_of(self.reducer, column, starts)
            add_partial(self.total, part, codes[starts])


def picked(data: Arrays, rows: Rows) -> Arrays:
    """The chosen series, in the order of `rows`, with C-ordered arrays."""
    place = np.full(data.rows, -1, np.int64)
    place[rows] = np.arange(len(rows))
    lives = data.lives
    if len(lives):
        lives = lives[place[lives["row"]] >= 0].copy()
        lives["row"] = place[lives["row"]]
        lives = lives[np.lexsort((lives["birth_ms"], lives["row"]))]
    return Arrays(
        kinds=data.kinds[rows],
        types=data.types[rows],
        grid=data.grid,
        stats={name: np.ascontiguousarray(matrix[rows]) for name, matrix in data.stats.items()},
        lives=lives,
        ended_ms=data.ended_ms[rows],
        first_held=data.first_held,
    )
