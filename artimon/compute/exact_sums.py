"""Reproducible sums, independent of the order of the terms: each is a pair of float64.

A sum is `high + low`, high being the float64 nearest to it. Integers are exact up to 2^106. Doubles are split (Rump):
the parts above a common power of two are added without rounding; the remainders, at most 2^-35 of the largest term,
are added in plain float64. So the error is far below half a unit in the last place of the result, unless the sum
cancels to less than a millionth of its terms. Terms above 2^900 are added in plain float64."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.kernels import kernels

HUGE = 2.0**900
_HALF = 32
_LOW_HALF = np.int64((1 << _HALF) - 1)


class ExactSums(NamedTuple):
    """Arrays of one shape."""

    high: Floats
    low: Floats

    def add(self, other: ExactSums) -> ExactSums:
        """Add element by element."""
        with np.errstate(invalid="ignore", over="ignore"):
            high, error = two_sum(self.high, other.high)
            rest, tail = two_sum(self.low, other.low)
            high, error = two_sum(high, error + rest)
            high, error = two_sum(high, error + tail)
            plain = self.high + other.high
        return ExactSums(np.where(np.isfinite(high), high, plain), np.where(np.isfinite(error), error, 0.0))


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sum and the rounding error; the second is NaN if the first is not finite."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def integer_sums(cells: Ints, starts: Ints, axis: int = 0) -> ExactSums:
    """Return exact sums of the runs that begin at `starts` along `axis`."""
    if not fits_int64(cells, cells.shape[axis]):
        upper = from_integers(np.add.reduceat(cells >> _HALF, starts, axis=axis))
        lower = from_integers(np.add.reduceat(cells & _LOW_HALF, starts, axis=axis))
        scale = float(1 << _HALF)
        return ExactSums(upper.high * scale, upper.low * scale).add(lower)
    return from_integers(np.add.reduceat(cells, starts, axis=axis))


def fits_int64(cells: Ints, count: int) -> bool:
    """True if the sum of any `count` of these integers fits in 64 bits."""
    return not cells.size or max(abs(int(cells.max())), abs(int(cells.min()))) <= (2**63 - 1) // max(1, count)


def from_integers(totals: Ints) -> ExactSums:
    """Convert integers to sums, exactly."""
    upper = (totals >> _HALF).astype(np.float64) * float(1 << _HALF)
    lower = (totals & _LOW_HALF).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return ExactSums(*two_sum(upper, lower))


def float_sums(values: Floats, starts: Ints) -> ExactSums:
    """Return the sum of each run of rows, for each column of (rows, columns). Runs begin at `starts`."""
    with np.errstate(invalid="ignore", over="ignore"):
        plain = np.add.reduceat(values, starts, axis=0)
        finite = np.isfinite(plain)
        clean = values if finite.all() else np.where(np.isfinite(values), values, 0.0)
        largest = np.abs(clean).max(axis=0, initial=0.0)
        sigma = splitter(largest, len(values))
        upper = (clean + sigma) - sigma
        high = np.add.reduceat(upper, starts, axis=0)
        sums = ExactSums(*two_sum(high, np.add.reduceat(clean - upper, starts, axis=0)))
    usable = finite & (largest <= HUGE)
    return ExactSums(np.where(usable, sums.high, plain), np.where(usable, sums.low, 0.0))


def class_sums(values: Floats, class_of: Ints, classes: int, count: int, present: Bools | None) -> ExactSums | None:
    """Return the two parts that `from_halves` adds, of the sum of each of `classes`, which have `count` series.

    class_of: class of each series, `classes` for those to leave out. None if a value is above HUGE or NaN."""
    compiled = kernels()
    if compiled is not None:
        largest = compiled.largest(values, None if count == len(values) else class_of, classes, present)
    else:
        mine = class_of < classes if present is None else present & (class_of < classes)
        values = values if mine.all() else np.where(mine, values, 0.0)
        largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if not largest <= HUGE:
        return None
    sigma = one_splitter(largest, count)
    if compiled is not None:
        high, low = np.zeros(classes + 1), np.zeros(classes + 1)
        compiled.sum_classes(values, class_of, present, sigma, high, low)
        return ExactSums(high[:-1], low[:-1])
    upper = (values + sigma) - sigma
    parts = (np.bincount(class_of, part, classes + 1).astype(np.float64)[:-1] for part in (upper, values - upper))
    return ExactSums(*parts)


def from_halves(upper: Floats, rest: Floats) -> ExactSums:
    """Add the two parts that values were split into; if the result is not finite, it is the first part alone."""
    with np.errstate(invalid="ignore", over="ignore"):
        high, low = two_sum(upper, rest)
    finite = np.isfinite(high)
    return (
        ExactSums(high, low) if finite.all() else ExactSums(np.where(finite, high, upper), np.where(finite, low, 0.0))
    )


def splitter(largest: Floats, count: int) -> Floats:
    """Return the power of two that splits up to `count` values of at most `largest` each."""
    _, exponent = np.frexp(np.minimum(largest, HUGE))
    return np.asarray(np.ldexp(1.0, exponent + (count + 2).bit_length()))


def one_splitter(largest: float, count: int) -> float:
    """`splitter` of one number, which is at most HUGE."""
    return math.ldexp(1.0, math.frexp(largest)[1] + (count + 2).bit_length())
