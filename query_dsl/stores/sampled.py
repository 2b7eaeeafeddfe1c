"""Raw samples: request, answer of a store, and conversion to raw series of the language."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from artimon.model.select import Matcher, Part
from artimon.model.series_table import SeriesTable
from query_dsl.results.cells import Key
from query_dsl.results.irregular import Irregular
from query_dsl.stores.rows import DOUBLE, ENDED, INTEGER, Rows, Types, rank


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Request for samples with time in (after_ms, until_ms] of every matching series, at most `limit` series."""

    matchers: tuple[Matcher, ...]
    after_ms: int
    until_ms: int
    limit: int = 100_000


@dataclass(frozen=True, slots=True)
class Sampled:
    """Answer with `series` and `rows`, both in any order; the samples of each series have one type."""

    series: SeriesTable
    rows: Rows
    notes: tuple[str, ...] = ()
    partial: bool = False
    parts: tuple[Part, ...] = ()


def irregular(found: Sampled) -> Irregular:
    """Return the series that have a sample, in canonical order."""
    rows, n = found.rows, len(found.series)
    ended = np.zeros(n, np.int64)
    over = rows.type == ENDED
    np.maximum.at(ended, rows.row[over], rows.time_ms[over])
    types, rows = typed(found.series.types, rows.pick(~over))
    rows = rows.pick(np.lexsort((rank(rows.cell, rows.type == DOUBLE), rows.time_ms, rows.row)))
    counts = np.bincount(rows.row, minlength=n)
    newest = np.zeros(n, np.int64)
    np.maximum.at(newest, rows.row, rows.time_ms)
    keys = tuple(Key(name, pairs) for name, pairs in found.series.texts())
    made = Irregular(
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


def typed(announced: Types, rows: Rows) -> tuple[Types, Rows]:
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
