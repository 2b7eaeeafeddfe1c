"""Quantiles and fractions of classic histograms: series of cumulative counts with the upper bound in the label `le`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from artimon.compute.cells import Bools, Floats
from query_dsl.promql.label_sets import NAME
from query_dsl.promql.promql_values import VectorValue, empty_vector
from query_dsl.results.result_cells import Rows
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


def of_histograms(
    vector: VectorValue,
    of_step: Callable[[Floats, Floats, int], tuple[float, bool]],
    warn: Callable[[str, str], None],
    budget: QueryBudget,
) -> VectorValue:
    """Apply `of_step` (upper bounds, counts, step) to the buckets of each histogram at each step.

    It returns the value, and whether counts had to be made monotonic. `warn` takes "bucket" or "monotonic", and the
    name of the metric."""
    if not vector.labels.count:
        return empty_vector(vector.here.shape[1])
    bounds = [_bound(text) for text in vector.labels.texts(LE)]
    names = vector.labels.texts(NAME)
    good = np.array([bound is not None for bound in bounds], np.bool_)
    for row in np.flatnonzero(~good & vector.here.any(axis=1)).tolist():
        warn("bucket", names[row])
    histograms = vector.labels.drop((LE, NAME))
    codes, first = histograms.classes()
    values = np.zeros((len(first), vector.here.shape[1]))
    here = np.zeros(values.shape, np.bool_)
    le = np.array([np.nan if bound is None else bound for bound in bounds])
    order = np.lexsort((le, codes))
    order = order[good[order]]
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, edges):
        if len(rows):
            budget.check()
            fixed = _fill(rows, codes[rows[0]], vector, le, values, here, of_step)
            if fixed:
                warn("monotonic", names[rows[0]])
    labels = vector.labels.drop((LE,)).take(first)
    return VectorValue(labels, values, here, np.ones(len(first), np.bool_)).present()


def _fill(
    rows: Rows,
    code: int,
    vector: VectorValue,
    le: Floats,
    values: Floats,
    here: Bools,
    of_step: Callable[[Floats, Floats, int], tuple[float, bool]],
) -> bool:
    """Fill the row of one histogram; returns whether counts had to be made monotonic."""
    any_fixed = False
    for step in np.flatnonzero(vector.here[rows].any(axis=0)).tolist():
        held = rows[vector.here[rows, step]]
        values[code, step], fixed = of_step(le[held], vector.values[held, step], step)
        here[code, step] = True
        any_fixed |= fixed
    return any_fixed


def _united(bounds: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Add the counts of equal bounds, which are sorted."""
    new = np.concatenate(([True], bounds[1:] != bounds[:-1]))
    return bounds[new], np.add.reduceat(counts, np.flatnonzero(new))


def _monotonic(counts: Floats) -> tuple[Floats, bool]:
    """Return counts that never fall, and whether one fell by more than a rounding error."""
    out, fixed = counts.copy(), False
    before = out[0]
    for i in range(1, len(out)):
        here = out[i]
        if here == before:
            continue
        total = abs(here) + abs(before)
        if abs(here - before) / min(total, np.finfo(np.float64).max) < SMALL_DELTA:
            out[i] = before
        elif here < before:
            out[i], fixed = before, True
        else:
            before = here
    return out, fixed


def bucket_quantile(q: float, bounds: Floats, counts: Floats) -> tuple[float, bool]:
    """Return the quantile of one histogram by linear interpolation within a bucket, and whether counts were made
    monotonic."""
    if np.isnan(q):
        return np.nan, False
    if q < 0 or q > 1:
        return (-np.inf if q < 0 else np.inf), False
    if not np.isposinf(bounds[-1]):
        return np.nan, False
    bounds, counts = _united(bounds, counts)
    counts, fixed = _monotonic(counts)
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


def bucket_fraction(lower: float, upper: float, bounds: Floats, counts: Floats) -> tuple[float, bool]:
    """Return the share of the observations between two values, by linear interpolation within buckets."""
    if not np.isposinf(bounds[-1]):
        return np.nan, False
    bounds, counts = _united(bounds, counts)
    if counts[-1] == 0 or np.isnan([lower, upper, counts[-1]]).any():
        return np.nan, False
    if lower >= upper:
        return 0.0, False
    share = (_rank(upper, bounds, counts) - _rank(lower, bounds, counts)) / counts[-1]
    return float(share), False


def _rank(value: float, bounds: Floats, counts: Floats) -> float:
    """Return the number of observations up to a value."""
    rank = 0.0
    for i, (bound, count) in enumerate(zip(bounds.tolist(), counts.tolist(), strict=True)):
        low = float(bounds[i - 1]) if i else (0.0 if bound > 0 else -np.inf)
        if low >= value:
            return rank
        if bound > value:
            if np.isinf(low):
                return rank
            return rank if np.isinf(bound) else rank + (count - rank) * (value - low) / (bound - low)
        rank = count
    return min(rank, float(counts[-1]))
