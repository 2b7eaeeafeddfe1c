"""Deviation of a series from its values at the same time of previous weeks (a seasonal z-score)."""

from __future__ import annotations

import numpy as np

from artimon.compute.quantiles import median_of
from artimon.compute.spread import NORMAL
from artimon.model.grid import Grid
from query_dsl.functions.registry import Argument
from query_dsl.functions.step import Step, StepCall
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import Bools, Example, Floats, Ints, SeriesKey, as_floats, doubles
from query_dsl.tree.query_errors import NothingSelected, QueryError
from query_dsl.tree.times import format_duration

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
DEVIATION_WEEKS = 4
MAX_WEEKS = 52
MAX_CELLS = 10_000_000
"""Maximum number of values over all weeks, to bound memory: 80 MB as float64."""
BLOCK_CELLS = 500_000
"""Maximum number of values that are scored together."""


def _deviation(asked: StepCall) -> Matrix:
    grid, weeks = asked.grid, asked.args["weeks"]
    if WEEK_MS % grid.step_ms:
        raise QueryError(
            f"deviation: a week is not a multiple of the step {format_duration(grid.step_ms)}; "
            'choose one that is, as in .bucketize("mean", "1h") before it'
        )
    now = _means(asked, 0)
    if len(now) * grid.n * weeks > MAX_CELLS:
        raise QueryError(
            f"deviation of {len(now)} series over {weeks} weeks of {grid.n} buckets is more than {MAX_CELLS} values: "
            "select fewer series, a shorter range or fewer weeks"
        )
    rows = {key: row for row, key in enumerate(now.keys)}
    past = np.full((len(now), grid.n, weeks), np.nan)
    known = np.zeros(past.shape, np.bool_)
    for week in range(weeks):
        asked.context.check()
        _put(rows, _means(asked, week + 1), past[:, :, week], known[:, :, week])
    values = as_floats(now.types, now.column.cells)
    count = known.sum(axis=2)
    score, run = np.empty(values.shape), _robust if asked.args["robust"] else _plain
    each = max(1, BLOCK_CELLS // (grid.n * weeks))
    with np.errstate(all="ignore"):
        for start in range(0, len(now), each):
            asked.context.check()
            part = slice(start, start + each)
            score[part] = run(values[part], past[part], known[part], count[part])
    return Matrix(now.keys, grid, doubles(score, now.present & (count >= 2)))


def _means(asked: StepCall, weeks: int) -> Matrix:
    """Return the window means `weeks` weeks ago; without series if none matches there."""
    earlier = Grid(asked.grid.end_ms - weeks * WEEK_MS, asked.grid.step_ms, asked.grid.n)
    try:
        return asked.window("mean", asked.args["window"], earlier)
    except NothingSelected:
        if not weeks:
            raise
        nothing = np.zeros((0, earlier.n))
        return Matrix((), earlier, doubles(nothing, nothing > 0))


def _put(rows: dict[SeriesKey, int], found: Matrix, values: Floats, known: Bools) -> None:
    """Copy the means of one week to the rows of the same series."""
    pairs = [(rows[key], i) for i, key in enumerate(found.keys) if key in rows]
    if pairs:
        into, of = (list(side) for side in zip(*pairs, strict=True))
        known[into] = found.present[of]
        values[into] = np.where(found.present[of], as_floats(found.types[of], found.column.cells[of]), np.nan)


def _plain(values: Floats, past: Floats, known: Bools, count: Ints) -> Floats:
    """Return (value - mean) / standard deviation. The newest known week is subtracted first, so that rounding gives
    equal weeks no variance."""
    base = np.take_along_axis(past, known.argmax(axis=2)[:, :, None], axis=2)
    off = np.where(known, past - base, 0.0)
    mean = off.sum(axis=2) / count
    squares = np.where(known, off - mean[:, :, None], 0.0) ** 2
    return np.asarray((values - base[:, :, 0] - mean) / np.sqrt(squares.sum(axis=2) / (count - 1)))


def _robust(values: Floats, past: Floats, known: Bools, count: Ints) -> Floats:
    poisoned = (np.isnan(past) & known).any(axis=2)
    middle = median_of(np.sort(past, axis=2), count)
    spread = median_of(np.sort(np.abs(past - middle[:, :, None]), axis=2), count)
    strange = poisoned | np.isinf(middle)
    return np.where(strange, np.nan, NORMAL * (values - middle) / spread)


DEVIATION = Step(
    name="deviation",
    family="map",
    summary="Distance of a window's mean from those at this hour of earlier weeks, in standard deviations (DOUBLE).",
    example="fetch('orders').deviation(window='1h', weeks=4, robust=True)",
    case=Example(((1.0, None, 4.0),), (None, None, None)),
    case_args="'10ms', 2",
    arguments=(
        Argument("window", "duration", "length of the window before each point", HOUR_MS),
        Argument(
            "weeks",
            "integer",
            "number of earlier weeks to compare with",
            DEVIATION_WEEKS,
            least=1,
            most=MAX_WEEKS,
            unit="weeks",
        ),
        Argument("robust", "flag", "median for the mean, median deviation / 0.6745 for the standard deviation", False),
    ),
    run=_deviation,
    unit="standard deviations",
)
