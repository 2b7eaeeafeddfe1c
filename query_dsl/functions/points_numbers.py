"""Point functions of arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from artimon.compute.function import OF_SERIES
from artimon.model.values import INT64_MAX, INT64_MIN
from query_dsl.functions.operators_kernels import power
from query_dsl.functions.registry import Args, Argument, PointContext, PointFunction
from query_dsl.results.result_cells import DOUBLE, INTEGER, Bools, Cells, Example, Floats, Ints, as_floats, doubles
from query_dsl.tree.entry_table import read_only_table
from query_dsl.tree.query_errors import QueryError

Float = Callable[[Floats, Args], Floats]
Whole = Callable[[Ints, Args], tuple[Ints, Bools | bool]]
"""Returns cells, and a mask of the results that fit into int64."""
MAX_DIGITS = 15
"""Maximum decimal digits for rounding; more would leave a float64 unchanged."""
MIN_DIGITS = -18
"""Minimum digits for rounding: 10^18 is the greatest power of ten in int64."""


@dataclass(frozen=True, kw_only=True)
class ConstrainedFunction(PointFunction):
    """A function with a constraint between arguments: `rule` returns the problem, or "" if there is none."""

    rule: Callable[[Args], str]

    def check(self, args: Args) -> None:
        problem = self.rule(args)
        if problem:
            raise QueryError(f"{self.name}: {problem}")


def numeric(
    name: str,
    summary: str,
    example: str,
    case: Example,
    function: Float,
    arguments: Sequence[Argument] = (),
    *,
    whole: Whole | None = None,
    case_args: str = "",
    rule: Callable[[Args], str] = lambda _args: "",
    unit: str = OF_SERIES,
) -> PointFunction:
    """Make a function of float64 values; with `whole`, INTEGER and BOOLEAN are computed exactly."""

    def run(column: Cells, args: Args, _points: PointContext) -> Cells:
        types, cells, present = column
        with np.errstate(all="ignore"):
            out = doubles(np.asarray(function(as_floats(types, cells), args), np.float64), present)
        if whole is None:
            return out
        exact = types != DOUBLE
        kept, fits = whole(cells, args)
        mixed = np.where(exact[:, None], kept, out.cells)
        return Cells(np.where(exact, INTEGER, DOUBLE).astype(np.uint8), mixed, present & (fits | ~exact[:, None]))

    return ConstrainedFunction(
        name=name,
        summary=summary,
        example=example,
        case=case,
        case_args=case_args,
        arguments=tuple(arguments),
        run=run,
        rule=rule,
        unit=unit,
    )


def _absolute(cells: Ints, _args: Args) -> tuple[Ints, Bools]:
    least = cells == INT64_MIN  # has no positive counterpart in int64
    return np.abs(np.where(least, 0, cells)), ~least


def _same(cells: Ints, _args: Args) -> tuple[Ints, bool]:
    return cells, True


def _round(column: Cells, args: Args, _points: PointContext) -> Cells:
    types, cells, present = column
    digits, exact = args["digits"], types != DOUBLE
    with np.errstate(all="ignore"):
        floats = _round_floats(as_floats(types[~exact], np.ascontiguousarray(cells[~exact])), digits)
    out, there = cells.copy(), present.copy()
    out[~exact] = floats.view(np.int64)
    out[exact], fits = _round_whole(cells[exact], digits)
    there[exact] &= fits
    return Cells(np.where(exact, INTEGER, DOUBLE).astype(np.uint8), out, there)


def _round_floats(values: Floats, digits: int) -> Floats:
    """Round to the nearest decimal with `digits` digits, halves to even, as the nearest double."""
    if digits == 0:
        return np.round(values)
    unit = 10.0 ** abs(digits)
    scaled = values * unit if digits > 0 else values / unit
    whole = np.rint(scaled)
    out = np.ascontiguousarray(whole / unit if digits > 0 else whole * unit)
    # scaling rounds, too: where it may have created or hidden a half, Python rounds the exact decimal value
    doubtful = np.isfinite(values) & ~(np.abs(np.abs(scaled - whole) - 0.5) > 1e-9 * np.maximum(np.abs(scaled), 1.0))
    out[doubtful] = [round(value, digits) for value in values[doubtful].tolist()]
    return out


def _round_whole(cells: Ints, digits: int) -> tuple[Ints, Bools]:
    """Round integers, halves to the even multiple; also return a mask of the results that fit into int64."""
    if digits >= 0:
        return cells, np.ones(cells.shape, np.bool_)
    unit = 10**-digits
    count, rest = np.divmod(cells, unit)
    count += (rest > unit - rest) | ((rest == unit - rest) & (count % 2 == 1))
    most = INT64_MAX // unit
    return count * unit, np.asarray((count <= most) & (count >= -most))


def _log(values: Floats, args: Args) -> Floats:
    base = float(args["base"])
    if base == math.e:
        return np.log(values)
    if base in (2.0, 10.0):
        return np.log2(values) if base == 2.0 else np.log10(values)
    return np.log(values) / math.log(base)


def _unary(function: np.ufunc) -> Float:
    return lambda values, _args: np.asarray(function(values))


def _with(function: Callable[[Floats, float], Floats], name: str = "number") -> Float:
    return lambda values, args: np.asarray(function(values, float(args[name])))


def _clamp(values: Floats, args: Args) -> Floats:
    return np.asarray(np.clip(values, float(args["low"]), float(args["high"])))


def _clamp_rule(args: Args) -> str:
    low, high = args["low"], args["high"]
    return "" if low <= high else f"low={low} is not at most high={high}: give the smaller one first"


def _log_rule(args: Args) -> str:
    return "" if args["base"] != 1 and math.isfinite(args["base"]) else "base must be finite and not 1"


def _finite(column: Cells, _args: Args, _points: PointContext) -> Cells:
    types, cells, present = column
    there = np.isfinite(as_floats(types, cells)) | (types != DOUBLE)[:, None]
    return Cells(types, cells, present & there)


def _case(*expect: float | None) -> Example:
    return Example(((-1.5, None, 4.0),), expect)


def _arithmetic(
    name: str, summary: str, number: int, expect: tuple[float | None, ...], function: np.ufunc, argument: Argument
) -> PointFunction:
    """Make an operator with a constant; `number` is that of the example."""
    example = f"fetch('x.*').map(\"{name}\", {number})"
    return numeric(name, summary, example, _case(*expect), _with(function), (argument,), case_args="2")


NUMBER = Argument("number", "number", "the other operand", unit="of the series")
FACTOR = Argument("number", "number", "the other operand", unit="none")
ROUNDED = (
    "Nearest integer, halves to even; with `digits` rounds to that many decimals, or to powers of ten if negative."
)

NUMBERS = read_only_table(
    numeric(
        "abs",
        "Absolute value; INTEGER stays exact.",
        "fetch('x').abs()",
        _case(1.5, None, 4.0),
        _unary(np.absolute),
        whole=_absolute,
    ),
    numeric("ceil", "Next integer upwards.", "fetch('x').ceil()", _case(-1.0, None, 4.0), _unary(np.ceil), whole=_same),
    numeric(
        "floor", "Next integer downwards.", "fetch('x').floor()", _case(-2.0, None, 4.0), _unary(np.floor), whole=_same
    ),
    PointFunction(
        name="round",
        summary=ROUNDED,
        example="fetch('x').round(2)",
        case=_case(-2.0, None, 4.0),
        run=_round,
        arguments=(
            Argument(
                "digits", "integer", "digits after the point", 0, least=MIN_DIGITS, most=MAX_DIGITS, unit="digits"
            ),
        ),
    ),
    numeric(
        "clamp",
        "Not less than `low`, not more than `high` (DOUBLE).",
        "fetch('x').clamp(0, 100)",
        _case(-1.5, None, 3.0),
        _clamp,
        (
            Argument("low", "number", "the least value that stays", unit="of the series"),
            Argument("high", "number", "the greatest value that stays", unit="of the series"),
        ),
        case_args="-2, 3",
        rule=_clamp_rule,
    ),
    numeric(
        "sqrt",
        "Square root; NaN below 0.",
        "fetch('x').sqrt()",
        _case(math.nan, None, 2.0),
        _unary(np.sqrt),
        unit="of the series, its root",
    ),
    numeric(
        "exp",
        "e to the power of the value.",
        "fetch('x').exp()",
        _case(0.22313016014842982, None, 54.598150033144236),
        _unary(np.exp),
        unit="none",
    ),
    numeric(
        "log",
        "Logarithm, natural unless a base is given; NaN below 0.",
        "fetch('x').log(base=10)",
        _case(math.nan, None, 2.0),
        _log,
        (Argument("base", "number", "base of the logarithm, not 1", math.e, above=0, unit="none"),),
        case_args="base=2",
        rule=_log_rule,
        unit="none",
    ),
    numeric(
        "pow",
        "The value to the power of `exponent` (DOUBLE); NaN where the result is not real.",
        "fetch('x').pow(2)",
        _case(2.25, None, 16.0),
        _with(power, "exponent"),
        (Argument("exponent", "number", "the power", unit="none"),),
        case_args="2",
        unit="of the series, to that power",
    ),
    numeric(
        "mod",
        "Remainder of the division by `divisor`, with the sign of the divisor (DOUBLE); NaN by 0.",
        "fetch('x').mod(60)",
        _case(1.5, None, 1.0),
        _with(np.mod, "divisor"),
        (Argument("divisor", "number", "the divisor", unit="of the series"),),
        case_args="3",
    ),
    _arithmetic("add", "Adds a number.", 1, (0.5, None, 6.0), np.add, NUMBER),
    _arithmetic("sub", "Subtracts a number.", 1, (-3.5, None, 2.0), np.subtract, NUMBER),
    _arithmetic("mul", "Multiplies by a number.", 8, (-3.0, None, 8.0), np.multiply, FACTOR),
    _arithmetic("div", "Divides by a number; by 0 gives inf or NaN.", 60, (-0.75, None, 2.0), np.divide, FACTOR),
    PointFunction(
        name="finite",
        summary="Finite values; NaN and infinities become missing; keeps the type.",
        example="(fetch('a') / fetch('b')).finite()",
        case=Example(((-1.5, math.nan, math.inf),), (-1.5, None, None)),
        run=_finite,
    ),
)
