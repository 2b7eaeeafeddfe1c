"""Brings two operands together: pairs their series, spreads plain values, applies the operator."""

from __future__ import annotations

import numpy as np

from artimon.model.grid import Grid
from query_dsl import nodes
from query_dsl.cells import BOOLEAN, DOUBLE, INTEGER, STRING, Cells, Key, doubles, of_type, take
from query_dsl.context import Context
from query_dsl.errors import QueryError
from query_dsl.join import NONE, Pairs, check_distinct, pair
from query_dsl.matrix import Matrix, in_order
from query_dsl.operators import OPERATORS, Operator, apply_operator

Value = Matrix | nodes.Scalar


def combine(node: nodes.Binary, left: Value, right: Value, grid: Grid, context: Context) -> Value:
    """The operator of `node` over two values; series are paired by label, a plain value goes with every series."""
    operator = OPERATORS[node.op]
    if isinstance(left, nodes.Scalar) and isinstance(right, nodes.Scalar):
        return _two_scalars(operator, left, right)
    left, right = _taken(operator, left, context), _taken(operator, right, context)
    pairs = _pairs(operator, left, right, node.match)
    if pairs.dropped:
        context.note(f"{operator.name}: {pairs.dropped} series without a partner were dropped")
    fill = node.match.fill
    ours, theirs = _side(left, pairs.left, grid, fill), _side(right, pairs.right, grid, fill)
    column = apply_operator(operator, ours, theirs, (_texts(left), _texts(right)))
    keys, ordered = in_order(pairs.keys, column)
    return Matrix(keys, grid, ordered)


def _pairs(operator: Operator, left: Value, right: Value, match: nodes.Match) -> Pairs:
    """Which rows go together; with a plain value on one side, every row of the other, without its name."""
    if isinstance(left, Matrix) and isinstance(right, Matrix):
        pairs = pair(left.keys, right.keys, match, operator.name)
        if match.group_left is not None or match.group_right is not None:
            check_distinct(pairs.keys, pairs.keys, operator.name)
        return pairs
    if match != nodes.Match():
        raise QueryError(f"{operator.name}: on=, ignoring= and their like pair series, but one side is a plain value")
    many = left.keys if isinstance(left, Matrix) else right.keys if isinstance(right, Matrix) else ()
    rows = list(range(len(many)))
    keys = [Key("", key.labels) for key in many]
    check_distinct(keys, many, f"{operator.symbol} drops the name and")
    return Pairs(rows, rows, keys)


def _taken(operator: Operator, side: Value, context: Context) -> Value:
    """The side without series that the operator cannot take."""
    if operator.texts:
        return side
    if isinstance(side, Matrix):
        return context.numeric(side, operator.name)
    if isinstance(side.value, str):
        raise QueryError(f"{operator.symbol} cannot take the text {side.value!r}: texts are only equal or not")
    return side


def _texts(side: Value) -> tuple[str, ...]:
    if isinstance(side, Matrix):
        return side.strings
    return (side.value,) if isinstance(side.value, str) else ()


def _side(side: Value, rows: list[int], grid: Grid, fill: float | None) -> Cells:
    """Rows of one operand in the order of the pairs; a scalar, or `fill` for a missing partner, is spread out."""
    if isinstance(side, nodes.Scalar):
        return _spread(side.value, len(rows), grid.n)
    index = np.array(rows, np.intp)
    if fill is None or not (index == NONE).any():
        return take(side.column, index)
    filled = _spread(fill, len(rows), grid.n)
    there = index != NONE
    part = take(side.column, index[there])
    filled.types[there], filled.cells[there], filled.present[there] = part
    return filled


def _spread(value: float | bool | str, rows: int, n: int) -> Cells:
    present = np.ones((rows, n), np.bool_)
    if isinstance(value, str):
        return of_type(STRING, np.zeros((rows, n), np.int64), present)
    if isinstance(value, float):
        return doubles(np.full((rows, n), value), present)
    return of_type(BOOLEAN if isinstance(value, bool) else INTEGER, np.full((rows, n), int(value)), present)


def _two_scalars(operator: Operator, left: nodes.Scalar, right: nodes.Scalar) -> Value:
    sides = [_spread(side.value, 1, 1) for side in (left, right)]
    if any(side.types[0] == STRING for side in sides) and not operator.texts:
        raise QueryError(f"{operator.symbol} cannot take a text")
    out = apply_operator(operator, sides[0], sides[1], (_texts(left), _texts(right)))
    cell = out.cells[0]
    if out.types[0] == DOUBLE:
        return nodes.Scalar(float(np.ascontiguousarray(cell).view(np.float64)[0]))
    return nodes.Scalar(bool(cell[0]))
