"""Transforms over a window of each series: its correlation with a partner, and its profile by parts of the calendar."""

from __future__ import annotations

import numpy as np

from artimon.compute.function import mask_windows
from artimon.compute.functions import FUNCTIONS
from artimon.compute.params import NO_ARGS
from artimon.compute.regression import correlations
from artimon.compute.window_frames import WindowFrame
from artimon.model.grid import Grid
from query_dsl.functions.join import check_distinct, pair_rows
from query_dsl.functions.points_calendar import PARTS, part_of
from query_dsl.functions.registry import Argument
from query_dsl.functions.step import Step, StepCall
from query_dsl.results.bucket_data import from_cells
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import Bools, Cells, Example, SeriesKey, as_floats, doubles
from query_dsl.tree.nodes import LabelMatching
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_duration

MAX_COLUMNS = 20_000
"""Maximum number of buckets per series that they read, as for window functions."""
_OF_PARTS = ("mean", "sum", "min", "max", "count")
_DIGITS = {"weekday": 1, "yearday": 3, "year": 4}


def _wide_grid(asked: StepCall) -> tuple[Grid, int, Bools]:
    """Return the grid with all windows, the columns of a window, and the mask of windows that memory does not hold."""
    grid, window_ms = asked.grid, asked.args["window"]
    width = -(-window_ms // grid.step_ms)
    if window_ms % grid.step_ms:
        rounded = format_duration(width * grid.step_ms)
        asked.context.note(f"{asked.entry.name}: the window is rounded up to {rounded}, a multiple of the step")
    wide = Grid(grid.end_ms, grid.step_ms, grid.n + width - 1)
    if wide.n > MAX_COLUMNS:
        raise QueryError(f"{asked.entry.name} would read {wide.n} buckets a series: use at most {MAX_COLUMNS}")
    held = None if asked.context.partial_windows else asked.context.columns_held_before(grid)
    cut = np.zeros(grid.n, np.bool_) if held is None else np.arange(grid.n) + held < width - 1
    return wide, width, np.asarray(cut)


def _corr(asked: StepCall) -> Matrix:
    context, (wide, width, cut) = asked.context, _wide_grid(asked)
    left = context.numeric_only(asked.child(wide), "corr")
    right = context.numeric_only(asked.operand("other", wide), "corr: other")
    pairs = pair_rows(left.keys, right.keys, LabelMatching(on=asked.args["on"]), "corr")
    context.note(*pairs.notes)
    x, y = (
        as_floats(side.types[rows], np.ascontiguousarray(side.cells[rows]))
        for side, rows in ((left, pairs.left), (right, pairs.right))
    )
    values, known = correlations(x, y, left.present[pairs.left] & right.present[pairs.right], width)
    return Matrix.in_order(pairs.keys, asked.grid, doubles(values, known & ~cut))


def _profile(asked: StepCall) -> Matrix:
    context, args, (wide, width, cut) = asked.context, asked.args, _wide_grid(asked)
    part, function = args["part"], FUNCTIONS[args["reducer"]]
    found = context.numeric_only(asked.child(wide), "profile")
    parts, known = part_of(part, args["zone"], wide.ends() - 1)
    ends = asked.grid.ends()
    frame = WindowFrame(np.arange(width - 1, wide.n), width, ends, width * wide.step_ms, 0)
    keys, columns = list[SeriesKey](), []
    for value in np.unique(parts[known]).tolist():
        context.check()
        column = found.column._replace(present=found.present & known & (parts == value))
        data = from_cells(found.keys, wide, column, ())
        made = mask_windows(function.of(data, frame, NO_ARGS), function, data, frame, 1, False).column
        columns.append(made._replace(present=made.present & ~cut))
        more = {part: f"{value:0{_DIGITS.get(part, 2)}}"}
        keys += [SeriesKey(key.name, tuple(sorted((dict(key.labels) | more).items()))) for key in found.keys]
    check_distinct(keys, keys, "profile", f"rename the label {part}")
    whole = Cells(*(np.concatenate([column[i] for column in columns]) for i in range(3)))
    return Matrix.in_order(keys, asked.grid, whole)


_ROW = (1.0, None, 5.0)
ENTRIES = (
    Step(
        name="corr",
        summary="Correlation (Pearson, DOUBLE, -1 to 1) of a series with its partner in another query, over the "
        "buckets of the window in which both have a value; missing below two, NaN where one side does not vary.",
        example='fetch(\'requests\').rate("5m").corr(fetch(\'cpu.load\'), "1h", on=["host"])',
        case=Example((_ROW,), (None, None, 1.0)),
        arguments=(
            Argument("window", "duration", "length of the window before each point"),
            Argument("on", "labels", "labels in which the partners agree; None: all", None),
        ),
        family="transform",
        operands=("other",),
        run=_corr,
        unit="none",
    ),
    Step(
        name="profile",
        summary="One series for each hour (or weekday, month, …) in the window, which the label `hour` names: the mean "
        "of the buckets of that hour.",
        example="fetch('load').profile('hour', '7d', zone='Europe/Berlin')",
        case=Example((_ROW,), (1.0, 1.0, 3.0)),
        case_args="'hour', '3m'",
        arguments=(
            Argument("part", "choice", "part of the date or time", choices=tuple(PARTS)),
            Argument("window", "duration", "length of the window before each point"),
            Argument("reducer", "choice", "function of the values", "mean", choices=_OF_PARTS),
            Argument("zone", "zone", "IANA name of the time zone", "UTC"),
        ),
        family="transform",
        run=_profile,
    ),
)
