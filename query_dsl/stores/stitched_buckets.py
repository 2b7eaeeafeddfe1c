"""Combination of two engines in one answer: older buckets of the history, newer ones of the memory store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from artimon.compute.statistics import FOLDS, fold_last_axis, to_double
from artimon.compute.succession import normalize_incarnations
from artimon.model.grid import Grid
from artimon.model.select import Buckets, SelectRequest
from artimon.model.series_table import SeriesTable
from query_dsl.stores.partial_buckets import merge_incarnations
from query_dsl.stores.sample_rows import DOUBLE, INTEGER, STRING, Ints, Types


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two answers. `rows`: row of each of its series in the combined answer."""

    buckets: Buckets
    rows: Ints
    types: Types
    first: int
    """First column of the combined answer that it covers."""
    texts_from: int = 0
    """Index of its first string in those of the combined answer."""


def stitch(older: Buckets, newer: Buckets, request: SelectRequest) -> Buckets:
    """Combine both on the grid of `request`: `newer` covers its end, `older` the rest. Both have the same statistics,
    which include those that a change of type needs besides the request's.

    A series may occur on one side only. INTEGER on one side and DOUBLE on the other become DOUBLE; any other two types
    are a conflict, and only the newer side is shown. Lives are merged by series and birth."""
    tables = [SeriesTable.from_series(side.series) for side in (older, newer)]
    rows_new, rows_old, chosen = _rows(tables[1], tables[0])
    series = SeriesTable.concat([tables[1], tables[0].take(chosen)])
    types, lost = _common_types(tables, rows_old, len(series))
    old = _Side(older, rows_old, tables[0].types, 0)
    new = _Side(newer, rows_new, tables[1].types, request.grid.n - newer.grid.n, len(older.strings))
    statistics = {
        name: np.zeros((len(series), request.grid.n), np.int64)
        for name in dict.fromkeys((*older.statistics, "count"))
        if name in older.statistics
    }
    for side in (old, new):
        for name, matrix in _convert(side, types).items():
            statistics[name][side.rows, side.first : side.first + side.buckets.grid.n] = matrix
    if len(lost):
        _clear_columns(statistics, lost, new.first)
    newest, ended = np.zeros(len(series), np.int64), np.zeros(len(series), np.int64)
    ended[old.rows], newest[old.rows] = older.ended_ms, older.newest_ms
    ended[new.rows] = np.where(newer.newest_ms > 0, newer.ended_ms, ended[new.rows])
    newest[new.rows] = np.maximum(newest[new.rows], newer.newest_ms)
    notes = older.notes + newer.notes
    if len(lost):
        notes += (f"{len(lost)} series have another type in the history than in memory: their history is left out",)
    return Buckets(
        request.grid,
        replace(series, types=types),
        {name: statistics[name] for name in request.statistics},
        older.strings + newer.strings,
        _merge_incarnations(old, new, types, lost),
        np.where(ended >= newest, ended, 0),
        newest,
        tuple(dict.fromkeys(notes)),
        older.partial or newer.partial,
        older.parts + newer.parts,
    )


def _rows(new: SeriesTable, old: SeriesTable) -> tuple[Ints, Ints, npt.NDArray[np.intp]]:
    """Return the rows of `new` and of `old` in the answer, those of `new` first, and the series that only `old` has."""
    place = {text: row for row, text in enumerate(new.texts())}
    rows = np.array([place.get(text, -1) for text in old.texts()], np.int64)
    alone = np.flatnonzero(rows < 0)
    rows[alone] = len(new) + np.arange(len(alone))
    return np.arange(len(new)), rows, alone


def _common_types(tables: Sequence[SeriesTable], rows_old: Ints, n: int) -> tuple[Types, Ints]:
    """Return the types of the answer, and the rows with a conflict of types, whose older side is dropped."""
    types = np.zeros(n, np.uint8)
    types[rows_old] = tables[0].types
    before = types.copy()
    there = np.zeros(n, np.bool_)
    there[rows_old] = True
    types[: len(tables[1])] = tables[1].types
    both = there & (before != types)
    numbers = both & np.isin(before, (INTEGER, DOUBLE)) & np.isin(types, (INTEGER, DOUBLE))
    types[numbers] = DOUBLE
    return types, np.flatnonzero(both & ~numbers)


def _convert(side: _Side, types: Types) -> dict[str, Ints]:
    """Convert statistics to the types of the answer, and texts to indices into the strings of both."""
    found = dict(side.buckets.statistics)
    late = np.flatnonzero((side.types == INTEGER) & (types[side.rows] == DOUBLE))
    if len(late):
        for name, cells in to_double({name: matrix[late] for name, matrix in found.items()}).items():
            found[name] = np.array(found[name])
            found[name][late] = cells
    texts = np.flatnonzero(side.types == STRING)
    if side.texts_from and len(texts) and "last" in found:
        found["last"] = np.array(found["last"])
        found["last"][texts] += side.texts_from
    return found


def _clear_columns(statistics: dict[str, Ints], rows: npt.NDArray[np.intp], columns: int) -> None:
    """Empty the first `columns` of these rows."""
    for matrix in statistics.values():
        matrix[rows, :columns] = 0


def _merge_incarnations(old: _Side, new: _Side, types: Types, lost: npt.NDArray[np.intp]) -> npt.NDArray[np.void]:
    """Merge the incarnations of both sides, each (row, birth) once."""
    parts = []
    for side in (old, new):
        lives = side.buckets.births.copy()
        if len(lives):
            own = side.types[lives["row"]]
            lives["row"] = side.rows[lives["row"]]
            late = (own == INTEGER) & (types[lives["row"]] == DOUBLE)
            lives["last"][late] = lives["last"][late].astype(np.float64).view(np.int64)
            lives["last"][own == STRING] += side.texts_from
        parts.append(lives if side is new or not len(lost) else lives[~np.isin(lives["row"], lost)])
    whole = np.concatenate(parts)
    return normalize_incarnations(merge_incarnations(whole, types == DOUBLE))


def downsample(found: Buckets, grid: Grid) -> Buckets:
    """Merge buckets into those of `grid`, whose step is a multiple of theirs; both cover the same time."""
    times = grid.step_ms // found.grid.step_ms
    if times == 1:
        return found
    table = SeriesTable.from_series(found.series)
    shape = (len(table), grid.n, times)
    held = {name: np.ascontiguousarray(matrix).reshape(shape) for name, matrix in found.statistics.items()}
    there = held["count"] > 0
    made: dict[str, Ints] = {"count": held["count"].sum(axis=2)}
    newest = times - 1 - np.argmax(there[:, :, ::-1], axis=2)
    for name in ("last", "last_time"):
        if name in held:
            made[name] = np.where(made["count"] > 0, np.take_along_axis(held[name], newest[..., None], 2)[..., 0], 0)
    double = table.types == DOUBLE
    for name, fold in FOLDS.items():
        if name in held:
            made[name] = fold_last_axis(fold, held[name], there, double)
    return replace(found, grid=grid, statistics=made)
