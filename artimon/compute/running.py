"""Windows of raw samples that share most of theirs: each is made of a few blocks of 1, 2, 4, 8 … samples, and all
blocks of one size are made at once out of those of half the size.

So windows that slide, or reach back to the first sample of their series, take n * log n steps for n samples, and not
n * n."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import DOUBLE, Bools, Floats, Ints, Types
from artimon.compute.statistics import MAX, MIN, Fold

WORTH = 8
"""So many samples a window, on average, and it is worth it."""
_EXACT = 2.0**62
N = TypeVar("N", bound=np.generic)


class Windows(NamedTuple):
    """Samples begin .. end - 1 of the series `owner`, which end at `until`; none is empty. By owner, then by end."""

    owner: Ints
    begin: Ints
    end: Ints
    until: Ints

    def pick(self, some: Bools) -> Windows:
        """Some of them."""
        return Windows(*(column[some] for column in self))


class Shared(NamedTuple):
    """`run`: of windows and all samples, as int64 or as float64, the value of each window."""

    run: Callable[[Windows, npt.NDArray[Any]], npt.NDArray[Any]]
    cheap: bool = False
    """Whether it looks at one sample of a window at most."""
    ends: bool = False
    """Whether a series that has ended has no value."""


def run_shared(
    shared: Shared | None, windows: Windows, cells: Ints, types: Types, ended_ms: Ints | None
) -> tuple[Ints, Bools] | None:
    """Cell of each window, and where its series has not ended; None where this is no way to do it."""
    if shared is None:
        return None
    if not shared.cheap and int((windows.end - windows.begin).sum()) < WORTH * len(windows.owner):
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
                out[some] = shared.run(windows.pick(some), values).view(np.int64)
    return out, here


def _blocks(join: np.ufunc, windows: Windows, values: npt.NDArray[N], neutral: float) -> npt.NDArray[N]:
    """What `join` makes of the samples of each window, beginning with `neutral`."""
    lengths, at = windows.end - windows.begin, windows.begin.copy()
    out, size = np.full(len(at), neutral, values.dtype), 1
    most = int(lengths.max(initial=0))
    while True:
        rows = np.flatnonzero(lengths & size)
        out[rows] = join(out[rows], values[at[rows]])
        at[rows] += size
        if most < 2 * size:
            return out
        values, size = join(values[:-size], values[size:]), 2 * size


def _extreme(fold: Fold) -> Shared:
    def run(windows: Windows, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return _blocks(fold.join, windows, values, fold.whole if values.dtype == np.int64 else fold.real)

    return Shared(run)


def _sums(windows: Windows, values: npt.NDArray[Any]) -> Floats:
    """Whole numbers exactly where int64 holds their sum for sure."""
    if values.dtype == np.float64:
        return _blocks(np.add, windows, values, 0.0)
    floats = values.astype(np.float64)
    lengths, sizes = windows.end - windows.begin, np.abs(floats)
    exact = _blocks(np.add, windows, values, 0).astype(np.float64)
    if sizes.max(initial=0.0) * lengths.max(initial=0) < _EXACT:
        return exact
    fits = _blocks(np.maximum, windows, sizes, 0.0) * lengths < _EXACT
    return np.where(fits, exact, _blocks(np.add, windows, floats, 0.0))


def _means(windows: Windows, values: npt.NDArray[Any]) -> Floats:
    return np.asarray(_sums(windows, values) / (windows.end - windows.begin))


OF_COUNT = Shared(lambda windows, _: windows.end - windows.begin, cheap=True)
OF_FIRST = Shared(lambda windows, cells: cells.take(windows.begin), cheap=True)
OF_LAST = Shared(lambda windows, cells: cells.take(windows.end - 1), cheap=True, ends=True)
OF_MIN, OF_MAX = _extreme(MIN), _extreme(MAX)
OF_SUM, OF_MEAN = Shared(_sums), Shared(_means)
