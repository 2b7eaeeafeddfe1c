"""Array kernels of operators: cells of two operands, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from artimon.model.values import ValueType
from query_dsl.functions.registry import Entry
from query_dsl.results.result_cells import (
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
    is_whole_number,
)
from query_dsl.tree.query_errors import QueryError

Strings = tuple[str, ...]
_ROOT = 0.5


def power(values: Floats, exponents: Floats | float) -> Floats:
    """IEEE 754 powers. numpy.power takes the square root for a single exponent 0.5: NaN for -inf instead of inf."""
    function = np.float_power if np.any(np.equal(exponents, _ROOT)) else np.power
    return np.asarray(function(values, exponents))


@dataclass(frozen=True, kw_only=True)
class Operator(Entry):
    """`run` takes float64 arrays; int64 arrays if both sides are whole and the operator is exact or a comparison; or
    texts.

    family: arithmetic (DOUBLE), comparison (BOOLEAN) and logic (BOOLEAN of BOOLEAN) give the matched labels without a
    name; mask and set give series of their operands with name and labels. `run` of these two returns a mask of kept
    values from two masks. mask: presence on both sides, truth on the right. set: presence on its side, presence of
    a match on the other side."""

    symbol: str
    precedence: int
    """Precedence as in Python: a greater one binds tighter."""
    family: str
    run: Callable[[Any, Any], Any]
    method: str = ""
    """Method name of an operator without a symbol: `.and_`."""
    exact: bool = False
    """True if INTEGER and BOOLEAN operands give exact INTEGER."""

    @property
    def texts(self) -> bool:
        """True if the operator receives STRING series: it supports them, or rejects them itself."""
        return self.name in ("eq", "ne") or self.family in ("logic", "mask", "set")


def apply_operator(operator: Operator, left: Cells, right: Cells, texts: tuple[Strings, Strings]) -> Cells:
    """Apply an operator to paired rows; missing where either is. All rows are `accepted_rows`; not for family set."""
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
    exact = is_whole_number(left.types) & is_whole_number(right.types)
    if not operator.exact or not exact.any():
        return out
    out.cells[exact] = operator.run(left.cells[exact], right.cells[exact])
    return Cells(np.where(exact, INTEGER, DOUBLE).astype(np.uint8), out.cells, present)


def accepted_rows(operator: Operator, left: Types, right: Types, texts: tuple[str, str] = ("", "")) -> Bools:
    """Mask of the rows with types that the operator takes: BOOLEAN, or for a comparison texts on both sides or on none.
    QueryError if it accepts none of the rows; `texts`: the plain text of a side."""
    if operator.family == "comparison":
        same = np.asarray((left == STRING) == (right == STRING))
        if len(same) and not same.any():
            raise _unlike(operator, left, right, texts)
        return same
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


def _unlike(operator: Operator, left: Types, right: Types, texts: tuple[str, str]) -> QueryError:
    """Return the error for a comparison of texts with other values."""
    kind = int(right[0] if left[0] == STRING else left[0])
    return mixed_comparison(operator.symbol, kind, texts[0] or texts[1])


def mixed_comparison(sign: str, kind: int, text: str) -> QueryError:
    """Return the error for a comparison of values of type `kind` with a plain `text` ("": with STRING series), with
    what to write."""
    name = ValueType(kind).name
    if not text:
        return QueryError(f"{sign} cannot compare STRING with {name}: write the text in quotes, or use to_double first")
    truth = {"true": "True", "false": "False"}.get(text.lower(), "True or False")
    remedy = truth if kind == BOOLEAN else "a number"
    return QueryError(f"{sign} cannot compare {name} with the text {text!r:.80}: write {sign} {remedy} without quotes")


def _compare(operator: Operator, left: Cells, right: Cells, texts: tuple[Strings, Strings]) -> Bools:
    out = operator.run(as_floats(left.types, left.cells), as_floats(right.types, right.cells))
    exact = (left.types != DOUBLE) & (right.types != DOUBLE)
    if exact.any():
        out[exact] = operator.run(left.cells[exact], right.cells[exact])
    strings = left.types == STRING  # on both sides: the rows are accepted
    if strings.any():
        a, b = _objects(left, strings, texts[0]), _objects(right, strings, texts[1])
        out[strings] = operator.run(a, b).astype(np.bool_)
    return np.asarray(out, np.bool_)


def _objects(side: Cells, rows: Bools, texts: Strings) -> Any:
    """Return the texts of STRING rows."""
    return np.array([*texts, None], object)[np.clip(side.cells[rows], 0, len(texts))]


def _booleans(values: Any, present: Bools) -> Cells:
    return Cells(np.full(len(present), BOOLEAN, np.uint8), np.ascontiguousarray(values, np.int64), present)
