"""rate, increase and delta of PromQL, bucket by bucket over many series at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.class_increases import ClassIncreases, RunGroups, extrapolated_sums
from artimon.compute.exact_sums import ExactSums
from artimon.compute.extrapolation import SHORT_RUN, RunFactors, changes_of, extrapolate, run_factors
from artimon.compute.packed_samples import Rows
from artimon.compute.rolling_windows import (
    BucketColumn,
    MaskOrBool,
    MatrixNeeded,
    Rolling,
    RollingContext,
    WindowValues,
    simplify_mask,
)

SAFE_INTEGER = 2.0**61
"""Integers between its negative and itself have differences that do not wrap around."""
BLOCK = 8_192
"""Series that are computed at a time: 64 kB an array."""


@dataclass(slots=True)
class _Samples:
    """Samples of one bucket."""

    present: MaskOrBool
    cells: Ints
    time: Ints
    changed: Bools | None
    """Changes of `time` from series to series."""
    several: Rows
    """Members of whose samples it holds only the newest."""
    numbers: Floats | None = None
    arranged: Floats | None = None
    """Values of the members in the order of their classes, if one series is DOUBLE."""
    least: float = -np.inf
    """Lower bound of the values of members."""
    largest: float = np.inf
    """Greatest absolute value of members."""
    steps: tuple[float, float] = (-np.inf, np.inf)
    """Bounds of the growth of a member since the bucket before."""
    sums: tuple[RunGroups, ExactSums] | None = None


class _Falls(NamedTuple):
    """Series that fell in a bucket, their value before, and the bucket of that value."""

    rows: Rows
    before: Floats
    at: Ints


_NO_ROWS: Rows = np.zeros(0, np.intp)
_NO_FALLS = _Falls(_NO_ROWS, np.zeros(0), np.zeros(0, np.int64))


class RollingExtrapolated(Rolling):
    """rate, increase and delta of whole buckets. Blocks of series keep temporaries in the cache of the processor."""

    def __init__(self, span: RollingContext, name: str) -> None:
        super().__init__(span)
        self._range_ms, self._name = span.args["range_ms"], name
        if span.args["shift_ms"] or self._range_ms != self.width * span.step_ms:
            raise MatrixNeeded
        self._blocks = [slice(start, start + BLOCK) for start in range(0, span.rows, BLOCK)]
        self._samples: deque[_Samples | None] = deque(maxlen=self.width)
        self._falls: deque[_Falls] = deque(maxlen=self.width)
        nothing = np.zeros(span.rows, np.int64)
        self._last = _Samples(False, nothing, nothing, None, _NO_ROWS)
        """Newest sample of each series, in the bucket `_at`."""
        self._at: Ints | int = -1
        self._values, self._lost = np.empty(span.rows), np.zeros(span.rows)
        self._summed = None if span.summed is None else ClassIncreases(span.summed, span.rows)

    def update(self, column: BucketColumn | None) -> None:
        if column is None:
            self._samples.append(None)
            self._falls.append(_NO_FALLS)
            return
        present, time, cells = column.present, column.cells("last_time"), column.cells("last")
        several = _NO_ROWS if column.count is None else self._of_members(np.flatnonzero(column.count > 1))
        one = _Samples(present, cells, time, changes_of(time), several)
        if self._summed is not None and present is True:
            self._bound(one, self._summed)
        self._samples.append(one)
        self._falls.append(self._fallen(one))
        if present is not True:
            last = self._last
            one = replace(one, cells=np.where(present, cells, last.cells), time=np.where(present, time, last.time))
            one.numbers = one.arranged = None
        self._last, self._at = one, self.newest

    def _of_members(self, rows: Rows) -> Rows:
        members = self.span.members
        return rows if isinstance(members, bool) else rows[members[rows]]

    def _bound(self, one: _Samples, summed: ClassIncreases) -> None:
        """Find bounds of the values, and of the growth of members that all have a sample in the bucket before."""
        last = self._last
        if self.span.double is False:
            known = last.least > -np.inf
            least, most, *steps = summed.bounds(one.cells, last.cells if known else None)
            one.largest = float(max(-least, most))
            if one.largest < SAFE_INTEGER:
                one.least = float(least)
                one.steps = (float(steps[0]), float(steps[1])) if known else one.steps
            return
        one.arranged = summed.arranged(self._numbers(one).view(np.int64)).view(np.float64)
        one.least = float(one.arranged.min())
        if last.arranged is not None:
            with np.errstate(invalid="ignore"):
                grown = one.arranged - last.arranged
                one.steps = float(grown.min()), float(grown.max())

    def _numbers(self, one: _Samples) -> Floats:
        """Return the values as doubles."""
        double, cells = self.span.double, one.cells
        if isinstance(double, bool) and double:
            return cells.view(np.float64)
        if one.numbers is None:
            one.numbers = (
                cells.astype(np.float64) if double is False else np.where(double, cells.view(np.float64), cells)
            )
        return one.numbers

    def _fallen(self, one: _Samples) -> _Falls:
        if self._name == "delta" or (isinstance(self._at, int) and self._at < 0) or one.steps[0] >= 0:
            return _NO_FALLS
        last = self._last
        with np.errstate(invalid="ignore"):
            whole = self.span.double is False
            fell: Bools = one.cells < last.cells if whole else self._numbers(one) < self._numbers(last)
        if not fell.any():
            return _NO_FALLS
        rows = self._of_members(np.flatnonzero(fell))
        rows = rows if isinstance(one.present, bool) else rows[one.present[rows]]
        return _Falls(rows, self._numbers(last)[rows], np.broadcast_to(self._at, one.cells.shape)[rows])

    def result(self) -> WindowValues:
        held = [one for one in self._samples if one is not None]
        if not held:
            return self.empty_result()
        start = max(0, self.at - self.width + 1)
        falls = [(one.rows[one.at >= start], one.before[one.at >= start]) for one in self._falls if len(one.rows)]
        several = [one.several for one in held if len(one.several)]
        doubt = np.unique(np.concatenate(several)) if several else None
        if not falls and doubt is None and (sums := self._class_sums(held)) is not None:
            return WindowValues(self._values.view(np.int64), True, sums=sums)
        for rows, before in falls:
            self._lost[rows] += before
        present = self._apply(held, bool(falls))
        for rows, _ in falls:
            self._lost[rows] = 0.0
        return WindowValues(self._values.view(np.int64), present, doubt)

    def _class_sums(self, held: list[_Samples]) -> Floats | None:
        """Return the sums of the classes; None if some series must be computed alone: they have no sample in a bucket,
        their samples are far from an end of the window, or their counter may be negative at its start."""
        if self._summed is None or len(held) < max(2, self.width) or any(one.present is not True for one in held):
            return None
        first, last = held[0], held[-1]
        runs, groups = self._summed.groups(_changed(first, last))
        if groups is None:
            return None
        factors = self._factors(first, runs, len(held))
        growth, share = sum(one.steps[1] for one in held[1:]), factors.share[groups.runs].max(initial=0.0)
        if factors.odd[groups.runs].any() or (self._name != "delta" and not float(share) * growth <= first.least):
            return None
        begin, end = self._sums(first, self._summed, groups), self._sums(last, self._summed, groups)
        return extrapolated_sums(begin, end, factors.factor, groups)

    def _sums(self, one: _Samples, summed: ClassIncreases, groups: RunGroups) -> ExactSums:
        if one.sums is None or one.sums[0] is not groups:
            if one.arranged is None:
                one.sums = groups, summed.integer_sums(one.cells, one.largest, groups)
            else:
                one.sums = groups, summed.float_sums(one.arranged, groups)
        return one.sums[1]

    def _factors(self, first: _Samples, runs: Rows, count: int) -> RunFactors:
        end_ms = int(self.span.frame.end_ms[self.output])
        return run_factors(first.time, self._last.time, runs, count, end_ms, self._range_ms, self._name)

    def _apply(self, held: list[_Samples], fell: bool) -> MaskOrBool:
        """Compute the values of all series; return the mask of those that have one."""
        if all(one.present is True for one in held):
            starts = _runs(held[0], self._last)
            if len(starts) * SHORT_RUN <= self.span.rows or len(starts) == 1:
                self._apply_runs(held[0], starts, len(held), fell)
                return len(held) >= 2
        counts = [self._apply_block(held, block, fell) for block in self._blocks]
        return simplify_mask(np.concatenate(counts) >= 2) if counts else False

    def _apply_runs(self, first: _Samples, starts: Rows, count: int, fell: bool) -> None:
        """Compute the values of series that all have `count` samples, with factors shared by runs of equal times."""
        last, values, end_ms = self._last, self._values, int(self.span.frame.end_ms[self.output])
        window = count, end_ms, self._range_ms, self._name
        factor, share, odd = self._factors(first, starts, count).of_series(starts, len(values))
        rows = [np.flatnonzero(np.broadcast_to(odd, values.shape))] if odd.any() else []
        begin_of, end_of = self._numbers(first), self._numbers(last)
        with np.errstate(all="ignore"):
            for block in self._blocks:
                increase = np.subtract(end_of[block], begin_of[block])
                if fell:
                    increase += self._lost[block]
                one, part = (factor, share) if len(factor) == 1 else (factor[block], share[block])
                np.multiply(increase, one, out=values[block])
                if self._name == "delta":
                    continue
                increase *= part
                short = begin_of[block] < increase
                if short.any():
                    rows.append(np.flatnonzero(short) + block.start)
            if rows:
                some = np.concatenate(rows)
                begin = begin_of[some]
                increase = end_of[some] - begin + self._lost[some]
                values[some] = extrapolate(increase, begin, first.time[some], last.time[some], *window)

    def _apply_block(self, held: list[_Samples], block: slice, fell: bool) -> Ints:
        """Compute the values of a block; return the numbers of samples."""
        first, first_ms = self._numbers(held[0])[block], held[0].time[block]
        whole = all(one.present is True for one in held)
        counts = np.full(len(first), len(held) if whole else 0)
        for one in () if whole else reversed(held):
            here: Any = one.present if isinstance(one.present, bool) else one.present[block]
            first = np.where(here, self._numbers(one)[block], first)
            first_ms = np.where(here, one.time[block], first_ms)
            counts += here
        end_ms, last_ms = int(self.span.frame.end_ms[self.output]), self._last.time[block]
        with np.errstate(all="ignore"):
            increase = self._numbers(self._last)[block] - first
            if fell:
                increase += self._lost[block]
            self._values[block] = extrapolate(
                increase, first, first_ms, last_ms, counts, end_ms, self._range_ms, self._name
            )
        return counts


def _changed(first: _Samples, last: _Samples) -> Bools | None:
    """Return the series, but the first, whose samples of both buckets do not have the times of the series before; None
    if all times are equal."""
    if first.changed is None or last.changed is None:
        return last.changed if first.changed is None else first.changed
    return first.changed | last.changed


def _runs(first: _Samples, last: _Samples) -> Rows:
    """Return the first index of each run of series whose samples of both buckets have equal times."""
    changed, zero = _changed(first, last), np.zeros(1, np.intp)
    return zero if changed is None else np.concatenate((zero, np.flatnonzero(changed) + 1))
