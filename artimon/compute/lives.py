"""The lives of series (one per birth) in arrays that answer, for every window at once, which life begins in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artimon.compute.arrays import Arrays
from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.frames import Frame
from artimon.model.select import BIRTH_TYPE

# A (row, time) pair in one int64, so that one binary search serves all series. 43 bits of milliseconds: the year 2248.
TIME_BITS = 43
TIME_MAX = 2**TIME_BITS - 1
NEVER = -(2**62)
"""A time before every window: "there is no such life"."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """(series, outputs) what resets inside each window hide, as int64 and as float64."""

    whole: Ints
    real: Floats


class Lives:
    """Lives of `rows` series, in the order of birth; `table` has dtype BIRTH_TYPE and is sorted by (row, birth)."""

    def __init__(self, rows: int, table: npt.NDArray[np.void]) -> None:
        self.rows, self.table = rows, table
        self._firsts = np.sort(_key(table["row"], table["first_ms"]))
        self._lasts = np.sort(_key(table["row"], table["last_ms"]))
        self._begin = np.searchsorted(table["row"], np.arange(rows + 1))
        self._older_ms = np.full(len(table), NEVER, np.int64)
        self._older = np.zeros(len(table), np.int64)
        if len(table) > 1:
            follows = table["row"][1:] == table["row"][:-1]
            self._older_ms[1:] = np.where(follows, table["last_ms"][:-1], NEVER)
            self._older[1:] = np.where(follows, table["last"][:-1], 0)

    @classmethod
    def of(cls, data: Arrays) -> Lives:
        return cls(data.rows, data.lives)

    @classmethod
    def none(cls, rows: int) -> Lives:
        """No births known: every series is one life without a beginning."""
        return cls(rows, np.zeros(0, BIRTH_TYPE))

    @property
    def empty(self) -> bool:
        return len(self.table) == 0

    def first_in(self, frame: Frame) -> tuple[Bools, Ints, Ints]:
        """(series, outputs): does the window's first sample start a life; its birth; the end of the life before."""
        shape = (self.rows, len(frame.end_ms))
        if self.empty:
            return np.zeros(shape, np.bool_), np.full(shape, NEVER), np.full(shape, NEVER)
        rows = np.arange(self.rows, dtype=np.int64)[:, None]
        start, end = frame.start_ms[None, :], frame.end_ms[None, :]
        # lives come one after another, so those that ended at or before s are the first of their series
        at = np.searchsorted(self._lasts, _key(rows, np.broadcast_to(start, shape)), side="right")
        exists = at < self._begin[1:][:, None]
        at = np.minimum(at, len(self.table) - 1)
        first_ms = self.table["first_ms"][at]
        inside = exists & (first_ms > start) & (first_ms <= end)
        born = np.where(inside, self.table["birth_ms"][at], NEVER)
        return inside, born, np.where(inside, self._older_ms[at], NEVER)

    def first_over(self, rows: npt.NDArray[np.intp], start_ms: Ints) -> npt.NDArray[np.intp]:
        """Of each of `rows` the oldest life with a sample after `start_ms`; there must be one."""
        return np.searchsorted(self._lasts, _key(rows, start_ms), side="right")

    def hidden(self, frame: Frame, double: Bools) -> Hidden:
        """For every life that follows another inside the window: the last value of the other."""
        whole = np.zeros((self.rows, len(frame.end_ms)), np.int64)
        real = np.zeros(whole.shape, np.float64)
        later = np.flatnonzero(self._older_ms > NEVER)
        table, older_ms, older = self.table[later], self._older_ms[later], self._older[later]
        is_double = double[table["row"]] if len(later) else np.zeros(0, np.bool_)
        for j, (start, end) in enumerate(zip(frame.start_ms.tolist(), frame.end_ms.tolist(), strict=True)):
            # a life that ended at or before s is no matter of this window: what follows it counts from 0 there
            inside = (table["first_ms"] > start) & (table["first_ms"] <= end) & (older_ms > start)
            if inside.any():
                i, d = np.flatnonzero(inside & ~is_double), np.flatnonzero(inside & is_double)
                np.add.at(whole[:, j], table["row"][i], older[i])
                np.add.at(real[:, j], table["row"][d], older[d].view(np.float64))
        return Hidden(whole, real)

    def followers(self, frame: Frame) -> Ints:
        """(series, outputs) how many lives have their first sample in the window and follow a sample of the series that
        is at most `max_gap` older than it."""
        shape = (self.rows, len(frame.end_ms))
        first_ms = self.table["first_ms"]
        soon = (self._older_ms > NEVER) & (self._older_ms >= first_ms - frame.max_gap_ms)
        keys = np.sort(_key(self.table["row"][soon], first_ms[soon]))
        rows = np.arange(self.rows, dtype=np.int64)[:, None]
        begun, over = (
            np.searchsorted(keys, _key(rows, np.broadcast_to(at[None, :], shape)), side="right")
            for at in (frame.start_ms, frame.end_ms)
        )
        return np.asarray(over - begun)

    def begun(self, start_ms: Ints, end_ms: Ints) -> Bools:
        """(series, outputs) whether a life has its first sample in (start, end], both of that shape."""
        rows = np.arange(self.rows, dtype=np.int64)[:, None]
        after = np.searchsorted(self._firsts, _key(rows, start_ms), side="right")
        return np.asarray(np.searchsorted(self._firsts, _key(rows, end_ms), side="right") > after)

    def within(self, rows: npt.NDArray[np.intp], start_ms: Ints, end_ms: Ints) -> Ints:
        """How many lives of each of `rows` have part of themselves in (start, end]."""
        begun = np.searchsorted(self._firsts, _key(rows, end_ms), side="right")
        over = np.searchsorted(self._lasts, _key(rows, start_ms), side="right")
        return np.asarray(begun - over)


def _key(rows: npt.NDArray[np.intp] | Ints, times: Ints) -> Ints:
    return np.asarray((np.asarray(rows, np.int64) << TIME_BITS) + np.clip(times, 0, TIME_MAX))
