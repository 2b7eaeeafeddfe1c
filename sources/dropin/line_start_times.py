"""New samples of a drop-in file, and the start times of their series: docs/sources.md "Drop-in files". Pure numpy.

A sample counts once for each series and time. A source remembers only the newest time taken of a series. So the samples
of a series are taken in order of time, and a sample older than the newest one is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from artimon.model.values import Kind, ValueType
from sources.state.start_times import Bytes, Flags, Ints, doubles, is_below

MAX_AGE_MS = 72 * 3_600_000
"""Maximum age of a sample: three days as in the memory store. Sources remember ended series for four: no repeats."""
MAX_AHEAD_MS = 60_000
"""Limit beyond which the platform treats a sample as `future`."""
TIME_BITS = 42
"""Bits of a time in a key: milliseconds until the year 2109. The row of the source takes the bits above."""


@dataclass(frozen=True, slots=True)
class PlacedLines:
    """n lines of series that have a row, with values of the type of the series."""

    row: Ints
    time_ms: Ints
    cell: Ints
    type: Bytes
    line: Ints
    told_ms: Ints
    """Birth that the sender gives, 0 if it gives none."""
    delta: Flags
    """True where the value is an increase since the sample before."""

    def __len__(self) -> int:
        return len(self.row)

    def pick(self, at: Flags | Ints) -> PlacedLines:
        columns = (self.row, self.time_ms, self.cell, self.line, self.told_ms)
        row, time_ms, cell, line, told_ms = (column[at] for column in columns)
        return PlacedLines(row, time_ms, cell, self.type[at], line, told_ms, self.delta[at])

    def keys(self) -> Ints:
        """Return one number for each pair of row and time; times must fit TIME_BITS."""
        return (self.row << TIME_BITS) | self.time_ms


@dataclass(frozen=True, slots=True)
class LastSamples:
    """Known state of the series of n lines; `taken_ms` is the time of the newest sample taken, 0 if there is none."""

    cell: Ints
    birth_ms: Ints
    taken_ms: Ints
    kind: Bytes


def is_future(time_ms: Ints, now_ms: int) -> Flags:
    """Return the mask of times too far ahead for the platform. Such lines wait in the file until they are due."""
    return time_ms > now_ms + MAX_AHEAD_MS


def is_too_old(time_ms: Ints, now_ms: int, max_age_ms: int = MAX_AGE_MS) -> Flags:
    return time_ms <= now_ms - max_age_ms


def sort_lines(lines: PlacedLines) -> PlacedLines:
    """Sort by row, then time, then place in the file."""
    if len(lines) < 2 or bool((np.diff(lines.row) > 0).all()):
        return lines
    return lines.pick(np.lexsort((lines.line, lines.time_ms, lines.row)))


def find_duplicates(lines: PlacedLines) -> tuple[Flags, Flags]:
    """Return two masks of ordered lines: repeats of a row and time, and those repeats with a different value."""
    same = np.zeros(len(lines), np.bool_)
    same[1:] = (np.diff(lines.row) == 0) & (np.diff(lines.time_ms) == 0)
    if not bool(same.any()):
        return same, same
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(lines))))
    return same, same & (lines.cell != lines.cell[first])


def contradicts(lines: PlacedLines, past: LastSamples) -> Flags:
    """Return the mask of lines with the time of the newest sample taken, but a different number."""
    number = lines.type != ValueType.STRING
    different: Flags = (lines.time_ms == past.taken_ms) & number & (lines.cell != past.cell)
    double = lines.type == ValueType.DOUBLE
    if bool((different & double).any()):
        different &= ~(double & (np.isnan(doubles(lines.cell)) | np.isnan(doubles(past.cell))))
    return different


def accumulate(lines: PlacedLines, past: LastSamples) -> PlacedLines:
    """Replace increases of ordered lines by the sums with all increases before them; a new series begins at 0."""
    if not bool(lines.delta.any()):
        return lines
    cell = lines.cell.copy()
    first = np.ones(len(lines), np.bool_)
    first[1:] = np.diff(lines.row) != 0
    for start, end in zip(*_runs(first), strict=True):
        if not lines.delta[start]:
            continue
        before = past.cell[start : start + 1] if past.taken_ms[start] else np.zeros(1, np.int64)
        values = np.concatenate((before, cell[start:end]))
        if lines.type[start] == ValueType.DOUBLE:
            cell[start:end] = np.cumsum(doubles(values))[1:].view(np.int64)
        else:
            cell[start:end] = np.cumsum(values)[1:]
    return replace(lines, cell=cell)


def _runs(first: Flags) -> tuple[list[int], list[int]]:
    """Return the starts and ends of the runs that `first` begins."""
    starts = np.flatnonzero(first).tolist()
    return starts, [*starts[1:], len(first)]


def start_times(lines: PlacedLines, past: LastSamples, whole_ms: int) -> Ints:
    """Return the birth of each of n ordered lines, all newer than the samples taken of their series.

    `whole_ms`: newest time in the file at its last complete read, 0 if there was none; a series that is new now was
    absent then. A series keeps its birth unless it is new, is a counter that fell, or the reported birth lies between
    the previous sample and this one. An increase reports a birth only for a new series."""
    first = np.ones(len(lines), np.bool_)
    first[1:] = np.diff(lines.row) != 0
    cell, taken = past.cell.copy(), past.taken_ms.copy()
    again = np.flatnonzero(~first)
    cell[again], taken[again] = lines.cell[again - 1], lines.time_ms[again - 1]
    new = first & (past.taken_ms == 0)
    born = np.where(first, past.birth_ms, 0)
    born[new] = np.minimum(whole_ms, lines.time_ms[new])
    fell = is_below(past.kind == Kind.COUNTER, lines.type, lines.cell, cell) & ~new
    born[fell] = taken[fell]
    told = (lines.told_ms > 0) & (taken <= lines.told_ms) & (lines.told_ms <= lines.time_ms) & (new | ~lines.delta)
    born[told] = np.maximum(born[told], lines.told_ms[told])
    return _greatest_so_far(born, first)


def _greatest_so_far(born: Ints, first: Flags) -> Ints:
    """Return the running maximum within each series: a birth never goes back."""
    if bool(first.all()):
        return born
    series = np.cumsum(first) << TIME_BITS
    greatest: Ints = np.maximum.accumulate(series + born) - series
    return greatest
