"""Sums that keep the rounding errors, by pairs: as exact as the compensated sums of Prometheus, in log2(n) steps.

The error of an addition is that of Knuth's TwoSum (The Art of Computer Programming, vol. 2, 4.2.2)."""

from __future__ import annotations

import numpy as np

from artimon.compute.cells import Floats, Ints


def exact_sum(values: Floats, axis: int = -1) -> Floats:
    """Return the sums along an axis."""
    total = np.moveaxis(np.asarray(values, np.float64), axis, 0)
    if not total.shape[0]:
        return np.zeros(total.shape[1:])
    error = np.zeros_like(total)
    with np.errstate(invalid="ignore", over="ignore"):
        while total.shape[0] > 1:
            half = total.shape[0] // 2
            total, error = _add_pairs(total, error, half)
        return _finish(total[0], error[0])


def grouped_sum(values: Floats, codes: Ints, count: int) -> Floats:
    """Return the sums of the rows of each class, (count, steps). `codes`: class of each row of `values`."""
    order = np.argsort(codes, kind="stable")
    total, mine = values[order], codes[order]
    error = np.zeros_like(total)
    with np.errstate(invalid="ignore", over="ignore"):
        while len(mine) and len(mine) > len(np.flatnonzero(np.diff(mine))) + 1:
            starts = np.concatenate(([0], np.flatnonzero(np.diff(mine)) + 1))
            rank = np.arange(len(mine)) - np.repeat(starts, np.diff(np.concatenate((starts, [len(mine)]))))
            left = np.flatnonzero(rank % 2 == 0)
            paired = left[(left + 1 < len(mine)) & (mine[np.minimum(left + 1, len(mine) - 1)] == mine[left])]
            sums, errors = _two_sum(total[paired], total[paired + 1])
            total[paired], error[paired] = sums, error[paired] + error[paired + 1] + errors
            total, error, mine = total[left], error[left], mine[left]
        out = np.zeros((count, values.shape[1]))
        out[mine] = _finish(total, error)
    return out


def _add_pairs(total: Floats, error: Floats, half: int) -> tuple[Floats, Floats]:
    sums, errors = _two_sum(total[:half], total[half : 2 * half])
    errors = error[:half] + error[half : 2 * half] + errors
    return np.concatenate((sums, total[2 * half :])), np.concatenate((errors, error[2 * half :]))


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sum and its error."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _finish(total: Floats, error: Floats) -> Floats:
    """Add the errors to the sums, except where an infinity makes them NaN."""
    whole: Floats = np.where(np.isfinite(total) & np.isfinite(error), total + error, total)
    return whole
