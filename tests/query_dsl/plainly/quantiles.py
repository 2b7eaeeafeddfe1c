"""Quantiles by the names and definitions of numpy: the nine of Hyndman and Fan, and four simple ones."""

from __future__ import annotations

import math
from fractions import Fraction

NAN = float("nan")
# (alpha, beta) of the continuous ones: position n*q + alpha + q*(1 - alpha - beta) - 1, counted from 0
CONTINUOUS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "linear": (1.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
METHODS = (
    *CONTINUOUS,
    "inverted_cdf",
    "averaged_inverted_cdf",
    "closest_observation",
    "lower",
    "higher",
    "midpoint",
    "nearest",
)


def quantile(values: list[float], q: float, method: str = "linear") -> float:
    """The q-quantile of values that are not empty; NaN if one of them is."""
    if any(v != v for v in values):
        return NAN
    ordered = sorted(values)
    return continuous(ordered, q, method) if method in CONTINUOUS else discrete(ordered, q, method)


def between(ordered: list[float], position: float) -> float:
    position = min(max(position, 0.0), len(ordered) - 1.0)
    below = math.floor(position)
    above, share = min(below + 1, len(ordered) - 1), position - below
    low, high = ordered[below], ordered[above]
    if isinstance(low, Fraction):
        return float(low + (high - low) * Fraction(share))
    if share == 0 or low == high or (math.isinf(low) and math.isfinite(high)):
        return low
    return low + (high - low) * share


def continuous(ordered: list[float], q: float, method: str) -> float:
    alpha, beta = CONTINUOUS[method]
    return between(ordered, len(ordered) * q + (alpha + q * (1 - alpha - beta)) - 1)


def discrete(ordered: list[float], q: float, method: str) -> float:
    n = len(ordered)
    exact = (n - 1) * q
    if method == "lower":
        return ordered[math.floor(exact)]
    if method == "higher":
        return ordered[math.ceil(exact)]
    if method == "midpoint":
        return (ordered[math.floor(exact)] + ordered[math.ceil(exact)]) / 2
    if method == "nearest":
        return ordered[round(exact)]  # halves to the even one
    return stepwise(ordered, n * q, method)


def stepwise(ordered: list[float], position: float, method: str) -> float:
    n = len(ordered)
    if method == "closest_observation":  # nearest of n*q counted from 1, halves to the even one
        return ordered[min(max(round(position) - 1, 0), n - 1)]
    upper = ordered[min(max(math.ceil(position) - 1, 0), n - 1)]
    if method == "averaged_inverted_cdf" and position == math.floor(position):
        above = ordered[min(max(math.floor(position), 0), n - 1)]
        return (upper + above) / 2
    return upper
