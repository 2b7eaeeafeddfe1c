"""Time of the newest sample of each series, as known at the end of every bucket."""

from __future__ import annotations

import numpy as np

from artimon.model.grid import Grid
from artimon.model.select import Buckets
from artimon.model.series_table import SeriesTable
from query_dsl.evaluation.execution import QueryExecution
from query_dsl.evaluation.fetches import held_grid, level_of
from query_dsl.functions.step import NEVER, NewestTimes
from query_dsl.results.result_cells import Ints, SeriesKey, canonical_order
from query_dsl.stores.empty_selection import explain_empty
from query_dsl.stores.levels import LevelSnapshot
from query_dsl.tree import nodes
from query_dsl.tree.nodes import Node
from query_dsl.tree.query_errors import NothingSelected, QueryError

_TIMES = ("count", "last_time")
MAX_COLUMNS = 2_000
"""Maximum number of buckets read per series, those of the grid included if it has fewer."""


def read_newest_times(
    node: Node, grid: Grid, back_ms: int | None, function: str, execution: QueryExecution
) -> NewestTimes:
    """Return the newest sample times of a fetch, possibly shifted in time. `back_ms`: age up to which samples matter
    (None: as far as the level reaches). Reads buckets, incarnations, and the newest times known to the store, of any
    age.

    Raises QueryError for any node but a fetch."""
    child, offset_ms = nodes.below_times(node)
    if not isinstance(child, nodes.Fetch):
        raise QueryError(
            f"{function} needs the times of samples, which computed values lack: use it directly after fetch(..), "
            f"as in fetch('x').{function}(..)"
        )
    found = _read_fetch(child, Grid(grid.end_ms - offset_ms, grid.step_ms, grid.n), back_ms, execution)
    return NewestTimes(found.keys, np.where(found.known, found.newest + offset_ms, NEVER))


def _read_fetch(node: nodes.Fetch, grid: Grid, back_ms: int | None, execution: QueryExecution) -> NewestTimes:
    ring = level_of(grid, "ask on a level's own grid, without bucketize", execution)
    lead = _lead_columns(grid, ring, back_ms)
    held = held_grid(grid.widen(lead), ring)
    matchers, past = node.selector.matchers, node.resolution is not None
    buckets = execution.select(matchers, held, _TIMES, past)
    if not buckets.series and not past and _is_forgotten(node, execution):
        past, buckets = True, execution.select(matchers, held, _TIMES, True)
    if not buckets.series:
        raise NothingSelected(explain_empty(node.selector, execution.store, execution.plan.grid.end_ms))
    keys = [SeriesKey(name, pairs) for name, pairs in SeriesTable.from_series(buckets.series).texts()]
    order = canonical_order(keys)
    newest = newest_known(buckets, grid)
    if back_ms is None or grid.start_ms - held.start_ms < back_ms:
        if execution.plan.engine == "memory" and not past:
            _from_coarser(node, ring, held, buckets, newest, int(grid.ends()[0]), execution)
        else:
            _fill_from_last_seen(node, held.start_ms, buckets, newest, execution)
    return NewestTimes(tuple(keys[i] for i in order.tolist()), newest[order])


def _is_forgotten(node: nodes.Fetch, execution: QueryExecution) -> bool:
    """True if memory has forgotten every matching series. If it knows one, it answers alone: series that ended long ago
    are not reported as stale for ever."""
    return execution.store.has_history and bool(execution.store.find(node.selector.matchers, 1))


def _from_coarser(
    node: nodes.Fetch,
    ring: LevelSnapshot,
    held: Grid,
    buckets: Buckets,
    newest: Ints,
    first_ms: int,
    execution: QueryExecution,
) -> None:
    """Fill in newest times from coarser levels for series that began by `first_ms` (end of the first bucket), have no
    sample read up to it, but have samples after it."""
    lives, late = buckets.births, buckets.newest_ms > first_ms
    began = np.zeros(len(buckets.series), np.bool_)
    began[lives["row"][lives["first_ms"] <= first_ms]] = True
    early = buckets.statistics["count"][:, buckets.grid.ends() <= first_ms] > 0
    sought = np.flatnonzero(began & late & ~early.any(axis=1))
    prints = SeriesTable.from_series(buckets.series).fingerprints
    start_ms = held.start_ms
    for coarser in execution.plan.levels:
        if coarser.step_ms <= ring.step_ms or not len(sought):
            continue
        end_ms = min(-(-start_ms // coarser.step_ms) * coarser.step_ms, coarser.newest_ms)
        n = (end_ms - coarser.held_start_ms) // coarser.step_ms
        if n < 1:
            continue
        wider = Grid(end_ms, coarser.step_ms, n)
        found = execution.select(node.selector.matchers, wider, _TIMES, False)
        times = found.statistics["last_time"]
        latest = np.where((found.statistics["count"] > 0) & (times <= first_ms), times, NEVER).max(axis=1)
        known = dict(zip(SeriesTable.from_series(found.series).fingerprints.tolist(), latest.tolist(), strict=True))
        times = np.array([known.get(print_, NEVER) for print_ in prints[sought].tolist()], np.int64)
        newest[sought] = np.maximum(newest[sought], times[:, None])
        sought, start_ms = sought[times <= NEVER], wider.start_ms


def _fill_from_last_seen(
    node: nodes.Fetch, end_ms: int, buckets: Buckets, newest: Ints, execution: QueryExecution
) -> None:
    """Fill in newest times before the range read, for series without a known sample at the first bucket. Memory reports
    these times with its buckets; the history searches for them."""
    unknown = np.flatnonzero(newest[:, 0] <= NEVER)
    if not len(unknown):
        return
    prints = SeriesTable.from_series(buckets.series).fingerprints[unknown].tolist()
    found = execution.store.newest(node.selector.matchers, end_ms, prints)
    times = np.array([found.get(print_, NEVER) for print_ in prints], np.int64)
    newest[unknown] = np.maximum(newest[unknown], times[:, None])


def _lead_columns(grid: Grid, ring: LevelSnapshot, back_ms: int | None) -> int:
    """Number of columns to read before the grid: for every engine at most those that a level of memory holds."""
    rows = (ring.newest_ms - grid.start_ms) // grid.step_ms
    spare = max(0, ring.count + ring.spare - max(0, rows))
    wanted = spare if back_ms is None else min(spare, -(-back_ms // grid.step_ms) + 1)
    return max(0, min(wanted, MAX_COLUMNS - grid.n))


def newest_known(buckets: Buckets, grid: Grid) -> Ints:
    """Return (series, grid.n) newest times of an answer, whose grid has the step of `grid` and may begin earlier."""
    rows = len(buckets.series)
    ends = buckets.grid.ends()
    newest = np.where(buckets.statistics["count"] > 0, buckets.statistics["last_time"], NEVER)
    newest = np.ascontiguousarray(newest).reshape(rows, len(ends))
    if len(buckets.newest_ms) == rows:
        _enter(newest, ends, np.arange(rows), np.where(buckets.newest_ms > 0, buckets.newest_ms, NEVER))
    for name in ("first_ms", "last_ms"):
        _enter(newest, ends, buckets.births["row"], buckets.births[name])
    newest = np.maximum.accumulate(newest, axis=1)
    # columns of the wanted grid: those after the store's newest bucket repeat its value
    at = np.clip((grid.ends() - ends[0]) // grid.step_ms, -1, len(ends) - 1)
    return np.where(at >= 0, newest[:, np.maximum(at, 0)], NEVER)


def _enter(newest: Ints, ends: Ints, rows: Ints, times: Ints) -> None:
    """Enter samples at `times` into the first bucket that ends then or later."""
    column = np.searchsorted(ends, times)
    inside = (column < len(ends)) & (times > NEVER)
    np.maximum.at(newest, (rows[inside], column[inside]), times[inside])
