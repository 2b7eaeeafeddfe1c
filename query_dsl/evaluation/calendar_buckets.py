"""Buckets of calendar units: evaluated as runs of buckets of equal length, and joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np

from artimon.model.grid import Grid
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import DOUBLE, INTEGER, STRING, Bools, Cells, Ints, Rows, Types
from query_dsl.tree.calendar_units import CalendarGrid


def equal_runs(grid: CalendarGrid) -> Iterator[Grid]:
    """Yield the buckets as grids of equal ones, oldest first."""
    for step_ms, run in groupby(pairwise(grid.edges), key=lambda edge: edge[1] - edge[0]):
        buckets = list(run)
        yield Grid(buckets[-1][1], step_ms, len(buckets))


def join_columns(parts: Sequence[Matrix], grid: CalendarGrid, zero_from_ms: int | None) -> Matrix:
    """Join matrices of some of the buckets; the others are missing. From `zero_from_ms` on, a series that one of the
    matrices lacks is 0 in its buckets (None: missing)."""
    firsts = [grid.edges.index(part.grid.start_ms) for part in parts]
    places = [np.arange(first, first + part.grid.n) for first, part in zip(firsts, parts, strict=True)]
    joined = place_columns(list(zip(places, parts, strict=True)), grid)
    if zero_from_ms is None:
        return joined
    types, cells, present = joined.column
    whole, present = np.array(grid.edges[:-1]) >= zero_from_ms, np.array(present)
    for columns, part in zip(places, parts, strict=True):
        there = set(part.keys)
        lacking = np.array([row for row, key in enumerate(joined.keys) if key not in there], np.intp)
        present[np.ix_(lacking, columns[whole[columns]])] = True
    return Matrix(joined.keys, grid, Cells(types, cells, present), joined.strings)


def place_columns(parts: Sequence[tuple[Ints, Matrix]], grid: Grid) -> Matrix:
    """Put the columns of matrices to their places in `grid`. A series that is INTEGER in one and DOUBLE in another is
    DOUBLE in all; of other types that of the last one counts, and values of another type are missing."""
    keys = sorted({key for _, part in parts for key in part.keys})
    numbers = {key: row for row, key in enumerate(keys)}
    rows = [np.array([numbers[key] for key in part.keys], np.intp) for _, part in parts]
    types = _common_types([part for _, part in parts], rows, len(keys))
    cells, present = np.zeros((len(keys), grid.n), np.int64), np.zeros((len(keys), grid.n), np.bool_)
    strings: tuple[str, ...] = ()
    for (columns, part), at in zip(parts, rows, strict=True):
        cells[np.ix_(at, columns)] = _converted(part, types[at], len(strings))
        present[np.ix_(at, columns)] = part.present & _fits(part.types, types[at])[:, None]
        strings += part.strings
    return Matrix(tuple(keys), grid, Cells(types, cells, present), strings)


def _common_types(parts: Sequence[Matrix], rows: Sequence[Rows], n: int) -> Types:
    types, seen = np.zeros(n, np.uint8), np.zeros(n, np.bool_)
    for part, at in zip(parts, rows, strict=True):
        before, here = types[at], part.present.any(axis=1)
        both = seen[at] & here & np.isin(before, (INTEGER, DOUBLE)) & np.isin(part.types, (INTEGER, DOUBLE))
        types[at] = np.where(both & (before != part.types), DOUBLE, np.where(here | ~seen[at], part.types, before))
        seen[at] |= here
    return types


def _fits(types: Types, common: Types) -> Bools:
    return np.asarray((types == common) | ((types == INTEGER) & (common == DOUBLE)))


def _converted(part: Matrix, types: Types, texts_before: int) -> Ints:
    """Return the cells in the given types (series,); texts are numbered after those of earlier parts."""
    cells = np.array(part.cells)
    whole = (part.types == INTEGER) & (types == DOUBLE)
    cells[whole] = cells[whole].astype(np.float64).view(np.int64)
    cells[part.types == STRING] += texts_before
    return cells
