"""Functions of each value alone. NA stays NA; the name is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from query_dsl.cells import BOOLEAN, DOUBLE, INTEGER, Cells, Example, Floats, Ints, as_floats, doubles
from query_dsl.names import read_only_table

Args = tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class PointFunction:
    """`run` takes float64 values and the arguments; `whole`, if there is one, keeps integers exact instead."""

    name: str
    summary: str
    example: str
    case: Example
    run: Callable[[Floats, Args], Floats]
    arguments: tuple[str, ...] = ()
    whole: Callable[[Ints], Ints] | None = None


def apply_point(function: PointFunction, column: Cells, args: Args) -> Cells:
    """The function over numeric cells; DOUBLE, but INTEGER stays INTEGER where the function keeps integers."""
    types, cells, present = column
    with np.errstate(all="ignore"):
        out = doubles(np.asarray(function.run(as_floats(types, cells), args), np.float64), present)
    if function.whole is None:
        return out
    exact = types != DOUBLE
    mixed = np.where(exact[:, None], function.whole(cells), out.cells)
    return Cells(np.where(exact, INTEGER, DOUBLE).astype(np.uint8), mixed, present)


def invert(column: Cells) -> Cells:
    """Not, of BOOLEAN cells."""
    return Cells(np.full(len(column.types), BOOLEAN, np.uint8), 1 - column.cells, column.present)


def _absolute(cells: Ints) -> Ints:
    least = np.iinfo(np.int64).min  # has no positive counterpart: saturates
    return np.asarray(np.abs(np.where(cells == least, least + 1, cells)))


def _round(values: Floats, _args: Args) -> Floats:
    return np.asarray(np.round(values))


def _unary(function: np.ufunc) -> Callable[[Floats, Args], Floats]:
    return lambda values, _args: np.asarray(function(values))


def _with(function: np.ufunc) -> Callable[[Floats, Args], Floats]:
    return lambda values, args: np.asarray(function(values, float(args[0])))


def _clamp(values: Floats, args: Args) -> Floats:
    return np.asarray(np.clip(values, float(args[0]), float(args[1])))


def _same(cells: Ints) -> Ints:
    return cells


def _case(*expect: float | None) -> Example:
    return Example(((-1.5, None, 4.0),), expect)


POINTS = read_only_table(
    PointFunction(
        "abs",
        "Absolute value; INTEGER stays exact.",
        "fetch('x').abs()",
        _case(1.5, None, 4.0),
        _unary(np.absolute),
        whole=_absolute,
    ),
    PointFunction(
        "ceil", "Next integer upwards.", "fetch('x').ceil()", _case(-1.0, None, 4.0), _unary(np.ceil), whole=_same
    ),
    PointFunction(
        "floor", "Next integer downwards.", "fetch('x').floor()", _case(-2.0, None, 4.0), _unary(np.floor), whole=_same
    ),
    PointFunction(
        "round",
        "Nearest integer, halves to the even one.",
        "fetch('x').round()",
        _case(-2.0, None, 4.0),
        _round,
        whole=_same,
    ),
    PointFunction(
        "exp",
        "e to the power of the value.",
        "fetch('x').exp()",
        _case(0.22313016014842982, None, 54.598150033144236),
        _unary(np.exp),
    ),
    PointFunction(
        "log",
        "Natural logarithm; NaN below 0.",
        "fetch('x').log()",
        _case(float("nan"), None, 1.3862943611198906),
        _unary(np.log),
    ),
    PointFunction(
        "sqrt", "Square root; NaN below 0.", "fetch('x').sqrt()", _case(float("nan"), None, 2.0), _unary(np.sqrt)
    ),
    PointFunction(
        "add", "Adds a number.", "fetch('x.*').map(\"add\", 1)", _case(0.5, None, 6.0), _with(np.add), ("number",)
    ),
    PointFunction(
        "sub",
        "Subtracts a number.",
        "fetch('x.*').map(\"sub\", 1)",
        _case(-3.5, None, 2.0),
        _with(np.subtract),
        ("number",),
    ),
    PointFunction(
        "mul",
        "Multiplies by a number.",
        "fetch('x.*').map(\"mul\", 8)",
        _case(-3.0, None, 8.0),
        _with(np.multiply),
        ("number",),
    ),
    PointFunction(
        "div",
        "Divides by a number; by 0 gives inf or NaN.",
        "fetch('x.*').map(\"div\", 60)",
        _case(-0.75, None, 2.0),
        _with(np.divide),
        ("number",),
    ),
    PointFunction(
        "clamp",
        "Not less than `low`, not more than `high`.",
        "fetch('x').clamp(0, 100)",
        _case(-1.5, None, 3.0),
        _clamp,
        ("low", "high"),
    ),
)
"""The cases of functions that take arguments run with CASE_ARGUMENTS."""

CASE_ARGUMENTS = {"number": 2, "low": -2, "high": 3}
