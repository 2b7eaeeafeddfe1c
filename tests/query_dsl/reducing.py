"""Random matrices, and the evaluation of one node over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from artimon.model.grid import Grid
from query_dsl import Matrix, parse
from query_dsl.evaluation.class_reduction import reduce_classes
from query_dsl.evaluation.evaluator import QueryEvaluator
from query_dsl.evaluation.execution import TimedScalar, Value
from query_dsl.evaluation.operands import combine
from query_dsl.evaluation.planner import plan
from query_dsl.results.matrix import sort_rows
from query_dsl.results.result_cells import BOOLEAN, DOUBLE, INTEGER, STRING, Cells, SeriesKey
from query_dsl.tree import nodes
from tests.query_dsl.plain_store import LEVELS, PlainStore

MINUTE = 60_000
KINDS = {int: INTEGER, float: DOUBLE, bool: BOOLEAN, str: STRING}
Row = tuple[SeriesKey, type, Any]
"""Name of a series, type of its values, and the values, None where missing."""


def key(name: str = "x", **labels: str) -> SeriesKey:
    return SeriesKey(name, tuple(sorted((label, value) for label, value in labels.items() if value)))


def matrix(rows: Sequence[Any], n: int | None = None) -> Matrix:
    """A matrix of these rows (see Row), in canonical order."""
    width = n if n is not None else len(rows[0][2]) if rows else 0
    strings: list[str] = []
    cells, present = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.bool_)
    for i, (_, kind, values) in enumerate(rows):
        for j, value in enumerate(values):
            if value is not None:
                present[i, j], cells[i, j] = True, _cell(kind, value, strings)
    types = np.array([KINDS[kind] for _, kind, _ in rows], np.uint8)
    keys, column = sort_rows([key for key, _, _ in rows], Cells(types, cells, present))
    return Matrix(keys, Grid(MINUTE * 1000, MINUTE, width), column, tuple(strings))


def _cell(kind: type, value: Any, strings: list[str]) -> int:
    if kind is str:
        strings.append(value)
        return len(strings) - 1
    return int(np.array(float(value)).view(np.int64)) if kind is float else int(value)


def context() -> QueryEvaluator:
    """Evaluator that has made no request yet."""
    tree = parse("fetch('x').range('5m')").node
    return QueryEvaluator(PlainStore(), plan(tree, LEVELS, MINUTE * 1000), tree)


def reduce_(
    found: Matrix,
    name: str,
    by: Sequence[str] | None = (),
    without: Sequence[str] | None = None,
    nulls: str = "skip",
    min_count: int | None = None,
    asked: QueryEvaluator | None = None,
    **args: Any,
) -> Matrix:
    rules = nodes.NullRules(nulls, min_count)
    labels = None if without is not None else tuple(by or ())
    node = nodes.Reduce(
        nodes.Scalar(1), name, labels, tuple(without) if without is not None else None, rules, tuple(args.items())
    )
    return reduce_classes(node, found, asked or context())


def binary(op: str, left: Value, right: Value, asked: QueryEvaluator | None = None, **match: Any) -> Value:
    grids = [side.grid for side in (left, right) if isinstance(side, Matrix | TimedScalar)]
    grid = grids[0] if grids else Grid(0, MINUTE, 1)
    node = nodes.Binary(op, nodes.Scalar(1), nodes.Scalar(1), nodes.LabelMatching(**match))
    return combine(node, left, right, grid, asked or context())


def joined(op: str, left: Value, right: Value, asked: QueryEvaluator | None = None, **match: Any) -> Matrix:
    found = binary(op, left, right, asked, **match)
    assert isinstance(found, Matrix)
    return found


def table(found: Matrix) -> dict[str, list[Any]]:
    """Series -> values."""
    return dict(iter(found))


def near(a: Any, b: Any, tolerance: float = 1e-12) -> bool:
    """Equal, to rounding where they are floats; NaN equals NaN."""
    if isinstance(a, float) and isinstance(b, float):
        both_nan = math.isnan(a) and math.isnan(b)
        return both_nan or a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    return type(a) is type(b) and bool(a == b)


def all_near(got: Sequence[Any], expect: Sequence[Any], tolerance: float = 1e-12) -> bool:
    return len(got) == len(expect) and all(near(a, b, tolerance) for a, b in zip(got, expect, strict=True))


BIG = 2**53
VALUES: dict[type, st.SearchStrategy[Any]] = {
    int: st.integers(-5, 5) | st.integers(BIG - 2, BIG + 4) | st.sampled_from([-(2**63), 2**63 - 1]),
    float: st.sampled_from([-2.0, -0.0, 0.0, 0.25, 1.0, 3.5, 5.0, float(BIG), math.nan, math.inf, -math.inf]),
    bool: st.booleans(),
    str: st.sampled_from(["a", "b", "1", ""]),
}
SMALL: dict[type, st.SearchStrategy[Any]] = {
    int: st.integers(-9, 9),
    float: st.integers(-40, 40).map(lambda v: v / 4) | st.sampled_from([math.nan]),
    bool: st.booleans(),
}


@st.composite
def matrices(
    draw: Any,
    values: dict[type, st.SearchStrategy[Any]],
    names: Sequence[str] = ("x", "y"),
    most: int = 12,
    n: int | None = None,
) -> Matrix:
    """Up to `most` series of up to four columns, of labels a, b and c, some without."""
    width = n or draw(st.integers(1, 4))
    found: dict[SeriesKey, Row] = {}
    for _ in range(draw(st.integers(1, most))):
        own = key(
            draw(st.sampled_from(names)),
            a=draw(st.sampled_from(["", "1", "2"])),
            b=draw(st.sampled_from(["", "1", "2", "10"])),
            c=draw(st.sampled_from(["", "u"])),
        )
        kind = draw(st.sampled_from(list(values)))
        row = draw(st.lists(st.none() | values[kind], min_size=width, max_size=width))
        found[own] = (own, kind, row)
    return matrix(list(found.values()), width)
