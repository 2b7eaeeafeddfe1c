"""How values of a window spread: quantiles, variance, median deviation, and how far off the newest of them is."""

from __future__ import annotations

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.panes import Pane
from artimon.compute.params import Args
from artimon.compute.quantiles import median_of, quantile_of

NORMAL = 0.6745
"""Median deviation of a normal distribution in standard deviations."""


def quantile(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    count = pane.count()
    out = quantile_of(pane.sorted(), count, args["q"], args["method"])
    return np.where(pane.poisoned(), np.nan, out), count > 0


def median(pane: Pane, _args: Args) -> tuple[Floats, Bools]:
    count = pane.count()
    return np.where(pane.poisoned(), np.nan, median_of(pane.sorted(), count)), count > 0


def variance(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    """Two passes, after the newest value was taken off all: no cancellation, and 0 for equal values."""
    count = pane.count()
    _, squares = _moments(pane, count)
    return squares / (count - args["ddof"]), count > args["ddof"]


def deviation(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    out, known = variance(pane, args)
    return np.sqrt(out), known


def median_deviation(pane: Pane, _args: Args) -> tuple[Floats, Bools]:
    """Median of the distances to the median."""
    out, count = _median_deviation(pane)[1:]
    return out, count > 0


def score(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    """How many standard deviations the newest value lies off the mean; robust: of medians instead."""
    if args["robust"]:
        middle, spread, count = _median_deviation(pane)
        return NORMAL * (pane.newest() - middle) / spread, count >= 2
    count = pane.count()
    mean, squares = _moments(pane, count)
    known = (count >= 2) & (count > args["ddof"])
    return -mean / np.sqrt(squares / (count - args["ddof"])), known


def _moments(pane: Pane, count: Ints) -> tuple[Floats, Floats]:
    """(rows, outputs) mean of the differences to the newest value, and sum of the squares of those to the mean."""
    if pane.full:
        return _full_moments(pane)
    base, zero = pane.newest(), pane.zeros()
    mean = zero.copy()
    for values, here in pane.folds():
        mean += np.where(here, values - base, zero)
    mean /= np.maximum(count, 1)
    squares = zero.copy()
    for values, here in pane.folds():
        off = np.where(here, values - base - mean, zero)
        squares += off * off
    return mean, squares


def _full_moments(pane: Pane) -> tuple[Floats, Floats]:
    """The same, bit by bit, without masks."""
    base, mean, squares, off = pane.newest(), pane.zeros(), pane.zeros(), pane.zeros()
    for values in pane.columns():
        np.subtract(values, base, out=off)
        mean += off
    mean /= pane.width
    for values in pane.columns():
        np.subtract(values, base, out=off)
        off -= mean
        off *= off
        squares += off
    return mean, squares


def _median_deviation(pane: Pane) -> tuple[Floats, Floats, Ints]:
    """(rows, outputs) median, median distance to it, number of values."""
    count, ordered = pane.count(), pane.sorted()
    poisoned = pane.poisoned()
    middle = np.where(poisoned, np.nan, median_of(ordered, count))
    off = np.abs(ordered - middle[..., None])
    # inf - inf is NaN, and would be sorted behind: it poisons like any NaN
    strange = np.isinf(middle) & (count > 0)
    off.sort(axis=2)
    spread = np.where(poisoned | strange, np.nan, median_of(off, count))
    return middle, spread, count
