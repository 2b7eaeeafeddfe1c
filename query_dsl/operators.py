"""Operators between two operands, row by row. NA where an operand is NA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from query_dsl.cells import BOOLEAN, DOUBLE, STRING, Bools, Cells, Example, as_floats, doubles
from query_dsl.errors import QueryError
from query_dsl.names import read_only_table

Strings = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """`run` works on arrays of float64 or, for comparisons, of int64 where both sides are whole, or of texts."""

    name: str
    symbol: str
    precedence: int
    """Of Python: a greater one binds tighter."""
    family: str
    """arithmetic (DOUBLE), comparison (BOOLEAN) or logic (BOOLEAN of BOOLEAN)."""
    summary: str
    example: str
    case: Example
    run: Callable[[Any, Any], Any]

    @property
    def texts(self) -> bool:
        """Whether it takes STRING."""
        return self.name in ("eq", "ne")


def apply_operator(operator: Operator, left: Cells, right: Cells, texts: tuple[Strings, Strings]) -> Cells:
    """Rows of `left` with rows of `right`, one to one."""
    present = np.asarray(left.present & right.present)
    if operator.family == "arithmetic":
        with np.errstate(all="ignore"):
            values = operator.run(as_floats(left.types, left.cells), as_floats(right.types, right.cells))
        return doubles(values, present)
    if operator.family == "logic":
        for side in (left, right):
            if (side.types != BOOLEAN).any():
                raise QueryError(
                    f"{operator.symbol} needs BOOLEAN on both sides: compare first, "
                    f"as in (a > 1) {operator.symbol} (b > 1)"
                )
        return _booleans(operator.run(left.cells, right.cells), present)
    return _booleans(_compare(operator, left, right, texts), present)


def _compare(operator: Operator, left: Cells, right: Cells, texts: tuple[Strings, Strings]) -> Bools:
    out = operator.run(as_floats(left.types, left.cells), as_floats(right.types, right.cells))
    exact = (left.types != DOUBLE) & (right.types != DOUBLE)
    if exact.any():
        out[exact] = operator.run(left.cells[exact], right.cells[exact])
    strings = (left.types == STRING) | (right.types == STRING)
    if strings.any():
        a, b = _objects(left, strings, texts[0]), _objects(right, strings, texts[1])
        out[strings] = operator.run(a, b).astype(np.bool_)
    return np.asarray(out, np.bool_)


def _objects(side: Cells, rows: Bools, texts: Strings) -> Any:
    """Texts of STRING rows, and for other rows something that equals no text."""
    table = np.array([*texts, None], object)
    out = np.full(side.cells[rows].shape, None, object)
    is_text = side.types[rows] == STRING
    out[is_text] = table[np.clip(side.cells[rows][is_text], 0, len(texts))]
    out[~is_text] = 0  # equals no text
    return out


def _booleans(values: Any, present: Bools) -> Cells:
    return Cells(np.full(len(present), BOOLEAN, np.uint8), np.ascontiguousarray(values, np.int64), present)


def _case(*expect: float | None) -> Example:
    return Example(((46.0, 5.0, None, 1.0), (2.0, 5.0, 3.0, None)), expect)


def _logic(*expect: float | None) -> Example:
    return Example(((0.0, 1.0, 1.0, None), (1.0, 1.0, 0.0, 1.0)), expect)


OPERATORS = read_only_table(
    Operator("add", "+", 6, "arithmetic", "Sum.", "fetch('a') + fetch('b')", _case(48.0, 10.0, None, None), np.add),
    Operator(
        "sub",
        "-",
        6,
        "arithmetic",
        "Difference.",
        "fetch('disk.size') - fetch('disk.used')",
        _case(44.0, 0.0, None, None),
        np.subtract,
    ),
    Operator("mul", "*", 7, "arithmetic", "Product.", "fetch('a') * 8", _case(92.0, 25.0, None, None), np.multiply),
    Operator(
        "div",
        "/",
        7,
        "arithmetic",
        "Quotient; by 0 gives inf or NaN, no error.",
        "fetch('used') / fetch('size')",
        _case(23.0, 1.0, None, None),
        np.divide,
    ),
    Operator(
        "eq",
        "==",
        2,
        "comparison",
        "Equal; also of STRING.",
        "fetch('version') == \"2.1\"",
        _case(0.0, 1.0, None, None),
        np.equal,
    ),
    Operator(
        "ne",
        "!=",
        2,
        "comparison",
        "Not equal; also of STRING.",
        "fetch('version') != \"2.1\"",
        _case(1.0, 0.0, None, None),
        np.not_equal,
    ),
    Operator("lt", "<", 2, "comparison", "Less.", "fetch('free') < 5", _case(0.0, 0.0, None, None), np.less),
    Operator(
        "le", "<=", 2, "comparison", "Less or equal.", "fetch('free') <= 5", _case(0.0, 1.0, None, None), np.less_equal
    ),
    Operator("gt", ">", 2, "comparison", "Greater.", "fetch('load') > 5", _case(1.0, 0.0, None, None), np.greater),
    Operator(
        "ge",
        ">=",
        2,
        "comparison",
        "Greater or equal.",
        "fetch('load') >= 5",
        _case(1.0, 1.0, None, None),
        np.greater_equal,
    ),
    Operator(
        "and",
        "&",
        5,
        "logic",
        "Both true.",
        "(fetch('a') > 1) & (fetch('b') > 1)",
        _logic(0.0, 1.0, 0.0, None),
        np.bitwise_and,
    ),
    Operator(
        "or",
        "|",
        3,
        "logic",
        "One of them true.",
        "(fetch('a') > 1) | (fetch('b') > 1)",
        _logic(1.0, 1.0, 1.0, None),
        np.bitwise_or,
    ),
)

SYMBOLS = {operator.symbol: operator.name for operator in OPERATORS.values()}
