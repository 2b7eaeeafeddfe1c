"""What operators do with the cells of two operands, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from query_dsl.functions.registry import Entry
from query_dsl.results.cells import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    STRING,
    Bools,
    Cells,
    Floats,
    Types,
    as_floats,
    doubles,
    whole,
)
from query_dsl.tree.errors import QueryError

Strings = tuple[str, ...]
_ROOT = 0.5


def power(values: Floats, exponents: Floats | float) -> Floats:
    """Powers as IEEE 754 has them. numpy.power takes the square root for one exponent of 0.5: NaN of -inf, not inf."""
    function = np.float_power if np.any(np.equal(exponents, _ROOT)) else np.power
    return np.asarray(function(values, exponents))


@dataclass(frozen=True, kw_only=True)
class Operator(Entry):
    """`run` works on arrays: of float64, or of int64 where both sides are whole and the operator is exact or compares,
    or of texts.

    family: arithmetic (DOUBLE), comparison (BOOLEAN) and logic (BOOLEAN of BOOLEAN) give the labels that were compared
    and no name; mask and set give series of their operands with name and labels. `run` of those tells where a value
    stays: of where it stands on the left and whether the right is true (mask), of where it stands on its own side and
    where something that matches stands on the other (set)."""

    symbol: str
    precedence: int
    """Of Python: a greater one binds tighter."""
    family: str
    run: Callable[[Any, Any], Any]
    method: str = ""
    """What it is called as a method, where it has no symbol: `.and_`."""
    exact: bool = False
    """Whether INTEGER and BOOLEAN give exact INTEGER."""

    @property
    def texts(self) -> bool:
        """Whether series of STRING are given to it: it takes them, or refuses them itself."""
        return self.name in ("eq", "ne") or self.family in ("logic", "mask", "set")


def apply_operator(operator: Operator, left: Cells, right: Cells, texts: tuple[Strings, Strings]) -> Cells:
    """Rows of `left` with rows of `right`, one to one; missing where one of them is. All are `able`; no sets."""
    present = np.asarray(left.present & right.present)
    if operator.family == "arithmetic":
        return _arithmetic(operator, left, right, present)
    if operator.family == "logic":
        return _booleans(operator.run(left.cells, right.cells), present)
    if operator.family == "mask":
        return Cells(left.types, left.cells, np.asarray(operator.run(present, right.cells != 0)))
    return _booleans(_compare(operator, left, right, texts), present)


def _arithmetic(operator: Operator, left: Cells, right: Cells, present: Bools) -> Cells:
    with np.errstate(all="ignore"):
        values = operator.run(as_floats(left.types, left.cells), as_floats(right.types, right.cells))
    out = doubles(values, present)
    exact = whole(left.types) & whole(right.types)
    if not operator.exact or not exact.any():
        return out
    out.cells[exact] = operator.run(left.cells[exact], right.cells[exact])
    return Cells(np.where(exact, INTEGER, DOUBLE).astype(np.uint8), out.cells, present)


def able(operator: Operator, left: Types, right: Types) -> Bools:
    """Which rows the operator can take, so far as it wants BOOLEAN; QueryError if there are rows and it takes none."""
    if operator.family not in ("logic", "mask"):
        return np.ones(len(left), np.bool_)
    out = np.asarray(right == BOOLEAN)
    if operator.family == "logic":
        out &= left == BOOLEAN
    if out.any() or not len(out):
        return out
    said = operator.symbol or operator.name
    where, shown = ("on both sides", f"(a > 1) {said} (b > 1)")
    if operator.family == "mask":
        where, shown = ("on the right", f"apply({said!r}, a, b > 1)")
    raise QueryError(f"{said} needs BOOLEAN {where}: compare first, as in {shown}")


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
