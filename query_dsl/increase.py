"""increase, delta and rate from buckets: exact in int64, additive over adjacent windows, equal at every level.

For a window (s, t] the increase is

    last value in it  -  value before it  +  what resets inside would hide

Hidden is the last value of each life that another one followed. The value before is that of the sample just before
the first one in the window, if it is not older than s - max_gap. A life that starts in the window counts from 0, if the
life before it, or its birth, is not older than s - max_gap. If neither holds, the first sample has no predecessor: the
increase counts from that sample, and is missing if there is no other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from artimon.model.values import INT64_MAX, INT64_MIN, Kind
from query_dsl.cells import DOUBLE, INTEGER, Bools, Cells, Ints, as_floats
from query_dsl.data import BucketData
from query_dsl.lives import NEVER, Lives
from query_dsl.windows import Frame, newest, oldest, pick, totals


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


def increase(data: BucketData, frame: Frame) -> Differences:
    """Growth of a counter within each window, births counted from 0."""
    return _differences(data, frame, Lives.of(data))


def delta(data: BucketData, frame: Frame) -> Differences:
    """Difference to the value before each window, without regard to births."""
    return _differences(data, frame, Lives.none(len(data.keys)))


def rate(data: BucketData, frame: Frame) -> Differences:
    """Increase a second, from the first predecessor used to the last sample; DOUBLE."""
    found = _differences(data, frame, Lives.of(data), by_time=True)
    types, cells, present = found.column
    seconds = found.span_ms / 1000.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = as_floats(types, cells) / seconds
    present = present & (found.span_ms > 0)
    column = Cells(np.full(len(types), DOUBLE, np.uint8), np.ascontiguousarray(values).view(np.int64), present)
    return Differences(column, found.span_ms, found.approximate)


def _differences(data: BucketData, frame: Frame, lives: Lives, by_time: bool = False) -> Differences:
    present = data.present
    edge = _edge(data, frame, lives, present)
    counts = totals(data.stats["count"], frame)
    alone = ~(edge.known | edge.zero)
    use_min = _least_is_first(data, frame, edge, alone) & (not by_time)
    base = np.where(use_min, pick(data.stats["min"], edge.first), pick(data.stats["last"], edge.first))
    base = np.where(edge.known, pick(data.stats["last"], edge.before), base)
    base = np.where(edge.zero, 0, base)  # 0 is also the bits of 0.0
    result = (edge.last > frame.starts) & ~(alone & (counts < 2))
    if by_time:
        result &= ~(alone & (edge.first == edge.last))
    result &= frame.starts + 1 >= data.first_held  # part of the window is not in the store: unknown, not small
    column = _subtract(data, frame, lives, Cells(data.types, pick(data.stats["last"], edge.last), result), base)
    several = pick(data.stats["count"], edge.first) > 1
    return Differences(column, _span(data, frame, edge), alone & several & ~use_min & column.present)


def _edge(data: BucketData, frame: Frame, lives: Lives, present: Bools) -> _Edge:
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


def _subtract(data: BucketData, frame: Frame, lives: Lives, last: Cells, base: Ints) -> Cells:
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


def _span(data: BucketData, frame: Frame, edge: _Edge) -> Ints:
    """Milliseconds from the first predecessor used to the last sample.

    A birth is like a sample 0 at that time: where it lies inside the window, the value before it comes first."""
    times = data.stats["last_time"]
    outside = (edge.born_ms > frame.start_ms) | (edge.born_ms < frame.start_ms - frame.max_gap_ms)
    born = np.where(outside & (edge.older_ms > NEVER), edge.older_ms, edge.born_ms)
    start = np.where(edge.known, pick(times, edge.before), pick(times, edge.first))
    return np.asarray(pick(times, edge.last) - np.where(edge.zero, born, start))


def _least_is_first(data: BucketData, frame: Frame, edge: _Edge, alone: Bools) -> Bools:
    """Where the smallest value of the first bucket is its first: a counter, and one life in that bucket."""
    wanted = alone & (data.kinds == Kind.COUNTER)[:, None] & (pick(data.stats["count"], edge.first) > 1)
    wanted &= edge.last > frame.starts
    if not wanted.any() or not len(data.lives):
        return np.zeros(alone.shape, np.bool_)
    rows, outputs = np.nonzero(wanted)
    end = data.grid.ends()[edge.first[rows, outputs]]
    out = np.zeros(alone.shape, np.bool_)
    out[rows, outputs] = Lives.of(data).within(rows, end - data.grid.step_ms, end) == 1
    return out
