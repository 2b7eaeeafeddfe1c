"""Quantiles of sorted values, by the thirteen methods of numpy, and medians."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from artimon.compute.cells import Floats, Ints

Position = tuple[Floats, Floats]
"""Position of a quantile among sorted values: the index (from 0) at or below it, and the weight of the next value."""


def quantile_of(ordered: Floats, count: Ints, q: float, method: str) -> Floats:
    """Return quantile q (0..1) of the first `count` values of the last axis of `ordered`; arbitrary if count is 0."""
    below, weight = METHODS[method](count.astype(np.float64), q)
    most = np.maximum(count - 1, 0)
    a = _at(ordered, np.clip(below, 0, most))
    b = _at(ordered, np.clip(below + 1, 0, most))
    return between(a, b, weight)


def place_of(q: float, method: str, count: int) -> int:
    """Return the lower of the two places that `quantile_of` reads among `count` values."""
    below, _ = METHODS[method](np.array([count], np.float64), q)
    return int(np.clip(below[0], 0, max(count - 1, 0)))


def between(a: Floats, b: Floats, weight: Floats) -> Floats:
    """Return a + weight (b - a), without NaN for equal infinities or weight 0; monotone in the weight."""
    step = b - a
    mixed = np.where(weight >= 0.5, b - step * (1 - weight), a + step * weight)
    return np.where((a == b) | (weight == 0), a, mixed)


def median_of(ordered: Floats, count: Ints) -> Floats:
    """Return the median of the first `count` values of the last axis: the middle one, or the mean of the middle two."""
    a = _at(ordered, np.maximum(count - 1, 0) // 2)
    b = _at(ordered, np.minimum(count // 2, ordered.shape[-1] - 1))
    return np.where(a == b, a, a * 0.5 + b * 0.5)


def _at(ordered: Floats, index: Floats | Ints) -> Floats:
    first = int(index.flat[0]) if index.size else 0
    if (index == first).all():  # no gaps: the same index everywhere
        return ordered[..., first]
    return np.take_along_axis(ordered, index.astype(np.int64)[..., None], axis=-1)[..., 0]


def _split(place: Floats) -> Position:
    below = np.floor(place)
    return below, place - below


def _plotting(alpha: float, beta: float) -> Callable[[Floats, float], Position]:
    return lambda n, q: _split(n * q + (alpha + q * (1 - alpha - beta)) - 1)


def _linear(n: Floats, q: float) -> Position:
    return _split((n - 1) * q)


def _whole(place: Floats) -> Position:
    return place, np.zeros(place.shape)


def _inverted_cdf(n: Floats, q: float) -> Position:
    return _whole(np.ceil(n * q - 1))


def _averaged_inverted_cdf(n: Floats, q: float) -> Position:
    below, rest = _split(n * q - 1)
    return below, np.where(rest == 0, 0.5, 1.0)


def _closest_observation(n: Floats, q: float) -> Position:
    below, rest = _split(n * q - 1 - 0.5)
    tie_at_odd = (rest == 0) & (below % 2 == 1)  # the even one, counted from 1
    return _whole(np.where(tie_at_odd, below, below + 1))


def _midpoint(n: Floats, q: float) -> Position:
    below, rest = _linear(n, q)
    return below, np.where(rest == 0, 0.0, 0.5)


METHODS: Mapping[str, Callable[[Floats, float], Position]] = MappingProxyType(
    {
        "inverted_cdf": _inverted_cdf,
        "averaged_inverted_cdf": _averaged_inverted_cdf,
        "closest_observation": _closest_observation,
        "interpolated_inverted_cdf": _plotting(0, 1),
        "hazen": _plotting(0.5, 0.5),
        "weibull": _plotting(0, 0),
        "linear": _linear,
        "median_unbiased": _plotting(1 / 3.0, 1 / 3.0),
        "normal_unbiased": _plotting(3 / 8.0, 3 / 8.0),
        "lower": lambda n, q: _whole(np.floor((n - 1) * q)),
        "higher": lambda n, q: _whole(np.ceil((n - 1) * q)),
        "midpoint": _midpoint,
        "nearest": lambda n, q: _whole(np.round((n - 1) * q)),
    }
)
"""Map (count, q) to a position, which may lie outside of 0 .. n - 1. `nearest` resolves ties to the even index."""
