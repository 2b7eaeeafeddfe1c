"""Extrapolation of increases to the ends of their windows, as Prometheus does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints

EXTRAPOLATION = 1.1
"""Samples within this multiple of their mean distance from an end of the window are extrapolated to that end."""
SHORT_RUN = 16
"""Mean length of runs of equal times from which factors of runs are cheaper than those of series."""
_ABOVE_ROUNDING = 1 + 1e-12


def extrapolate(
    increase: Floats, first: Floats, first_ms: Any, last_ms: Any, counts: Any, ends_ms: Any, range_ms: int, name: str
) -> Floats:
    """Return the increase over windows that hold two samples or more, extrapolated to their ends as Prometheus does, or
    its rate. `increase`: that between the first and the last sample; `name`: rate, increase or delta."""
    with np.errstate(all="ignore"):
        sampled = (last_ms - first_ms).astype(np.float64)
        far = sampled * (EXTRAPOLATION / np.maximum(counts - 1, 1))
        to_start = (first_ms - (ends_ms - range_ms)).astype(np.float64)
        to_end = (ends_ms - last_ms).astype(np.float64)
        odd = (to_start >= far) | (to_end >= far)
        if name != "delta":
            odd |= sampled * first < to_start * increase
        factor: Floats = range_ms / sampled  # of windows whose samples reach to both ends
        rows = np.nonzero(odd)
        if len(rows[0]):
            some = (np.broadcast_to(one, odd.shape)[rows] for one in (increase, first, sampled, far, to_start, to_end))
            factor[rows] = _cut_factor(name != "delta", *some)
        if name == "rate":
            factor /= range_ms / 1000
        factor *= increase
        return factor


def _cut_factor(
    counter: bool, increase: Floats, first: Floats, sampled: Floats, far: Floats, to_start: Floats, to_end: Floats
) -> Floats:
    """Return the factor of extrapolation of windows that are not extrapolated to their ends: the samples are far from
    an end, or the counter would be negative at the start."""
    half = far / EXTRAPOLATION / 2
    to_start, to_end = np.where(to_start >= far, half, to_start), np.where(to_end >= far, half, to_end)
    if counter:
        to_zero = sampled * (first / increase)
        to_start = np.where((increase > 0) & (first >= 0) & (to_zero < to_start), to_zero, to_start)
    factor: Floats = (sampled + to_start + to_end) / sampled
    return factor


class RunFactors(NamedTuple):
    """Factors of one window, one for each run of series with equal times. Valid for series whose run is not `odd` and
    whose counter is not negative at the start of the window: first >= share * increase."""

    factor: Floats
    share: Floats
    odd: Bools

    def of_series(self, starts: Ints, count: int) -> RunFactors:
        """Return the factors of each of `count` series; (1,) if there is one run."""
        if len(starts) == 1:
            return self
        sizes = np.diff(starts, append=count)
        odd = np.repeat(self.odd, sizes) if self.odd.any() else np.zeros(1, np.bool_)
        return RunFactors(np.repeat(self.factor, sizes), np.repeat(self.share, sizes), odd)


def run_factors(
    first_ms: Ints, last_ms: Ints, starts: Ints, count: int, end_ms: int, range_ms: int, name: str
) -> RunFactors:
    """Return the factors of series with `count` samples each. `starts`: first series of each run: series of one poll
    share their times."""
    run_first, run_last = first_ms[starts], last_ms[starts]
    with np.errstate(all="ignore"):
        sampled = (run_last - run_first).astype(np.float64)
        far = sampled * (EXTRAPOLATION / max(count - 1, 1))
        to_start, to_end = run_first - (end_ms - range_ms), end_ms - run_last
        factor: Floats = range_ms / sampled
        if name == "rate":
            factor /= range_ms / 1000
        share: Floats = to_start / sampled * _ABOVE_ROUNDING
        odd: Bools = (to_start >= far) | (to_end >= far)
    return RunFactors(factor, share, odd)


def changes_of(times_ms: Ints) -> Bools | None:
    """Return the mask of the series, but the first, whose time differs from that before; None if all are equal."""
    if len(times_ms) < 2 or not times_ms.strides[0]:
        return None
    changed: Bools = times_ms[1:] != times_ms[:-1]
    return changed if changed.any() else None
