"""Operators and user-defined functions over operands: pair series, broadcast plain values, apply the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np

from artimon.model.grid import Grid
from query_dsl.evaluation.carried_values import carry_sparse
from query_dsl.evaluation.defaults import Operand, common_problem, empty_operand, note_empty, spread, with_default
from query_dsl.evaluation.execution import QueryExecution, TimedScalar, Value
from query_dsl.evaluation.set_operators import combine_sets
from query_dsl.evaluation.udf import result_type_of, run_udf_apply
from query_dsl.functions.join import NONE, RowPairs, check_distinct, pair_rows
from query_dsl.functions.operators import Operator
from query_dsl.functions.operators_kernels import accepted_rows, apply_operator
from query_dsl.functions.tables import OPERATORS
from query_dsl.results.label_table import keys_of
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import (
    BOOLEAN,
    DOUBLE,
    STRING,
    Cells,
    Rows,
    SeriesKey,
    take,
)
from query_dsl.tree import nodes
from query_dsl.tree.query_errors import QueryError

Defaults = tuple[nodes.Scalar | None, nodes.Scalar | None]
"""Values of the keys and points that the left, and the right operand lack."""


def combine_operands(
    node: nodes.Binary, left: Operand, right: Operand, grid: Grid, execution: QueryExecution
) -> Operand:
    """Apply the operator of `node` to two operands and to their defaults. If both select nothing, the result does."""
    default = _fold(OPERATORS[node.op], left.default, right.default, grid)
    problem = common_problem([left, right])
    if problem is not None:
        return empty_operand(problem, grid, default, False)
    note_empty([left, right], node.op, execution)
    operator = OPERATORS[node.op]
    ours = carry_sparse(operator, node.left, left.value, right.value, grid, execution)
    theirs = carry_sparse(operator, node.right, right.value, left.value, grid, execution)
    made = combine(node, ours, theirs, grid, execution, (left.default, right.default))
    return Operand(made, default, literal=left.literal and right.literal)


def _fold(operator: Operator, left: nodes.Scalar | None, right: nodes.Scalar | None, grid: Grid) -> nodes.Scalar | None:
    """Return the default of a result: for `or` the default of the right operand, else the operator applied to both
    defaults."""
    if operator.name == "set_or":
        return None if right is not None and isinstance(right.value, str) else right
    if left is None or right is None or operator.family in ("set", "mask"):
        return None
    try:
        found = _two_scalars(operator, left, right, grid)
    except QueryError:  # the operator does not take it: what its series are decides
        return None
    return found if isinstance(found, nodes.Scalar) else None


def combine(
    node: nodes.Binary,
    left: Value,
    right: Value,
    grid: Grid,
    execution: QueryExecution,
    defaults: Defaults = (None, None),
) -> Value:
    """Apply the operator of `node` to two values; series pair by label, a plain value pairs with every series."""
    operator = OPERATORS[node.op]
    if operator.family == "set":
        return combine_sets(operator, node.match, left, right, execution)
    if not isinstance(left, Matrix) and (operator.family == "mask" and isinstance(right, Matrix)):
        raise QueryError(
            f"{operator.name} keeps series of its left operand, but that is a plain value: put the query on the left"
        )
    if not isinstance(left, Matrix) and not isinstance(right, Matrix):
        return _two_scalars(operator, left, right, grid)
    left = with_default(_accepted(operator, left, execution), defaults[0], execution)
    right = with_default(_accepted(operator, right, execution), defaults[1], execution)
    if operator.family == "mask" and isinstance(right, Matrix):
        right = execution.numeric_only(right, operator.name)
    pairs = _pairs(operator, left, right, node.match, (defaults[0] is not None, defaults[1] is not None))
    execution.note(*pairs.notes)
    fills = [node.match.fill if default is None else default.value for default in defaults]
    ours, theirs = _side(left, pairs.left, grid, fills[0]), _side(right, pairs.right, grid, fills[1])
    keys = pairs.keys
    taken = accepted_rows(operator, ours.types, theirs.types, (_plain_text(left), _plain_text(right)))
    if not taken.all():
        unlike = "with a text on one side only" if operator.family == "comparison" else "that are not BOOLEAN"
        execution.note(f"{operator.name}: {int((~taken).sum())} series {unlike} left out")
        ours, theirs = take(ours, taken), take(theirs, taken)
        keys = [key for key, kept in zip(keys, taken.tolist(), strict=True) if kept]
    column = apply_operator(operator, ours, theirs, (_texts(left), _texts(right)))
    return Matrix.in_order(keys, grid, column, _texts(left) if operator.family == "mask" else ())


def _pairs(
    operator: Operator, left: Value, right: Value, match: nodes.LabelMatching, stands: tuple[bool, bool]
) -> RowPairs:
    """Return the rows that pair; a plain value on one side pairs with every row of the other."""
    if isinstance(left, Matrix) and isinstance(right, Matrix):
        if operator.family == "mask":
            return _masked(operator, left, right, match, stands[1])
        pairs = pair_rows(left.keys, right.keys, match, operator.name, stands)
        if match.group_left is not None or match.group_right is not None:
            check_distinct(pairs.keys, pairs.keys, operator.name)
        return pairs
    if match != nodes.LabelMatching():
        raise QueryError(
            f"{operator.name}: on=, ignoring= and similar arguments pair series, but one operand is a "
            "plain value: leave them out"
        )
    many = left.keys if isinstance(left, Matrix) else right.keys if isinstance(right, Matrix) else ()
    rows = np.arange(len(many))
    if operator.family == "mask":
        return RowPairs(rows, rows, list(many))
    keys = keys_of(repeat(""), [key.labels for key in many])
    check_distinct(keys, many, f"{operator.symbol or operator.name} drops the name and")
    return RowPairs(rows, rows, keys)


def _masked(operator: Operator, left: Matrix, right: Matrix, match: nodes.LabelMatching, stands: bool) -> RowPairs:
    """Pair series of the left, which keep names and labels, with their partners; many may share one."""
    if match.group_left is not None or match.group_right is not None or match.fill is not None:
        raise QueryError(
            f"{operator.name} keeps names and labels of its left operand, many of which may share one on the right: "
            "leave group_left=, group_right= and fill= out"
        )
    pairs = pair_rows(left.keys, right.keys, replace(match, group_left=()), operator.name, (False, stands))
    return RowPairs(pairs.left, pairs.right, [left.keys[row] for row in pairs.left.tolist()], pairs.notes)


def _accepted(operator: Operator, side: Value, execution: QueryExecution) -> Value:
    """Drop the series that the operator does not accept. Raises QueryError for a plain text."""
    if operator.texts:
        return side
    if isinstance(side, Matrix):
        return execution.numeric_only(side, operator.name)
    said = operator.symbol or operator.name
    if isinstance(side, nodes.Scalar) and isinstance(side.value, str):
        raise QueryError(f"{said} cannot take the text {side.value!r:.80}: texts support only == and !=")
    if isinstance(side, TimedScalar) and side.column.types[0] == STRING:
        raise QueryError(f"{said} cannot take a scalar of STRING: texts support only == and !=")
    return side


def _texts(side: Value) -> tuple[str, ...]:
    if isinstance(side, Matrix | TimedScalar):
        return side.strings
    return (side.value,) if isinstance(side.value, str) else ()


def _plain_text(side: Value) -> str:
    return side.value if isinstance(side, nodes.Scalar) and isinstance(side.value, str) else ""


def _side(side: Value, rows: Rows, grid: Grid, fill: float | bool | str | None) -> Cells:
    """Return one row of the operand for each pair. A scalar is repeated; `fill` stands for a missing partner."""
    if isinstance(side, nodes.Scalar):
        return spread(side.value, len(rows), grid.n)
    if isinstance(side, TimedScalar):
        types, cells, present = side.column
        shape = (len(rows), grid.n)
        return Cells(
            np.full(len(rows), types[0], np.uint8), np.broadcast_to(cells, shape), np.broadcast_to(present, shape)
        )
    there = rows != NONE
    if fill is None or there.all():
        return take(side.column, rows)
    filled = spread(fill, len(rows), grid.n)
    part = take(side.column, rows[there])
    filled.types[there], filled.cells[there], filled.present[there] = part
    return filled


def _two_scalars(operator: Operator, left: Value, right: Value, grid: Grid) -> Value:
    """Combine two plain values; the result changes with time if one of them does."""
    if any(_is_text(side) for side in (left, right)) and not operator.texts:
        raise QueryError(f"{operator.symbol or operator.name} cannot take a text")
    timed = isinstance(left, TimedScalar) or isinstance(right, TimedScalar)
    width = grid if timed else Grid(grid.end_ms, 1, 1)
    row = np.zeros(1, np.intp)
    sides = [_side(side, row, width, None) for side in (left, right)]
    accepted_rows(operator, sides[0].types, sides[1].types, (_plain_text(left), _plain_text(right)))
    out = apply_operator(operator, sides[0], sides[1], (_texts(left), _texts(right)))
    if timed:
        return TimedScalar(grid, out, _texts(left) if operator.family == "mask" else ())
    if operator.family == "mask":
        raise QueryError(f"{operator.name} keeps series, but both operands are plain values: put a query on the left")
    cell = out.cells[0]
    if out.types[0] == DOUBLE:
        return nodes.Scalar(float(np.ascontiguousarray(cell).view(np.float64)[0]))
    return nodes.Scalar(bool(cell[0]) if out.types[0] == BOOLEAN else int(cell[0]))


def _is_text(side: Value) -> bool:
    if isinstance(side, nodes.Scalar):
        return isinstance(side.value, str)
    return not isinstance(side, Matrix) and bool(side.column.types[0] == STRING)


def combine_udf(node: nodes.Apply, operands: list[Operand], grid: Grid, execution: QueryExecution) -> Matrix:
    """Evaluate `apply(f, a, b, …)`: operands pair with the first one that has series, as in an operator; a plain value
    pairs with every series. Raises NothingSelected if all operands select nothing."""
    name, match = node.function.name, node.match
    problem = common_problem(operands)
    if problem is not None:
        raise problem
    note_empty(operands, name, execution)
    values = [with_default(one.value, one.default, execution) for one in operands]
    sides = [value.keys for value in values if isinstance(value, Matrix)]
    if not sides:
        raise QueryError(f"{name} works on series: begin with fetch('NAME')")
    stands = [one.default is not None or match.fill is not None for one in operands if isinstance(one.value, Matrix)]
    rows, notes = _match_operands(sides, match, name, stands)
    execution.note(*notes)
    fills = [match.fill if one.default is None else one.default.value for one in operands]
    keys, every = list(rows), np.zeros(len(rows), np.intp)
    indices = iter(np.array(list(rows.values()), np.intp).reshape(len(rows), len(sides)).T)
    columns = [
        (_side(value, next(indices) if isinstance(value, Matrix) else every, grid, fill), _texts(value))
        for value, fill in zip(values, fills, strict=True)
    ]
    owned = run_udf_apply(node.function.call, columns, keys, result_type_of(node.args), execution.budget)
    return Matrix.in_order(keys, grid, owned.column, owned.strings)


def _match_operands(
    sides: Sequence[tuple[SeriesKey, ...]], match: nodes.LabelMatching, name: str, stands: Sequence[bool]
) -> tuple[Mapping[SeriesKey, list[int]], list[str]]:
    """Map each result key to its row in each operand; with notes on series that are left out. `stands`: True if a value
    stands for what an operand lacks. Raises QueryError as for operators."""
    if len(sides) == 1:
        if match != nodes.LabelMatching():
            raise QueryError(
                f"{name}: on=, ignoring= and similar arguments pair series, but there is only one "
                "operand: leave them out"
            )
        keys = [SeriesKey("", key.labels) for key in sides[0]]
        check_distinct(keys, sides[0], f"{name} drops the name and")
        return {key: [row] for row, key in enumerate(keys)}, []
    if match.group_right is not None and len(sides) > 2:
        raise QueryError(
            f"{name}: group_right needs exactly two operands: put the operand with many series first and use group_left"
        )
    notes: list[str] = []
    found: dict[tuple[int, SeriesKey], list[int]] = {}
    keyed: dict[tuple[int, SeriesKey], SeriesKey] = {}
    for place, side in enumerate(sides[1:], 1):
        pairs = pair_rows(sides[0], side, match, name, (stands[0], stands[place]))
        notes += pairs.notes
        for left, right, key in zip(pairs.left, pairs.right, pairs.keys, strict=True):
            # labels taken from the right may give several left series one key: the row distinguishes them
            place_of = (left, SeriesKey("", ())) if match.group_left is not None and left != NONE else (NONE, key)
            rows = found.setdefault(place_of, [NONE] * len(sides))
            if left != NONE:
                rows[0] = left
            rows[place] = right
            keyed[place_of] = _merged(keyed.get(place_of), key)
    whole = {
        at: rows
        for at, rows in found.items()
        if all(row != NONE or stand for row, stand in zip(rows, stands, strict=True))
    }
    keys = [keyed[at] for at in whole]
    check_distinct(keys, keys, name)
    if len(found) > len(whole):
        notes.append(f"{name}: left out {len(found) - len(whole)} series without a partner in every operand")
    return dict(zip(keys, whole.values(), strict=True)), notes


def _merged(before: SeriesKey | None, key: SeriesKey) -> SeriesKey:
    return (
        key if before is None else SeriesKey(key.name, tuple(sorted((dict(before.labels) | dict(key.labels)).items())))
    )
