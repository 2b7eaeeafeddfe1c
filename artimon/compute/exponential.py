"""Window functions of exponential smoothing, oldest value first: ewma and holt."""

from __future__ import annotations

import numpy as np

from artimon.compute.cells import Bools, Floats
from artimon.compute.function import ROW, Example, Function
from artimon.compute.panes import Pane, last_value_function
from artimon.compute.params import Args, Param


def exponential(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    """Exponentially weighted mean: starts at the oldest value and moves by `alpha` of the distance to each next one."""
    alpha, count = args["alpha"], pane.count()
    if pane.has_no_gaps:
        return _full_exponential(pane, alpha), count > 0
    level, begun = pane.zeros(), np.zeros(count.shape, np.bool_)
    for values, here in pane.folds():
        moved = np.where(begun, alpha * values + (1 - alpha) * level, values)
        level = np.where(here, moved, level)
        begun |= here
    return level, count > 0


def double_exponential(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    """Holt's level. The level starts at the oldest value, the trend at the difference of the two oldest."""
    alpha, beta, count = args["alpha"], args["beta"], pane.count()
    if pane.has_no_gaps:
        return _full_double(pane, alpha, beta), count >= 2
    level, trend, seen = pane.zeros(), pane.zeros(), np.zeros(count.shape, np.int64)
    for values, here in pane.folds():
        trend = np.where(here & (seen == 1), values - level, trend)
        moved = np.where(seen > 0, alpha * values + (1 - alpha) * (level + trend), values)
        turned = np.where(seen > 0, beta * (moved - level) + (1 - beta) * trend, trend)
        level, trend = np.where(here, moved, level), np.where(here, turned, trend)
        seen += here
    return level, count >= 2


def _full_exponential(pane: Pane, alpha: float) -> Floats:
    """`exponential` of a full pane without masks; bitwise equal."""
    columns = pane.columns()
    level, part = pane.zeros(), pane.zeros()
    level += next(columns)
    for values in columns:
        np.multiply(values, alpha, out=part)
        level *= 1 - alpha
        level += part
    return level


def _full_double(pane: Pane, alpha: float, beta: float) -> Floats:
    """`double_exponential` of a full pane without masks; bitwise equal."""
    columns = pane.columns()
    level, trend, moved, part = (pane.zeros() for _ in range(4))
    level += next(columns)
    for at, values in enumerate(columns):
        if at == 0:
            np.subtract(values, level, out=trend)
        np.add(level, trend, out=moved)
        moved *= 1 - alpha
        np.multiply(values, alpha, out=part)
        moved += part
        np.subtract(moved, level, out=part)
        part *= beta
        trend *= 1 - beta
        trend += part
        level, moved = moved, level
    return level


_ALPHA = Param(
    "alpha", "number", above=0, below=1, summary="weight of a value for the level, between 0 and 1", unit="share"
)
_BETA = Param("beta", "number", above=0, below=1, summary="weight of a step for the trend", unit="share")
_WEIGHT = Param(
    "alpha", "number", above=0, most=1, summary="weight of a value, more than 0 and at most 1", unit="share"
)
FUNCTIONS = (
    Function(
        name="ewma",
        summary="Exponentially weighted mean (DOUBLE): begins at the oldest value; later ones have the weight `alpha`.",
        example="fetch('load').ewma(\"10m\", alpha=0.3)",
        case=Example(ROW, (2.0, 6.5, 8.0, 20.0)),
        case_args="0.75",
        statistics=("last",),
        run=last_value_function(exponential, moves=True),
        params=(_WEIGHT,),
    ),
    Function(
        name="holt",
        summary="Level at the newest value by double exponential smoothing (DOUBLE); missing below two values.",
        example="fetch('load').holt(\"10m\", alpha=0.5, beta=0.1)",
        case=Example(ROW, (None, 8.0, None, None)),
        case_args="0.5, 0.1",
        statistics=("last",),
        run=last_value_function(double_exponential, moves=True),
        pair=True,
        params=(_ALPHA, _BETA),
    ),
)
