"""Own functions over raw samples: windows around each sample, buckets of a grid with all samples that lie there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from artimon.model.grid import Grid
from query_dsl.evaluation.context import Context
from query_dsl.evaluation.own import Owned, Spans, run_own_spans
from query_dsl.evaluation.owned import gives_of, watch_of
from query_dsl.results.cells import Ints
from query_dsl.results.irregular import Irregular
from query_dsl.results.matrix import Matrix
from query_dsl.tree import nodes

INT = np.iinfo(np.int64)


def own_at_samples(
    node: nodes.Window, function: nodes.Own, before_ms: int, found: Irregular, context: Context
) -> Irregular:
    """A window at each sample; where the function gives none, the sample goes."""

    def windows(times: Ints) -> Spans:
        floor, ceiling = INT.min + before_ms, INT.max - node.after_ms
        starts, ends = np.maximum(times, floor) - before_ms, np.minimum(times, ceiling) + node.after_ms
        return Spans(np.searchsorted(times, starts, "right"), np.searchsorted(times, ends, "right"), ends)

    owned = _run(node, function, found, windows, None, context)
    types = np.full(len(found), owned.column.types[0], np.uint8)
    made = found.computed(types=types, cells=owned.column.cells[0], strings=owned.strings)
    return made.keep(owned.column.present[0])


def own_of_buckets(
    node: nodes.Bucketize, function: nodes.Own, found: Irregular, grid: Grid, context: Context
) -> Matrix:
    """All samples of each bucket of `grid`."""
    ends = grid.ends()

    def windows(times: Ints) -> Spans:
        return Spans(np.searchsorted(times, ends - grid.step_ms, "right"), np.searchsorted(times, ends, "right"), ends)

    owned = _run(node, function, found, windows, grid.n, context)
    return Matrix(found.keys, grid, owned.column, owned.strings)


def _run(
    node: nodes.Window | nodes.Bucketize,
    function: nodes.Own,
    found: Irregular,
    windows: Callable[[Ints], Spans],
    columns: int | None,
    context: Context,
) -> Owned:
    least = 1 if node.rules.min_count is None else node.rules.min_count
    return run_own_spans(function.call, found, windows, columns, gives_of(node.args), watch_of(context), least)
