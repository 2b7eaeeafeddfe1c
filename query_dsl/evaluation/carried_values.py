"""Operands of operators with samples in each n-th bucket only: their last value is carried for their period."""

from __future__ import annotations

from functools import partial

import numpy as np

from artimon.model.grid import Grid
from query_dsl.evaluation.execution import QueryExecution, Value
from query_dsl.evaluation.fetches import held_grid, level_of
from query_dsl.evaluation.set_operators import unite_series
from query_dsl.functions.operators import Operator
from query_dsl.functions.tables import OPERATORS
from query_dsl.results.bucket_data import from_buckets
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import Bools
from query_dsl.tree import nodes
from query_dsl.tree.nodes import Node
from query_dsl.tree.times import format_duration

LOOK_BACK = 60
"""Buckets, those of the grid included, in which a period is looked for; it needs LEAST_DISTANCES + 1 samples."""
LEAST_DISTANCES = 3
"""Equal distances of samples that make a period; fewer may be equal by chance."""
LEAST_LEAD = 15
"""Buckets before the grid that are read in any case: the longest period that is carried into a long grid."""
_ABOVE = nodes.Range | nodes.Between | nodes.At | nodes.Offset | nodes.Point | nodes.Unary
LabelPairs = tuple[tuple[str, str], ...]


def carry_sparse(
    operator: Operator, node: Node, found: Value, other: Value, grid: Grid, execution: QueryExecution
) -> Value:
    """Carry the values of an operand, if it lacks some that `other` may have. `node`: a fetch, perhaps below times,
    functions of single values and operators with a literal; other operands stay as they are."""
    if operator.family == "set" or not isinstance(found, Matrix) or not isinstance(other, Matrix):
        return found
    if found.present.all() and len(found) >= len(other):
        return found
    leaf = _leaf(node)
    if leaf is None:
        return found
    periods = _periods(leaf[0], Grid(grid.end_ms - leaf[1], grid.step_ms, grid.n), execution)
    for columns in sorted(set(periods.values())):
        rows = {labels for labels, period in periods.items() if period == columns}
        window = nodes.Window(leaf[0], "last", columns * grid.step_ms, span=leaf[0].span)
        notes = list(execution.notes)
        carried = nodes.map_leaves(node, partial(_instead, leaf[0], window))
        wide = execution.matrix(carried, grid, operator.name)
        execution.notes[:] = notes  # those of the operand are there already
        found = unite_series(_select(found, rows, False), _select(wide, rows, True), operator.name)
        period = format_duration(columns * grid.step_ms)
        of = f"{len(rows)} series of {leaf[0].selector}"
        execution.note(f"{operator.name}: {of} have a value every {period}, which is carried until the next")
    return found


def _leaf(node: Node) -> tuple[nodes.Fetch, int] | None:
    """Return the fetch below, and the sum of the offsets in milliseconds."""
    offset_ms = 0
    while not isinstance(node, nodes.Fetch):
        if isinstance(node, nodes.Binary):
            below = _beside_literal(node)
            if below is None:
                return None
            node = below
        elif isinstance(node, _ABOVE):
            offset_ms += node.offset_ms if isinstance(node, nodes.Offset) else 0
            node = node.child
        else:
            return None
    return node, offset_ms


def _beside_literal(node: nodes.Binary) -> Node | None:
    """Return the other operand of an arithmetic operator or comparison with a literal; None for other operators, and
    without a literal."""
    if OPERATORS[node.op].family not in ("arithmetic", "comparison"):
        return None
    if isinstance(node.right, nodes.Scalar):
        return node.left
    return node.right if isinstance(node.left, nodes.Scalar) else None


def _instead(fetch: Node, other: Node, leaf: Node) -> Node:
    return other if leaf is fetch else leaf


def _periods(node: nodes.Fetch, grid: Grid, execution: QueryExecution) -> dict[LabelPairs, int]:
    """Return the period in buckets of each series with more than one; none if two series have equal labels."""
    before = execution.columns_held_before(grid) or 0
    wide = grid.widen(min(before, max(LEAST_LEAD, LOOK_BACK - grid.n)))
    held = held_grid(wide, level_of(grid, "bucketize this side too", execution))
    data = from_buckets(execution.select(node.selector.matchers, held, ("count",), node.resolution is not None))
    periods = {key.labels: _period(present) for key, present in zip(data.keys, data.present, strict=True)}
    return {labels: one for labels, one in periods.items() if one > 1} if len(periods) == len(data.keys) else {}


def _period(present: Bools) -> int:
    """Return the regular distance of the samples of a series: every distance is a multiple of it, and most are equal to
    it. Return 1 if there is none."""
    apart = np.diff(np.flatnonzero(present))
    if len(apart) < LEAST_DISTANCES:
        return 1
    least = int(apart.min())
    equal = int((apart == least).sum())
    regular = not (apart % least).any() and equal >= LEAST_DISTANCES and equal * 2 >= len(apart)
    return least if regular else 1


def _select(found: Matrix, labels: set[LabelPairs], inside: bool) -> Matrix:
    return found.take(np.array([(key.labels in labels) == inside for key in found.keys], np.bool_))
