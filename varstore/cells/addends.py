"""Addends: values that are added to distinct cells of a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import begins_of, cut_samples
from artimon.compute.statistics import FOLDS, STATISTICS, Stats
from artimon.compute.ties import Bounds, Cells, TextTable, ranks

Counts = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Addend:
    """Statistics of n distinct cells."""

    at: Cells
    """Places in the block."""
    offset: Cells
    """Time of `last`, ms after the left edge of its bucket."""
    last: Cells
    bounds: Bounds
    count: Counts | None = None
    """Samples for each cell; None: one, so that every folded statistic is `last`."""
    folded: Mapping[str, Cells] = field(default_factory=dict)
    """Of each folded statistic; empty where `count` is None."""

    def value(self, name: str) -> Cells:
        """A folded statistic."""
        return self.last if self.count is None else self.folded[name]

    def of(self, keep: Mask, less: int) -> Addend:
        """The rows of `keep`, their places counted from `less`."""
        return Addend(
            self.at[keep] - less,
            self.offset[keep],
            self.last[keep],
            self.bounds.cut(keep),
            None if self.count is None else self.count[keep],
            {name: column[keep] for name, column in self.folded.items()},
        )


def addend_of(stats: Stats, rows: Cells | slice, at: Cells, start_ms: int, bounds: Bounds) -> Addend:
    """Statistics of some buckets, all of which begin at `start_ms`, for the cells `at`."""
    count, offset, last = stats["count"][rows], stats["last_time"][rows] - start_ms, stats["last"][rows]
    if (count == 1).all():
        return Addend(at, offset, last, bounds)
    folded = {name: stats[name][rows] for name in FOLDS}
    return Addend(at, offset, last, bounds, count.astype(np.uint32), folded)


def collapse(at: Cells, time_ms: Cells, cells: Cells, bounds: Bounds, texts: TextTable, start_ms: int) -> Addend:
    """The addend with one row for each distinct cell of `at`; rows of one cell have one class of value."""
    order = ranks(cells, bounds, texts)
    groups = [
        _collapse_class(at[rows], time_ms[rows], cells[rows], order[rows], double)
        for rows, double in (
            (slice(0, bounds.ints), False),
            (slice(bounds.ints, bounds.doubles), True),
            (slice(bounds.doubles, len(at)), False),
        )
    ]
    ints, doubles, _ = (len(places) for places, _ in groups)
    stats = {name: np.concatenate([held[name] for _, held in groups]) for name in STATISTICS}
    places = np.concatenate([places for places, _ in groups])
    return addend_of(stats, slice(None), places, start_ms, Bounds(ints, ints + doubles))


def _collapse_class(at: Cells, time_ms: Cells, cells: Cells, rank: Cells, double: bool) -> tuple[Cells, Stats]:
    if not len(at):
        return at, dict.fromkeys(STATISTICS, at)
    order = np.lexsort((rank, time_ms, at))
    begins = begins_of(at[order])
    return at[order[begins]], cut_samples(begins, time_ms[order], cells[order], double)
