"""Incarnations of series (one per start time) in sorted arrays, searched for many windows at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from artimon.compute.arrays import Arrays
from artimon.compute.cells import Bools, Ints
from artimon.compute.window_frames import WindowFrame

# A (row, time) pair packed in one int64: one binary search serves all series. 43 bits of milliseconds: the year 2248.
TIME_BITS = 43
TIME_MAX = 2**TIME_BITS - 1
NEVER = -(2**62)
"""A time before every window: marks the absence of an incarnation."""


class IncarnationIndex:
    """Incarnations of `rows` series; `table` has dtype BIRTH_TYPE and is sorted by (row, birth)."""

    def __init__(self, rows: int, table: npt.NDArray[np.void]) -> None:
        self.rows, self.table = rows, table
        self._firsts = np.sort(_key(table["row"], table["first_ms"]))
        self._lasts = np.sort(_key(table["row"], table["last_ms"]))
        self._previous_ms = np.full(len(table), NEVER, np.int64)
        if len(table) > 1:
            follows = table["row"][1:] == table["row"][:-1]
            self._previous_ms[1:] = np.where(follows, table["last_ms"][:-1], NEVER)

    @classmethod
    def of(cls, data: Arrays) -> IncarnationIndex:
        return cls(data.rows, data.lives)

    def first_after(self, rows: npt.NDArray[np.intp], start_ms: Ints) -> npt.NDArray[np.intp]:
        """Return for each of `rows` the index of its oldest incarnation with a sample after `start_ms`; one exists."""
        return np.searchsorted(self._lasts, _key(rows, start_ms), side="right")

    def count_restarts(self, frame: WindowFrame) -> Ints:
        """Count the incarnations (series, outputs) whose first sample is in the window, at most `max_gap` after an
        earlier sample of the series."""
        shape = (self.rows, len(frame.end_ms))
        first_ms = self.table["first_ms"]
        soon = (self._previous_ms > NEVER) & (self._previous_ms >= first_ms - frame.max_gap_ms)
        keys = np.sort(_key(self.table["row"][soon], first_ms[soon]))
        rows = np.arange(self.rows, dtype=np.int64)[:, None]
        begun, over = (
            np.searchsorted(keys, _key(rows, np.broadcast_to(at[None, :], shape)), side="right")
            for at in (frame.start_ms, frame.end_ms)
        )
        return np.asarray(over - begun)

    def begins_in(self, start_ms: Ints, end_ms: Ints) -> Bools:
        """Return the mask (series, outputs) of an incarnation with its first sample in (start, end], of that shape."""
        rows = np.arange(self.rows, dtype=np.int64)[:, None]
        after = np.searchsorted(self._firsts, _key(rows, start_ms), side="right")
        return np.asarray(np.searchsorted(self._firsts, _key(rows, end_ms), side="right") > after)

    def count_overlapping(self, rows: npt.NDArray[np.intp], start_ms: Ints, end_ms: Ints) -> Ints:
        """Count the incarnations of each of `rows` that overlap (start, end]."""
        begun = np.searchsorted(self._firsts, _key(rows, end_ms), side="right")
        over = np.searchsorted(self._lasts, _key(rows, start_ms), side="right")
        return np.asarray(begun - over)


def _key(rows: npt.NDArray[np.intp] | Ints, times: Ints) -> Ints:
    return np.asarray((np.asarray(rows, np.int64) << TIME_BITS) + np.clip(times, 0, TIME_MAX))
