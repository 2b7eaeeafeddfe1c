"""Cells that are open: plain arrays of every statistic, one place a slot."""

from __future__ import annotations

import mmap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.model.values import ValueType
from varstore.cells.columns import Where
from varstore.cells.memory import give_back, lazy_block
from varstore.cells.ties import Bounds, Cells, outranks, outranks_mixed
from varstore.series.texts import Texts

Counts = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]

FIELDS: dict[str, type[Any]] = {
    "count": np.uint32, "last": np.int64, "offset": np.uint32, "min": np.int64, "max": np.int64, "sum": np.int64,
}  # fmt: skip
NARROW_BYTES, WIDE_BYTES = 16, 24
_WIDE = ("min", "max", "sum")


@dataclass(slots=True)
class Part:
    """What is added to n distinct cells."""

    at: Cells
    """Their places in the block."""
    count: Counts | None
    """Samples for each cell; None: one, so that low, high and total are `last`."""
    offset: Cells
    """Time of `last`, ms after the left edge of its bucket."""
    last: Cells
    low: Cells
    high: Cells
    total: Cells
    bounds: Bounds

    def of(self, keep: Mask, less: int) -> Part:
        """The rows of `keep`, their places counted from `less`."""
        count = None if self.count is None else self.count[keep]
        last = self.last[keep]
        single = count is None
        low, high, total = (last if single else column[keep] for column in (self.low, self.high, self.total))
        return Part(
            self.at[keep] - less, count, self.offset[keep], last, low, high, total, self.bounds.cut(keep)
        )  # fmt: skip


class Dense:
    """n cells. Not locked: the owner's lock guards it.

    Invariants: count == 0 means that a cell is empty, whatever the other arrays hold. Where count == 1, min, max and
    sum are not written: they are `last`. Sums of integers are kept modulo 2^64. `wide`: some min was written.
    """

    __slots__ = ("_block", "count", "last", "max", "min", "n", "offset", "sum", "wide")

    def __init__(self, n: int, block: mmap.mmap | None, arrays: Columns, wide: bool) -> None:
        self.n, self._block, self.wide = n, block, wide
        self.count: Counts = arrays["count"]
        self.last: Cells = arrays["last"]
        self.offset: Counts = arrays["offset"]
        self.min: Cells = arrays["min"]
        self.max: Cells = arrays["max"]
        self.sum: Cells = arrays["sum"]

    @classmethod
    def reserve(cls, n: int) -> Dense:
        """n empty cells; what is not written takes no memory."""
        block = lazy_block(n * (NARROW_BYTES + WIDE_BYTES))
        arrays, at = {}, 0
        for name in ("last", "min", "max", "sum", "count", "offset"):
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
        arrays = {name: getattr(self, name)[start:stop] for name in FIELDS}
        return Dense(stop - start, None, arrays, self.wide)

    def give_back(self, start: int, stop: int) -> None:
        """Empty cells [start, stop) of a reserved block and free their pages."""
        if self._block is None:
            self.count[start:stop] = 0
            return
        at = 0
        for name in ("last", "min", "max", "sum", "count", "offset"):
            size = np.dtype(FIELDS[name]).itemsize
            give_back(self._block, at + start * size, (stop - start) * size)
            at += self.n * size

    # reading

    def cell(self, place: int, names: Sequence[str]) -> tuple[int, ...] | None:
        """Some of FIELDS of one cell, in the order of `names`; None where it is empty."""
        count = self.count.item(place)
        if not count:
            return None
        single = count == 1
        return tuple(
            [getattr(self, "last" if single and name in _WIDE else name).item(place) for name in names]
        )  # fmt: skip

    def counts(self, where: Where) -> Counts:
        """Samples in these cells."""
        return self.count[where] if isinstance(where, slice) else self.count.take(where)

    def cells(self, where: Where, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
        """Some of FIELDS of these cells; min, max and sum of one sample are it. Where count is 0 they mean nothing.

        A slice may give views."""
        out: dict[str, npt.NDArray[Any]] = {}
        one: Mask | None = None
        for name in names:
            column = getattr(self, name)
            if name in ("min", "max", "sum"):
                if not self.wide:
                    column = self.last
                elif one is None:
                    one = self.counts(where) == 1
            out[name] = column[where] if isinstance(where, slice) else column.take(where)
        if one is not None and one.any():
            last = self.last[where] if isinstance(where, slice) else self.last.take(where)
            for name in set(out) & {"min", "max", "sum"}:
                out[name] = np.where(one, last, out[name])
        return out

    # writing

    def put(self, where: Where, columns: Columns) -> None:
        """Overwrite cells with every one of FIELDS."""
        for name in ("count", "last", "offset"):
            getattr(self, name)[where] = columns[name]
        if self.wide or (columns["count"] > 1).any():
            self.wide = True
            for name in ("min", "max", "sum"):
                getattr(self, name)[where] = columns[name]

    def merge(self, part: Part, texts: Texts) -> None:
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
        self.wide = True
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

    def absorb(self, other: Dense, later_ms: int, kinds: npt.NDArray[np.uint8], texts: Texts) -> None:
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
            for name in ("min", "max", "sum"):
                getattr(self, name)[:n] = getattr(other, name)

    def _join(self, other: Dense, kinds: npt.NDArray[np.uint8], fresh: Mask) -> None:
        """min, max and sum of both; nothing changes where `other` is empty, all of it is taken where `fresh`."""
        n = other.n
        everything = slice(0, n)
        names = ("min", "max", "sum")
        mine, theirs = self.cells(everything, names), other.cells(everything, names)
        mask = kinds == ValueType.DOUBLE
        doubles: Cells | bool = -mask.astype(np.int64) if mask.any() and not mask.all() else bool(mask.any())
        self.wide = True
        stays = other.count == 0
        fewer = bool(fresh.any() or stays.any())
        for name, join in zip(names, (np.minimum, np.maximum, np.add), strict=True):
            with np.errstate(all="ignore"):  # inf - inf in a sum of doubles is NaN, not news
                joined = _join_both(join, mine[name], theirs[name], doubles)
            if fewer:
                np.copyto(joined, theirs[name], where=fresh)
                np.copyto(joined, mine[name], where=stays)
            getattr(self, name)[:n] = joined


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


def _join_both(join: Any, mine: Cells, theirs: Cells, doubles: Cells | bool) -> Cells:
    """`join` of int64 cells, of float64 ones where `doubles` is all ones."""
    if doubles is True:
        as_doubles: Cells = join(mine.view(np.float64), theirs.view(np.float64)).view(np.int64)
        return as_doubles
    joined: Cells = join(mine, theirs)
    if doubles is not False:  # bits instead of a mask: there is nothing to branch on
        other = join(mine.view(np.float64), theirs.view(np.float64)).view(np.int64)
        other ^= joined
        other &= doubles
        joined ^= other
    return joined
