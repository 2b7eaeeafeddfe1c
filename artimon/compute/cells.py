"""Columns of values: 64-bit cells in the type of each series, with a mask. Shared by every function.

A cell is an int64, the bits of a float64, 0/1, or the index of a string; cells that are not `present` are arbitrary.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from artimon.model.values import WHOLE_TYPES, ValueType

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Types = npt.NDArray[np.uint8]
T = TypeVar("T", bound=np.generic)

DOUBLE, INTEGER, BOOLEAN, STRING = (
    int(t) for t in (ValueType.DOUBLE, ValueType.INTEGER, ValueType.BOOLEAN, ValueType.STRING)
)


_WHOLE = np.isin(np.arange(256), WHOLE_TYPES)


class Cells(NamedTuple):
    """Types of shape (series,); cells and mask of shape (series, buckets)."""

    types: Types
    cells: Ints
    present: Bools


def as_floats(types: Types, cells: Ints) -> Floats:
    """Convert every cell to float64 (BOOLEAN to 1/0)."""
    if bool((types == DOUBLE).all()):
        return cells.view(np.float64)
    values = cells.astype(np.float64)
    double = types == DOUBLE
    if double.any():
        values[double] = np.ascontiguousarray(cells[double]).view(np.float64)
    return values


def doubles(values: Floats, present: Bools) -> Cells:
    cells = np.ascontiguousarray(values, np.float64).view(np.int64)
    return Cells(np.full(len(values), DOUBLE, np.uint8), cells, present)


def of_type(kind: int, cells: Ints, present: Bools) -> Cells:
    return Cells(np.full(len(cells), kind, np.uint8), np.ascontiguousarray(cells, np.int64), present)


def is_whole_number(types: Types) -> Bools:
    """Return the mask of series whose cells are exact integers (INTEGER, BOOLEAN)."""
    return _WHOLE[types]


def take(column: Cells, rows: npt.NDArray[np.intp] | Bools) -> Cells:
    """Return the chosen series, in the memory layout of the column."""
    return Cells(column.types[rows], _take_rows(column.cells, rows), _take_rows(column.present, rows))


def _take_rows(matrix: npt.NDArray[T], rows: npt.NDArray[np.intp] | Bools) -> npt.NDArray[T]:
    if rows.dtype == np.bool_ or not matrix.T.flags.c_contiguous:
        return matrix[rows]
    return matrix.T.take(rows, axis=-1).T
