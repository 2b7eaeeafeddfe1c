"""Windows of raw samples that grow: those that begin with the same sample are read once, and not once each.

So a window that reaches back to the first sample of its series takes n steps for n samples, and not n * n / 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from artimon.model.windows.cells import DOUBLE, Bools, Floats, Ints, Types

WORTH = 4
"""So many times more cells in the windows than in what they share, and it is worth it."""
_EXACT = 2.0**62
Grown = Callable[[Ints, bool], Ints]
"""Of the cells of a series (and whether they are DOUBLE) the cells of the windows of the first 1, 2, 3 … of them."""


class Windows(NamedTuple):
    """Samples begin .. end - 1 of the series `owner`, which end at `until`; none is empty. By owner, then by end."""

    owner: Ints
    begin: Ints
    end: Ints
    until: Ints


def run_growing(
    name: str, windows: Windows, cells: Ints, types: Types, ended_ms: Ints | None
) -> tuple[Ints, Bools] | None:
    """Cell of each window, and where its series has not ended; None where this is no way to do it."""
    here = np.ones(len(windows.owner), np.bool_)
    if name == "count":
        return windows.end - windows.begin, here
    if name == "first":
        return cells.take(windows.begin), here
    if name == "last":
        if ended_ms is not None:
            ended = ended_ms.take(windows.owner)
            here = ~((ended > 0) & (windows.until >= ended))
        return cells.take(windows.end - 1), here
    grown = GROWN.get(name)
    if grown is None or not len(windows.owner):
        return None
    bounds = np.append(np.flatnonzero(np.diff(windows.begin, prepend=windows.begin[0] - 1)), len(windows.begin))
    shared = int((windows.end[bounds[1:] - 1] - windows.begin[bounds[:-1]]).sum())
    if int((windows.end - windows.begin).sum()) < WORTH * shared:
        return None
    out = np.empty(len(windows.owner), np.int64)
    for first, last in _pairs(bounds):
        begin, end = int(windows.begin[first]), int(windows.end[last - 1])
        double = bool(types[windows.owner[first]] == DOUBLE)
        with np.errstate(all="ignore"):
            found = grown(cells[begin:end], double)
        out[first:last] = found.take(windows.end[first:last] - 1 - begin)
    return out, here


def _pairs(bounds: Ints) -> Iterator[tuple[int, int]]:
    return zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)


def _extremes(function: np.ufunc) -> Grown:
    def grown(cells: Ints, double: bool) -> Ints:
        if double:
            return np.asarray(function.accumulate(cells.view(np.float64))).view(np.int64)
        return np.asarray(function.accumulate(cells))

    return grown


def _sums(cells: Ints, double: bool) -> Floats:
    """Each added up from its oldest sample on; whole numbers exactly where int64 holds the sum."""
    if double:
        return np.cumsum(cells.view(np.float64))
    floats = cells.astype(np.float64)
    largest = np.maximum.accumulate(np.abs(floats))
    fits = largest * np.arange(1, len(cells) + 1) < _EXACT
    return np.where(fits, np.cumsum(cells).astype(np.float64), np.cumsum(floats))


def _means(cells: Ints, double: bool) -> Ints:
    return (_sums(cells, double) / np.arange(1, len(cells) + 1)).view(np.int64)


GROWN: Mapping[str, Grown] = MappingProxyType(
    {
        "min": _extremes(np.minimum),
        "max": _extremes(np.maximum),
        "sum": lambda cells, double: _sums(cells, double).view(np.int64),
        "mean": _means,
    }
)
