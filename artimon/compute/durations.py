"""Window functions of when: time of an extreme, time since a change, longest run of true values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import DOUBLE, INTEGER, Bools, Cells, Ints, doubles, of_type
from artimon.compute.changes import differing, first_present, run_in_chunks
from artimon.compute.checkpoint import checkpoint
from artimon.compute.function import ROW, Example, Function
from artimon.compute.panes import has_many_samples
from artimon.compute.sample_order import double_order
from artimon.compute.window_frames import WindowFrame, integer_totals, pick, window_folds
from artimon.model.values import INT64_MIN


def time_of_extreme(greatest: bool, data: Arrays, frame: WindowFrame) -> Cells:
    """Time of the greatest or least value, the newest of several; NaN only if nothing else."""
    order = np.argsort(_keys(data, greatest), axis=1, kind="stable")
    ranks = np.empty(order.shape, np.int64)
    np.put_along_axis(ranks, order, np.arange(order.shape[1], dtype=np.int64)[None, :], axis=1)
    best = window_folds(np.maximum, np.where(data.present, ranks, -1), frame)
    return of_type(INTEGER, pick(data.stats["last_time"], pick(order, best)), best >= 0)


def _keys(data: Arrays, greatest: bool) -> Ints:
    """Return keys (series, columns) that sort like the values: NaN first, the wanted extreme last."""
    cells = data.stats["last"]
    keys = cells.copy() if greatest else ~cells
    double = data.types == DOUBLE
    if double.any():
        values = np.ascontiguousarray(cells[double]).view(np.float64) + 0.0  # -0.0 is 0.0
        own = double_order(values.view(np.int64))
        keys[double] = np.where(np.isnan(values), INT64_MIN, own if greatest else ~own)
    return keys


def since_change(data: Arrays, frame: WindowFrame) -> Cells:
    """Seconds from the newest change of the value to the time of the point."""
    columns = np.where(differing(data), np.arange(data.grid.n, dtype=np.int64), -1)
    newest = np.maximum.accumulate(columns, axis=1)[:, frame.ends]
    first, some = first_present(data.present, frame)
    ages = frame.end_ms - frame.lookahead_ms - pick(data.stats["last_time"], newest)
    return doubles(np.divide(ages, 1000.0, dtype=np.float64), some & (newest > first))


def longest_streak(data: Arrays, frame: WindowFrame) -> Cells:
    """Seconds of the longest run of buckets that are true; an empty bucket ends a run."""
    columns = np.arange(data.grid.n, dtype=np.int64)
    streaks = columns - np.maximum.accumulate(np.where(_truths(data), -1, columns), axis=1)
    first = frame.starts + 1
    longest = np.zeros((data.rows, len(first)), np.int64)
    for column in range(frame.width):
        checkpoint()
        np.maximum(longest, np.minimum(streaks[:, first + column], column + 1), out=longest)
    some = integer_totals(data.present.astype(np.int64), frame) > 0
    return doubles(np.multiply(longest, data.grid.step_ms / 1000.0, dtype=np.float64), some)


def _truths(data: Arrays) -> Bools:
    cells = data.stats["last"]
    truths = cells != 0
    double = data.types == DOUBLE
    if double.any():
        values = np.ascontiguousarray(cells[double]).view(np.float64)
        truths[double] = (values != 0) & ~np.isnan(values)
    return np.asarray(truths & data.present)


def _function(
    name: str,
    summary: str,
    example: str,
    rows: tuple[float | None, ...],
    unit: str,
    run: Callable[[Arrays, WindowFrame], Cells],
    **more: bool,
) -> Function:
    return Function(
        name=name,
        summary=summary,
        example=example,
        case=Example(ROW, rows),
        unit=unit,
        statistics=("last", "last_time"),
        run=lambda data, frame, _: Mapped(run_in_chunks(run, data, frame), has_many_samples(data, frame)),
        **more,  # type: ignore[arg-type]
    )


FUNCTIONS = (
    _function(
        "time_of_max",
        "Time of the greatest value (INTEGER, epoch ms), the newest of several; NaN only if nothing else.",
        "fetch('load').time_of_max(\"1d\")",
        (10.0, 20.0, 20.0, 40.0),
        "ms since the epoch",
        partial(time_of_extreme, True),
        grid_only=True,
    ),
    _function(
        "time_of_min",
        "Time of the smallest value (INTEGER, epoch ms), the newest of several; NaN only if nothing else.",
        "fetch('disk.free').time_of_min(\"1d\")",
        (10.0, 10.0, 20.0, 40.0),
        "ms since the epoch",
        partial(time_of_extreme, False),
        grid_only=True,
    ),
    _function(
        "since_change",
        "Seconds since the newest change of the value (DOUBLE), of any type; missing where none is in the window.",
        "fetch('build.version').since_change(\"1d\")",
        (None, 0.0, None, None),
        "seconds",
        since_change,
        strings=True,
        pair=True,
    ),
    _function(
        "longest_streak",
        "Longest run of buckets that are true (numbers: not 0), in seconds (DOUBLE); an empty bucket ends a run.",
        "(fetch('load') > 5).longest_streak(\"1d\")",
        (0.01, 0.02, 0.01, 0.01),
        "seconds",
        longest_streak,
        grid_only=True,
    ),
)
