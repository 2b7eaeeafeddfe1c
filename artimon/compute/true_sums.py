"""True sums of int64 cells, which are kept modulo 2^64: count, min and max nearly always determine them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.sample_order import Cells
from artimon.model.values import INT64_MAX, INT64_MIN

BEYOND_64_BITS = "exceeds 64 bits"
"""Text in the note about a sum that an answer cannot hold."""
_MODULO = "given modulo 2^64"
_DOUBLE = "given as DOUBLE, NaN where the true sum is not known"
_WRAP = 2**64
_SAFE = 2.0**62


def may_wrap(count: npt.NDArray[Any], low: Cells, high: Cells) -> npt.NDArray[np.bool_]:
    """Return the mask of sums that may not fit in int64, by count * min and count * max."""
    widest: npt.NDArray[np.float64] = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
    wide: npt.NDArray[np.bool_] = widest * count >= _SAFE
    return wide


def true_sum(count: int, low: int, high: int, wrapped: int) -> int | None:
    """Return the only s with count * low <= s <= count * high and s = wrapped (mod 2^64); None if it is ambiguous."""
    least, most = count * low, count * high
    first = least + (wrapped - least) % _WRAP
    if first > most or first + _WRAP <= most:
        return None
    return first


def sums_to_double(count: npt.NDArray[Any], low: Cells, high: Cells, wrapped: Cells) -> npt.NDArray[np.float64]:
    """Return the true sums as doubles; NaN if the true one is ambiguous."""
    doubles: npt.NDArray[np.float64] = wrapped.astype(np.float64)
    for i in np.flatnonzero(may_wrap(count, low, high)):
        exact = true_sum(int(count[i]), int(low[i]), int(high[i]), int(wrapped[i]))
        doubles[i] = np.nan if exact is None else float(exact)
    return doubles


def wide_cells(stats: Mapping[str, Cells], whole: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    """Return the mask of sums of several integers that may not fit in int64; None if there is none or if `min` and
    `max`, which tell, are not among the statistics. `whole`: the series of integers."""
    if not {"min", "max"} <= stats.keys():
        return None
    wide = may_wrap(stats["count"], stats["min"], stats["max"]) & whole[:, None] & (stats["count"] > 1)
    return wide if wide.any() else None


def as_double_note(note: str) -> str:
    """Turn a note of `wrap_notes` into that of an answer that gives these sums as doubles; others stay."""
    return note.replace(_MODULO, _DOUBLE) if BEYOND_64_BITS in note else note


def wrap_notes(
    stats: Mapping[str, Cells], whole: npt.NDArray[np.bool_], name_of: Callable[[int], str]
) -> tuple[str, ...]:
    """Return a note per name with sums that do not fit in the 64 bits of an answer; matrices are (series, buckets)."""
    count = stats["count"]
    wide = may_wrap(count, stats["min"], stats["max"]) & whole[:, None] & (count > 0)
    wrapped: dict[str, int] = {}
    for at in map(tuple, np.argwhere(wide).tolist()):
        exact = true_sum(*(int(stats[name][at]) for name in ("count", "min", "max", "sum")))
        if exact is None or not INT64_MIN <= exact <= INT64_MAX:
            name = name_of(at[0])
            wrapped[name] = wrapped.get(name, 0) + 1
    return tuple(f"sum of {name} {BEYOND_64_BITS} in {n} buckets: {_MODULO}" for name, n in wrapped.items())
