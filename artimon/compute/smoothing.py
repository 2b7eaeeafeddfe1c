"""Exponential smoothing of the values of a window, oldest first."""

from __future__ import annotations

import numpy as np

from artimon.compute.cells import Bools, Floats
from artimon.compute.panes import Pane
from artimon.compute.params import Args


def exponential(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    """Each value moves the average by the share `alpha` of its distance; it starts at the oldest."""
    alpha, count = args["alpha"], pane.count()
    if pane.full:
        return _full_exponential(pane, alpha), count > 0
    level, begun = pane.zeros(), np.zeros(count.shape, np.bool_)
    for values, here in pane.folds():
        moved = np.where(begun, alpha * values + (1 - alpha) * level, values)
        level = np.where(here, moved, level)
        begun |= here
    return level, count > 0


def double_exponential(pane: Pane, args: Args) -> tuple[Floats, Bools]:
    """Holt's level and trend: the level starts at the oldest value, the trend at the difference of the two oldest."""
    alpha, beta, count = args["alpha"], args["beta"], pane.count()
    if pane.full:
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
    """The same, bit by bit, without masks."""
    columns = pane.columns()
    level, part = pane.zeros(), pane.zeros()
    level += next(columns)
    for values in columns:
        np.multiply(values, alpha, out=part)
        level *= 1 - alpha
        level += part
    return level


def _full_double(pane: Pane, alpha: float, beta: float) -> Floats:
    """The same, bit by bit, without masks."""
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
