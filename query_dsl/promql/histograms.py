"""Quantiles and fractions of classic histograms: series of cumulative counts with the upper bound in the label `le`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from artimon.compute.cells import Floats, Ints
from query_dsl.promql.label_sets import NAME
from query_dsl.promql.promql_values import VectorValue, empty_vector
from query_dsl.stores.query_limits import QueryBudget

LE = "le"
SMALL_DELTA = 1e-12
"""Relative difference of neighbouring counts that is a rounding error."""


def _bound(text: str) -> float | None:
    """Parse an upper bound as Go does; None if it is malformed."""
    plain = text.lower().lstrip("+-")
    if plain in ("inf", "infinity"):
        return -np.inf if text.startswith("-") else np.inf
    try:
        return float(text) if "_" not in text and text.strip() == text else None
    except ValueError:
        return None


@dataclass(slots=True)
class Falls:
    """Buckets whose counts fell and were raised: extent, greatest fall, and the steps of one or more histograms."""

    least: float
    greatest: float
    most: float
    steps: list[int] = field(default_factory=list)

    def add(self, other: Falls, step: int) -> None:
        """Add the falls of one histogram at a step."""
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)
        self.most = max(self.most, other.most)
        self.steps.append(step)

    def text(self, times_ms: Ints) -> str:
        """Return the falls in the words of Prometheus."""
        first, last = (_time(int(times_ms[step])) for step in (min(self.steps), max(self.steps)))
        return (
            f"from buckets {self.least:g} to {self.greatest:g}, with a max diff of {self.most:.2g}, over"
            f" {len(self.steps)} samples from {first} to {last}"
        )


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


OfStep = Callable[[Floats, Floats, int], tuple[float, Falls | None]]
"""Function of upper bounds, counts and the step: value, and the counts that it had to make monotonic."""


@dataclass(slots=True)
class BucketProblems:
    """Problems of the buckets of a vector: (metric, le) of bad bounds; falls of the counts of each metric."""

    bad_bounds: dict[tuple[str, str], None] = field(default_factory=dict)
    falls: dict[str, Falls] = field(default_factory=dict)


def of_histograms(vector: VectorValue, of_step: OfStep, budget: QueryBudget) -> tuple[VectorValue, BucketProblems]:
    """Apply `of_step` to the buckets of each histogram at each step."""
    problems = BucketProblems()
    if not vector.labels.count:
        return empty_vector(vector.here.shape[1]), problems
    texts, names = vector.labels.texts(LE), vector.labels.texts(NAME)
    bounds = [_bound(text) for text in texts]
    good = np.array([bound is not None for bound in bounds], np.bool_)
    for row in np.flatnonzero(~good & vector.here.any(axis=1)).tolist():
        problems.bad_bounds[names[row], texts[row]] = None
    codes, first = vector.labels.drop((LE,)).classes()
    values = np.zeros((len(first), vector.here.shape[1]))
    here = np.zeros(values.shape, np.bool_)
    le = np.array([np.nan if bound is None else bound for bound in bounds])
    order = np.lexsort((le, codes))
    order = order[good[order]]
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        for step in np.flatnonzero(vector.here[rows].any(axis=0)).tolist():
            budget.check()
            held = rows[vector.here[rows, step]]
            code = codes[rows[0]]
            values[code, step], falls = of_step(le[held], vector.values[held, step], step)
            here[code, step] = True
            if falls is not None:
                problems.falls.setdefault(names[rows[0]], falls).add(falls, step)
    labels = vector.labels.drop((LE,)).take(first)
    return VectorValue(labels, values, here, np.ones(len(first), np.bool_)).present(), problems


def _united(bounds: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Add the counts of equal bounds, which are sorted."""
    new = np.concatenate(([True], bounds[1:] != bounds[:-1]))
    return bounds[new], np.add.reduceat(counts, np.flatnonzero(new))


def _monotonic(bounds: Floats, counts: Floats) -> tuple[Floats, Falls | None]:
    """Return counts that never fall, and the falls by more than a rounding error."""
    out, falls = counts.copy(), None
    before = out[0]
    for i in range(1, len(out)):
        here = out[i]
        if here == before:
            continue
        total = abs(here) + abs(before)
        if abs(here - before) / min(total, np.finfo(np.float64).max) < SMALL_DELTA:
            out[i] = before
        elif here < before:
            falls = falls or Falls(np.inf, -np.inf, 0.0)
            bound = float(bounds[i])
            falls.least, falls.greatest = min(falls.least, bound), max(falls.greatest, bound)
            out[i], falls.most = before, max(falls.most, float(before - here))
        else:
            before = here
    return out, falls


def bucket_quantile(q: float, bounds: Floats, counts: Floats) -> tuple[float, Falls | None]:
    """Return the quantile of one histogram by linear interpolation within a bucket, and the falls of its counts."""
    if np.isnan(q):
        return np.nan, None
    if q < 0 or q > 1:
        return (-np.inf if q < 0 else np.inf), None
    if not np.isposinf(bounds[-1]):
        return np.nan, None
    bounds, counts = _united(bounds, counts)
    counts, fixed = _monotonic(bounds, counts)
    if len(bounds) < 2 or counts[-1] == 0 or np.isnan(counts[-1]):
        return np.nan, fixed
    rank = q * counts[-1]
    b = int(np.argmax(counts[:-1] >= rank)) if (counts[:-1] >= rank).any() else len(bounds) - 1
    if b == len(bounds) - 1:
        return float(bounds[-2]), fixed
    if b == 0 and bounds[0] <= 0:
        return float(bounds[0]), fixed
    start, below = (0.0, 0.0) if b == 0 else (float(bounds[b - 1]), float(counts[b - 1]))
    with np.errstate(all="ignore"):
        return float(start + (bounds[b] - start) * np.divide(rank - below, counts[b] - below)), fixed


def bucket_fraction(lower: float, upper: float, bounds: Floats, counts: Floats) -> float:
    """Return the share of the observations between two values, by linear interpolation within buckets."""
    if not np.isposinf(bounds[-1]):
        return np.nan
    bounds, counts = _united(bounds, counts)
    if counts[-1] == 0 or np.isnan([lower, upper, counts[-1]]).any():
        return np.nan
    if lower >= upper:
        return 0.0
    return float((_rank(upper, bounds, counts) - _rank(lower, bounds, counts)) / counts[-1])


def _rank(value: float, bounds: Floats, counts: Floats) -> float:
    """Return the number of observations up to a value."""
    rank = 0.0
    for i, (bound, count) in enumerate(zip(bounds.tolist(), counts.tolist(), strict=True)):
        low = float(bounds[i - 1]) if i else (0.0 if bound > 0 else -np.inf)
        if low >= value:
            return rank
        if bound > value:
            if np.isinf(low):
                return float(count)  # no interpolation in a bucket without end
            return rank if np.isinf(bound) else rank + (count - rank) * (value - low) / (bound - low)
        rank = count
    return min(rank, float(counts[-1]))
