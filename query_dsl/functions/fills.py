"""Fillers of missing values. Gaps are measured between bucket ends; present values stay.

No filler extrapolates: `previous` and `linear` use values up to `max_gap` before the range, `linear` needs a value on
both sides. Without `max_gap` a gap may have any length, but values before the range are not read, so that the result
does not depend on the retention of an engine.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from artimon.compute.checkpoint import checkpoint
from artimon.compute.window_frames import newest_present, oldest_present, pick
from query_dsl.functions.registry import Argument
from query_dsl.functions.step import Step, StepCall
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    Bools,
    Cells,
    Example,
    Floats,
    Ints,
    as_floats,
    doubles,
)
from query_dsl.tree.entry_table import read_only_table
from query_dsl.tree.literals import checked_int64
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_duration, format_time

MAX_COLUMNS = 20_000
BLOCK_CELLS = 1 << 18
"""Cells that are interpolated together: each of some ten temporary arrays takes 2 MB."""


def neighbours(present: Bools) -> tuple[Ints, Ints]:
    """Return the present column at or before each column (-1: none), and at or after it (`columns`: none)."""
    return newest_present(present), oldest_present(present)


def fill_value(column: Cells, value: Cells, longest: int | None) -> Cells:
    """Put `value`, (series, 1) cells of the same types, in runs of at most `longest` missing columns (None: any)."""
    types, cells, present = column
    before, after = neighbours(present)
    gap = ~present
    if longest is not None:
        gap &= after - before - 1 <= longest
    return Cells(types, np.where(gap, value.cells, cells), present | gap)


def fill_from_neighbours(column: Cells, near: Ints, farthest: int | None) -> Cells:
    """Fill missing columns from column `near` of their series, if it exists and is at most `farthest` away."""
    types, cells, present = column
    n = present.shape[1]
    there = (near >= 0) & (near < n)
    if farthest is not None:
        there &= np.abs(near - np.arange(n)) <= farthest
    return Cells(types, np.where(present, cells, pick(cells, near)), np.asarray(present | there))


def fill_linear(column: Cells, farthest: int | None) -> Cells:
    """Interpolate linearly between the neighbours of missing columns, if at most `farthest` apart; DOUBLE."""
    values, present = np.empty(column.cells.shape), np.empty(column.cells.shape, np.bool_)
    each = max(1, BLOCK_CELLS // max(1, column.cells.shape[1]))
    for start in range(0, len(values), each):
        checkpoint()
        rows = slice(start, start + each)
        part = Cells(column.types[rows], column.cells[rows], column.present[rows])
        values[rows], present[rows] = _interpolated(part, farthest)
    return doubles(values, present)


def _interpolated(column: Cells, farthest: int | None) -> tuple[Floats, Bools]:
    types, cells, present = column
    n = present.shape[1]
    before, after = neighbours(present)
    inside = (before >= 0) & (after < n)
    if farthest is not None:
        inside &= after - before <= farthest
    values = as_floats(types, np.ascontiguousarray(cells))
    left, right = pick(values, before), pick(values, after)
    steps, apart = np.arange(n) - before, np.maximum(after - before, 1)
    with np.errstate(all="ignore"):
        line = left + (right - left) * steps / apart
        wide = ~np.isfinite(line) & np.isfinite(left) & np.isfinite(right)  # right - left overflowed
        if wide.any():
            line = np.where(wide, left * (1 - steps / apart) + right * (steps / apart), line)
    return np.where(present, values, line), np.asarray(present | inside)


def typed_value(found: Matrix, value: float | bool | str) -> tuple[Matrix, Cells]:
    """Convert the series to the types that filling with `value` gives, and the value to a cell of each series."""
    if isinstance(value, str):
        strings = found.strings if value in found.strings else (*found.strings, value)
        cell = np.full((len(found), 1), strings.index(value), np.int64)
        return Matrix(found.keys, found.grid, found.column, strings), _alone(found.types, cell)
    types, cells, present = found.column
    if isinstance(value, float):
        column = doubles(as_floats(types, np.ascontiguousarray(cells)), present)
        cell = np.full((len(found), 1), value, np.float64).view(np.int64)
        return Matrix(found.keys, found.grid, column), _alone(column.types, cell)
    if not isinstance(value, bool):
        types = np.where(types == BOOLEAN, INTEGER, types).astype(np.uint8)
    real = np.full((len(found), 1), float(value), np.float64).view(np.int64)
    cell = np.where((types == DOUBLE)[:, None], real, int(value))
    return Matrix(found.keys, found.grid, Cells(types, cells, present)), _alone(types, cell)


def _alone(types: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], cell: Ints) -> Cells:
    return Cells(types, cell, np.ones(cell.shape, np.bool_))


def _value(asked: StepCall) -> Matrix:
    value = asked.args["value"]
    checked_int64(value, "fill value: ")
    text = isinstance(value, str)
    found = asked.context.accepted_series(asked.child(), "fill value", numbers=not text, texts=text)
    found, cell = typed_value(found, value)
    return Matrix(found.keys, asked.grid, fill_value(found.column, cell, _columns(asked)), found.strings)


def _previous(asked: StepCall) -> Matrix:
    found, lead = _with_lead(asked)
    return _cut(found, fill_from_neighbours(found.column, newest_present(found.present), _columns(asked)), lead, asked)


def _next(asked: StepCall) -> Matrix:
    found = asked.child()
    return _cut(found, fill_from_neighbours(found.column, oldest_present(found.present), _columns(asked)), 0, asked)


def _linear(asked: StepCall) -> Matrix:
    found, lead = _with_lead(asked)
    found = asked.context.numeric_only(found, "fill linear")
    return _cut(found, fill_linear(found.column, _columns(asked)), lead, asked)


def _columns(asked: StepCall) -> int | None:
    gap = asked.args["max_gap"]
    return None if gap is None else gap // asked.grid.step_ms


def _with_lead(asked: StepCall) -> tuple[Matrix, int]:
    """Return the child with extra columns before the grid, up to `max_gap`, and their number."""
    wanted = _columns(asked) or 0
    lead = min(wanted, columns_held_before(asked))
    if lead + asked.grid.n > MAX_COLUMNS:
        raise QueryError(
            f"fill {asked.entry.name} would read {lead + asked.grid.n} buckets per series: use at most {MAX_COLUMNS}, "
            "with a shorter range or a smaller max_gap"
        )
    found = asked.child(asked.grid.widen(lead))
    if lead < wanted:
        _note_short(found, lead, asked)
    return found, lead


def columns_held_before(asked: StepCall) -> int:
    """Return the number of columns before the grid that the store can hold; MAX_COLUMNS if unknown (raw samples)."""
    held = asked.context.columns_held_before(asked.grid)
    return MAX_COLUMNS if held is None else held


def _note_short(found: Matrix, lead: int, asked: StepCall) -> None:
    """Add a note if values older than the store's retention could have filled gaps."""
    unfilled = ~found.present[:, : lead + 1].any(axis=1) if found.grid.n else np.zeros(0, np.bool_)
    if unfilled.any():
        start, gap = format_time(found.grid.start_ms), format_duration(asked.args["max_gap"])
        asked.context.note(
            f"fill {asked.entry.name}: {int(unfilled.sum())} series begin without a value, and the store reaches back "
            f"to {start} only, less than max_gap={gap} before the range"
        )


def _cut(found: Matrix, column: Cells, lead: int, asked: StepCall) -> Matrix:
    types, cells, present = column
    return Matrix(found.keys, asked.grid, Cells(types, cells[:, lead:], present[:, lead:]), found.strings)


_GIVEN = ((1.0, None, None, 4.0, None),)
_GAP = Argument("max_gap", "duration", "the longest gap that is filled; None: any", None)


def _entry(
    name: str, summary: str, args: str, run: object, arguments: tuple[Argument, ...], *row: float | None
) -> Step:
    return Step(
        name=name,
        summary=summary,
        example=f"fetch('temperature').fill(\"{name}\"{args})",
        case=Example(_GIVEN, row),
        case_args=args.removeprefix(", "),
        arguments=arguments,
        family="fill",
        run=run,  # type: ignore[arg-type]
    )


FILLS: Mapping[str, Step] = read_only_table(
    _entry(
        "value",
        "A number or text in gaps that are at most max_gap long (number of steps x step). INTEGER filled with an "
        "INTEGER stays exact, with a DOUBLE it becomes DOUBLE; a text fills STRING series only.",
        ', 0, max_gap="2m"',
        _value,
        (Argument("value", "value", "the value that fills the gaps"), _GAP),
        1.0, 0.0, 0.0, 4.0, 0.0,
    ),
    _entry(
        "previous",
        "The value before, at most max_gap old; keeps the type, STRING and BOOLEAN too. Looks max_gap back.",
        ', max_gap="1m"',
        _previous,
        (_GAP,),
        1.0, 1.0, None, 4.0, 4.0,
    ),
    _entry(
        "next",
        "The value after, at most max_gap later and inside the range; keeps the type, STRING and BOOLEAN too.",
        ', max_gap="1m"',
        _next,
        (_GAP,),
        1.0, None, 4.0, 4.0, None,
    ),
    _entry(
        "linear",
        "The straight line between two values that are at most max_gap apart (DOUBLE; BOOLEAN as 1/0). Looks max_gap "
        "before the range; STRING is left out.",
        ', max_gap="3m"',
        _linear,
        (_GAP,),
        1.0, 2.0, 3.0, 4.0, None,
    ),
)  # fmt: skip
