"""increase, delta and rate, bucket by bucket: exact in int64, additive over adjacent windows, equal at every level.

For a window (s, t] the increase is

    last value in it  -  base value  +  values hidden by resets inside

A reset hides the last value of the incarnation that ended. The base value is that of the sample just before the first
one in the window, if it is not older than s - max_gap. An incarnation that starts in the window counts from 0, if its
predecessor or its start time is not older than s - max_gap. If neither holds, the base is the first sample in the
window, and the increase is missing if there is no other. The first bucket determines that sample if its incarnation has
one sample there, or if it is the smallest value of a counter. Otherwise the base is the last sample of that incarnation
in the first bucket, and the increase is approximate. So it is if columns within max_gap of the window are not held.

The base value is nearly always known. Then the result is the difference of two columns: the last values at the end and
at the start of the window. The few series without a base value, start times and resets are handled one by one.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

import numpy as np

from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.function import OF_SERIES, ROW, Example, Function, result_types
from artimon.compute.incarnation_events import ResetEvents, Rows, StartEvents
from artimon.compute.incarnation_index import IncarnationIndex
from artimon.compute.matrix_columns import roll
from artimon.compute.params import Args
from artimon.compute.rolling_windows import (
    BucketColumn,
    MaskOrBool,
    Rolling,
    RollingContext,
    WideIntegers,
    WindowValues,
    intersect,
    simplify_mask,
)
from artimon.compute.window_frames import WindowFrame
from artimon.model.select import INCARNATION_DTYPE
from artimon.model.values import INT64_MAX, INT64_MIN

_EXACT = 2**62


class _NewestSample(NamedTuple):
    """Newest sample of each series up to a column."""

    has: MaskOrBool
    cells: Ints
    time: Ints
    oldest: int
    """Minimum of `time`."""
    small: bool
    """True if int64 holds the difference of any two of `cells`, as integers."""


class _FirstBucket(NamedTuple):
    """First non-empty bucket of a window for series without a base value. Arrays of one length."""

    rows: Rows
    column: Ints
    cells: Ints
    least: Ints
    """Smallest value of that bucket."""
    time: Ints
    held: Ints
    """Samples in that bucket."""
    samples: Ints
    """Samples in the window, as far as it matters: one, or more."""


class RollingDifference(Rolling):
    """`births`: incarnations count from 0 (increase, rate); `by_time`: per second (rate)."""

    def __init__(self, span: RollingContext, births: bool, by_time: bool) -> None:
        super().__init__(span)
        self._counts_births, self._by_time = births, by_time
        self._incarnations = span.incarnations if span.incarnations is not None else np.zeros(0, INCARNATION_DTYPE)
        counted = self._incarnations if births else self._incarnations[:0]
        self._births, self._resets = (
            StartEvents.of(counted, span.frame),
            ResetEvents.of(counted, span.frame, span.double),
        )
        self._incarnation_index: IncarnationIndex | None = None
        none = np.zeros(span.rows, np.int64)
        self._no_sample = _NewestSample(False, none, none, 0, True)
        self._states: deque[_NewestSample] = deque(maxlen=self.width + 1)

    def update(self, column: BucketColumn | None) -> None:
        before = self._states[-1] if self._states else self._no_sample
        if column is None:
            self._states.append(before)
            return
        present, cells, time = column.present, column.cells("last"), column.cells("last_time")
        if not isinstance(present, bool):
            cells, time = np.where(present, cells, before.cells), np.where(present, time, before.time)
            present = before.has if before.has is True else simplify_mask(present | before.has)
        self._states.append(_NewestSample(present, cells, time, int(time.min()), self._is_small(cells)))

    def result(self) -> WindowValues:
        inside = self.has_samples()
        if inside is False:
            return self.empty_result()
        now, output = self._states[-1], self.output
        before = self._states[0] if len(self._states) > self.width else self._no_sample
        zero = self._births.of_output(output)
        limit = self._limit(output)
        known = intersect(before.has, True if before.oldest >= limit else before.time >= limit)
        base, since = before.cells, before.time
        guesses, lone = None, None
        if known is not True or len(zero.rows):
            base, since = base.copy(), since.copy()
            base[zero.rows], since[zero.rows] = 0, zero.since_ms  # 0 is also the bits of 0.0
            lone = self._first(self._without_base(inside, known, zero.rows))
            guess = self._set_bases(lone, output)
            if self._lacks_base(limit):
                guess[:] = True
            base[lone.rows], since[lone.rows] = lone.cells, lone.time
            guesses = lone.rows[guess]
        cells, wide = self._subtract(
            now.cells, base, output, now.small and (before.small if lone is None else self._is_small(base))
        )
        present: MaskOrBool = inside
        if self._by_time:
            cells, lasted = self._per_second(cells, now.time - since, wide)
            present, wide = intersect(present, lasted), None
        if lone is not None and len(lone.rows):
            present = self._mask(present)
            present[lone.rows] &= lone.samples >= 2
        return WindowValues(cells, present, guesses, self._shown(wide, present))

    def _shown(self, wide: WideIntegers | None, present: MaskOrBool) -> WideIntegers | None:
        """Return the values of relevant series that are present."""
        if wide is None:
            return None
        kept = np.full(self.span.rows, intersect(present, self.span.members))[wide.rows]
        return WideIntegers(wide.rows[kept], wide.values[kept]) if kept.any() else None

    def _mask(self, some: MaskOrBool) -> Bools:
        """Return a new, writable mask."""
        return np.full(self.span.rows, some) if isinstance(some, bool) else some.copy()

    def _without_base(self, inside: MaskOrBool, known: MaskOrBool, zero: Rows) -> Rows:
        """Return the series with a sample in the window but no base value."""
        if known is True:
            return zero[:0]
        alone = self._mask(intersect(inside, True if known is False else ~known))
        alone[zero] = False
        return np.flatnonzero(intersect(alone, self.span.members))

    def _lacks_base(self, limit: int) -> bool:
        """True if a whole window may have a base value in columns that are not held."""
        first = self.span.first_held
        return self.at - self.width + 1 >= first and limit < self.span.start_ms + first * self.span.step_ms

    def _limit(self, output: int) -> int:
        frame = self.span.frame
        return int(frame.start_ms[output]) - frame.max_gap_ms

    def _first(self, rows: Rows) -> _FirstBucket:
        """Return the first non-empty bucket of each series; all have a sample in the window."""
        column, cells, least, time, count, samples = (np.zeros(len(rows), np.int64) for _ in range(6))
        missing = np.arange(len(rows))
        start = self.at - len(self.window) + 1
        for at, held in enumerate(self.window, start):
            if held is None or not len(rows):
                continue
            counts = _counts_of(held, rows)
            samples += counts
            if not len(missing):
                if (samples > 1).all():
                    break
                continue
            hit = missing[counts[missing] > 0]
            at_rows = rows[hit]
            column[hit], count[hit] = at, counts[hit]
            cells[hit], time[hit] = held.cells("last")[at_rows], held.cells("last_time")[at_rows]
            several = hit[count[hit] > 1]
            least[hit] = cells[hit]
            if len(several):
                least[several] = held.cells("min")[rows[several]]
            missing = missing[counts[missing] == 0]
        return _FirstBucket(rows, column, cells, least, time, count, samples)

    def _set_bases(self, lone: _FirstBucket, output: int) -> Bools:
        """Store the base values in `lone`, exact where the first buckets determine them; return the mask of guesses."""
        guess = lone.held > 1
        some = np.flatnonzero(guess)
        if not len(some) or not len(self._incarnations):
            return guess
        if self._incarnation_index is None:
            self._incarnation_index = IncarnationIndex(self.span.rows, self._incarnations)
        lives, rows = self._incarnation_index, lone.rows[some]
        end = self.span.start_ms + (lone.column[some] + 1) * self.span.step_ms
        there = lives.count_overlapping(rows, end - self.span.step_ms, end)
        counter = self.span.counter
        least = (there == 1) & (counter if isinstance(counter, bool) else counter[rows])
        if not self._by_time:
            at = some[least]
            lone.cells[at], guess[at] = lone.least[at], False
        more = np.flatnonzero(there > 1)
        if len(more) and self._counts_births:
            at = some[more]
            start = np.full(len(at), self.span.frame.start_ms[output])
            first = lives.first_after(lone.rows[at], start)
            lone.cells[at], lone.time[at] = lives.table["last"][first], lives.table["last_ms"][first]
            lasted = lives.table["first_ms"][first] < lives.table["last_ms"][first]
            guess[at] = (lone.held[at] > there[more]) & lasted
        return guess

    def _subtract(self, last: Ints, base: Ints, output: int, small: bool) -> tuple[Ints, WideIntegers | None]:
        """Return last - base + values hidden by resets, and the differences that int64 does not hold."""
        double = self.span.double
        ints: Ints | None = None
        floats: Floats | None = None
        wide: WideIntegers | None = None
        if double is not True:
            ints, wide = self._subtract_ints(last, base, output, small)
        if double is not False:
            rows, hidden = self._resets.of_output(output, True)
            with np.errstate(all="ignore"):
                floats = last.view(np.float64) - base.view(np.float64)
                floats += 0.0
                floats[rows] += hidden
        return self.select_by_type(ints, floats), wide

    def _subtract_ints(self, last: Ints, base: Ints, output: int, small: bool) -> tuple[Ints, WideIntegers | None]:
        cells = last - base
        wrapped = np.zeros(0, np.intp) if small else np.flatnonzero(((last ^ base) & (last ^ cells)) < 0)
        if len(wrapped) and self.span.double is not False:
            wrapped = wrapped[~np.full(len(cells), self.span.double)[wrapped]]  # not the bits of doubles
        rows, hidden = self._resets.of_output(output, False)
        if not len(wrapped) and not len(rows):
            return cells, None
        true = {row: int(last[row]) - int(base[row]) for row in (*wrapped.tolist(), *rows.tolist())}
        for row, more in zip(rows.tolist(), hidden.tolist(), strict=True):  # few: incarnations that began here
            true[row] += more
        beyond = {row: float(value) for row, value in true.items() if not INT64_MIN <= value <= INT64_MAX}
        for row in true.keys() - beyond.keys():
            cells[row] = true[row]
        wide = WideIntegers(np.array([*beyond], np.intp), np.array([*beyond.values()])) if beyond else None
        return cells, wide

    def _is_small(self, cells: Ints) -> bool:
        """True if all are integers far from the limits of int64."""
        return self.span.double is False and int(cells.min()) > -_EXACT and int(cells.max()) < _EXACT

    def _per_second(self, cells: Ints, span_ms: Ints, wide: WideIntegers | None) -> tuple[Ints, MaskOrBool]:
        double = self.span.double
        with np.errstate(all="ignore"):
            if isinstance(double, bool):
                values = cells.view(np.float64) if double else cells
            else:
                values = np.where(double, cells.view(np.float64), cells)
            if wide is not None:
                values = values.astype(np.float64)
                values[wide.rows] = wide.values
            per_second = span_ms / 1000.0
            np.divide(values, per_second, out=per_second)
        return per_second.view(np.int64), True if int(span_ms.min()) > 0 else span_ms > 0


def _counts_of(column: BucketColumn, rows: Rows) -> Ints:
    """Return the number of samples of some series in a column."""
    if column.count is not None:
        return column.count[rows].astype(np.int64)
    return np.ones(len(rows), np.int64) if isinstance(column.present, bool) else column.present[rows].astype(np.int64)


def _function(
    name: str, summary: str, example: str, rows: tuple[float | None, ...], *, births: bool = True, by_time: bool = False
) -> Function:
    def rolling(span: RollingContext) -> Rolling:
        return RollingDifference(span, births, by_time)

    def run(data: Arrays, frame: WindowFrame, _args: Args) -> Mapped:
        return roll(rolling, _STATISTICS, data, frame, result_types(gives, data.types))

    gives: Literal["number", "real"] = "real" if by_time else "number"
    return Function(
        name=name,
        summary=summary,
        example=example,
        case=Example(ROW, rows),
        unit="of the series, per second" if by_time else OF_SERIES,
        statistics=_STATISTICS,
        run=run,
        rolling=rolling,
        gives=gives,
        predecessor=True,
        opening=True,
        births=True,
        counter=births,
        edges=True,
    )


_STATISTICS = ("last", "last_time", "min")
FUNCTIONS = (
    _function(
        "increase",
        "Growth of a counter; counts from 0 after a reset; INTEGER stays exact. Adjacent windows add up exactly.",
        "fetch('http.requests').increase(\"5m\")",
        (None, 6.0, 6.0, 12.0),
    ),
    _function(
        "delta",
        "Difference to the value before the window, resets disregarded; INTEGER stays exact.",
        "fetch('disk.used').delta(\"1h\")",
        (None, 6.0, 6.0, 12.0),
        births=False,
    ),
    _function(
        "rate",
        "Increase per second, from the first predecessor used to the last sample, without extrapolation (DOUBLE).",
        "fetch('http.requests').rate(\"5m\")",
        (None, 600.0, 600.0, 600.0),
        by_time=True,
    ),
)
