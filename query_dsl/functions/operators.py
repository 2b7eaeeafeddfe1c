"""Entries of the operators between two operands. operators_run.py computes their cells; query_dsl/functions/join.py and
query_dsl/evaluation/set_operators.py match their series."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from query_dsl.functions.operators_kernels import Operator, power
from query_dsl.results.result_cells import Example
from query_dsl.tree.entry_table import read_only_table


def _keep_left(own: Any, other: Any) -> Any:
    return own & other


def _mask_out(own: Any, other: Any) -> Any:
    return own & ~other


_GIVEN = ((46.0, 5.0, None, 1.0), (2.0, 5.0, 3.0, None))
_BOOLEANS = ((0.0, 1.0, 1.0, None), (1.0, 1.0, 0.0, 1.0))


def _operator(
    name: str,
    sign: tuple[str, int],
    summary: str,
    example: str,
    expect: tuple[float | None, ...],
    run: Callable[[Any, Any], Any],
    **more: Any,
) -> Operator:
    given = _BOOLEANS if more.get("family") == "logic" else _GIVEN
    return Operator(
        name=name,
        symbol=sign[0],
        precedence=sign[1],
        summary=summary,
        example=example,
        case=Example(given, expect),
        run=run,
        **{"family": "arithmetic"} | more,
    )


_NO_SIGN = ("", 10)

_ARITHMETIC = (
    _operator("add", ("+", 6), "Sum.", "fetch('a') + fetch('b')", (48.0, 10.0, None, None), np.add),
    _operator(
        "sub", ("-", 6), "Difference.", "fetch('disk.size') - fetch('disk.used')", (44.0, 0.0, None, None), np.subtract
    ),
    _operator(
        "mul", ("*", 7), "Product.", "fetch('a') * 8", (92.0, 25.0, None, None), np.multiply, unit="product of both"
    ),
    _operator(
        "div",
        ("/", 7),
        "Quotient; by 0 gives inf or NaN, no error.",
        "fetch('used') / fetch('size')",
        (23.0, 1.0, None, None),
        np.divide,
        unit="quotient of both",
    ),
    _operator(
        "mod",
        ("%", 7),
        "Remainder, with the sign of the divisor; by 0 gives NaN.",
        "fetch('minutes') % 60",
        (0.0, 0.0, None, None),
        np.mod,
    ),
    _operator(
        "pow",
        ("**", 9),
        "Left to the power of right; NaN for a fraction of a negative number.",
        "fetch('a') ** 2",
        (2116.0, 3125.0, None, None),
        power,
        unit="that of the left side, to that power",
    ),
    _operator(
        "min",
        _NO_SIGN,
        "The smaller of both, NaN if one is; exact INTEGER where both are INTEGER or BOOLEAN, else DOUBLE.",
        "apply(\"min\", fetch('a'), fetch('b'))",
        (2.0, 5.0, None, None),
        np.minimum,
        exact=True,
    ),
    _operator(
        "max",
        _NO_SIGN,
        "The greater of both, NaN if one is; exact INTEGER where both are INTEGER or BOOLEAN, else DOUBLE.",
        "apply(\"max\", fetch('a'), fetch('b'), fetch('c'))",
        (46.0, 5.0, None, None),
        np.maximum,
        exact=True,
    ),
)


def _comparison(name: str, symbol: str, summary: str, example: str, first: float, second: float, run: Any) -> Operator:
    return _operator(
        name, (symbol, 2), summary, example, (first, second, None, None), run, family="comparison", unit="true or false"
    )


_COMPARISONS = (
    _comparison("eq", "==", "Equal; also of STRING.", "fetch('version') == \"2.1\"", 0.0, 1.0, np.equal),
    _comparison("ne", "!=", "Not equal; also of STRING.", "fetch('version') != \"2.1\"", 1.0, 0.0, np.not_equal),
    _comparison("lt", "<", "Less.", "fetch('free') < 5", 0.0, 0.0, np.less),
    _comparison("le", "<=", "Less or equal.", "fetch('free') <= 5", 0.0, 1.0, np.less_equal),
    _comparison("gt", ">", "Greater.", "fetch('load') > 5", 1.0, 0.0, np.greater),
    _comparison("ge", ">=", "Greater or equal.", "fetch('load') >= 5", 1.0, 1.0, np.greater_equal),
)

_logic = partial(_operator, family="logic", unit="true or false")
_LOGIC = (
    _logic("and", ("&", 5), "Both true.", "(fetch('a') > 1) & (fetch('b') > 1)", (0.0, 1.0, 0.0, None), np.bitwise_and),
    _logic(
        "or", ("|", 3), "One of them true.", "(fetch('a') > 1) | (fetch('b') > 1)", (1.0, 1.0, 1.0, None), np.bitwise_or
    ),
)

_MASKS = (
    _operator(
        "mask",
        _NO_SIGN,
        "The left side where the right one is true, with its name, labels and type; many on the left may share one "
        "on the right.",
        "fetch('disk.used').where(fetch('disk.size') > 0)",
        (None, 5.0, None, None),
        _keep_left,
        family="mask",
        method="where",
    ),
    _operator(
        "negmask",
        _NO_SIGN,
        "The left side where the right one is false, with its name, labels and type; many on the left may share one "
        "on the right.",
        "apply(\"negmask\", fetch('load'), fetch('maintenance'))",
        (46.0, None, None, None),
        _mask_out,
        family="mask",
    ),
)

_SETS = (
    _operator(
        "set_and",
        _NO_SIGN,
        "The left side where some series with equal labels on the right has a value; names and labels stay.",
        "fetch('load').and_(fetch('up'), on=[\"host\"])",
        (46.0, 5.0, None, None),
        _keep_left,
        family="set",
        method="and_",
    ),
    _operator(
        "set_or",
        _NO_SIGN,
        "The left side, and the right one where no series with equal labels on the left has a value; names and labels "
        "stay.",
        "fetch('load').or_(fetch('load.old'))",
        (46.0, 5.0, None, 1.0),
        _mask_out,
        family="set",
        method="or_",
    ),
    _operator(
        "set_unless",
        _NO_SIGN,
        "The left side where no series with equal labels on the right has a value; names and labels stay.",
        "fetch('load').unless(fetch('maintenance'), on=[\"host\"])",
        (None, None, None, 1.0),
        _mask_out,
        family="set",
        method="unless",
    ),
)

ENTRIES: Mapping[str, Operator] = read_only_table(*_ARITHMETIC, *_COMPARISONS, *_LOGIC, *_MASKS, *_SETS)

__all__ = ["ENTRIES", "Operator"]
