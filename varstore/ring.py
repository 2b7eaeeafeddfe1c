"""One level: a ring of bucket rows, arrays of [row][slot] for each statistic."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.model.grid import Grid, Level, bucket_end, bucket_ends
from varstore.memory import lazy_zeros
from varstore.sums import sums_to_double
from varstore.texts import Texts
from varstore.ties import Bounds, Cells, outranks

AHEAD = 2
"""Rows beyond the bucket of the append time: one that opens early, one that nobody can reach."""
_NEVER = np.iinfo(np.int64).min

Counts = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Part:
    """What is added to n distinct cells: `at` is row * capacity + slot."""

    at: Cells
    count: Counts | None
    """Samples for each cell; None: one, so that low, high and total are `last`."""
    offset: Cells
    """Time of `last`, ms after the left edge of its bucket."""
    last: Cells
    low: Cells
    high: Cells
    total: Cells
    bounds: Bounds


class Ring:
    """A level of `level.count` buckets and `spare` more; arrays have shape (rows * capacity,).

    Invariants: bucket k (it ends at k * step) lives in row k % rows, and `number[row]` is the greatest k that ever
    opened there; what comes for a smaller one is gone. count == 0 means that a cell is empty, whatever the other
    arrays hold. Where count == 1, min, max and sum are not written: they are `last`. Sums of integers are kept
    modulo 2^64.
    """

    def __init__(self, level: Level, spare: int, capacity: int) -> None:
        self.level = level
        self.step_ms = level.step_ms
        self.rows = level.count + spare
        self.capacity = capacity
        self.number = np.full(self.rows, _NEVER, np.int64)
        cells = self.rows * capacity
        self.count: Counts = lazy_zeros(cells, np.uint32)
        self.last: Cells = lazy_zeros(cells, np.int64)
        self.offset: npt.NDArray[np.uint32] = lazy_zeros(cells, np.uint32)
        self.min: Cells = lazy_zeros(cells, np.int64)
        self.max: Cells = lazy_zeros(cells, np.int64)
        self.sum: Cells = lazy_zeros(cells, np.int64)

    def too_old(self, append_ms: int) -> int:
        """The greatest sample time that is late for this level in a batch appended at `append_ms`."""
        return bucket_end(append_ms, self.step_ms) - (self.rows - AHEAD) * self.step_ms

    def too_old_each(self, append_ms: Cells) -> Cells:
        """`too_old` of each append time."""
        return bucket_ends(append_ms, self.step_ms) - (self.rows - AHEAD) * self.step_ms

    def locate(self, time_ms: Cells, slots: Cells, used: int) -> tuple[Cells, Cells, Mask | None]:
        """Cell numbers and offsets of samples whose rows this opens; and which of them have a row (None: all)."""
        number = -(-time_ms // self.step_ms)
        offset: Cells = time_ms - (number - 1) * self.step_ms
        first = int(number[0])
        if (number == first).all():
            keep = None if self._open(first, used) else np.zeros(len(slots), np.bool_)
            return slots + (first % self.rows) * self.capacity, offset, keep
        for k in np.unique(number):  # ascending: of two that want one row the later bucket stays
            self._open(int(k), used)
        row = number % self.rows
        held: Mask = self.number.take(row) == number
        return row * self.capacity + slots, offset, None if held.all() else held

    def _open(self, number: int, used: int) -> bool:
        """Make the row of bucket `number` ready; False if a later bucket has it. `used` slots may hold something."""
        row = number % self.rows
        current = int(self.number[row])
        if current >= number:
            return current == number
        start = row * self.capacity
        if current != _NEVER:
            self.count[start : start + used] = 0
        self.number[row] = number
        return True

    def merge(self, part: Part, texts: Texts) -> None:
        """Add `part` to its cells."""
        at = part.at
        before = self.count.take(at)
        self.count[at] = before + (1 if part.count is None else part.count)
        if part.count is not None or before.any():
            old_last = self.last.take(at)
            bounds = part.bounds
            self._widen(slice(0, bounds.ints), part, before, old_last, np.int64)
            self._widen(slice(bounds.ints, bounds.doubles), part, before, old_last, np.float64)
            newer = self._newer(part, before, old_last, texts)
            if newer is not None:
                at = at[newer]
                self.last[at] = part.last[newer]
                self.offset[at] = part.offset[newer]
                return
        self.last[at] = part.last
        self.offset[at] = part.offset

    def _newer(self, part: Part, before: Counts, old_last: Cells, texts: Texts) -> Mask | None:
        """Where `part.last` becomes the last; None: everywhere."""
        old_offset = self.offset.take(part.at)
        newer: Mask = part.offset > old_offset
        if newer.all():
            return None
        newer |= before == 0
        tied = ~newer & (part.offset == old_offset)
        if tied.any():
            newer[tied] = outranks(part.last[tied], old_last[tied], part.bounds.cut(tied), texts)
        return newer

    def _widen(
        self, rows: slice, part: Part, before: Counts, old_last: Cells, dtype: type[np.int64] | type[np.float64]
    ) -> None:
        """min, max and sum of those cells that hold two samples or more now."""
        if rows.stop <= rows.start:
            return
        before = before[rows]
        several = before > 0 if part.count is None else before + part.count[rows] > 1
        pick = rows if several.all() else np.flatnonzero(several) + rows.start
        if not isinstance(pick, slice):
            if not len(pick):
                return
            before = before[several]
        at, single = part.at[pick], old_last[pick].view(dtype)
        low: Any = part.low[pick].view(dtype)
        high: Any = part.high[pick].view(dtype)
        total: Any = part.total[pick].view(dtype)
        if before.max() > 1 or part.count is not None:
            low, high, total = self._widened(at, before, single, (low, high, total), dtype)
        else:
            low, high, total = np.minimum(single, low), np.maximum(single, high), single + total
        self.min.view(dtype)[at] = low
        self.max.view(dtype)[at] = high
        self.sum.view(dtype)[at] = total

    def _widened(
        self, at: Cells, before: Counts, single: Any, new: tuple[Any, Any, Any], dtype: Any
    ) -> tuple[Any, Any, Any]:
        """What the cells hold (nothing, one sample, or several) joined with `new`."""
        one, none = before == 1, before == 0
        held = [array.view(dtype).take(at) for array in (self.min, self.max, self.sum)]
        for values, fresh in zip(held, (new[0], new[1], 0), strict=True):
            np.copyto(values, single, where=one)
            np.copyto(values, fresh, where=none)
        return np.minimum(held[0], new[0]), np.maximum(held[1], new[1]), held[2] + new[2]

    def to_double(self, slots: Cells) -> None:
        """The cells of INTEGER series that became DOUBLE."""
        for row in np.flatnonzero(self.number != _NEVER):
            at = slots + int(row) * self.capacity
            at = at[self.count.take(at) > 0]
            several = at[self.count.take(at) > 1]
            count, low, high = self.count.take(several), self.min.take(several), self.max.take(several)
            total = sums_to_double(count, low, high, self.sum.take(several))
            self.sum.view(np.float64)[several] = total
            self.min.view(np.float64)[several] = low.astype(np.float64)
            self.max.view(np.float64)[several] = high.astype(np.float64)
            self.last.view(np.float64)[at] = self.last.take(at).astype(np.float64)

    def held_last(self, slots: Cells) -> Cells:
        """Every `last` cell that one of `slots` holds, in no order."""
        found = [np.zeros(0, np.int64)]
        for row in np.flatnonzero(self.number != _NEVER):
            at = slots + int(row) * self.capacity
            found.append(self.last.take(at[self.count.take(at) > 0]))
        return np.concatenate(found)

    def read(self, slots: Cells, grid: Grid, statistics: Collection[str]) -> dict[str, Cells]:
        """The statistics asked for, shape (grid.n, slots), zero where count is zero. The grid is one of this level."""
        names = set(statistics) | {"count"}
        out = {name: np.zeros((grid.n, len(slots)), np.int64) for name in names}
        first = grid.start_ms // self.step_ms + 1
        for i, number in enumerate(range(first, first + grid.n)):
            row = number % self.rows
            if self.number[row] == number:
                self._read_row(slots + row * self.capacity, number, i, out)
        return {name: out[name] for name in statistics}

    def _read_row(self, at: Cells, number: int, i: int, out: dict[str, Cells]) -> None:
        count = self.count.take(at)
        empty, one = count == 0, count == 1
        last = self.last.take(at)
        last[empty] = 0
        for name, matrix in out.items():
            if name == "count":
                matrix[i] = count
            elif name == "last":
                matrix[i] = last
            elif name == "last_time":
                time_ms = self.offset.take(at) + np.int64((number - 1) * self.step_ms)
                matrix[i] = np.where(empty, 0, time_ms)
            else:
                held = self.statistic(name).take(at)
                held[empty] = 0
                matrix[i] = np.where(one, last, held)

    def statistic(self, name: str) -> Cells:
        """The array of min, max or sum."""
        return {"min": self.min, "max": self.max, "sum": self.sum}[name]
