"""Values of series on one grid: the data of a matrix without display."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from artimon.model.grid import Grid
from artimon.model.values import ValueType
from query_dsl.results.provenance import Origin
from query_dsl.results.query_result import Certificate, QueryResult, Scalar, json_value, typed_values
from query_dsl.results.result_cells import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    STRING,
    Bools,
    Cells,
    Ints,
    SeriesKey,
    Types,
    as_floats,
    read_only,
    take,
)
from query_dsl.tree.calendar_units import grid_fields

if TYPE_CHECKING:
    import pandas as pd


class MatrixValues(QueryResult):
    """Series x buckets. NA (missing) is a mask; NaN is a value.

    `keys`, `types`: one per series. `cells`, `present`: (series, grid.n), read-only; a cell is 64 bits of its series'
    type. `notes`: remarks for the reader. `complete`: True if the store held the whole grid. `partial`: True if a shard
    did not answer. `query`: its text if known; `origin`: engine and level of a query's answer; `certificate`: gives the
    completeness of what was read as a line of the display, computed when it is shown. Equality ignores notes, flags,
    query, origin and certificate.
    """

    __slots__ = ("_column", "certificate", "complete", "grid", "keys", "notes", "origin", "partial", "query", "strings")

    def __init__(
        self,
        keys: tuple[SeriesKey, ...],
        grid: Grid,
        column: Cells,
        strings: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        complete: bool = True,
        partial: bool = False,
        query: str = "",
        origin: Origin | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self.certificate = certificate
        self.keys, self.grid, self.strings, self.notes = keys, grid, strings, notes
        self.complete, self.partial, self.query, self.origin = complete, partial, query, origin
        self._column = Cells(*map(read_only, column))

    @property
    def column(self) -> Cells:
        """Types, cells and mask, read-only."""
        return self._column

    @property
    def types(self) -> Types:
        return self._column.types

    @property
    def cells(self) -> Ints:
        return self._column.cells

    @property
    def present(self) -> Bools:
        return self._column.present

    @property
    def times(self) -> list[int]:
        """Ends of the buckets, epoch milliseconds, ascending."""
        return [int(end) for end in self.grid.ends()]

    @property
    def values(self) -> np.ma.MaskedArray[Any, Any]:
        """Masked array (series, n): int64 if every series is INTEGER, bool if BOOLEAN, objects if one is STRING, else
        float64 (inexact for INTEGER beyond 2^53; `row` is exact)."""
        kinds = set(self.types.tolist())
        if kinds == {INTEGER}:
            data: npt.NDArray[Any] = self.cells
        elif kinds == {BOOLEAN}:
            data = self.cells.astype(np.bool_)
        elif STRING in kinds:
            data = np.empty(self.cells.shape, object)
            for i in range(len(self.keys)):
                data[i] = self.tolist(i)
        else:
            data = as_floats(self.types, self.cells)
        return np.ma.MaskedArray(data, ~self.present)

    def row(self, i: int) -> np.ma.MaskedArray[Any, Any]:
        """Return series i in its type: int64, float64, bool, or objects (str), missing values masked."""
        data = self._typed(i)
        masked = np.ma.MaskedArray(data, ~self.present[i])
        masked.setflags(write=False)
        return masked

    def _typed(self, i: int) -> npt.NDArray[Any]:
        return typed_values(int(self.types[i]), self.cells[i], self.strings)

    def tolist(self, i: int) -> list[Scalar]:
        """Return series i as Python values, None where missing."""
        return [v if p else None for v, p in zip(self._typed(i).tolist(), self.present[i].tolist(), strict=True)]

    def latest(self) -> list[Scalar]:
        """Return the value of each series in the newest bucket, None where missing."""
        return [self.tolist(i)[-1] for i in range(len(self.keys))]

    def points(self) -> Iterator[tuple[dict[str, str], int, Scalar]]:
        """Yield (labels, end of the bucket, value or None) for every cell, series by series, times ascending."""
        for i, labels in enumerate(self.labels):
            for end, value in zip(self.times, self.tolist(i), strict=True):
                yield labels, end, value

    def __eq__(self, other: object) -> bool:
        """Compare series, types, grid, mask and values (NaN equals NaN); ignore notes."""
        if not isinstance(other, MatrixValues):
            return NotImplemented
        return (self.keys, self.grid, self.types.tolist()) == (other.keys, other.grid, other.types.tolist()) and all(
            _comparable(self.tolist(i)) == _comparable(other.tolist(i)) for i in range(len(self))
        )

    __hash__ = None  # type: ignore[assignment]

    def take(self, rows: npt.NDArray[np.integer[Any]] | Bools) -> Self:
        """Select series by a mask or by ordered row numbers; notes are dropped unless all series stay in place."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, np.intp)
        if len(index) == len(self.keys) and (index == np.arange(len(index))).all():
            return self
        keys = tuple(map(self.keys.__getitem__, index.tolist()))
        return type(self)(keys, self.grid, take(self._column, index), self.strings)

    def to_dict(self) -> dict[str, Any]:
        """As `QueryResult.to_dict`, with the grid."""
        return {"grid": grid_fields(self.grid), **super().to_dict()}

    def _points_of(self, i: int) -> dict[str, Any]:
        return {"type": ValueType(int(self.types[i])).name, "values": [json_value(v) for v in self.tolist(i)]}

    def to_pandas(self) -> pd.DataFrame:
        """Convert to a frame: index bucket ends (UTC), nullable column per series; pd.NA is missing, NaN stays NaN."""
        import pandas as pd

        index = pd.to_datetime(self.grid.ends(), unit="ms", utc=True).rename("time")
        columns = [pd.Series(self._pandas_array(i), index=index, name=name) for i, name in enumerate(self.series)]
        return pd.concat(columns, axis=1) if columns else pd.DataFrame(index=index)

    def _pandas_array(self, i: int) -> Any:
        import pandas as pd

        data, mask = self._typed(i).copy(), ~self.present[i]
        if self.types[i] == STRING:
            data[mask] = pd.NA
            return pd.array(data, dtype="string")
        if self.types[i] == DOUBLE:
            return pd.arrays.FloatingArray(data, mask)
        return pd.arrays.BooleanArray(data, mask) if self.types[i] == BOOLEAN else pd.arrays.IntegerArray(data, mask)

    def to_arrow(self) -> Any:
        """Convert to a pyarrow.Table: `time` (ms, UTC), then a column per series in its type; null is missing, NaN
        stays NaN. If a series is named time, the time column is named `__time__`."""
        import pyarrow as pa

        from artimon.model.value_traits import TRAITS

        columns = [pa.array(self.grid.ends(), pa.timestamp("ms", tz="UTC"))]
        for i in range(len(self.keys)):
            data, missing = self._typed(i), ~self.present[i]
            columns.append(pa.array(data, TRAITS[ValueType(int(self.types[i]))].arrow, mask=missing, from_pandas=False))
        names = self.series
        return pa.table(columns, names=["__time__" if "time" in names else "time", *names])


def _comparable(values: list[Scalar]) -> list[str]:
    return [repr(v) for v in values]
