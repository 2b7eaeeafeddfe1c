"""Windows of float64 values for functions that read every value, in small chunks. Integers beyond 2^53 become
differences to the newest value of their window, so that rounding loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import Bools, Cells, Floats, Ints, Types, as_floats, doubles, is_whole_number
from artimon.compute.checkpoint import checkpoint
from artimon.compute.params import Args
from artimon.compute.window_frames import WindowFrame, integer_totals, newest_present, pick, window_view
from artimon.model.values import INT64_MAX

CHUNK_CELLS, BLOCK_CELLS = 1 << 15, 1 << 16
"""Limits of temporary arrays, in cells: of columns, of which a function makes about ten, and of whole windows, of which
it makes three. They fit in the processor's cache, and the allocator reuses freed memory."""
FOLD_CELLS, WIDE_CELLS = 1 << 12, 1 << 20
"""Cells of one fold step (rows x outputs) that a chunk aims at, and limit of the cells of a chunk enlarged for that."""
EXACT = 2**53
_HALF_RANGE = 2**62


@dataclass(frozen=True, slots=True)
class Pane:
    """Chunk of series: arrays of (rows, columns), with `values` 0 where absent; `frame` defines the windows."""

    values: Floats
    present: Bools
    times: Ints | None
    """Times of the samples, if the function reads them."""
    frame: WindowFrame
    end_ms: Ints
    """End of each window, broadcastable to (rows, outputs)."""
    has_no_gaps: bool
    """True if no value is absent: the usual case, in which masks would cost more than the arithmetic."""

    @property
    def width(self) -> int:
        return self.frame.width

    def zeros(self) -> Floats:
        """Return zeros (rows, outputs) in the memory order of `values`, so that operations on both are sequential."""
        order: Literal["C", "F"] = "C" if self.values.flags.c_contiguous else "F"
        return np.zeros((len(self.values), len(self.frame.ends)), order=order)

    def count(self) -> Ints:
        """Return the number of values in each window, (rows, outputs)."""
        if self.has_no_gaps:
            return np.full_like(self.zeros(), self.width, np.int64)
        return integer_totals(self.present.astype(np.int64), self.frame)

    def newest(self) -> Floats:
        """Return the newest value of each window, (rows, outputs); arbitrary for windows without values."""
        if self.has_no_gaps:
            return self.values[:, _run_of(self.frame.ends)]
        return pick(self.values, newest_present(self.present)[:, self.frame.ends])

    def folds(self) -> Iterator[tuple[Floats, Bools]]:
        """Yield values and mask (rows, outputs) of the columns of every window, oldest first."""
        for columns in self._columns():
            yield self.values[:, columns], self.present[:, columns]

    def offsets_ms(self) -> Iterator[Floats]:
        """Yield the exact times (rows, outputs) of the same columns relative to the end of the window."""
        times = self.times if self.times is not None else np.zeros(self.values.shape, np.int64)
        base = int(self.end_ms.flat[0])
        since, end = (times - base).astype(np.float64), (self.end_ms - base).astype(np.float64)
        for columns in self._columns():
            yield since[:, columns] - end

    def sorted(self) -> Floats:
        """Return the sorted values of each window (rows, outputs, width); NaN and absent values are last."""
        block = np.array(window_view(np.where(self.present, self.values, np.nan), self.frame), order="C")
        block.sort(axis=2)
        return block

    def has_nan(self) -> Bools:
        """Return the mask (rows, outputs) of windows that hold a NaN."""
        nan = np.isnan(self.values) & self.present
        if not nan.any():
            return np.zeros((len(self.values), len(self.frame.ends)), np.bool_)
        return np.asarray(integer_totals(nan.astype(np.int64), self.frame) > 0)

    def columns(self) -> Iterator[Floats]:
        """Yield the values of `folds` without masks, for a full pane."""
        for columns in self._columns():
            yield self.values[:, columns]

    def _columns(self) -> Iterator[slice]:
        first = self.frame.starts + 1
        for column in range(self.width):
            checkpoint()
            yield _run_of(first + column)


def _run_of(places: Ints) -> slice:
    """Convert equidistant columns to a slice."""
    each = int(places[1] - places[0]) if len(places) > 1 else 1
    return slice(int(places[0]), int(places[-1]) + 1, each)


Kernel = Callable[[Pane, Args], tuple[Floats, Bools]]
"""Map a pane to values and mask of shape (rows, outputs)."""


def over_panes(kernel: Kernel, data: Arrays, frame: WindowFrame, args: Args, *, moves: bool, blocks: bool) -> Cells:
    """Return DOUBLE cells of `kernel` for every window. `moves`: a constant added to all values shifts the result by
    the same amount; `blocks`: the kernel allocates arrays of (rows, outputs, width)."""
    present = data.present
    values, known = np.zeros((data.rows, len(frame.ends))), np.zeros((data.rows, len(frame.ends)), np.bool_)
    large = _beyond_exact(data.types, data.stats["last"], present)
    with np.errstate(all="ignore"):
        for rows, outputs in _chunks(data, np.flatnonzero(~large), frame, blocks):
            part = _cut(frame, outputs)
            pane = _pane(data, present, rows, part, "C" if blocks else "F")
            values[rows, outputs], known[rows, outputs] = kernel(pane, args)
        for rows, outputs in _chunks(data, np.flatnonzero(large), frame, True):
            pane, base = _exact_pane(data, present, rows, _cut(frame, outputs))
            found, there = kernel(pane, args)
            shape = (len(rows), outputs.stop - outputs.start)
            found = found.reshape(shape)
            values[rows, outputs] = _shift(found, base) if moves else found
            known[rows, outputs] = there.reshape(shape)
    return doubles(values, known)


def _beyond_exact(types: Types, cells: Ints, present: Bools) -> Bools:
    """Return the mask (series,) of integer series with values beyond the exact range of float64."""
    integers = is_whole_number(types)
    if not integers.any():
        return integers
    beyond = (cells > EXACT) | (cells < -EXACT)
    return np.asarray(integers & (beyond & present).any(axis=1))


def _chunks(data: Arrays, rows: Ints, frame: WindowFrame, blocks: bool) -> Iterator[tuple[Ints, slice]]:
    """Yield chunks of series, and of outputs if the windows of one series exceed a chunk."""
    n = len(frame.ends)
    if blocks:
        outputs = max(1, min(n, BLOCK_CELLS // frame.width))
        each = max(1, BLOCK_CELLS // (outputs * frame.width))
    else:
        outputs, columns = n, max(n, data.grid.n)
        # every fold has a fixed cost of some microseconds
        each = max(1, CHUNK_CELLS // columns, min(FOLD_CELLS // n, WIDE_CELLS // columns))
    for start in range(0, len(rows), each):
        for first in range(0, n, outputs):
            checkpoint()
            yield rows[start : start + each], slice(first, min(first + outputs, n))


def _cut(frame: WindowFrame, outputs: slice) -> WindowFrame:
    return WindowFrame(
        frame.ends[outputs], frame.width, frame.end_ms[outputs], frame.width_ms, frame.max_gap_ms, frame.lookahead_ms
    )


def _pane(data: Arrays, present: Bools, rows: Ints, frame: WindowFrame, order: Literal["C", "F"]) -> Pane:
    here = present[rows]
    full = bool(here.all())
    cells = np.ascontiguousarray(data.stats["last"][rows])
    values = as_floats(data.types[rows], cells)
    values = np.array(values if full else np.where(here, values, 0.0), order=order)
    times = np.array(data.stats["last_time"][rows], order=order) if "last_time" in data.stats else None
    return Pane(values, np.asarray(here, order=order), times, frame, frame.end_ms[None, :], full)


def _shift(found: Floats, base: Ints) -> Floats:
    """Return found + base, rounded once."""
    high = base.astype(np.float64)
    inside = high < 2.0**63
    whole_high = np.where(inside, high, 0.0).astype(np.int64)
    low = np.where(inside, base - whole_high, base - INT64_MAX - 1)
    return high + (low.astype(np.float64) + found)


def _exact_pane(data: Arrays, present: Bools, rows: Ints, frame: WindowFrame) -> tuple[Pane, Ints]:
    """Return a row per window of each series, with values relative to the newest of the window, and those newest."""
    here = window_view(present[rows], frame)
    cells = data.stats["last"][rows]
    at = newest_present(present[rows])[:, frame.ends]
    base = pick(cells, at)
    values = _difference(window_view(cells, frame), base)
    n, width = values.shape[0] * values.shape[1], frame.width
    flat = np.where(here, values, 0.0).reshape(n, width)
    times = None
    if "last_time" in data.stats:
        times = window_view(data.stats["last_time"][rows], frame).reshape(n, width)
    end_ms = np.broadcast_to(frame.end_ms[None, :], base.shape).reshape(n, 1)
    one = WindowFrame(
        np.array([width - 1]), width, frame.end_ms[:1], frame.width_ms, frame.max_gap_ms, frame.lookahead_ms
    )
    return Pane(flat, here.reshape(n, width), times, one, end_ms, bool(here.all())), base


def _difference(cells: Ints, base: Ints) -> Floats:
    """Return cells - base as float64, by int64 arithmetic where it cannot overflow."""
    exact = (cells - base[:, :, None]).astype(np.float64)
    rounded = cells.astype(np.float64) - base.astype(np.float64)[:, :, None]
    return np.where(np.abs(rounded) < _HALF_RANGE, exact, rounded)


def has_many_samples(data: Arrays, frame: WindowFrame) -> Bools:
    """Return the mask (series, outputs) of windows in which a bucket holds more than one sample."""
    several = data.stats["count"] > 1
    out = np.zeros((data.rows, len(frame.ends)), np.bool_)
    rows = np.flatnonzero(several.any(axis=1))
    each = max(1, CHUNK_CELLS // data.grid.n)
    for start in range(0, len(rows), each):
        checkpoint()
        here = rows[start : start + each]
        out[here] = integer_totals(several[here].astype(np.int64), frame) > 0
    return out


def last_value_function(
    kernel: Kernel, *, moves: bool = False, blocks: bool | str = False
) -> Callable[[Arrays, WindowFrame, Args], Mapped]:
    """Build a function of the last value of each bucket. `blocks` may name the flag that selects whole windows."""

    def mapped(data: Arrays, frame: WindowFrame, args: Args) -> Mapped:
        whole_windows = bool(args[blocks]) if isinstance(blocks, str) else blocks
        column = over_panes(kernel, data, frame, args, moves=moves, blocks=whole_windows)
        return Mapped(column, has_many_samples(data, frame))

    return mapped
