"""increase, delta and rate from buckets: exact in int64, additive over adjacent windows, equal at every level.

For a window (s, t] the increase is

    last value in it  -  value before it  +  what resets inside would hide

Hidden is the last value of each life that another one followed. The value before is that of the sample just before
the first one in the window, if it is not older than s - max_gap. A life that starts in the window counts from 0, if the
life before it, or its birth, is not older than s - max_gap. If neither holds, the first sample has no predecessor: the
increase counts from that sample, and is missing if there is no other. Buckets know that sample where its life left one
sample in the first bucket, and where it is the smallest of a counter; else the increase counts from the last one of its
life there, and is approximate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from artimon.compute.arrays import Arrays
from artimon.compute.cells import DOUBLE, INTEGER, Bools, Cells, Ints, as_floats
from artimon.compute.frames import Frame, newest, oldest, pick, totals
from artimon.compute.lives import NEVER, Lives
from artimon.model.values import INT64_MAX, INT64_MIN, Kind


@dataclass(frozen=True, slots=True)
class Differences:
    """What a window function of differences answers: cells, the milliseconds they took, and where they are guesses."""

    column: Cells
    span_ms: Ints
    approximate: Bools


@dataclass(frozen=True, slots=True)
class _Edge:
    """The left edge of each window: (series, outputs) columns, masks and times."""

    last: Ints
    first: Ints
    before: Ints
    """column of the value before"""
    known: Bools
    """the value before counts"""
    zero: Bools
    """the first sample starts a life that counts from 0"""
    born_ms: Ints
    older_ms: Ints
    """last sample of the life before, where that is not too old; else NEVER"""


def increase(data: Arrays, frame: Frame) -> Differences:
    """Growth of a counter within each window, births counted from 0."""
    return _differences(data, frame, Lives.of(data))


def delta(data: Arrays, frame: Frame) -> Differences:
    """Difference to the value before each window, without regard to births."""
    return _differences(data, frame, Lives.none(data.rows))


def rate(data: Arrays, frame: Frame) -> Differences:
    """Increase a second, from the first predecessor used to the last sample; DOUBLE."""
    found = _differences(data, frame, Lives.of(data), by_time=True)
    types, cells, present = found.column
    seconds = found.span_ms / 1000.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = as_floats(types, cells) / seconds
    present = present & (found.span_ms > 0)
    column = Cells(np.full(len(types), DOUBLE, np.uint8), np.ascontiguousarray(values).view(np.int64), present)
    return Differences(column, found.span_ms, found.approximate)


def _differences(data: Arrays, frame: Frame, lives: Lives, by_time: bool = False) -> Differences:
    present = data.present
    edge = _edge(data, frame, lives, present)
    counts = totals(data.stats["count"], frame)
    alone = ~(edge.known | edge.zero)
    base, since, guess = _first_known(data, frame, edge, alone, lives, by_time)
    base = np.where(edge.known, pick(data.stats["last"], edge.before), base)
    base = np.where(edge.zero, 0, base)  # 0 is also the bits of 0.0
    result = (edge.last > frame.starts) & ~(alone & (counts < 2))
    result &= frame.starts + 1 >= data.first_held  # part of the window is not in the store: unknown, not small
    column = _subtract(data, frame, lives, Cells(data.types, pick(data.stats["last"], edge.last), result), base)
    return Differences(column, _span(data, frame, edge, since), alone & guess & column.present)


def _edge(data: Arrays, frame: Frame, lives: Lives, present: Bools) -> _Edge:
    ahead, behind = newest(present), oldest(present)
    last, before = ahead[:, frame.ends], ahead[:, np.maximum(frame.starts, 0)]
    before = np.where(frame.starts >= 0, before, -1)
    first = behind[:, frame.starts + 1]
    limit = frame.start_ms - frame.max_gap_ms
    recent = (before >= 0) & (pick(data.stats["last_time"], before) >= limit)
    starts_here, born, older = lives.first_in(frame)
    zero = starts_here & ((born >= limit) | (older >= limit))
    older = np.where(older >= limit, older, NEVER)
    return _Edge(last, first, before, recent & ~zero, zero, born, older)


def _subtract(data: Arrays, frame: Frame, lives: Lives, last: Cells, base: Ints) -> Cells:
    """last - base + what resets hide; int64 where the series is whole, float64 where it is DOUBLE."""
    double = data.types == DOUBLE
    hidden = lives.hidden(frame, double)
    with np.errstate(over="ignore", invalid="ignore"):
        cells = last.cells - base + hidden.whole
        size = np.abs(last.cells.astype(np.float64) - base + hidden.whole)
        present = last.present & ~(_too_large(size >= 2.0**62, last.cells, base, hidden.whole) & ~double[:, None])
        if double.any():
            floats = last.cells[double].view(np.float64) - base[double].view(np.float64) + hidden.real[double]
            cells[double] = np.ascontiguousarray(floats).view(np.int64)
    return Cells(np.where(double, DOUBLE, INTEGER).astype(np.uint8), cells, present)


def _too_large(suspect: Bools, last: Ints, base: Ints, hidden: Ints) -> Bools:
    """Where last - base + hidden is beyond int64: those differences are missing, not wrapped. Suspects are rare."""
    out = np.zeros(suspect.shape, np.bool_)
    for i, j in np.argwhere(suspect).tolist():
        out[i, j] = not INT64_MIN <= int(last[i, j]) - int(base[i, j]) + int(hidden[i, j]) <= INT64_MAX
    return out


def _span(data: Arrays, frame: Frame, edge: _Edge, since: Ints) -> Ints:
    """Milliseconds from the first predecessor used to the last sample; `since` where there is none.

    A birth is like a sample 0 at that time: where it lies inside the window, the value before it comes first."""
    times = data.stats["last_time"]
    outside = (edge.born_ms > frame.start_ms) | (edge.born_ms < frame.start_ms - frame.max_gap_ms)
    born = np.where(outside & (edge.older_ms > NEVER), edge.older_ms, edge.born_ms)
    start = np.where(edge.known, pick(times, edge.before), since)
    return np.asarray(pick(times, edge.last) - np.where(edge.zero, born, start))


def _first_known(
    data: Arrays, frame: Frame, edge: _Edge, alone: Bools, lives: Lives, by_time: bool
) -> tuple[Ints, Ints, Bools]:
    """(series, outputs) the value that a window without predecessor counts from, its time, and whether it may be a
    later one than the first."""
    base, since = pick(data.stats["last"], edge.first), pick(data.stats["last_time"], edge.first)
    several = pick(data.stats["count"], edge.first)
    guess = several > 1
    wanted = alone & guess & (edge.last > frame.starts)
    if not wanted.any() or not len(data.lives):
        return base, since, guess
    rows, outputs = np.nonzero(wanted)
    end = data.grid.ends()[edge.first[rows, outputs]]
    there = Lives.of(data).within(rows, end - data.grid.step_ms, end)
    if not by_time:  # the smallest value has no time
        least = (there == 1) & (data.kinds[rows] == Kind.COUNTER)
        at = rows[least], outputs[least]
        base[at], guess[at] = pick(data.stats["min"], edge.first)[at], False
    more = np.flatnonzero(there > 1)
    if len(more) and not lives.empty:
        at = rows[more], outputs[more]
        first = lives.first_over(at[0], frame.start_ms[at[1]])
        base[at], since[at] = lives.table["last"][first], lives.table["last_ms"][first]
        guess[at] = (several[at] > there[more]) & (lives.table["first_ms"][first] < lives.table["last_ms"][first])
    return base, since, guess
