"""Aggregation of raw table rows, sorted by series and time, into cells of every level before the store is touched.

This makes a refill cheap: some passes over all rows, and one random access for each cell instead of one for each
sample. Pure functions: they know no slots and take no lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import bucketize_samples, coarsen_buckets, run_ends, run_starts
from artimon.compute.sample_order import Cells, TypeBounds
from artimon.compute.statistics import STATISTICS, Stats
from artimon.model.values import WHOLE_TYPES, ValueType
from varstore.cells.cell_updates import CellUpdate, update_from_stats

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class SortedRows:
    """n rows grouped by series and source; read-only arrays of length n."""

    time_ms: Cells
    birth_ms: Cells
    type: npt.NDArray[np.uint8]
    cell: Cells
    starts: Cells
    """(series,) first row of each series; starts[0] is 0."""
    counts: Cells = field(init=False)
    """(series,) number of rows of each series."""
    series: Cells = field(init=False)
    """(n,) series index of each row."""

    def __post_init__(self) -> None:
        self.counts = np.diff(self.starts, append=len(self.time_ms))
        self.series = np.repeat(np.arange(len(self.starts)), self.counts)


class IncarnationSamples(NamedTuple):
    """First or last samples of incarnations of series."""

    series: Cells
    birth_ms: Cells
    time_ms: Cells
    cell: Cells

    def select(self, keep: Mask) -> IncarnationSamples:
        return IncarnationSamples(*(column[keep] for column in self))


class IncarnationBounds(NamedTuple):
    """First and last samples of the incarnations of series of one class of type."""

    doubles: bool
    first: IncarnationSamples
    last: IncarnationSamples
    distinct: bool
    """True if no series occurs twice."""


@dataclass(slots=True)
class _LevelCells:
    """Cells of one level and one class of type, sorted by series and bucket; arrays of equal length."""

    series: Cells
    number: Cells
    """Bucket number: the bucket ends at number * step."""
    stats: Stats
    double: bool

    def select(self, keep: Mask) -> _LevelCells:
        stats = {name: column[keep] for name, column in self.stats.items()}
        return _LevelCells(self.series[keep], self.number[keep], stats, self.double)


def mask_aggregatable(rows: SortedRows, until_ms: int) -> tuple[Mask, Mask]:
    """Return masks (n,) of the rows to aggregate and (series,) of the series that can be aggregated.
    A series can be if its times rise and it begins with a number or boolean whose type all its samples have; end
    markers are skipped. The rows to aggregate are the samples of such series up to `until_ms`."""
    first = rows.type[rows.starts]
    valued = rows.type != ValueType.ENDED
    odd = valued & (rows.type != np.repeat(first, rows.counts))
    odd[1:] |= (rows.time_ms[1:] <= rows.time_ms[:-1]) & (rows.series[1:] == rows.series[:-1])
    good = ~np.logical_or.reduceat(odd, rows.starts) & ((first == ValueType.DOUBLE) | np.isin(first, WHOLE_TYPES))
    keep = np.repeat(good, rows.counts)
    keep &= valued
    keep &= rows.time_ms <= until_ms
    return keep, good


class SortedAggregate:
    """Chosen rows aggregated into cells and incarnations.
    steps: of the levels in ms, ascending. floors: per level, buckets that end at this time or earlier are late."""

    def __init__(self, rows: SortedRows, keep: Mask, steps: Sequence[int], floors: Sequence[int]) -> None:
        self._levels: dict[int, list[_LevelCells]] = {step: [] for step in steps}
        self.incarnations: list[IncarnationBounds] = []
        doubles = rows.type == ValueType.DOUBLE
        for is_double, mine in ((False, keep & ~doubles), (True, keep & doubles)):
            at = slice(None) if mine.all() else np.flatnonzero(mine)
            values = _TypedSamples(rows.series[at], rows.time_ms[at], rows.cell[at], is_double)
            if len(values.series):
                self.incarnations.append(_bounds_of(values, rows.birth_ms[at]))
                self._aggregate(values, steps, floors)

    def _aggregate(self, values: _TypedSamples, steps: Sequence[int], floors: Sequence[int]) -> None:
        newest = int(values.time_ms.max())
        done: list[tuple[int, _LevelCells]] = []
        for step, floor_ms in zip(steps, floors, strict=True):
            if newest <= floor_ms:
                continue
            finer = next(((fine, cells) for fine, cells in reversed(done) if step % fine == 0), None)
            cells = _aggregate_samples(values, step) if finer is None else _aggregate_cells(finer[1], finer[0], step)
            done.append((step, cells))
            young = cells.number * step > floor_ms
            self._levels[step].append(cells if young.all() else cells.select(young))

    def updates(self, step_ms: int, slots: Cells, some: Mask) -> Iterator[tuple[int, CellUpdate]]:
        """Yield (bucket number, addend) of a level, ascending, for the series of the mask `some`.
        slots: (series,) slot of each series, distinct where `some`."""
        everything = bool(some.all())
        found = [cells if everything else cells.select(some.take(cells.series)) for cells in self._levels[step_ms]]
        if not any(len(cells.number) for cells in found):
            return
        stats = {name: np.concatenate([cells.stats[name] for cells in found]) for name in STATISTICS}
        ints = sum(len(cells.number) for cells in found if not cells.double)
        at = slots.take(np.concatenate([cells.series for cells in found]))
        numbers = np.concatenate([cells.number for cells in found])
        order = _order_by_number(numbers)
        begins = run_starts(numbers[order])
        for start, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(numbers)], strict=True):
            mine = order[start:stop]  # stable: whole numbers come before doubles
            number, bounds = int(numbers[mine[0]]), TypeBounds(int(np.count_nonzero(mine < ints)), len(mine))
            yield number, update_from_stats(stats, mine, at[mine], (number - 1) * step_ms, bounds)


class _TypedSamples(NamedTuple):
    """Samples of one class of type, sorted by series and time."""

    series: Cells
    time_ms: Cells
    cell: Cells
    double: bool


def _bounds_of(values: _TypedSamples, birth_ms: Cells) -> IncarnationBounds:
    begins = run_starts(values.series, birth_ms)
    ends = run_ends(begins, len(values.series))
    first, last = (
        IncarnationSamples(values.series[at], birth_ms[at], values.time_ms[at], values.cell[at])
        for at in (begins, ends)
    )
    return IncarnationBounds(values.double, first, last, bool((first.series[1:] != first.series[:-1]).all()))


def _aggregate_samples(values: _TypedSamples, step: int) -> _LevelCells:
    """Aggregate samples into cells."""
    number = (values.time_ms + (step - 1)) // step
    begins = run_starts(values.series, number)
    stats = bucketize_samples(begins, values.time_ms, values.cell, values.double)
    return _LevelCells(values.series[begins], number[begins], stats, values.double)


def _aggregate_cells(cells: _LevelCells, fine: int, step: int) -> _LevelCells:
    """Aggregate cells of step `fine` into cells of `step`."""
    number = (cells.number * fine + (step - 1)) // step
    begins = run_starts(cells.series, number)
    return _LevelCells(
        cells.series[begins], number[begins], coarsen_buckets(begins, cells.stats, cells.double), cells.double
    )


def _order_by_number(number: Cells) -> Cells:
    """Stable argsort; numpy sorts 16-bit numbers in linear time."""
    near = number - number.min()
    return np.argsort(near.astype(np.uint16) if int(near.max()) < 65_536 else near, kind="stable")
