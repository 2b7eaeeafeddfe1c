"""Buckets of rows of roll-ups: what partial_buckets makes of the samples of these rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import coarsen_buckets, run_ends, run_starts
from artimon.compute.sample_order import rank
from artimon.compute.statistics import FOLDS, to_double, with_needs
from artimon.model.grid import Grid
from artimon.model.select import INCARNATION_DTYPE
from artimon.model.value_traits import VALUE_COLUMNS
from artimon.rawtable.rollup_rows import (
    DOUBLE_FOLDS,
    INTEGER_FOLDS,
    RollupRows,
    from_table,
    in_order,
    order_of,
)
from query_dsl.stores.partial_buckets import (
    INCARNATION_FIELDS,
    PartialBuckets,
    SparseBuckets,
    group_runs,
    merge_incarnations,
    mixed_series,
    newest_ends,
    without_folds,
)
from query_dsl.stores.sample_rows import DOUBLE, ENDED, INTEGER, Ints, SampleRows, settle_types

_ALWAYS = ("time", "birth", "first_time", "last_time", "count", *VALUE_COLUMNS)


def rollup_columns(statistics: Collection[str]) -> tuple[str, ...]:
    """Return the columns to read for these statistics."""
    wanted = with_needs(statistics)
    folds = [name for name in FOLDS if name in wanted]
    return (*_ALWAYS, *(INTEGER_FOLDS[name] for name in folds), *(DOUBLE_FOLDS[name] for name in folds))


def from_rollup_table(table: Any, row_of: Ints) -> RollupRows:
    """Convert rows of roll-ups as LocalReader reads them; their `source` is the number of the pair, `series` the row
    `row_of` it."""
    pairs = table.column("pair").to_numpy()
    return from_table(table, pairs, row_of[pairs])


def as_rollups(samples: SampleRows, pairs: Ints) -> RollupRows:
    """Return one row per sample; `pairs`: the number of the pair of each."""
    valued = samples.type != ENDED
    stats = {
        "count": valued.astype(np.int64),
        "last": samples.cell,
        "last_time": samples.time_ms,
        **dict.fromkeys(FOLDS, samples.cell),
    }
    return RollupRows(
        pairs, samples.row, samples.time_ms, samples.birth_ms, samples.type, samples.time_ms, stats, samples.strings
    )


def unify_rollup_types(rows: RollupRows) -> tuple[RollupRows, int, tuple[int, ...]]:
    """`unify_types` of rows. A row of INTEGER is as late as its last sample: if some of its samples follow the first
    DOUBLE, all are left out. Returns the rows, the number of those left out, and the conflicting series."""
    samples = SampleRows(rows.series, rows.first_ms, rows.birth_ms, rows.type, rows.stats["last"], rows.strings)
    settled = settle_types(samples, rows.source, rows.stats["last_time"])
    late = np.flatnonzero(settled.keep & (settled.types == DOUBLE) & (rows.type == INTEGER))
    if len(late):
        stats = {name: column.copy() for name, column in rows.stats.items()}
        for name, cells in to_double({name: column[late] for name, column in stats.items()}).items():
            stats[name][late] = cells
        rows = replace(rows, stats=stats)
    rows = replace(rows, type=settled.types).select(settled.keep)
    return rows, int(np.count_nonzero(~settled.keep)), settled.conflicting


def bucketize_rollups(rows: RollupRows, grid: Grid) -> PartialBuckets:
    """Return the buckets on `grid`, which the buckets of the rows must nest in, and incarnations, newest times and ends
    of all rows."""
    over = rows.type == ENDED
    ended = newest_ends(rows.series[over], rows.stats["last_time"][over])
    if over.any():
        rows = rows.select(~over)
    rows = _sorted(rows, grid)
    if not len(rows):
        return PartialBuckets(ended=ended, strings=rows.strings, columns=grid.n)
    starts = run_starts(rows.series)
    mixed = mixed_series(rows.series, rows.type, starts)
    read = len(rows)
    if len(mixed):
        rows = rows.select(~np.isin(rows.series, mixed))
        starts = run_starts(rows.series) if len(rows) else starts[:0]
    newest = np.maximum.reduceat(rows.stats["last_time"], starts) if len(rows) else rows.end_ms
    return PartialBuckets(
        _bucketize_sorted(rows, grid),
        rows.series[starts],
        rows.type[starts],
        newest,
        _incarnations_of(rows),
        ended,
        mixed,
        rows.strings,
        read,
        grid.n,
    )


def _sorted(rows: RollupRows, grid: Grid) -> RollupRows:
    """Sort by (series, bucket of the grid, time, value); files mostly have this order, except for the order of the
    series."""
    grouped = group_runs(rows.series)
    if grouped is not None:
        rows = rows.select(grouped)
    ranks = rank(rows.stats["last"], rows.type == DOUBLE)
    order = order_of(rows.series, _column(rows, grid), rows.stats["last_time"], ranks)
    return rows if order is None else rows.select(order)


def _column(rows: RollupRows, grid: Grid) -> Ints:
    """Return the bucket of the grid of each row; less than 0 or at least `grid.n` outside."""
    return (rows.end_ms - (grid.start_ms + 1)) // grid.step_ms


def _bucketize_sorted(rows: RollupRows, grid: Grid) -> SparseBuckets:
    column = _column(rows, grid)
    inside = (column >= 0) & (column < grid.n)
    if not inside.all():
        rows, column = rows.select(inside), column[inside]
    if not len(rows):
        return SparseBuckets()
    at = rows.series * grid.n + column
    starts = run_starts(at)
    if len(starts) == len(at):
        return SparseBuckets(at, rows.stats)
    stats = coarsen_buckets(starts, rows.stats, rows.type == DOUBLE)
    return SparseBuckets(at[starts], without_folds(stats, rows.type[starts]))


def _incarnations_of(rows: RollupRows) -> npt.NDArray[np.void]:
    """Return the incarnations of sorted rows."""
    if not len(rows):
        return np.zeros(0, INCARNATION_DTYPE)
    starts = run_starts(rows.series, rows.birth_ms)
    ends = run_ends(starts, len(rows))
    lives = np.empty(len(starts), INCARNATION_DTYPE)
    first_ms = np.minimum.reduceat(rows.first_ms, starts)
    last_ms, last = rows.stats["last_time"][ends], rows.stats["last"][ends]
    values = rows.series[starts], rows.birth_ms[starts], first_ms, last_ms, last
    for name, column in zip(INCARNATION_FIELDS, values, strict=True):
        lives[name] = column
    if in_order(lives["row"], lives["birth_ms"], strictly=True):
        return lives
    double = np.zeros(int(rows.series[-1]) + 1, np.bool_)
    double[rows.series] = rows.type == DOUBLE
    return merge_incarnations(lives, double)
