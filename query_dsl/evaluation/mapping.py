"""Runs a window function: how much wider the child must be, where windows lie, what `nulls` and `min_count` mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from artimon.compute.frames import Frame
from artimon.compute.function import filled, masked
from artimon.model.grid import Grid
from artimon.model.values import Kind
from query_dsl.evaluation.context import Context
from query_dsl.functions.join import text
from query_dsl.functions.mappers import Mapper
from query_dsl.functions.registry import arguments_of
from query_dsl.functions.tables import MAPPERS
from query_dsl.results.bucket_data import BucketData, distinct, numeric
from query_dsl.results.cells import Key
from query_dsl.results.matrix import Matrix
from query_dsl.tree import nodes
from query_dsl.tree.errors import QueryError
from query_dsl.tree.timing import format_duration, format_time

LEAST_GAP_MS = 300_000
MAX_WINDOW_COLUMNS = 20_000
Source = Callable[[nodes.Node, Grid, Sequence[str], Context], BucketData]


@dataclass(frozen=True, slots=True)
class Framing:
    """Which columns a window function reads for a grid: `wide` is the grid of its child."""

    mapper: Mapper
    grid: Grid
    wide: Grid
    frame: Frame


def framing(
    node: nodes.Window, grid: Grid, context: Context, base_step_ms: int | None = None, mapper: Mapper | None = None
) -> Framing:
    """The columns that `node` reads for every end of `grid`; `base_step_ms`: step of the child (default: the
    grid's)."""
    mapper = mapper or MAPPERS[str(node.function)]
    step = base_step_ms or grid.step_ms
    before, after = _multiple(node.before_ms or grid.step_ms, step, "window"), _multiple(node.after_ms, step, "after")
    gap_ms = node.max_gap_ms if node.max_gap_ms is not None else max(LEAST_GAP_MS, 2 * step)
    # the value before a window may lie in any bucket that reaches back to the gap
    lead = _lead(gap_ms, step, context) if mapper.predecessor else 0
    each = grid.step_ms // step
    if node.max_gap_ms is None:  # five minutes are very many buckets of a few ms: as far as the limit lets it reach
        lead = min(lead, max(0, MAX_WINDOW_COLUMNS - (grid.n - 1) * each - before - after))
    wide = Grid(grid.end_ms + after * step, step, (grid.n - 1) * each + before + after + lead)
    if wide.n > MAX_WINDOW_COLUMNS:
        raise QueryError(f"{mapper.name} would read {wide.n} buckets a series: use at most {MAX_WINDOW_COLUMNS}")
    first_end = lead + before + after - 1
    ends = first_end + each * np.arange(grid.n, dtype=np.int64)
    width_ms = (before + after) * step
    frame = Frame(ends, before + after, grid.ends() + after * step, width_ms, gap_ms, after * step)
    return Framing(mapper, grid, wide, frame)


def run_window(
    node: nodes.Window, grid: Grid, context: Context, source: Source, base_step_ms: int | None = None
) -> Matrix:
    """The window function of `node` at every end of `grid`; `base_step_ms`: step of the child (default: the grid's)."""
    framed = framing(node, grid, context, base_step_ms)
    mapper, frame = framed.mapper, framed.frame
    data = source(node.child, framed.wide, mapper.statistics, context)
    data = _suited(data, mapper, context)
    _warn(mapper, data, node, context)
    say_unheld(framed, data.first_held, data.grid, context)
    found = mapper.of(data, frame, arguments_of(mapper, node.args))
    if node.rules.nulls == "error":
        _refuse_empty(mapper, data, frame)
    column = masked(found.column, mapper, data, frame, node.rules.min_count, node.rules.nulls == "propagate")
    if found.approximate is not None:
        say_approximate(mapper, int((found.approximate & column.present).sum()), context)
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
    """The data without STRING series, unless the function takes them: then with one cell for equal texts."""
    rows = np.flatnonzero(numeric(data.types))
    if len(rows) == len(data.keys):
        return data
    if mapper.strings:
        return distinct(data) if "last" in data.stats else data
    if not len(rows):
        names = ", ".join(text(key) for key in data.keys[:3])
        raise QueryError(f"{mapper.name} cannot take STRING, and every series is one: {names}")
    say_left_out(mapper.name, len(data.keys) - len(rows), context)
    return data.only(rows)


def _warn(mapper: Mapper, data: BucketData, node: nodes.Window, context: Context) -> None:
    if not mapper.counter:
        return
    gauges = np.flatnonzero(data.kinds == Kind.GAUGE)
    if len(gauges):
        say_gauges(mapper, len(gauges), data.keys[gauges[0]], context)
    if any(isinstance(inner, nodes.Reduce | nodes.Binary) for inner in nodes.walk(node.child)):
        context.note(
            f"warning: {mapper.name} of what was reduced or computed does not see resets: take the {mapper.name} first"
        )
    elif not data.stored:
        context.note(f"warning: {mapper.name} of computed values knows no births")


def say_left_out(function: str, series: int, context: Context) -> None:
    """That STRING series take no part."""
    context.note(f"{function}: {series} STRING series left out")


def say_gauges(mapper: Mapper, series: int, first: Key, context: Context) -> None:
    """That a function for counters was given gauges."""
    context.note(f"warning: {mapper.name} of {series} gauges, such as {text(first)}: delta is meant for them")


def say_approximate(mapper: Mapper, points: int, context: Context) -> None:
    """That some points are guesses."""
    if points:
        context.note(f"{mapper.name}: {points} points are approximate, from buckets that hold more than one sample")


def say_unheld(framed: Framing, first_held: int, wide: Grid, context: Context) -> None:
    """Name the points whose window (or value before it) reaches further back than the store does; `wide` is the grid
    of the data, of which the store holds the columns from `first_held` on."""
    if first_held == 0:
        return
    mapper, frame, grid = framed.mapper, framed.frame, framed.grid
    context.complete &= bool(frame.ends[0] >= first_held)
    empty = int((frame.ends < first_held).sum())
    if empty:
        context.note(
            f"memory reaches back to {format_time(int(wide.ends()[first_held]) - wide.step_ms)}: "
            f"{grid.n - empty} of {grid.n} buckets ({100 * (grid.n - empty) // grid.n} %) are covered"
        )
    reach = frame.starts + 1 - (1 if mapper.predecessor else 0)
    short = int(((reach < first_held) & (frame.ends >= first_held)).sum())
    if short:
        what = "or the value before it " if mapper.predecessor else ""
        context.note(f"{mapper.name}: the window {what}of {short} points begins before what memory holds")


def _refuse_empty(mapper: Mapper, data: BucketData, frame: Frame) -> None:
    full = filled(data, frame)
    if full.all():
        return
    row, at = (int(i[0]) for i in np.nonzero(~full))
    raise QueryError(
        f"{mapper.name}: {text(data.keys[row])} has an empty bucket in the window that ends at "
        f'{format_time(int(frame.end_ms[at]))}, and nulls="error"'
    )
