"""Open cells: one plain array per statistic, one element per slot."""

from __future__ import annotations

import mmap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.kernels import kernels
from artimon.compute.sample_order import Cells, TextTable, replaces, replaces_mixed
from artimon.compute.statistics import FIELDS, FOLDS, bits_of, join_cells
from artimon.model.values import ValueType
from varstore.cells.cell_updates import CellUpdate, Counts, Mask
from varstore.cells.compressed_columns import Indexes
from varstore.cells.lazy_memory import lazy_block, release_pages

Columns = Mapping[str, npt.NDArray[Any]]

LAYOUT = tuple(sorted(FIELDS, key=lambda name: -np.dtype(FIELDS[name]).itemsize))
"""Order of the columns in a block, widest first, so that each is aligned."""
FOLDED_BYTES = sum(np.dtype(FIELDS[name]).itemsize for name in FOLDS)
UNFOLDED_BYTES = sum(np.dtype(dtype).itemsize for dtype in FIELDS.values()) - FOLDED_BYTES
CELL_BYTES = UNFOLDED_BYTES + FOLDED_BYTES
"""Bytes of a cell with all statistics; folded ones are written only for cells of two samples or more."""


class OpenBlock:
    """Block of n cells. Not locked: the owner's lock guards it.

    Invariants: a cell with count == 0 is empty, whatever the other arrays hold. A cell with count == 1 has no folded
    statistics written; they equal `last`. `wide` is True if any folded statistics were written. Folded statistics of
    STRING cells are undefined.
    """

    __slots__ = ("_block", "_columns", "count", "has_folded", "last", "n", "offset")

    def __init__(self, n: int, block: mmap.mmap | None, arrays: Columns, wide: bool) -> None:
        self.n, self._block, self.has_folded, self._columns = n, block, wide, arrays
        self.count: Counts = arrays["count"]
        self.last: Cells = arrays["last"]
        self.offset: Counts = arrays["offset"]

    @classmethod
    def reserve(cls, n: int) -> OpenBlock:
        """Make n empty cells on lazily allocated pages; unwritten pages take no memory."""
        block = lazy_block(n * CELL_BYTES)
        arrays, at = {}, 0
        for name in LAYOUT:
            arrays[name] = np.frombuffer(block, FIELDS[name], n, at)
            at += arrays[name].nbytes
        return cls(n, block, arrays, False)

    @classmethod
    def wrap(cls, columns: Columns) -> OpenBlock:
        """Wrap these arrays and take ownership of them."""
        return cls(len(columns["count"]), None, columns, True)

    @classmethod
    def empty(cls, n: int) -> OpenBlock:
        """Make n empty cells for short use, without a reserved block."""
        return cls(n, None, {name: np.zeros(n, dtype) for name, dtype in FIELDS.items()}, False)

    @property
    def nbytes(self) -> int:
        """Upper bound in bytes of the pages written: the size if every cell was written."""
        return self.n * (UNFOLDED_BYTES + (FOLDED_BYTES if self.has_folded else 0))

    def view(self, start: int, stop: int) -> OpenBlock:
        """Views of cells [start, stop), for reading and emptying."""
        arrays = {name: column[start:stop] for name, column in self._columns.items()}
        return OpenBlock(stop - start, None, arrays, self.has_folded)

    def clear_pages(self, start: int, stop: int) -> None:
        """Empty cells [start, stop) of a reserved block and free their pages."""
        if self._block is None:
            self.count[start:stop] = 0
            return
        at = 0
        for name in LAYOUT:
            size = np.dtype(FIELDS[name]).itemsize
            release_pages(self._block, at + start * size, (stop - start) * size)
            at += self.n * size

    # reading

    def cell(self, place: int, names: Sequence[str]) -> tuple[int, ...] | None:
        """Return the fields `names` of one cell, in that order; None if the cell is empty."""
        count = self.count.item(place)
        if not count:
            return None
        columns, single = self._columns, count == 1
        return tuple([columns["last" if single and name in FOLDS else name].item(place) for name in names])

    def counts(self, where: Indexes) -> Counts:
        """Return the sample counts of these cells."""
        return self.count[where] if isinstance(where, slice) else self.count.take(where)

    def cells(self, where: Indexes, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
        """Return the fields `names` of these cells; folded ones of one sample equal it. Undefined where count is 0.

        A slice may return views."""
        out: dict[str, npt.NDArray[Any]] = {}
        one: Mask | None = None
        for name in names:
            column = self._columns[name]
            if name in FOLDS:
                if not self.has_folded:
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

    def overwrite(self, where: Indexes, columns: Columns) -> None:
        """Overwrite cells; `columns` has all of FIELDS."""
        wide = self.has_folded = self.has_folded or bool((columns["count"] > 1).any())
        for name, column in self._columns.items():
            if wide or name not in FOLDS:
                column[where] = columns[name]

    def merge(self, part: CellUpdate, texts: TextTable) -> None:
        """Add the statistics of `part` to its cells."""
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

    def _newer(self, part: CellUpdate, before: Counts, old_last: Cells, texts: TextTable) -> Mask | None:
        """Mask of the cells whose last value `part.last` replaces; None: all."""
        old_offset = self.offset.take(part.at)
        newer: Mask = part.offset > old_offset
        if newer.all():
            return None
        newer |= before == 0
        tied = ~newer & (part.offset == old_offset)
        if tied.any():
            newer[tied] = replaces(part.last[tied], old_last[tied], part.bounds.select(tied), texts)
        return newer

    def _widen(
        self, rows: slice, part: CellUpdate, before: Counts, old_last: Cells, dtype: type[np.int64] | type[np.float64]
    ) -> None:
        """Update the folded statistics of cells that now hold two samples or more."""
        if rows.stop <= rows.start:
            return
        before = before[rows]
        several = before > 0 if part.count is None else before + part.count[rows] > 1
        pick = rows if several.all() else np.flatnonzero(several) + rows.start
        if not isinstance(pick, slice):
            if not len(pick):
                return
            before = before[several]
        self.has_folded = True
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

    def absorb(self, other: OpenBlock, later_ms: int, kinds: npt.NDArray[np.uint8], texts: TextTable) -> None:
        """Add another block cell by cell; its bucket begins `later_ms` after this one.

        kinds: type codes of the series. `other` may be shorter; its cells belong to the first slots."""
        n = other.n
        new, old = other.count, self.count[:n]
        if not new.any():
            return
        if not old.any():
            self._adopt(other, later_ms)
            return
        compiled = kernels()
        if compiled is not None:
            mine = self.view(0, n)
            folded = mine.has_folded, other.has_folded
            if compiled.absorb(mine.in_order(), other.in_order(), folded, kinds, later_ms):
                self.has_folded = True
                return
        some = new > 0
        fresh = some & (old == 0)
        if self.has_folded or other.has_folded or (some > fresh).any():
            self._join(other, kinds, fresh)
        offset = other.offset + np.uint32(later_ms)
        newer = some & (offset > self.offset[:n]) | fresh
        tied = some & ~fresh & (offset == self.offset[:n])
        if tied.any():
            rows = np.flatnonzero(tied)
            newer[rows] = replaces_mixed(other.last[rows], self.last[rows], kinds[rows], texts)
        np.copyto(self.last[:n], other.last, where=newer)
        np.copyto(self.offset[:n], offset, where=newer)
        self.count[:n] += new

    def in_order(self) -> list[npt.NDArray[Any]]:
        """Return the columns in the order that kernels take."""
        return [self.count, self.offset, self.last, *(self._columns[name] for name in FOLDS)]

    def _adopt(self, other: OpenBlock, later_ms: int) -> None:
        n = other.n
        self.count[:n] = other.count
        self.last[:n] = other.last
        np.add(other.offset, np.uint32(later_ms), out=self.offset[:n])
        if other.has_folded:
            self.has_folded = True
            for name in FOLDS:
                self._columns[name][:n] = other._columns[name]

    def _join(self, other: OpenBlock, kinds: npt.NDArray[np.uint8], fresh: Mask) -> None:
        """Join the folded statistics of both; cells stay where `other` is empty and are copied where `fresh`."""
        n = other.n
        everything = slice(0, n)
        mine, theirs = self.cells(everything, FOLDS), other.cells(everything, FOLDS)
        doubles = bits_of(kinds == ValueType.DOUBLE)
        self.has_folded = True
        stays = other.count == 0
        fewer = bool(fresh.any() or stays.any())
        for name, fold in FOLDS.items():
            joined = join_cells(fold, mine[name], theirs[name], doubles)
            if fewer:
                np.copyto(joined, theirs[name], where=fresh)
                np.copyto(joined, mine[name], where=stays)
            self._columns[name][:n] = joined


def copy_row(row: Columns | None, out: Mapping[str, Cells], at: int) -> None:
    """Copy a row from `Ring.read_row` into row `at` of each matrix; elements of empty cells stay unchanged."""
    if row is None:
        return
    some = row["count"] > 0
    everywhere = bool(some.all())
    for name, matrix in out.items():
        if everywhere:
            matrix[at] = row[name]
        else:
            np.copyto(matrix[at], row[name], where=some)
