"""Least-squares line through the values of a window over time, relative to their mean time and newest value;
correlation of two series in each window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.checkpoint import checkpoint
from artimon.compute.function import ROW, Example, Function
from artimon.compute.panes import Pane, last_value_function
from artimon.compute.params import Args, Param


class _Line(NamedTuple):
    """Lines of shape (rows, outputs); times are relative to the end of the window, values to the newest one."""

    slope: Floats
    """Growth per millisecond."""
    mean: Floats
    mean_ms: Floats
    known: Bools


def slope(pane: Pane, _args: Args) -> tuple[Floats, Bools]:
    """Slope per second."""
    line = _fit(pane)
    return line.slope * 1000.0, line.known


def prediction(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    """Value of the line `horizon` ms after the time stamp of the window's result."""
    line = _fit(pane)
    ahead_ms = args["horizon"] - pane.frame.lookahead_ms - line.mean_ms
    return pane.newest() + (line.mean + line.slope * ahead_ms), line.known


def _fit(pane: Pane) -> _Line:
    if pane.has_no_gaps:
        return _full_fit(pane)
    count, base = pane.count(), pane.newest()
    zero = pane.zeros()
    some = np.maximum(count, 1)
    mean, mean_ms = zero.copy(), zero.copy()
    first_ms, last_ms = zero + np.inf, zero - np.inf
    for (values, here), at in zip(pane.folds(), pane.offsets_ms(), strict=True):
        mean += np.where(here, values - base, zero)
        mean_ms += np.where(here, at, zero)
        first_ms = np.where(here, np.minimum(first_ms, at), first_ms)
        last_ms = np.where(here, at, last_ms)
    mean /= some
    mean_ms /= some
    both, squares = zero.copy(), zero.copy()
    for (values, here), at in zip(pane.folds(), pane.offsets_ms(), strict=True):
        off = np.where(here, at - mean_ms, zero)
        both += off * np.where(here, values - base - mean, zero)
        squares += off * off
    return _Line(both / squares, mean, mean_ms, (count >= 2) & (last_ms > first_ms))


def _full_fit(pane: Pane) -> _Line:
    """`_fit` of a full pane without masks; bitwise equal."""
    base, mean, mean_ms, off = pane.newest(), pane.zeros(), pane.zeros(), pane.zeros()
    first_ms = last_ms = mean
    for at, (values, ms) in enumerate(zip(pane.columns(), pane.offsets_ms(), strict=True)):
        np.subtract(values, base, out=off)
        mean += off
        mean_ms += ms
        first_ms = np.minimum(first_ms, ms, out=first_ms) if at else ms.copy(order="K")
        last_ms = ms
    mean /= pane.width
    mean_ms /= pane.width
    both, squares, late = pane.zeros(), pane.zeros(), pane.zeros()
    for values, ms in zip(pane.columns(), pane.offsets_ms(), strict=True):
        np.subtract(ms, mean_ms, out=late)
        np.subtract(values, base, out=off)
        off -= mean
        off *= late
        both += off
        late *= late
        squares += late
    known = (last_ms > first_ms) if pane.width >= 2 else np.zeros(mean.shape, np.bool_)
    return _Line(both / squares, mean, mean_ms, known)


_TIMED = ("last", "last_time")
FUNCTIONS = (
    Function(
        name="derivative",
        summary="Slope per second of the least-squares line through the values (DOUBLE); missing below two values.",
        example="fetch('disk.used').derivative(\"1h\")",
        case=Example(ROW, (None, 600.0, None, None)),
        unit="of the series, per second",
        statistics=_TIMED,
        run=last_value_function(slope),
        pair=True,
    ),
    Function(
        name="predict_linear",
        summary="Least-squares line at `horizon` after the time of the point (DOUBLE), to predict a full disk.",
        example='fetch(\'disk.free\').predict_linear("1h", horizon="4h")',
        case=Example(ROW, (None, 14.0, None, None)),
        case_args="'10ms'",
        statistics=_TIMED,
        run=last_value_function(prediction, moves=True),
        pair=True,
        params=(Param("horizon", "duration", summary="how far ahead"),),
    ),
)


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
