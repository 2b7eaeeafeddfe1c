"""Incarnations that affect windows, as lists by output. The lists are short: most incarnations began long before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Ints
from artimon.compute.incarnation_index import NEVER, TIME_MAX
from artimon.compute.window_frames import WindowFrame

Table = npt.NDArray[np.void]
Rows = npt.NDArray[np.intp]


class _OutputPairs(NamedTuple):
    """Incarnations by the output whose window they affect."""

    incarnation: Rows
    begin: Rows
    """(outputs + 1,) index of the first pair of each output."""

    @classmethod
    def of(cls, first: Rows, until: Rows, outputs: int) -> _OutputPairs:
        """Build from ranges: incarnation i affects outputs first[i] … until[i] - 1."""
        sizes = np.maximum(until - first, 0)
        life = np.repeat(np.arange(len(sizes)), sizes)
        output = np.arange(len(life)) - np.repeat(np.cumsum(sizes) - sizes - first, sizes)
        order = np.argsort(output, kind="stable")  # within one output the incarnations keep their order
        return cls(life[order], np.searchsorted(output[order], np.arange(outputs + 1)))

    def of_output(self, output: int) -> Rows:
        return self.incarnation[self.begin[output] : self.begin[output + 1]]


def _begun_in(table: Table, frame: WindowFrame) -> Table:
    """Return all incarnations of the series with one that begins in the range of the windows."""
    if not len(table):
        return table
    first, rows = table["first_ms"], table["row"]
    some = rows[(first > frame.start_ms[0]) & (first <= frame.end_ms[-1])]
    if not len(some):
        return table[:0]
    wanted = np.zeros(int(rows.max()) + 1, np.bool_)
    wanted[some] = True
    kept: Table = table[wanted[rows]]
    return kept


def _previous(table: Table, name: str, none: int) -> Ints:
    """Return a field of the previous incarnation of the same series, `none` if there is none."""
    out = np.full(len(table), none, np.int64)
    if len(table) > 1:
        out[1:] = np.where(table["row"][1:] == table["row"][:-1], table[name][:-1], none)
    return out


class ZeroStarts(NamedTuple):
    """Series whose first sample in a window begins an incarnation that counts from 0, and the time of that 0."""

    rows: Rows
    since_ms: Ints


@dataclass(frozen=True, slots=True)
class StartEvents:
    """For each output the incarnations that begin with the first sample of a series in its window."""

    table: Table
    previous_ms: Ints
    pairs: _OutputPairs
    frame: WindowFrame

    @classmethod
    def of(cls, lives: Table, frame: WindowFrame) -> StartEvents:
        """Build from incarnations: BIRTH_TYPE, sorted by (row, birth)."""
        table = _begun_in(lives, frame)
        # incarnations do not overlap, so those that ended at or before s are the first of their series
        lasts = np.clip(table["last_ms"], 0, TIME_MAX)
        lasts = lasts[np.lexsort((lasts, table["row"]))]
        before = np.full(len(table), NEVER, np.int64)
        if len(table) > 1:
            before[1:] = np.where(table["row"][1:] == table["row"][:-1], lasts[:-1], NEVER)
        starts = np.clip(frame.start_ms, 0, TIME_MAX)
        first = np.maximum(np.searchsorted(starts, before), np.searchsorted(frame.end_ms, table["first_ms"]))
        until = np.minimum(np.searchsorted(starts, lasts), np.searchsorted(frame.start_ms, table["first_ms"]))
        pairs = _OutputPairs.of(first, until, len(frame.end_ms))
        return cls(table, _previous(table, "last_ms", NEVER), pairs, frame)

    def of_output(self, output: int) -> ZeroStarts:
        """Return the series that count from 0: start time or end of the previous incarnation within `max_gap`."""
        life = self.pairs.of_output(output)
        if not len(life):
            return ZeroStarts(life, np.zeros(0, np.int64))
        start = int(self.frame.start_ms[output])
        limit = start - self.frame.max_gap_ms
        born, older = self.table["birth_ms"][life], self.previous_ms[life]
        zero = (born >= limit) | (older >= limit)
        # a start time is like a sample 0: if it lies inside the window, the value before it comes first
        since = np.where(((born > start) | (born < limit)) & (older >= limit), older, born)
        return ZeroStarts(self.table["row"][life][zero], since[zero])


@dataclass(frozen=True, slots=True)
class ResetEvents:
    """For each output the values hidden by resets in its window."""

    rows: Rows
    cells: Ints
    double: Bools
    pairs: _OutputPairs

    @classmethod
    def of(cls, lives: Table, frame: WindowFrame, double: Bools | bool) -> ResetEvents:
        """Build from incarnations; `double` is the mask of series that are DOUBLE."""
        table = _begun_in(lives, frame)
        older_ms, older = _previous(table, "last_ms", NEVER), _previous(table, "last", 0)
        first = np.searchsorted(frame.end_ms, table["first_ms"])
        # an incarnation that ended at or before s does not affect this window: its successor counts from 0 there
        until = np.searchsorted(frame.start_ms, np.minimum(table["first_ms"], older_ms))
        rows = table["row"]
        is_double = np.full(len(rows), double) if isinstance(double, bool) else double[rows]
        return cls(rows, older, is_double, _OutputPairs.of(first, until, len(frame.end_ms)))

    def of_output(self, output: int, double: bool) -> tuple[Rows, npt.NDArray[Any]]:
        """Return the distinct series that are DOUBLE (or that are not) and the sums of their hidden values: float64, or
        Python's integers, which do not wrap."""
        life = self.pairs.of_output(output)
        life = life[self.double[life] == double] if len(life) else life
        if not len(life):
            return life, np.zeros(0)
        rows, place = np.unique(self.rows[life], return_inverse=True)
        sums = np.zeros(len(rows), np.float64 if double else object)
        np.add.at(sums, place, self.cells[life].view(np.float64) if double else self.cells[life].astype(object))
        return rows, sums
