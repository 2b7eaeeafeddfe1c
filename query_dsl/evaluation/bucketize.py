"""Bucketize for raw samples: from samples to the buckets of a grid.

A bucketize covers every sample. It reads bucket statistics if these suffice for its function, else the samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from artimon.compute.function import count_wide
from artimon.compute.raw_windows import run_on_grid
from artimon.compute.statistics import STATISTICS
from artimon.model.grid import Grid
from artimon.model.select import INCARNATION_DTYPE
from artimon.rawtable.value_columns import intern_texts
from query_dsl.evaluation.execution import QueryExecution
from query_dsl.evaluation.planner import FROM_BUCKETS
from query_dsl.evaluation.udf import WindowSpans
from query_dsl.evaluation.windows import (
    MIN_DEFAULT_GAP_MS,
    accepted_samples,
    mapper_of,
    normalized_start_times,
    note_wide,
    run_udf_samples,
    to_series_samples,
)
from query_dsl.functions.mappers import Mapper
from query_dsl.functions.registry import with_defaults
from query_dsl.results.bucket_data import BucketData
from query_dsl.results.matrix import Matrix
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import STRING, Ints, SeriesKey
from query_dsl.stores.partial_buckets import bucketize
from query_dsl.stores.query_limits import CELL_BYTES, LimitExceeded
from query_dsl.stores.sample_rows import SampleRows
from query_dsl.tree import nodes
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_duration, format_time


def bucketize_samples(node: nodes.Bucketize, grid: Grid, execution: QueryExecution) -> Matrix | None:
    """Apply the window function of `node` to all samples of each bucket of `grid`; None if statistics suffice."""
    if node.function in FROM_BUCKETS:
        return None
    mapper = mapper_of(node, execution)
    gap_ms = max(MIN_DEFAULT_GAP_MS, 2 * grid.step_ms) if node.max_gap_ms is None else node.max_gap_ms
    back = gap_ms if mapper.predecessor else 0
    found = accepted_samples(execution.raw(node.child, grid.start_ms - back, grid.end_ms), mapper, execution)
    _refuse_duplicates(found)
    _charge_memory(found, grid, 2, execution)
    if node.rules.nulls == "error":
        _refuse_empty(mapper, found, grid)
    if isinstance(node.function, nodes.UserFunction):
        ends = grid.ends()

        def windows(times: Ints) -> WindowSpans:
            first, after = (np.searchsorted(times, edge, "right") for edge in (ends - grid.step_ms, ends))
            return WindowSpans(first, after, ends)

        owned = run_udf_samples(node, node.function, found, windows, grid.n, execution)
        return Matrix(found.keys, grid, owned.column, owned.strings)
    args, least = with_defaults(mapper, node.args), node.rules.min_count
    column = run_on_grid(
        mapper, to_series_samples(found), grid, args, max_gap_ms=gap_ms, min_count=least, check=execution.check
    )  # fmt: skip
    note_wide(mapper, count_wide(mapper, found.types, column.types), execution)
    return Matrix(found.keys, grid, column, found.strings if mapper.strings else ())


def _refuse_empty(mapper: Mapper, found: RawSeries, grid: Grid) -> None:
    inside = (found.times > grid.start_ms) & (found.times <= grid.end_ms)
    at = found.owner[inside] * grid.n + (found.times[inside] - grid.start_ms - 1) // grid.step_ms
    empty = np.setdiff1d(np.arange(len(found) * grid.n), at)
    if len(empty):
        row, column = divmod(int(empty[0]), grid.n)
        end = format_time(int(grid.ends()[column]))
        raise QueryError(f'{mapper.name}: {found.series[row]} has no sample in the bucket {end}, and nulls="error"')


def bucketize_data(found: RawSeries, grid: Grid, execution: QueryExecution) -> BucketData:
    """Put the samples into buckets of `grid`, with the statistics, incarnations and ends of a fetch. Keeps their order.
    Raises QueryError if two series have one key, LimitExceeded beyond the memory limit of the query."""
    _refuse_duplicates(found)
    _charge_memory(found, grid, len(STATISTICS), execution)
    strings, cells = _sorted_texts(found)
    owner, births = found.owner, normalized_start_times(found)
    births = np.zeros(found.samples, np.int64) if births is None else births
    piece = bucketize(SampleRows(owner, found.times, births, found.types[owner], cells, strings), grid)
    stats: dict[str, Any] = {}
    for name in STATISTICS:
        dense = np.zeros(len(found) * grid.n, np.int64)
        dense[piece.buckets.at] = piece.buckets.stats[name]
        stats[name] = dense.reshape(len(found), grid.n)
    return BucketData(
        keys=found.keys,
        kinds=found.kinds,
        types=found.types,
        strings=strings,
        grid=grid,
        stats=stats,
        lives=piece.incarnations if found.births is not None else np.zeros(0, INCARNATION_DTYPE),
        ended_ms=found.ended_ms,
        stored=found.births is not None,
    )


def _refuse_duplicates(found: RawSeries) -> None:
    seen: set[SeriesKey] = set()
    for i, key in enumerate(found.keys):
        if key in seen:
            raise QueryError(
                f"bucketize: two series are named {found.series[i]}: merge them with "
                '.transform("merge"), or keep a label that differs'
            )
        seen.add(key)


def _charge_memory(found: RawSeries, grid: Grid, statistics: int, execution: QueryExecution) -> None:
    """Charge the buckets to the limits of the query. Raises LimitExceeded."""
    allowed, refusal = execution.budget.series_allowed(grid.n, statistics)
    if len(found) > allowed:
        raise LimitExceeded(f"bucketize by {format_duration(grid.step_ms)} of {len(found):,} series: {refusal}")
    execution.budget.charge(len(found), len(found) * grid.n * statistics * CELL_BYTES, 0)


def _sorted_texts(found: RawSeries) -> tuple[tuple[str, ...], Ints]:
    """Sort the distinct texts and renumber the cells: of two texts at one time buckets keep the greater one."""
    if not (found.types == STRING).any():
        return (), found.cells
    strings, places = intern_texts(found.strings)
    numbers = np.array(places, np.int64)
    texts = found.types[found.owner] == STRING
    return strings, np.where(texts, numbers[np.where(texts, found.cells, 0)], found.cells)
