"""Window functions of raw samples at irregular times: a window at each sample, one sample per bucket.

Each window becomes a row, its samples shifted in column and time so that all windows end together; the functions of
buckets do the rest. Samples that a function does not read are only counted. Windows that share samples are computed
together if possible (running.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artimon.compute.arrays import Arrays
from artimon.compute.cells import DOUBLE, Bools, Cells, Ints, Types
from artimon.compute.function import Function, mask_windows
from artimon.compute.params import NO_ARGS, Args
from artimon.compute.shared_windows import SampleWindows, run_shared
from artimon.compute.statistics import STATISTICS, from_samples
from artimon.compute.window_frames import WindowFrame
from artimon.model.grid import Grid
from artimon.model.select import INCARNATION_DTYPE
from artimon.model.values import INT64_MAX, INT64_MIN

CHUNK_CELLS = 1 << 19
END_MS = 2**42
"""Time to which the end of every window is shifted: the middle of the range of times in lives.py."""
MAX_DISTANCE_MS = 2**62
SPAN_MS = 2**41
"""Greatest distance of start times and windows from that end: 70 years. Wider windows have no predecessor."""
MAX_CELLS = 2_000_000_000
"""Limit of the samples of all windows together: they take minutes."""
GAP_MS = 300_000
"""Default of `max_gap_ms`, the greatest age of the sample before a window at the window's start."""


@dataclass(frozen=True, kw_only=True)
class SeriesSamples:
    """Samples of many series, series by series; series i has the samples starts[i] .. starts[i + 1], in order of time.
    `births`: one start time per sample, None for computed values. `ended_ms`: 0 for series that continue."""

    starts: Ints
    times: Ints
    cells: Ints
    types: Types
    births: Ints | None = None
    kinds: Types | None = None
    ended_ms: Ints | None = None


class WindowsTooWide(ValueError):
    """The windows hold more samples than MOST_CELLS."""


def run_at_each_sample(
    function: Function,
    ticks: SeriesSamples,
    before_ms: int,
    after_ms: int = 0,
    args: Args = NO_ARGS,
    *,
    max_gap_ms: int = GAP_MS,
    min_count: int | None = None,
    check: Callable[[], None] | None = None,
) -> Cells:
    """Compute `function` over (t - before, t + after] at the time t of each sample; cells and mask are (1, samples),
    types (series,). Windows saturate at the limits of int64. `check` is called once per chunk and may raise.

    Raises ValueError unless the window holds t itself: before > 0 and after >= 0. Raises WindowsTooWide."""
    if before_ms <= 0 or after_ms < 0:
        raise ValueError(f"a window ({before_ms} ms before, {after_ms} ms after] does not contain its own sample")
    spans = _spans(ticks, before_ms, after_ms)
    types, cells, present = _run(function, ticks, spans, (before_ms, after_ms, max_gap_ms), args, min_count, check)
    return Cells(types, cells[None, :], present[None, :])


def run_on_grid(
    function: Function,
    ticks: SeriesSamples,
    grid: Grid,
    args: Args = NO_ARGS,
    *,
    max_gap_ms: int = GAP_MS,
    min_count: int | None = None,
    check: Callable[[], None] | None = None,
) -> Cells:
    """Compute `function` over all samples of each bucket of `grid`; (series, grid.n). A bucket without samples is
    missing, unless the function has a total and `min_count` is 0."""
    spans = _buckets(ticks, grid)
    full = np.flatnonzero(spans.end > spans.begin)
    some = SampleWindows(spans.owner[full], spans.begin[full], spans.end[full], spans.until[full])
    least = function.min_count if min_count is None else min_count
    cells = np.zeros(len(spans.owner), np.int64)
    present = np.full(len(spans.owner), function.total and least <= 0)
    found = _run(function, ticks, some, (grid.step_ms, 0, max_gap_ms), args, min_count, check)
    types, cells[full], present[full] = found
    shape = (len(ticks.types), grid.n)
    return Cells(types, cells.reshape(shape), present.reshape(shape))


def _run(
    function: Function,
    ticks: SeriesSamples,
    spans: SampleWindows,
    widths_ms: tuple[int, int, int],
    args: Args,
    min_count: int | None,
    check: Callable[[], None] | None,
) -> Cells:
    """Return types (series,), cell and mask of every window; none is empty. `widths_ms`: before, after and max_gap."""
    types = _types(function, ticks, args)
    shared = run_shared(function.shared, spans, ticks.cells, ticks.types, ticks.ended_ms)
    counts = spans.end - spans.begin
    if shared is not None:
        least = function.min_count if min_count is None else min_count
        return Cells(types, shared[0], shared[1] & (counts >= least))
    owner = np.repeat(np.arange(len(ticks.types), dtype=np.int64), np.diff(ticks.starts))
    wanted = ticks.births is not None and function.births and len(owner) > 0
    lives = _Incarnations.of(ticks, owner) if wanted else None
    if function.edges:
        counts = np.minimum(counts, 3 if lives is None else 2 + lives.count_overlapping(spans))
    total = int(counts.sum())
    if total > MAX_CELLS:
        raise WindowsTooWide(
            f"{len(spans.end):,} windows hold {total:,} samples, counted once per window: at most {MAX_CELLS:,} are "
            "supported; use shorter windows, or bucketize before"
        )
    cells, present = np.zeros(len(spans.owner), np.int64), np.zeros(len(spans.owner), np.bool_)
    wide = np.zeros(len(spans.owner), np.bool_)
    for rows, width in _chunks(counts):
        if check is not None:
            check()
        data, frame = _arrays(ticks, spans, rows, width, lives, *widths_ms)
        found = mask_windows(function.of(data, frame, args), function, data, frame, min_count, False).column
        cells[rows], present[rows] = found.cells[:, 0], found.present[:, 0]
        wide[rows] = found.types != types[spans.owner[rows]]
    return _widen(Cells(types, cells, present), spans.owner, wide)


def _widen(column: Cells, owner: Ints, wide: Bools) -> Cells:
    """Turn the series of the windows that are `wide`, beyond int64 and DOUBLE, to DOUBLE in all their windows."""
    if not wide.any():
        return column
    types, cells, present = column
    series = np.unique(owner[wide])
    others = np.isin(owner, series) & ~wide
    cells[others] = cells[others].astype(np.float64).view(np.int64)
    types = types.copy()
    types[series] = DOUBLE
    return Cells(types, cells, present)


def _types(function: Function, ticks: SeriesSamples, args: Args) -> Types:
    """Return the types (series,) of the results."""
    n = len(ticks.types)
    if not n:
        return ticks.types
    empty = np.zeros((n, 1), np.int64)
    data = Arrays(
        kinds=np.zeros(n, np.uint8),
        types=ticks.types,
        grid=Grid(END_MS, 1, 1),
        stats=dict.fromkeys(STATISTICS, empty),
        lives=np.zeros(0, INCARNATION_DTYPE),
        ended_ms=np.zeros(n, np.int64),
    )
    return function.run(data, WindowFrame(np.array([0]), 1, np.array([END_MS]), 1, 0), args).column.types


def _spans(ticks: SeriesSamples, before_ms: int, after_ms: int) -> SampleWindows:
    times, n = ticks.times, len(ticks.times)
    owner = np.repeat(np.arange(len(ticks.types), dtype=np.int64), np.diff(ticks.starts))
    begin, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    since, until = _plus(times, -before_ms), _plus(times, after_ms)
    for first, last in zip(ticks.starts[:-1].tolist(), ticks.starts[1:].tolist(), strict=True):
        here = times[first:last]
        begin[first:last] = first + np.searchsorted(here, since[first:last], side="right")
        end[first:last] = first + np.searchsorted(here, until[first:last], side="right")
    # a sample at the least int64 time lies outside of its saturated window, but belongs to it
    return SampleWindows(owner, np.minimum(begin, np.arange(n)), end, until)


def _buckets(ticks: SeriesSamples, grid: Grid) -> SampleWindows:
    """Return a window for each bucket of each series, series by series."""
    n, ends = len(ticks.types), grid.ends()
    begin, end = np.zeros((n, grid.n), np.int64), np.zeros((n, grid.n), np.int64)
    for i, (first, last) in enumerate(zip(ticks.starts[:-1].tolist(), ticks.starts[1:].tolist(), strict=True)):
        here = ticks.times[first:last]
        end[i] = first + np.searchsorted(here, ends, side="right")
        begin[i, 0] = first + np.searchsorted(here, grid.start_ms, side="right")
    begin[:, 1:] = end[:, :-1]
    owner = np.repeat(np.arange(n, dtype=np.int64), grid.n)
    return SampleWindows(owner, begin.reshape(-1), end.reshape(-1), np.tile(ends, n))


def _plus(times: Ints, ms: int) -> Ints:
    """Return times + ms, saturating."""
    ms = min(max(ms, INT64_MIN), INT64_MAX)
    if ms >= 0:
        return np.where(times > INT64_MAX - ms, INT64_MAX, np.minimum(times, INT64_MAX - ms) + ms)
    return np.where(times < INT64_MIN - ms, INT64_MIN, np.maximum(times, INT64_MIN - ms) + ms)


def _chunks(counts: Ints) -> Iterator[tuple[Ints, int]]:
    """Yield chunks of windows of similar length, and the greatest length in each."""
    classes = np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
    order = np.argsort(classes, kind="stable")
    bounds = np.append(np.flatnonzero(np.diff(classes[order], prepend=-1)), len(order))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        alike = order[first:last]
        each = max(1, CHUNK_CELLS >> int(classes[alike[0]]))
        for start in range(0, len(alike), each):
            rows = alike[start : start + each]
            yield rows, int(counts[rows].max())


def _arrays(
    ticks: SeriesSamples,
    spans: SampleWindows,
    rows: Ints,
    width: int,
    lives: _Incarnations | None,
    before_ms: int,
    after_ms: int,
    max_gap_ms: int,
) -> tuple[Arrays, WindowFrame]:
    """Return a row per window: the sample before it, then `width` columns with its samples right-aligned. A longer
    window keeps its first sample and its newest ones; the last but one column counts the omitted samples."""
    owner, begin, end = spans.owner[rows], spans.begin[rows], spans.end[rows]
    at = end[:, None] - width + np.arange(width)
    known = at >= begin[:, None]
    before, more = (begin - 1)[:, None], np.maximum(end - begin - width, 0)
    at[:, 0] -= more
    at = np.concatenate([before, at], axis=1)
    known = np.concatenate([before >= ticks.starts[owner][:, None], known], axis=1)
    at = np.where(known, at, 0)
    counts = known.astype(np.int64)
    counts[:, -2] += more
    shift = _TimeShift(spans.until[rows])
    data = Arrays(
        kinds=np.zeros(len(rows), np.uint8) if ticks.kinds is None else ticks.kinds[owner],
        types=ticks.types[owner],
        grid=Grid(END_MS, 1, width + 1),
        stats=from_samples(ticks.cells[at], known, shift(ticks.times[at], MAX_DISTANCE_MS)) | {"count": counts},
        lives=np.zeros(0, INCARNATION_DTYPE) if lives is None else lives.table(begin, end, shift),
        ended_ms=_shifted_ends(ticks, owner, shift),
        stored=ticks.births is not None,
    )
    width_ms, gap_ms = min(before_ms + after_ms, SPAN_MS), min(max_gap_ms, SPAN_MS)
    return data, WindowFrame(
        np.array([width]), width, np.array([END_MS]), width_ms, gap_ms, min(after_ms, MAX_DISTANCE_MS)
    )


def _shifted_ends(ticks: SeriesSamples, owner: Ints, shift: _TimeShift) -> Ints:
    if ticks.ended_ms is None:
        return np.zeros(len(owner), np.int64)
    ended = ticks.ended_ms[owner]
    return np.where(ended > 0, shift(ended[:, None])[:, 0], 0)


@dataclass(frozen=True, slots=True)
class _TimeShift:
    """Shifts the times of each row so that its window ends at END_MS instead of `end_ms`."""

    end_ms: Ints

    def __call__(self, times: Ints, farthest_ms: int = SPAN_MS) -> Ints:
        """Return the shifted times (rows, any); distances are clamped to `farthest_ms`."""
        end = self.end_ms[:, None]
        late = times > end
        # in uint64 the difference of any two int64, the greater first, does not overflow
        apart = np.where(late, times, end).view(np.uint64) - np.where(late, end, times).view(np.uint64)
        off = np.minimum(apart, np.uint64(farthest_ms)).astype(np.int64)
        return END_MS + np.where(late, off, -off)


@dataclass(frozen=True, slots=True)
class _Incarnations:
    """Incarnations of all series: runs of samples with one start time. `number`: the incarnation of each sample."""

    number: Ints
    owner: Ints
    birth_ms: Ints
    first_ms: Ints
    last_ms: Ints
    last: Ints

    @classmethod
    def of(cls, ticks: SeriesSamples, owner: Ints) -> _Incarnations:
        births = ticks.births if ticks.births is not None else np.zeros(len(owner), np.int64)
        begins = np.ones(len(owner), np.bool_)
        begins[1:] = (births[1:] != births[:-1]) | (owner[1:] != owner[:-1])
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(owner)) - 1
        number = np.cumsum(begins) - 1
        return cls(number, owner[first], births[first], ticks.times[first], ticks.times[last], ticks.cells[last])

    def count_overlapping(self, spans: SampleWindows) -> Ints:
        """Count the incarnations that overlap each window."""
        return np.asarray(self.number[spans.end - 1] - self.number[spans.begin] + 1)

    def table(self, begin: Ints, end: Ints, shift: _TimeShift) -> npt.NDArray[np.void]:
        """Return rows of BIRTH_TYPE: for every window the incarnations of its samples and of the one before it."""
        own, before = self.number[begin], self.number[np.maximum(begin - 1, 0)]
        lowest = np.where(self.owner[before] == self.owner[own], before, own)
        counts = self.number[end - 1] - lowest + 1
        row = np.repeat(np.arange(len(begin)), counts)
        inside = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        life = lowest[row] + inside
        table, each = np.zeros(len(row), INCARNATION_DTYPE), _TimeShift(shift.end_ms[row])
        table["row"], table["last"] = row, self.last[life]
        for name in ("birth_ms", "first_ms", "last_ms"):
            table[name] = each(getattr(self, name)[life][:, None])[:, 0]
        return table
