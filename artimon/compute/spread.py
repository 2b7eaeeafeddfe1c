"""Window functions of dispersion: quantiles, variance, median absolute deviation, and z-score of the newest value."""

from __future__ import annotations

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.function import ROW, Example, Function
from artimon.compute.panes import Pane, last_value_function
from artimon.compute.params import Args, Param
from artimon.compute.quantiles import METHODS, median_of, quantile_of

NORMAL = 0.6745
"""Median deviation of a normal distribution in standard deviations."""


def quantile(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    count = pane.count()
    out = quantile_of(pane.sorted(), count, args["q"], args["method"])
    return np.where(pane.has_nan(), np.nan, out), count > 0


def median(pane: Pane, _args: Args) -> tuple[Floats, Bools]:
    count = pane.count()
    return np.where(pane.has_nan(), np.nan, median_of(pane.sorted(), count)), count > 0


def variance(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    """Variance in two passes over differences to the newest value: no cancellation, and 0 for equal values."""
    count = pane.count()
    _, squares = _moments(pane, count)
    return squares / (count - args["ddof"]), count > args["ddof"]


def deviation(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    out, known = variance(pane, args)
    return np.sqrt(out), known


def median_deviation(pane: Pane, _args: Args) -> tuple[Floats, Bools]:
    """Median of the distances to the median."""
    out, count = _median_deviation(pane)[1:]
    return out, count > 0


def score(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    """Distance of the newest value from the mean in standard deviations; robust: from the median, in scaled MADs."""
    if args["robust"]:
        middle, spread, count = _median_deviation(pane)
        return NORMAL * (pane.newest() - middle) / spread, count >= 2
    count = pane.count()
    mean, squares = _moments(pane, count)
    known = (count >= 2) & (count > args["ddof"])
    return -mean / np.sqrt(squares / (count - args["ddof"])), known


def _moments(pane: Pane, count: Ints) -> tuple[Floats, Floats]:
    """Return the mean difference to the newest value and the sum of squares around the mean, (rows, outputs)."""
    if pane.has_no_gaps:
        return _full_moments(pane)
    base, zero = pane.newest(), pane.zeros()
    mean = zero.copy()
    for values, here in pane.folds():
        mean += np.where(here, values - base, zero)
    mean /= np.maximum(count, 1)
    squares = zero.copy()
    for values, here in pane.folds():
        off = np.where(here, values - base - mean, zero)
        squares += off * off
    return mean, squares


def _full_moments(pane: Pane) -> tuple[Floats, Floats]:
    """`_moments` of a full pane without masks; bitwise equal."""
    base, mean, squares, off = pane.newest(), pane.zeros(), pane.zeros(), pane.zeros()
    for values in pane.columns():
        np.subtract(values, base, out=off)
        mean += off
    mean /= pane.width
    for values in pane.columns():
        np.subtract(values, base, out=off)
        off -= mean
        off *= off
        squares += off
    return mean, squares


def _median_deviation(pane: Pane) -> tuple[Floats, Floats, Ints]:
    """Return median, median distance to it, and number of values, (rows, outputs)."""
    count, ordered = pane.count(), pane.sorted()
    poisoned = pane.has_nan()
    middle = np.where(poisoned, np.nan, median_of(ordered, count))
    off = np.abs(ordered - middle[..., None])
    # inf - inf is NaN and would be sorted last: it makes the result NaN like any NaN
    strange = np.isinf(middle) & (count > 0)
    off.sort(axis=2)
    spread = np.where(poisoned | strange, np.nan, median_of(off, count))
    return middle, spread, count


_DDOF = Param(
    "ddof",
    "integer",
    1,
    least=0,
    summary="delta degrees of freedom; the divisor is the number of values less this",
    unit="values",
)
_Q = Param("q", "number", least=0, most=1, summary="share of the values below it, 0 to 1", unit="share")
_METHOD = Param(
    "method",
    "choice",
    "linear",
    choices=tuple(METHODS),
    summary="interpolation between two values, by its name in numpy",
)
_ROBUST = Param("robust", "flag", False, summary="median for the mean, mad / 0.6745 for the deviation")
FUNCTIONS = (
    Function(
        name="quantile",
        summary="Value below which the share `q` of the values lies (DOUBLE); NaN where one of them is NaN.",
        example='fetch(\'latency\').map("quantile", "15m", 0.9)',
        case=Example(ROW, (2.0, 6.5, 8.0, 20.0)),
        case_args="0.75",
        statistics=("last",),
        run=last_value_function(quantile, moves=True, blocks=True),
        params=(_Q, _METHOD),
    ),
    Function(
        name="median",
        summary="The middle value, or the mean of the two middle ones (DOUBLE); NaN where one value is NaN.",
        example='fetch(\'latency\').map("median", "15m")',
        case=Example(ROW, (2.0, 5.0, 8.0, 20.0)),
        statistics=("last",),
        run=last_value_function(median, moves=True, blocks=True),
    ),
    Function(
        name="sd",
        summary="Standard deviation (DOUBLE), in two passes; missing where there are no more than `ddof` values.",
        example='fetch(\'latency\').map("sd", "15m")',
        case=Example(ROW, (None, 18.0**0.5, None, None)),
        statistics=("last",),
        run=last_value_function(deviation),
        pair=True,
        params=(_DDOF,),
    ),
    Function(
        name="var",
        summary="Variance (DOUBLE), in two passes; missing where there are no more than `ddof` values.",
        example='fetch(\'latency\').map("var", "15m")',
        case=Example(ROW, (None, 18.0, None, None)),
        unit="of the series, squared",
        statistics=("last",),
        run=last_value_function(variance),
        pair=True,
        params=(_DDOF,),
    ),
    Function(
        name="mad",
        summary="Median of the distances to the median, not scaled (DOUBLE).",
        example='fetch(\'latency\').map("mad", "15m")',
        case=Example(ROW, (0.0, 3.0, 0.0, 0.0)),
        statistics=("last",),
        run=last_value_function(median_deviation, blocks=True),
    ),
    Function(
        name="zscore",
        summary="Distance of the newest value from the mean in standard deviations (DOUBLE); missing below two values.",
        example="fetch('latency').zscore(\"15m\", robust=True)",
        case=Example(ROW, (None, 3 / 18.0**0.5, None, None)),
        unit="standard deviations",
        statistics=("last",),
        run=last_value_function(score, blocks="robust"),
        pair=True,
        params=(_ROBUST, _DDOF),
    ),
)
