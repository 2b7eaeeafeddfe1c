"""Operands of operators: one that selects nothing is empty, and a default stands for what an operand lacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from artimon.model.grid import Grid
from query_dsl.evaluation.execution import QueryExecution, TimedScalar, Value, to_scalar
from query_dsl.functions.fills import fill_value, typed_value
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import BOOLEAN, INTEGER, STRING, Cells, SeriesKey, doubles, of_type
from query_dsl.tree import nodes
from query_dsl.tree.query_errors import NothingSelected, QueryError

_NO_LABELS = SeriesKey("", ())


@dataclass(frozen=True, slots=True)
class Operand:
    """Value of one side of an operator. `default`: value of the keys and points that it lacks, for a literal itself.
    `nothing`: reason why none of its selectors selects a series; `literal`: True if it has no selector."""

    value: Value
    default: nodes.Scalar | None = None
    nothing: NothingSelected | None = None
    literal: bool = False


def empty_operand(problem: NothingSelected, grid: Grid, default: nodes.Scalar | None, scalar: bool) -> Operand:
    """Return the operand of a node that selects nothing: no series; below `scalar()` the default, if there is one."""
    if scalar and default is not None:
        return Operand(default, default, problem)
    shape = (0, grid.n)
    none = Cells(np.zeros(0, np.uint8), np.zeros(shape, np.int64), np.zeros(shape, np.bool_))
    return Operand(Matrix((), grid, none), default, problem)


def common_problem(operands: list[Operand]) -> NothingSelected | None:
    """Return the first problem if every operand that is not a literal selects nothing."""
    problems = [one.nothing for one in operands if one.nothing is not None or not one.literal]
    return problems[0] if problems and None not in problems else None


def note_empty(operands: list[Operand], name: str, execution: QueryExecution) -> None:
    """Add a note for each operand that selects nothing."""
    for one in operands:
        if one.nothing is not None:
            instead = "is empty" if one.default is None else f"is {one.default.value!r}"
            execution.note(f"{one.nothing.message}; this operand of {name} {instead}")


def constant_series(value: nodes.Scalar, grid: Grid) -> Matrix:
    """Return one series without labels that has the value everywhere."""
    return Matrix((_NO_LABELS,), grid, spread(value.value, 1, grid.n))


def spread(value: float | bool | str, rows: int, n: int) -> Cells:
    """Return rows of one value; a text is cell 0."""
    present = np.ones((rows, n), np.bool_)
    if isinstance(value, str):
        return of_type(STRING, np.zeros((rows, n), np.int64), present)
    if isinstance(value, float):
        return doubles(np.full((rows, n), value), present)
    return of_type(BOOLEAN if isinstance(value, bool) else INTEGER, np.full((rows, n), int(value)), present)


def with_default(side: Value, default: nodes.Scalar | None, execution: QueryExecution) -> Value:
    """Put the default in place of missing points; INTEGER and BOOLEAN series take the type that holds both."""
    if default is None or isinstance(side, nodes.Scalar):
        return side
    if isinstance(side, TimedScalar):
        row = Matrix((_NO_LABELS,), side.grid, side.column, side.strings)
        return to_scalar(defaulted(row, default, execution))
    return defaulted(side, default, execution)


def defaulted(found: Matrix, default: nodes.Scalar, execution: QueryExecution) -> Matrix:
    """Put the default in place of missing points of series. Raises QueryError for a text."""
    if isinstance(default.value, str):
        raise QueryError(f"a default is a number, True or False, not {default.value!r:.80}")
    found, cell = typed_value(execution.numeric_only(found, "a default"), default.value)
    return Matrix(found.keys, found.grid, fill_value(found.column, cell, None))
