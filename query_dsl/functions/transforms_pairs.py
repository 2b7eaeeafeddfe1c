"""Transforms of two series: their correlation in a window."""

from __future__ import annotations

import numpy as np

from artimon.compute.correlation import correlations
from artimon.model.grid import Grid
from query_dsl.functions.join import pair_rows
from query_dsl.functions.registry import Argument
from query_dsl.functions.step import Step, StepCall
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import Example, as_floats, doubles
from query_dsl.tree.nodes import LabelMatching
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_duration

MAX_COLUMNS = 20_000
"""Maximum number of buckets per series that it reads, as for window functions."""


def _corr(asked: StepCall) -> Matrix:
    grid, context = asked.grid, asked.context
    width = -(-asked.args["window"] // grid.step_ms)
    if asked.args["window"] % grid.step_ms:
        rounded = format_duration(width * grid.step_ms)
        context.note(f"corr: the window is rounded up to {rounded}, a multiple of the step")
    wide = Grid(grid.end_ms, grid.step_ms, grid.n + width - 1)
    if wide.n > MAX_COLUMNS:
        raise QueryError(f"corr would read {wide.n} buckets a series: use at most {MAX_COLUMNS}")
    left = context.numeric_only(asked.child(wide), "corr")
    right = context.numeric_only(asked.operand("other", wide), "corr: other")
    pairs = pair_rows(left.keys, right.keys, LabelMatching(on=asked.args["on"]), "corr")
    context.note(*pairs.notes)
    x, y = (
        as_floats(side.types[rows], np.ascontiguousarray(side.cells[rows]))
        for side, rows in ((left, pairs.left), (right, pairs.right))
    )
    return Matrix.in_order(
        pairs.keys, grid, doubles(*correlations(x, y, left.present[pairs.left] & right.present[pairs.right], width))
    )


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
)
