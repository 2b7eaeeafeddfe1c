"""Folds over overlapping windows of raw samples (sparse table): each window is a few blocks of 1, 2, 4, 8 … samples,
and all blocks of one size are computed at once from blocks of half the size.

So windows that slide, or reach back to the first sample of their series, take n * log n steps for n samples, not
n * n."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import DOUBLE, Bools, Floats, Ints, Types
from artimon.compute.checkpoint import checkpoint
from artimon.compute.statistics import MAX, MIN, Fold

MIN_SHARING = 8
"""Mean number of samples per window from which sharing is faster."""
_EXACT = 2.0**62
N = TypeVar("N", bound=np.generic)


class SampleWindows(NamedTuple):
    """Windows of the samples begin .. end - 1 of series `owner`, with end time `until`; none is empty. Sorted by owner,
    then by end."""

    owner: Ints
    begin: Ints
    end: Ints
    until: Ints

    def select(self, some: Bools) -> SampleWindows:
        """Return the chosen windows."""
        return SampleWindows(*(column[some] for column in self))


class SharedFold(NamedTuple):
    """`run` maps windows and all samples, as int64 or as float64, to the value of each window."""

    run: Callable[[SampleWindows, npt.NDArray[Any]], npt.NDArray[Any]]
    cheap: bool = False
    """True if it reads at most one sample of a window."""
    ends: bool = False
    """True if a series has no value after its end."""


def run_shared(
    shared: SharedFold | None, windows: SampleWindows, cells: Ints, types: Types, ended_ms: Ints | None
) -> tuple[Ints, Bools] | None:
    """Return the cell of each window and the mask of series that have not ended; None if sharing is not supported or
    not faster."""
    if shared is None:
        return None
    if not shared.cheap and int((windows.end - windows.begin).sum()) < MIN_SHARING * len(windows.owner):
        return None
    here = np.ones(len(windows.owner), np.bool_)
    if shared.ends and ended_ms is not None:
        ended = ended_ms.take(windows.owner)
        here = ~((ended > 0) & (windows.until >= ended))
    if shared.cheap:
        return shared.run(windows, cells), here
    out = np.empty(len(windows.owner), np.int64)
    double = types.take(windows.owner) == DOUBLE
    for some, values in ((double, cells.view(np.float64)), (~double, cells)):
        if some.any():
            with np.errstate(all="ignore"):
                out[some] = shared.run(windows.select(some), values).view(np.int64)
    return out, here


def _blocks(join: np.ufunc, windows: SampleWindows, values: npt.NDArray[N], neutral: float) -> npt.NDArray[N]:
    """Fold the samples of each window with `join`, beginning with `neutral`."""
    lengths, at = windows.end - windows.begin, windows.begin.copy()
    out, size = np.full(len(at), neutral, values.dtype), 1
    most = int(lengths.max(initial=0))
    while True:
        checkpoint()
        rows = np.flatnonzero(lengths & size)
        out[rows] = join(out[rows], values[at[rows]])
        at[rows] += size
        if most < 2 * size:
            return out
        values, size = join(values[:-size], values[size:]), 2 * size


def _extreme(fold: Fold) -> SharedFold:
    def run(windows: SampleWindows, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return _blocks(fold.join, windows, values, fold.whole if values.dtype == np.int64 else fold.real)

    return SharedFold(run)


def _sums(windows: SampleWindows, values: npt.NDArray[Any]) -> Floats:
    """Return sums; those of integers are exact if they certainly fit in int64."""
    if values.dtype == np.float64:
        return _blocks(np.add, windows, values, 0.0)
    floats = values.astype(np.float64)
    lengths, sizes = windows.end - windows.begin, np.abs(floats)
    exact = _blocks(np.add, windows, values, 0).astype(np.float64)
    if sizes.max(initial=0.0) * lengths.max(initial=0) < _EXACT:
        return exact
    fits = _blocks(np.maximum, windows, sizes, 0.0) * lengths < _EXACT
    return np.where(fits, exact, _blocks(np.add, windows, floats, 0.0))


def _means(windows: SampleWindows, values: npt.NDArray[Any]) -> Floats:
    return np.asarray(_sums(windows, values) / (windows.end - windows.begin))


OF_COUNT = SharedFold(lambda windows, _: windows.end - windows.begin, cheap=True)
OF_FIRST = SharedFold(lambda windows, cells: cells.take(windows.begin), cheap=True)
OF_LAST = SharedFold(lambda windows, cells: cells.take(windows.end - 1), cheap=True, ends=True)
OF_MIN, OF_MAX = _extreme(MIN), _extreme(MAX)
OF_SUM, OF_MEAN = SharedFold(_sums), SharedFold(_means)
