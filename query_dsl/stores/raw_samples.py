"""Raw samples: request, answer of a store, and conversion to raw series of the language."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from artimon.compute.sample_order import rank
from artimon.model.select import EngineShare, Matcher
from artimon.model.series_table import SeriesTable
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import SeriesKey
from query_dsl.stores.sample_rows import DOUBLE, ENDED, INTEGER, SampleRows, Types


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Request for samples with time in (after_ms, until_ms] of every matching series, at most `limit` series."""

    matchers: tuple[Matcher, ...]
    after_ms: int
    until_ms: int
    limit: int = 100_000


@dataclass(frozen=True, slots=True)
class RawSamples:
    """Answer with `series` and `rows`, both in any order; the samples of each series have one type."""

    series: SeriesTable
    rows: SampleRows
    notes: tuple[str, ...] = ()
    partial: bool = False
    parts: tuple[EngineShare, ...] = ()


def to_raw_series(found: RawSamples) -> RawSeries:
    """Return the series that have a sample, in canonical order."""
    rows, n = found.rows, len(found.series)
    ended = np.zeros(n, np.int64)
    over = rows.type == ENDED
    np.maximum.at(ended, rows.row[over], rows.time_ms[over])
    types, rows = to_announced_types(found.series.types, rows.select(~over))
    rows = rows.select(np.lexsort((rank(rows.cell, rows.type == DOUBLE), rows.time_ms, rows.row)))
    counts = np.bincount(rows.row, minlength=n)
    newest = np.zeros(n, np.int64)
    np.maximum.at(newest, rows.row, rows.time_ms)
    keys = tuple(SeriesKey(name, pairs) for name, pairs in found.series.texts())
    made = RawSeries(
        keys,
        types,
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        rows.time_ms,
        rows.cell,
        rows.strings,
        births=rows.birth_ms,
        kinds=found.series.kinds,
        ended_ms=np.where(ended >= newest, ended, 0),
    )
    held = np.flatnonzero(counts).tolist()
    return made.take(np.array(sorted(held, key=keys.__getitem__), np.intp))


def to_announced_types(announced: Types, rows: SampleRows) -> tuple[Types, SampleRows]:
    """Return the types of the series, and rows in these types: INTEGER samples of a series that was later announced as
    DOUBLE become doubles."""
    types = announced.copy()
    types[rows.row] = rows.type
    late = (announced == DOUBLE) & (types == INTEGER)
    if not late.any():
        return types, rows
    mine, kinds, cells = late[rows.row], rows.type.copy(), rows.cell.copy()
    kinds[mine] = DOUBLE
    cells[mine] = cells[mine].astype(np.float64).view(np.int64)
    types[late] = DOUBLE
    return types, replace(rows, type=kinds, cell=cells)
