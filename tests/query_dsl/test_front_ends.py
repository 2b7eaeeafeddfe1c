"""Trees and plans of other front ends: the evaluator takes any grid, and no text."""

from __future__ import annotations

import pytest

from artimon.model.grid import Grid
from query_dsl import QueryError, evaluate, fetch, offline, parse, samples
from query_dsl.evaluation.evaluator import QueryEvaluator
from query_dsl.evaluation.planner import Plan
from query_dsl.results.matrix import Matrix
from query_dsl.results.raw_series import RawSeries
from query_dsl.stores.levels import LevelSnapshot
from query_dsl.tree import nodes

STORE = offline({"x": [(t * 1000, float(t)) for t in range(1, 61)], "word": [(1000, "a")]})


def plan_of(grid: Grid) -> Plan:
    """Grid that belongs to no level and needs no common multiple."""
    ring = LevelSnapshot(grid.step_ms, grid.n, grid.end_ms, 0, unbounded=True)
    return Plan(grid, (ring,), grid.step_ms, (), "samples", "asked so", any_step=True)


def test_a_grid_of_any_step_and_end() -> None:
    grid = Grid(30_500, 7_000, 3)
    found = QueryEvaluator(STORE, plan_of(grid), nodes.Window(fetch("x").node, "max")).answer()
    assert isinstance(found, Matrix)
    assert (found.grid, found.tolist(0)) == (grid, [16.0, 23.0, 30.0])


def test_raw_samples_in_the_time_of_a_grid() -> None:
    found = QueryEvaluator(STORE, plan_of(Grid(5_000, 1_500, 2)), samples("x").node).answer()
    assert isinstance(found, RawSeries)
    assert found.tolist(0) == [(3000, 3.0), (4000, 4.0), (5000, 5.0)]


def test_a_text_and_its_expression_are_the_same_query() -> None:
    text = "fetch('x').map('sum', '1m').at(60000)"
    assert evaluate(text, STORE, 120_000) == evaluate(parse(text), STORE, 120_000)


@pytest.mark.parametrize(
    "tree",
    [
        nodes.Unary("neg", samples("x").node),
        nodes.ToScalar(samples("x").node),
        nodes.Binary("add", samples("x").node, nodes.Scalar(1)),
        nodes.Reduce(samples("x").node, "sum", (), None),
    ],
)
def test_a_tree_that_gives_raw_samples_to_what_takes_none_is_refused(tree: nodes.Node) -> None:
    with pytest.raises(QueryError, match="takes series on a grid, and samples\\(\\) gives raw samples"):
        QueryEvaluator(STORE, plan_of(Grid(60_000, 1_000, 60)), tree).answer()
