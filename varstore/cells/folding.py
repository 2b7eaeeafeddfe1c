"""Rows of the raw table, sorted by series and time, joined to cells of every level before the store is touched.

That is what makes a refill cheap: some passes over all rows, and one random access for each cell instead of one for
each sample. Pure: it knows no slots and takes no lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.model.values import ValueType
from varstore.cells.dense import Part
from varstore.cells.ties import Bounds, Cells

Mask = npt.NDArray[np.bool_]
_WHOLE = (int(ValueType.INTEGER), int(ValueType.BOOLEAN))


@dataclass(slots=True)
class SortedRows:
    """n rows of which those of one series of one source follow one another; arrays of length n, never written to."""

    time_ms: Cells
    birth_ms: Cells
    type: npt.NDArray[np.uint8]
    cell: Cells
    starts: Cells
    """(series,) where each series begins; the first is 0."""
    counts: Cells = field(init=False)
    """(series,)"""
    of: Cells = field(init=False)
    """(n,) which series a row is of."""

    def __post_init__(self) -> None:
        self.counts = np.diff(self.starts, append=len(self.time_ms))
        self.of = np.repeat(np.arange(len(self.starts)), self.counts)


class Life(NamedTuple):
    """The first or the last sample of lives of distinct series."""

    series: Cells
    birth_ms: Cells
    time_ms: Cells
    cell: Cells

    def of(self, keep: Mask) -> Life:
        """Some of them."""
        return Life(*(column[keep] for column in self))


class Lives(NamedTuple):
    """Lives of series of one class of type, by their ends."""

    doubles: bool
    first: Life
    last: Life
    once: bool
    """Whether no series occurs twice."""


@dataclass(slots=True)
class _Cells:
    """Cells of one level and one class of type, by series and bucket; arrays of equal length."""

    series: Cells
    number: Cells
    """Of the bucket: it ends at number * step."""
    count: Cells
    offset: Cells
    last: Cells
    low: Cells
    high: Cells
    total: Cells

    def of(self, keep: Mask) -> _Cells:
        return _Cells(*(getattr(self, name)[keep] for name in _NAMES))


_NAMES = tuple(_Cells.__dataclass_fields__)


def usable(rows: SortedRows, until_ms: int) -> tuple[Mask, Mask]:
    """(n,) which rows can be folded, (series,) of which series all rows up to `until_ms` can: they are numbers of one
    type, at times that rise. What comes later, and what only says that a series ended, is no obstacle."""
    first = rows.type[rows.starts]
    valued = rows.type != ValueType.ENDED
    odd = valued & (rows.type != np.repeat(first, rows.counts))
    odd[1:] |= (rows.time_ms[1:] <= rows.time_ms[:-1]) & (rows.of[1:] == rows.of[:-1])
    good = ~np.logical_or.reduceat(odd, rows.starts) & ((first == ValueType.DOUBLE) | np.isin(first, _WHOLE))
    keep = np.repeat(good, rows.counts)
    keep &= valued
    keep &= rows.time_ms <= until_ms
    return keep, good


class Folded:
    """The chosen rows as cells and lives. `steps`: of the levels, ascending; `floors`: what is at this time or before
    is too old for them."""

    def __init__(self, rows: SortedRows, keep: Mask, steps: Sequence[int], floors: Sequence[int]) -> None:
        self._levels: dict[int, list[tuple[bool, _Cells]]] = {step: [] for step in steps}
        self.lives: list[Lives] = []
        doubles = rows.type == ValueType.DOUBLE
        for is_double, mine in ((False, keep & ~doubles), (True, keep & doubles)):
            at = slice(None) if mine.all() else np.flatnonzero(mine)
            values = _Values(rows.of[at], rows.time_ms[at], rows.cell[at], np.float64 if is_double else np.int64)
            if len(values.of):
                self.lives.append(_lives(values, rows.birth_ms[at], is_double))
                self._fold(values, is_double, steps, floors)

    def _fold(self, values: _Values, is_double: bool, steps: Sequence[int], floors: Sequence[int]) -> None:
        newest = int(values.time_ms.max())
        done: list[tuple[int, _Cells]] = []
        for step, floor_ms in zip(steps, floors, strict=True):
            if newest <= floor_ms:
                continue
            finer = next(((fine, cells) for fine, cells in reversed(done) if step % fine == 0), None)
            cells = _first(values, step) if finer is None else _coarser(finer[1], finer[0], step, values.dtype)
            done.append((step, cells))
            young = cells.number * step > floor_ms
            self._levels[step].append((is_double, cells if young.all() else cells.of(young)))

    def parts(self, step_ms: int, slots: Cells, some: Mask) -> Iterator[tuple[int, Part]]:
        """By number of the bucket, ascending: what is to be added to the cells of `slots` ((series,), distinct where
        they are used) in a level; of `some` series."""
        everything = bool(some.all())
        found = [(is_double, c if everything else c.of(some.take(c.series))) for is_double, c in self._levels[step_ms]]
        if not any(len(cells.number) for _, cells in found):
            return
        joined = _Cells(*(np.concatenate([getattr(cells, name) for _, cells in found]) for name in _NAMES))
        ints = sum(len(cells.number) for is_double, cells in found if not is_double)
        at = slots.take(joined.series)
        order = _by_number(joined.number)
        number = joined.number[order]
        begins = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
        for start, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(number)], strict=True):
            mine = order[start:stop]  # stable: whole numbers come before doubles
            yield int(number[start]), _part(joined, at, mine, int(np.count_nonzero(mine < ints)))


class _Values(NamedTuple):
    """Samples of one class of type."""

    of: Cells
    time_ms: Cells
    cell: Cells
    dtype: Any


def _begins(*columns: Cells) -> Cells:
    """Where one of the columns changes."""
    begins = np.ones(len(columns[0]), np.bool_)
    np.not_equal(columns[0][1:], columns[0][:-1], out=begins[1:])
    for column in columns[1:]:
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)


def _lives(values: _Values, birth_ms: Cells, is_double: bool) -> Lives:
    begins = _begins(values.of, birth_ms)
    ends = np.append(begins[1:], len(values.of)) - 1
    first, last = (Life(values.of[at], birth_ms[at], values.time_ms[at], values.cell[at]) for at in (begins, ends))
    return Lives(is_double, first, last, bool((first.series[1:] != first.series[:-1]).all()))


def _first(values: _Values, step: int) -> _Cells:
    """Samples to cells."""
    number = (values.time_ms + (step - 1)) // step
    begins = _begins(values.of, number)
    count = np.diff(begins, append=len(number))
    ends = begins + count - 1
    last, number = values.cell[ends], number[ends]
    low = high = total = last
    if len(begins) < len(values.of):
        low, high, total = _reduced(values.cell, values.cell, values.cell, begins, values.dtype)
    offset = values.time_ms[ends] - (number - 1) * step
    return _Cells(values.of[ends], number, count, offset, last, low, high, total)


def _coarser(cells: _Cells, fine: int, step: int, dtype: Any) -> _Cells:
    """Cells of a level to those of another."""
    number = (cells.number * fine + (step - 1)) // step
    begins = _begins(cells.series, number)
    ends = np.append(begins[1:], len(number)) - 1
    offset = cells.offset[ends] + (cells.number[ends] - 1) * fine - (number[ends] - 1) * step
    low, high, total = _reduced(cells.low, cells.high, cells.total, begins, dtype)
    count = np.add.reduceat(cells.count, begins)
    return _Cells(cells.series[ends], number[ends], count, offset, cells.last[ends], low, high, total)


def _reduced(low: Cells, high: Cells, total: Cells, begins: Cells, dtype: Any) -> tuple[Cells, Cells, Cells]:
    with np.errstate(all="ignore"):  # inf - inf in a sum of doubles is NaN, not news
        return (
            np.minimum.reduceat(low.view(dtype), begins).view(np.int64),
            np.maximum.reduceat(high.view(dtype), begins).view(np.int64),
            np.add.reduceat(total.view(dtype), begins).view(np.int64),
        )


def _by_number(number: Cells) -> Cells:
    """A stable order; of few different numbers numpy sorts in one pass."""
    near = number - number.min()
    return np.argsort(near.astype(np.uint16) if int(near.max()) < 65_536 else near, kind="stable")


def _part(cells: _Cells, slots: Cells, at: Cells, ints: int) -> Part:
    count, last, bounds = cells.count[at], cells.last[at], Bounds(ints, len(at))
    if (count == 1).all():
        return Part(slots[at], None, cells.offset[at], last, last, last, last, bounds)
    low, high, total = cells.low[at], cells.high[at], cells.total[at]
    return Part(slots[at], count.astype(np.uint32), cells.offset[at], last, low, high, total, bounds)
