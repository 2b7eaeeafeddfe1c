"""Run filters, fillers and transforms: build the call that a step gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from artimon.model.grid import Grid
from query_dsl.evaluation.context import Context
from query_dsl.evaluation.mapping import run_window
from query_dsl.evaluation.seen import seen
from query_dsl.functions.registry import arguments_of
from query_dsl.functions.step import Asked, Step
from query_dsl.functions.tables import STEPS
from query_dsl.results.bucket_data import BucketData
from query_dsl.results.matrix import Matrix
from query_dsl.tree import nodes
from query_dsl.tree.errors import QueryError

Run = Callable[[nodes.Node, Grid, Context, str], Matrix]
Data = Callable[[nodes.Node, Grid, Sequence[str], Context], BucketData]


def entry_of(node: nodes.Step) -> Step:
    """The registered function of a node."""
    return STEPS[node.family][node.function]


def run_step(node: nodes.Step, grid: Grid, context: Context, run: Run, data: Data) -> Matrix:
    """The step on `grid`. QueryError where it takes raw samples only."""
    entry = entry_of(node)
    if entry.run is None:
        raise QueryError(f"{entry.name} takes raw samples: begin with samples('NAME')")
    asked = Asked(
        node=node,
        entry=entry,
        grid=grid,
        args=arguments_of(entry, node.args),
        context=context,
        evaluate=lambda child, at, name: run(child, at, context, name),
        read=lambda child, at, statistics: data(child, at, statistics, context),
        last_seen=lambda back_ms: seen(node.child, grid, back_ms, entry.name, context),
        map_window=lambda window, at: run_window(window, at, context, data),
    )
    return entry.run(asked)
