"""Sums of int64 cells are kept modulo 2^64; count, min and max tell, nearly always, which true sum is meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.int64]
BEYOND_64_BITS = "exceeds 64 bits"
"""What the note about a sum says that an answer cannot hold."""
_WRAP = 2**64
_SAFE = 2.0**62


def may_wrap(count: npt.NDArray[Any], low: Cells, high: Cells) -> npt.NDArray[np.bool_]:
    """Where count * min .. count * max is not surely inside int64."""
    widest: npt.NDArray[np.float64] = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
    wide: npt.NDArray[np.bool_] = widest * count >= _SAFE
    return wide


def true_sum(count: int, low: int, high: int, wrapped: int) -> int | None:
    """The only number s with count * low <= s <= count * high and s = wrapped (mod 2^64); None if several fit."""
    least, most = count * low, count * high
    first = least + (wrapped - least) % _WRAP
    if first > most or first + _WRAP <= most:
        return None
    return first


def sums_to_double(count: npt.NDArray[Any], low: Cells, high: Cells, wrapped: Cells) -> npt.NDArray[np.float64]:
    """The true sums as doubles; the wrapped one where several fit."""
    doubles: npt.NDArray[np.float64] = wrapped.astype(np.float64)
    for i in np.flatnonzero(may_wrap(count, low, high)):
        exact = true_sum(int(count[i]), int(low[i]), int(high[i]), int(wrapped[i]))
        if exact is not None:
            doubles[i] = float(exact)
    return doubles
