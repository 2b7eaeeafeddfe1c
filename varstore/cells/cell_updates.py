"""Addends: statistics to add to distinct cells of a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import bucketize_samples, run_starts
from artimon.compute.sample_order import Cells, TextTable, TypeBounds, ranks
from artimon.compute.statistics import FOLDS, STATISTICS, Stats

Counts = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class CellUpdate:
    """Statistics of n distinct cells."""

    at: Cells
    """Indexes of the cells in the block."""
    offset: Cells
    """Time of `last`, ms after the left edge of its bucket."""
    last: Cells
    bounds: TypeBounds
    count: Counts | None = None
    """Samples of each cell; None: one each, so every folded statistic equals `last`."""
    folded: Mapping[str, Cells] = field(default_factory=dict)
    """One column per folded statistic; empty if `count` is None."""

    def value(self, name: str) -> Cells:
        """Column of one folded statistic."""
        return self.last if self.count is None else self.folded[name]

    def select(self, keep: Mask, less: int) -> CellUpdate:
        """Select the rows of `keep` and subtract `less` from their cell indexes."""
        return CellUpdate(
            self.at[keep] - less,
            self.offset[keep],
            self.last[keep],
            self.bounds.select(keep),
            None if self.count is None else self.count[keep],
            {name: column[keep] for name, column in self.folded.items()},
        )


def update_from_stats(stats: Stats, rows: Cells | slice, at: Cells, start_ms: int, bounds: TypeBounds) -> CellUpdate:
    """Make an addend for the cells `at` from statistics of buckets that all begin at `start_ms`."""
    count, offset, last = stats["count"][rows], stats["last_time"][rows] - start_ms, stats["last"][rows]
    if (count == 1).all():
        return CellUpdate(at, offset, last, bounds)
    folded = {name: stats[name][rows] for name in FOLDS}
    return CellUpdate(at, offset, last, bounds, count.astype(np.uint32), folded)


def aggregate_batch(
    at: Cells, time_ms: Cells, cells: Cells, bounds: TypeBounds, texts: TextTable, start_ms: int
) -> CellUpdate:
    """Aggregate samples into one row per distinct cell of `at`; samples of a cell must have one class of value."""
    order = ranks(cells, bounds, texts)
    groups = [
        _aggregate_class(at[rows], time_ms[rows], cells[rows], order[rows], double)
        for rows, double in (
            (slice(0, bounds.ints), False),
            (slice(bounds.ints, bounds.doubles), True),
            (slice(bounds.doubles, len(at)), False),
        )
    ]
    ints, doubles, _ = (len(places) for places, _ in groups)
    stats = {name: np.concatenate([held[name] for _, held in groups]) for name in STATISTICS}
    places = np.concatenate([places for places, _ in groups])
    return update_from_stats(stats, slice(None), places, start_ms, TypeBounds(ints, ints + doubles))


def _aggregate_class(at: Cells, time_ms: Cells, cells: Cells, rank: Cells, double: bool) -> tuple[Cells, Stats]:
    if not len(at):
        return at, dict.fromkeys(STATISTICS, at)
    order = np.lexsort((rank, time_ms, at))
    begins = run_starts(at[order])
    return at[order[begins]], bucketize_samples(begins, time_ms[order], cells[order], double)
