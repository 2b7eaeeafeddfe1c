"""Functions of windows of raw samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.extrapolation import extrapolate
from artimon.compute.packed_samples import GatheredWindows, Windows
from artimon.compute.paired_sums import exact_sum

Result = tuple[Floats, Bools]
"""Values and presence, (series, steps)."""


def _gathered(windows: Windows, function: Callable[[GatheredWindows], Floats], least: int = 1) -> Result:
    """Apply a function to the windows with at least `least` samples."""
    out = np.zeros(windows.counts.size)
    for part in windows.gathered():
        out[part.cells] = function(part)
    return out.reshape(windows.counts.shape), windows.counts >= least


# --- counters


def _extrapolated(windows: Windows, name: str) -> Result:
    here = windows.counts >= 2
    (first, first_ms), (last, last_ms) = windows.at(windows.first), windows.at(windows.last - 1)
    with np.errstate(all="ignore"):
        increase = last - first
        if name != "delta":
            increase += _resets_lost(windows)
    ends_ms = windows.ends_ms[None, :]
    values = extrapolate(increase, first, first_ms, last_ms, windows.counts, ends_ms, windows.range_ms, name)
    return np.where(here, values, 0.0), here


def _pairs(windows: Windows, chosen: Callable[[Floats, Floats], Bools]) -> tuple[Ints, Ints, Ints]:
    """Return the places of samples for which `chosen(previous sample of the series, sample)` is true. Also return, for
    each window, the first (inclusive) and the last (exclusive) of these places that lie in it."""
    values, offsets = windows.samples.values, windows.samples.offsets
    with np.errstate(all="ignore"):
        found = np.concatenate(([False], chosen(values[:-1], values[1:]))) if len(values) else np.zeros(0, np.bool_)
    found[offsets[:-1][offsets[:-1] < len(values)]] = False
    places = np.flatnonzero(found)
    begin = np.searchsorted(places, windows.first + 1)
    return places, begin, np.maximum(np.searchsorted(places, windows.last), begin)


def _resets_lost(windows: Windows) -> Floats:
    """Return the sum of the values before each fall of a counter within the windows."""
    places, begin, end = _pairs(windows, np.greater)
    lost = np.zeros(begin.shape)
    before = windows.samples.values[places - 1]
    for cell in np.argwhere(end > begin):
        i, t = int(cell[0]), int(cell[1])
        lost[i, t] = before[begin[i, t] : end[i, t]].sum()
    return lost


def _instant(windows: Windows, rate: bool) -> Result:
    """Return the difference of the last two samples, or its rate."""
    here = windows.counts >= 2
    last, last_ms = windows.at(windows.last - 1)
    before, before_ms = windows.at(windows.last - 2)
    with np.errstate(all="ignore"):
        found = np.where(rate & (last < before), last, last - before)
        if rate:
            found = found / ((last_ms - before_ms) / 1000)
    return np.where(here, found, 0.0), here


def _changes(windows: Windows, chosen: Callable[[Floats, Floats], Bools]) -> Result:
    _, begin, end = _pairs(windows, chosen)
    return (end - begin).astype(np.float64), windows.counts > 0


def _differs(a: Floats, b: Floats) -> Bools:
    differs: Bools = (a != b) & ~(np.isnan(a) & np.isnan(b))
    return differs


# --- statistics


def _sum(part: GatheredWindows) -> Floats:
    return exact_sum(np.where(part.here, part.values, 0.0))


def _mean(part: GatheredWindows) -> Floats:
    total = _sum(part)
    with np.errstate(all="ignore"):
        scaled = exact_sum(np.where(part.here, part.values / part.counts[:, None], 0.0))
    finite: Floats = np.where(np.isfinite(total), total / part.counts, scaled)
    return finite


def _variance(part: GatheredWindows) -> Floats:
    """Return the population variance. Values count from the first one, so that equal ones have none."""
    with np.errstate(all="ignore"):
        apart = np.where(part.here, part.values - part.values[:, :1], 0.0)
        mean = exact_sum(apart) / part.counts
        apart = np.where(part.here, apart - mean[:, None], 0.0)
        return exact_sum(apart * apart) / part.counts


def _least(part: GatheredWindows) -> Floats:
    found: Floats = np.fmin.reduce(part.values, axis=1)
    return found


def _most(part: GatheredWindows) -> Floats:
    found: Floats = np.fmax.reduce(part.values, axis=1)
    return found


def quantile_of_rows(q: Floats, values: Floats, here: Bools, counts: Any) -> Floats:
    """Return the quantile q of each row, by linear interpolation; NaN is less than any number. Rows hold a value."""
    nans = (np.isnan(values) & here).sum(axis=1)
    ordered = np.sort(np.where(here & ~np.isnan(values), values, np.nan), axis=1)
    with np.errstate(all="ignore"):
        rank = np.where(np.isnan(q), 0.0, np.clip(q, 0, 1)) * (counts - 1)
        low = np.floor(rank).astype(np.int64)
        weight = rank - low

        def at(place: Any) -> Floats:
            found = np.take_along_axis(ordered, np.maximum(place - nans, 0)[:, None], axis=1)[:, 0]
            return np.where(place < nans, np.nan, found)

        found = at(low) * (1 - weight) + at(np.minimum(low + 1, counts - 1)) * weight
    return np.select([np.isnan(q), q < 0, q > 1], [np.nan, -np.inf, np.inf], found)


def _quantile(windows: Windows, q: Floats) -> Result:
    return _gathered(windows, lambda part: quantile_of_rows(q[part.steps], part.values, part.here, part.counts))


def _median_deviation(part: GatheredWindows) -> Floats:
    half = np.full(len(part.cells), 0.5)
    median = quantile_of_rows(half, part.values, part.here, part.counts)
    with np.errstate(all="ignore"):
        found = quantile_of_rows(half, np.abs(part.values - median[:, None]), part.here, part.counts)
    return np.where((np.isnan(part.values) & part.here).any(axis=1), np.nan, found)


# --- regression


def _regression(part: GatheredWindows, origin_ms: Any) -> tuple[Floats, Floats]:
    """Return slope per second and value at the origin of the line of least squares."""
    with np.errstate(all="ignore"):
        count = part.counts.astype(np.float64)
        x = np.where(part.here, (part.times_ms - origin_ms[:, None]) / 1000, 0.0)
        y = np.where(part.here, part.values, 0.0)
        sum_x, sum_y = exact_sum(x), exact_sum(y)
        covariance = exact_sum(x * y) - sum_x * sum_y / count
        slope = covariance / (exact_sum(x * x) - sum_x * sum_x / count)
        start = sum_y / count - slope * sum_x / count
        first = part.values[:, :1]
        constant = np.where(part.here, part.values == first, True).all(axis=1)
        flat = np.where(np.isinf(first[:, 0]), np.nan, 0.0)
        level = np.where(np.isinf(first[:, 0]), np.nan, first[:, 0])
    return np.where(constant, flat, slope), np.where(constant, level, start)


def _derivative(windows: Windows) -> Result:
    return _gathered(windows, lambda part: _regression(part, part.times_ms[:, 0])[0], 2)


def _predict(windows: Windows, seconds: Floats, now_ms: Any) -> Result:
    def predicted(part: GatheredWindows) -> Floats:
        slope, start = _regression(part, now_ms[part.steps])
        with np.errstate(all="ignore"):
            return slope * seconds[part.steps] + start

    return _gathered(windows, predicted, 2)


def _smoothed(windows: Windows, level: Floats, trend: Floats) -> Result:
    """Holt's double exponential smoothing, as Prometheus has it."""

    def smooth(part: GatheredWindows) -> Floats:
        sf, tf = level[part.steps], trend[part.steps]
        s0, s1 = np.zeros(len(sf)), part.values[:, 0].copy()
        b = part.values[:, min(1, part.values.shape[1] - 1)] - part.values[:, 0]
        with np.errstate(all="ignore"):
            for i in range(1, part.values.shape[1]):
                here = part.here[:, i]
                if i > 1:
                    b = np.where(here, tf * (s1 - s0) + (1 - tf) * b, b)
                made = sf * part.values[:, i] + (1 - sf) * (s1 + b)
                s0, s1 = np.where(here, s1, s0), np.where(here, made, s1)
        return s1

    return _gathered(windows, smooth, 2)


# --- single samples


def _first(windows: Windows) -> Result:
    return windows.at(windows.first)[0], windows.counts > 0


def _last(windows: Windows) -> Result:
    return windows.at(windows.last - 1)[0], windows.counts > 0


def _time_of_first(windows: Windows) -> Result:
    return windows.at(windows.first)[1] / 1000, windows.counts > 0


def _time_of_last(windows: Windows) -> Result:
    return windows.at(windows.last - 1)[1] / 1000, windows.counts > 0


def _time_of(windows: Windows, greatest: bool) -> Result:
    """Return the time of the last of the extreme values."""

    def times(part: GatheredWindows) -> Floats:
        values = np.where(part.here & ~np.isnan(part.values), part.values, -np.inf if greatest else np.inf)
        extreme = values.max(axis=1) if greatest else values.min(axis=1)
        alike = (values == extreme[:, None]) & part.here
        place = alike.shape[1] - 1 - np.argmax(alike[:, ::-1], axis=1)
        return np.take_along_axis(part.times_ms, place[:, None], axis=1)[:, 0] / 1000

    return _gathered(windows, times)


WINDOWED: Mapping[str, Callable[[Windows], Result]] = MappingProxyType(
    {
        "rate": lambda w: _extrapolated(w, "rate"),
        "increase": lambda w: _extrapolated(w, "increase"),
        "delta": lambda w: _extrapolated(w, "delta"),
        "irate": lambda w: _instant(w, True),
        "idelta": lambda w: _instant(w, False),
        "changes": lambda w: _changes(w, _differs),
        "resets": lambda w: _changes(w, np.greater),
        "deriv": _derivative,
        "sum_over_time": lambda w: _gathered(w, _sum),
        "avg_over_time": lambda w: _gathered(w, _mean),
        "min_over_time": lambda w: _gathered(w, _least),
        "max_over_time": lambda w: _gathered(w, _most),
        "stdvar_over_time": lambda w: _gathered(w, _variance),
        "stddev_over_time": lambda w: _gathered(w, lambda part: np.sqrt(_variance(part))),
        "mad_over_time": lambda w: _gathered(w, _median_deviation),
        "count_over_time": lambda w: (w.counts.astype(np.float64), w.counts > 0),
        "present_over_time": lambda w: (np.ones(w.counts.shape), w.counts > 0),
        "first_over_time": _first,
        "last_over_time": _last,
        "ts_of_first_over_time": _time_of_first,
        "ts_of_last_over_time": _time_of_last,
        "ts_of_max_over_time": lambda w: _time_of(w, True),
        "ts_of_min_over_time": lambda w: _time_of(w, False),
    }
)
"""Functions of a range vector alone."""
quantile_over_time, predict_linear, double_exponential_smoothing = _quantile, _predict, _smoothed
