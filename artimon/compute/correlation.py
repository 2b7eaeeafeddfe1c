"""Correlation of two series in each window."""

from __future__ import annotations

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.checkpoint import checkpoint

BLOCK_CELLS = 1 << 19
"""Values of all windows that are computed together; bounds memory: 4 MB an array."""


def correlations(x: Floats, y: Floats, both: Bools, width: int) -> tuple[Floats, Bools]:
    """Return Pearson's coefficient of every window of `width` columns and the mask of windows with two pairs,
    (series, outputs). NaN where one side does not vary; `both`: True where both have a value."""
    outputs = both.shape[1] - width + 1
    out, known = np.empty((len(both), outputs)), np.empty((len(both), outputs), np.bool_)
    each = max(1, BLOCK_CELLS // width)
    view = np.lib.stride_tricks.sliding_window_view
    for row in range(len(both)):
        windows = view(x[row], width), view(y[row], width), view(both[row], width)
        for start in range(0, outputs, each):
            checkpoint()
            part = slice(start, start + each)
            a, b, there = (side[part] for side in windows)
            count = there.sum(axis=1, keepdims=True)
            with np.errstate(all="ignore"):
                off_a, off_b = _distances(a, there, count), _distances(b, there, count)
                spread = np.sqrt((off_a * off_a).sum(axis=1) * (off_b * off_b).sum(axis=1))
                out[row, part] = np.clip((off_a * off_b).sum(axis=1) / spread, -1.0, 1.0)
            known[row, part] = count[:, 0] >= 2
    return out, known


def _distances(values: Floats, there: Bools, count: Ints) -> Floats:
    """Return the distances to the mean, as shares of the greatest so that no square overflows; 0 where missing. The
    first value is subtracted first: equal values give NaN."""
    base = np.take_along_axis(values, there.argmax(axis=1)[:, None], axis=1)
    off = np.where(there, values - base, 0.0)
    off = np.where(there, off - off.sum(axis=1, keepdims=True) / count, 0.0)
    return np.asarray(off / np.abs(off).max(axis=1, keepdims=True))
