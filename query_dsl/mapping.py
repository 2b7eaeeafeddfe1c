"""Runs a window function: how much wider the child must be, where windows lie, what `nulls` and `min_count` mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from artimon.model.grid import Grid
from artimon.model.values import Kind
from query_dsl import nodes
from query_dsl.cells import Cells
from query_dsl.context import Context
from query_dsl.data import BucketData, numeric
from query_dsl.errors import QueryError
from query_dsl.join import text
from query_dsl.mappers import MAPPERS, Mapper
from query_dsl.matrix import Matrix
from query_dsl.timing import format_duration, format_time
from query_dsl.windows import Frame, totals

LEAST_GAP_MS = 300_000
MAX_WINDOW_COLUMNS = 20_000
Source = Callable[[nodes.Node, Grid, Sequence[str], Context], BucketData]


def run_window(
    node: nodes.Window, grid: Grid, context: Context, source: Source, base_step_ms: int | None = None
) -> Matrix:
    """The window function of `node` at every end of `grid`; `base_step_ms`: step of the child (default: the grid's)."""
    mapper = MAPPERS[node.function]
    step = base_step_ms or grid.step_ms
    before, after = _multiple(node.before_ms or grid.step_ms, step, "window"), _multiple(node.after_ms, step, "after")
    gap_ms = node.max_gap_ms if node.max_gap_ms is not None else max(LEAST_GAP_MS, 2 * step)
    # the value before a window may lie in any bucket that reaches back to the gap
    lead = _lead(gap_ms, step, context) if mapper.predecessor else 0
    each = grid.step_ms // step
    wide = Grid(grid.end_ms + after * step, step, (grid.n - 1) * each + before + after + lead)
    if wide.n > MAX_WINDOW_COLUMNS:
        raise QueryError(f"{mapper.name} would read {wide.n} buckets a series: use at most {MAX_WINDOW_COLUMNS}")
    data = source(node.child, wide, mapper.statistics, context)
    first_end = lead + before + after - 1
    ends = first_end + each * np.arange(grid.n, dtype=np.int64)
    frame = Frame(ends, before + after, grid.ends() + after * step, (before + after) * step, gap_ms)
    data = _suited(data, mapper, context)
    _warn(mapper, data, node, context)
    _say_unheld(mapper, data, frame, grid, context)
    found = mapper.run(data, frame)
    column = _masked(found.column, mapper, node.rules, data, frame)
    if found.approximate is not None and (found.approximate & column.present).any():
        points = int((found.approximate & column.present).sum())
        context.note(f"{mapper.name}: {points} points are approximate, from buckets that hold more than one sample")
    strings = data.strings if mapper.strings else ()
    return Matrix(data.keys, grid, column, strings)


def _lead(gap_ms: int, step: int, context: Context) -> int:
    """Columns that hold the value before a window: those that reach back to the gap, but no more than a ring has."""
    ring = context.plan.ring(step)
    wanted = -(-gap_ms // step) + 1
    return min(wanted, ring.count + ring.spare) if ring is not None else min(wanted, MAX_WINDOW_COLUMNS)


def _multiple(ms: int, step: int, what: str) -> int:
    if ms % step:
        down, up = ms // step * step, (ms // step + 1) * step
        choice = f"{format_duration(down)} or {format_duration(up)}" if down else format_duration(up)
        raise QueryError(
            f"{what} {format_duration(ms)} is no multiple of the step {format_duration(step)} "
            f"of the level that covers the range: use {choice}, or a shorter range"
        )
    return ms // step


def _suited(data: BucketData, mapper: Mapper, context: Context) -> BucketData:
    """The data without STRING series, unless the function takes them."""
    rows = np.flatnonzero(numeric(data.types))
    if mapper.strings or len(rows) == len(data.keys):
        return data
    if not len(rows):
        names = ", ".join(text(key) for key in data.keys[:3])
        raise QueryError(f"{mapper.name} cannot take STRING, and every series is one: {names}")
    context.note(f"{mapper.name}: {len(data.keys) - len(rows)} STRING series left out")
    return data.only(rows)


def _warn(mapper: Mapper, data: BucketData, node: nodes.Window, context: Context) -> None:
    if not mapper.counter:
        return
    gauges = np.flatnonzero(data.kinds == Kind.GAUGE)
    if len(gauges):
        context.note(
            f"warning: {mapper.name} of {len(gauges)} gauges, such as {text(data.keys[gauges[0]])}: "
            "delta is meant for them"
        )
    if any(isinstance(inner, nodes.Reduce | nodes.Binary) for inner in nodes.walk(node.child)):
        context.note(
            f"warning: {mapper.name} of what was reduced or computed does not see resets: take the {mapper.name} first"
        )
    elif not data.stored:
        context.note(f"warning: {mapper.name} of computed values knows no births")


def _say_unheld(mapper: Mapper, data: BucketData, frame: Frame, grid: Grid, context: Context) -> None:
    """Name the points whose window (or value before it) reaches further back than the store does."""
    if data.first_held == 0:
        return
    context.complete &= bool(frame.ends[0] >= data.first_held)
    empty = int((frame.ends < data.first_held).sum())
    if empty:
        context.note(
            f"memory reaches back to {format_time(int(data.grid.ends()[data.first_held]) - data.grid.step_ms)}: "
            f"{grid.n - empty} of {grid.n} buckets ({100 * (grid.n - empty) // grid.n} %) are covered"
        )
    reach = frame.starts + 1 - (1 if mapper.predecessor else 0)
    short = int(((reach < data.first_held) & (frame.ends >= data.first_held)).sum())
    if short:
        what = "or the value before it " if mapper.predecessor else ""
        context.note(f"{mapper.name}: the window {what}of {short} points begins before what memory holds")


def _masked(column: Cells, mapper: Mapper, rules: nodes.Rules, data: BucketData, frame: Frame) -> Cells:
    counts = totals(data.stats["count"], frame)
    least = mapper.min_count if rules.min_count is None else rules.min_count
    present = counts >= least if mapper.total else column.present & (counts >= least)
    if rules.nulls != "skip":
        full = totals(data.present.astype(np.int64), frame) == frame.width
        if rules.nulls == "error" and not full.all():
            row, at = (int(i[0]) for i in np.nonzero(~full))
            raise QueryError(
                f"{mapper.name}: {text(data.keys[row])} has an empty bucket in the window that ends at "
                f'{format_time(int(frame.end_ms[at]))}, and nulls="error"'
            )
        present = present & full
    return Cells(column.types, column.cells, np.asarray(present))
