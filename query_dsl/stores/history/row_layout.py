"""Target positions of the rows of many batches, sorted by series, time and birth.

Rows come in runs: adjacent rows of one series. A run is moved as a whole. Only series that are then not in order,
because their runs overlap in time or their times fall, are sorted row by row. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import run_starts
from query_dsl.stores.history.file_pruning import Ints

SLICED_ROWS = 48
"""Minimum average rows per run for copying run by run; shorter runs are copied row by row."""

Scalar = TypeVar("Scalar", bound=np.generic)


class Runs(NamedTuple):
    """The runs of a batch: (runs,) number of the series, time of the first row, number of rows."""

    number: Ints
    first: Ints
    length: Ints


def runs_of(number: Ints, time: Ints) -> Runs:
    """Return the runs of a batch from (n,) series and time of each row."""
    starts = run_starts(number)
    return Runs(number[starts], time[starts], np.diff(starts, append=len(number)))


class RowPlaces:
    """Target positions of the runs of one batch: (runs,) rows of each, and position of its first row."""

    def __init__(self, length: Ints, to: Ints) -> None:
        start = np.cumsum(length) - length
        rows = int(length.sum())
        self._rows: Ints | None = None
        self._slices: list[tuple[slice, slice]] = []
        if len(length) * SLICED_ROWS > rows:
            self._rows = np.repeat(to - start, length) + np.arange(rows)
        else:
            ends = (start + length).tolist(), (to + length).tolist()
            of = zip(start.tolist(), ends[0], to.tolist(), ends[1], strict=True)
            self._slices = [(slice(a, b), slice(c, d)) for a, b, c, d in of]

    def put(self, out: npt.NDArray[Scalar], values: npt.NDArray[Scalar]) -> None:
        """Copy `values`, one for each row of the batch, to their places in `out`. Threads may call this for different
        batches."""
        if self._rows is not None:
            out[self._rows] = values
        for start, to in self._slices:
            out[to] = values[start]

    def mark(self, out: npt.NDArray[np.bool_]) -> None:
        """Set all places of the batch in `out`."""
        if self._rows is not None:
            out[self._rows] = True
        for _, to in self._slices:
            out[to] = True


@dataclass(frozen=True, slots=True)
class RowMoves:
    """Rows that must move: row `start[i]` goes to `to[i]`."""

    to: Ints
    start: Ints

    def apply(self, out: npt.NDArray[Scalar]) -> None:
        out[self.to] = out[self.start]


class RowLayout:
    """Runs of all batches, in the order of (series, time of their first row)."""

    def __init__(self, batches: Sequence[Runs]) -> None:
        number, first, length = (
            np.concatenate([np.zeros(0, np.int64), *(getattr(runs, name) for runs in batches)]) for name in Runs._fields
        )
        order = np.lexsort((first, number))
        self.number: Ints = number[order]
        """(runs,) series of each run, in order; `length`: its number of rows."""
        self.length: Ints = length[order]
        self.rows = int(length.sum())
        self._start: Ints = np.cumsum(self.length) - self.length
        to = np.empty_like(self._start)
        to[order] = self._start
        bounds = np.cumsum([0, *(len(runs.number) for runs in batches)]).tolist()
        self._of = [(length[a:b], to[a:b]) for a, b in pairwise(bounds)]

    def places(self, batch: int) -> RowPlaces:
        """Return the places of the rows of a batch."""
        return RowPlaces(*self._of[batch])

    def moves(self, time: Ints, birth: Ints) -> RowMoves | None:
        """Return the moves that sort the rows once all, `time` and `birth` included, are placed; None if sorted."""
        starts = self._start[run_starts(self.number)]
        late = np.flatnonzero(time[1:] <= time[:-1]) + 1  # mostly the first rows of series
        late = late[~np.isin(late, starts)]
        late = late[(time[late] < time[late - 1]) | (birth[late] < birth[late - 1])]
        if not len(late):
            return None
        series = np.unique(np.searchsorted(starts, late, side="right") - 1)
        begin, length = starts[series], np.diff(starts, append=self.rows)[series]
        rows = np.repeat(begin - (np.cumsum(length) - length), length) + np.arange(int(length.sum()))
        return RowMoves(rows, rows[np.lexsort((birth[rows], time[rows], np.repeat(series, length)))])
