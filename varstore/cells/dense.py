"""Cells that are open: plain arrays of every statistic, one place a slot."""

from __future__ import annotations

import mmap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.statistics import FIELDS, FOLDS, bits_of, join_cells
from artimon.compute.ties import Cells, TextTable, outranks, outranks_mixed
from artimon.model.values import ValueType
from varstore.cells.addends import Addend, Counts, Mask
from varstore.cells.columns import Where
from varstore.cells.memory import give_back, lazy_block

Columns = Mapping[str, npt.NDArray[Any]]

LAYOUT = tuple(sorted(FIELDS, key=lambda name: -np.dtype(FIELDS[name]).itemsize))
"""Order of the columns in a block, which keeps each aligned."""
WIDE_BYTES = sum(np.dtype(FIELDS[name]).itemsize for name in FOLDS)
NARROW_BYTES = sum(np.dtype(dtype).itemsize for dtype in FIELDS.values()) - WIDE_BYTES
CELL_BYTES = NARROW_BYTES + WIDE_BYTES
"""Of a cell with all statistics; only where some cell holds two samples are the folded ones written."""


class Dense:
    """n cells. Not locked: the owner's lock guards it.

    Invariants: count == 0 means that a cell is empty, whatever the other arrays hold. Where count == 1, folded
    statistics are not written: they are `last`. `wide`: some were written.
    """

    __slots__ = ("_block", "_columns", "count", "last", "n", "offset", "wide")

    def __init__(self, n: int, block: mmap.mmap | None, arrays: Columns, wide: bool) -> None:
        self.n, self._block, self.wide, self._columns = n, block, wide, arrays
        self.count: Counts = arrays["count"]
        self.last: Cells = arrays["last"]
        self.offset: Counts = arrays["offset"]

    @classmethod
    def reserve(cls, n: int) -> Dense:
        """n empty cells; what is not written takes no memory."""
        block = lazy_block(n * CELL_BYTES)
        arrays, at = {}, 0
        for name in LAYOUT:
            arrays[name] = np.frombuffer(block, FIELDS[name], n, at)
            at += arrays[name].nbytes
        return cls(n, block, arrays, False)

    @classmethod
    def of(cls, columns: Columns) -> Dense:
        """Cells of these arrays, which become its own."""
        return cls(len(columns["count"]), None, columns, True)

    @classmethod
    def empty(cls, n: int) -> Dense:
        """n empty cells, for short."""
        return cls(n, None, {name: np.zeros(n, dtype) for name, dtype in FIELDS.items()}, False)

    @property
    def nbytes(self) -> int:
        """Bytes of pages that were written, if every cell was."""
        return self.n * (NARROW_BYTES + (WIDE_BYTES if self.wide else 0))

    def part(self, start: int, stop: int) -> Dense:
        """Views of some cells, to read and to empty."""
        arrays = {name: column[start:stop] for name, column in self._columns.items()}
        return Dense(stop - start, None, arrays, self.wide)

    def give_back(self, start: int, stop: int) -> None:
        """Empty cells [start, stop) of a reserved block and free their pages."""
        if self._block is None:
            self.count[start:stop] = 0
            return
        at = 0
        for name in LAYOUT:
            size = np.dtype(FIELDS[name]).itemsize
            give_back(self._block, at + start * size, (stop - start) * size)
            at += self.n * size

    # reading

    def cell(self, place: int, names: Sequence[str]) -> tuple[int, ...] | None:
        """Some of FIELDS of one cell, in the order of `names`; None where it is empty."""
        count = self.count.item(place)
        if not count:
            return None
        columns, single = self._columns, count == 1
        return tuple([columns["last" if single and name in FOLDS else name].item(place) for name in names])

    def counts(self, where: Where) -> Counts:
        """Samples in these cells."""
        return self.count[where] if isinstance(where, slice) else self.count.take(where)

    def cells(self, where: Where, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
        """Some of FIELDS of these cells; folded ones of one sample are it. Where count is 0 they mean nothing.

        A slice may give views."""
        out: dict[str, npt.NDArray[Any]] = {}
        one: Mask | None = None
        for name in names:
            column = self._columns[name]
            if name in FOLDS:
                if not self.wide:
                    column = self.last
                elif one is None:
                    one = self.counts(where) == 1
            out[name] = column[where] if isinstance(where, slice) else column.take(where)
        if one is not None and one.any():
            last = self.last[where] if isinstance(where, slice) else self.last.take(where)
            for name in FOLDS.keys() & out.keys():
                out[name] = np.where(one, last, out[name])
        return out

    # writing

    def put(self, where: Where, columns: Columns) -> None:
        """Overwrite cells with every one of FIELDS."""
        wide = self.wide = self.wide or bool((columns["count"] > 1).any())
        for name, column in self._columns.items():
            if wide or name not in FOLDS:
                column[where] = columns[name]

    def merge(self, part: Addend, texts: TextTable) -> None:
        """Add `part` to its cells."""
        at = part.at
        before = self.count.take(at)
        self.count[at] = before + np.uint32(1) if part.count is None else before + part.count
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

    def _newer(self, part: Addend, before: Counts, old_last: Cells, texts: TextTable) -> Mask | None:
        """The cells whose last `part.last` becomes; None: all."""
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
        self, rows: slice, part: Addend, before: Counts, old_last: Cells, dtype: type[np.int64] | type[np.float64]
    ) -> None:
        """Folded statistics of those cells that hold two samples or more now."""
        if rows.stop <= rows.start:
            return
        before = before[rows]
        several = before > 0 if part.count is None else before + part.count[rows] > 1
        pick = rows if several.all() else np.flatnonzero(several) + rows.start
        if not isinstance(pick, slice):
            if not len(pick):
                return
            before = before[several]
        self.wide = True
        at, single = part.at[pick], old_last[pick].view(dtype)
        one = none = None
        if before.max() > 1 or part.count is not None:
            one, none = before == 1, before == 0
        with np.errstate(all="ignore"):  # inf - inf in a sum of doubles is NaN
            for name, fold in FOLDS.items():
                column, new = self._columns[name].view(dtype), part.value(name)[pick].view(dtype)
                held: Any = single
                if one is not None and none is not None:
                    held = column.take(at)
                    np.copyto(held, single, where=one)
                    np.copyto(held, fold.whole if dtype is np.int64 else fold.real, where=none)
                column[at] = fold.join(held, new)

    def absorb(self, other: Dense, later_ms: int, kinds: npt.NDArray[np.uint8], texts: TextTable) -> None:
        """Add cell by cell what another block of as many cells holds, whose bucket begins `later_ms` after this one.

        kinds: type codes of the series. `other` may be shorter; its cells are those of the first slots."""
        n = other.n
        new, old = other.count, self.count[:n]
        some = new > 0
        if not some.any():
            return
        if not old.any():
            self._adopt(other, later_ms)
            return
        fresh = some & (old == 0)
        if self.wide or other.wide or (some > fresh).any():
            self._join(other, kinds, fresh)
        offset = other.offset + np.uint32(later_ms)
        newer = some & (offset > self.offset[:n]) | fresh
        tied = some & ~fresh & (offset == self.offset[:n])
        if tied.any():
            rows = np.flatnonzero(tied)
            newer[rows] = outranks_mixed(other.last[rows], self.last[rows], kinds[rows], texts)
        np.copyto(self.last[:n], other.last, where=newer)
        np.copyto(self.offset[:n], offset, where=newer)
        self.count[:n] += new

    def _adopt(self, other: Dense, later_ms: int) -> None:
        n = other.n
        self.count[:n] = other.count
        self.last[:n] = other.last
        np.add(other.offset, np.uint32(later_ms), out=self.offset[:n])
        if other.wide:
            self.wide = True
            for name in FOLDS:
                self._columns[name][:n] = other._columns[name]

    def _join(self, other: Dense, kinds: npt.NDArray[np.uint8], fresh: Mask) -> None:
        """Folded statistics of both; nothing changes where `other` is empty, all of it is taken where `fresh`."""
        n = other.n
        everything = slice(0, n)
        mine, theirs = self.cells(everything, FOLDS), other.cells(everything, FOLDS)
        doubles = bits_of(kinds == ValueType.DOUBLE)
        self.wide = True
        stays = other.count == 0
        fewer = bool(fresh.any() or stays.any())
        for name, fold in FOLDS.items():
            joined = join_cells(fold, mine[name], theirs[name], doubles)
            if fewer:
                np.copyto(joined, theirs[name], where=fresh)
                np.copyto(joined, mine[name], where=stays)
            self._columns[name][:n] = joined


def copy_row(row: Columns | None, out: Mapping[str, Cells], at: int) -> None:
    """One row of what `Ring.read_row` gave into row `at` of each matrix; what holds nothing stays as it is."""
    if row is None:
        return
    some = row["count"] > 0
    everywhere = bool(some.all())
    for name, matrix in out.items():
        if everywhere:
            matrix[at] = row[name]
        else:
            np.copyto(matrix[at], row[name], where=some)
