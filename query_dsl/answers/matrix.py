"""The answer to a query: series in canonical order on one grid, every value exact, present or missing. Immutable."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from artimon.model.grid import Grid
from artimon.model.values import ValueType
from query_dsl.errors import QueryError
from query_dsl.running.cells import BOOLEAN, DOUBLE, INTEGER, STRING, Bools, Cells, Ints, Key, Types, as_floats
from query_dsl.tree.selector import series_text

if TYPE_CHECKING:
    import pandas as pd

    from query_dsl.answers.origin import Origin

Scalar = int | float | bool | str | None


class Keyed:
    """Series by their keys: what every answer has, on a grid or not."""

    __slots__ = ()
    keys: tuple[Key, ...]

    @property
    def labels(self) -> list[dict[str, str]]:
        """Labels of each series, without the name."""
        return [dict(key.labels) for key in self.keys]

    @property
    def names(self) -> list[str]:
        """Name of each series; "" where an operation dropped it."""
        return [key.name for key in self.keys]

    @property
    def series(self) -> list[str]:
        """`name{label="value"}` of each series."""
        return [series_text(key.name, dict(key.labels)) for key in self.keys]

    def find(self, **labels: str) -> int:
        """Row of the one series that has these labels; LookupError if there is none or more than one."""
        rows = [i for i, key in enumerate(self.keys) if all(key.get(k) == v for k, v in labels.items())]
        if len(rows) != 1:
            raise LookupError(
                f"{len(rows)} series have {series_text('', labels)}; there are {', '.join(self.series[:20])}"
            )
        return rows[0]


class Matrix(Keyed):
    """Series x buckets. NA (missing) is a mask and never NaN, which is a value.

    `keys`, `types`: one a series. `cells`, `present`: (series, grid.n), read-only; a cell is 64 bits of its own type.
    `notes`: what a reader must know. `complete`: whether the store held the whole grid. `partial`: whether a shard did
    not answer. `query`: its text where it is known; `origin`: which engine and level gave it, where it is the answer to
    a query. Like the notes they take no part in equality.
    """

    __slots__ = ("_column", "complete", "grid", "keys", "notes", "origin", "partial", "query", "strings")

    def __init__(
        self,
        keys: tuple[Key, ...],
        grid: Grid,
        column: Cells,
        strings: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        complete: bool = True,
        partial: bool = False,
        query: str = "",
        origin: Origin | None = None,
    ) -> None:
        self.keys, self.grid, self.strings, self.notes = keys, grid, strings, notes
        self.complete, self.partial, self.query, self.origin = complete, partial, query, origin
        self._column = Cells(column.types.view(), column.cells.view(), column.present.view())
        for view in self._column:
            view.flags.writeable = False

    @property
    def column(self) -> Cells:
        """Types, cells and mask together, read-only."""
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
        """(series, n) masked array: int64 if every series is INTEGER, bool if BOOLEAN, objects if one is a STRING, else
        float64 (which cannot hold every INTEGER: `row` can)."""
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
        """Series i in its own type: int64, float64, bool, or objects (str), missing values masked."""
        data = self._typed(i)
        masked = np.ma.MaskedArray(data, ~self.present[i])
        masked.setflags(write=False)
        return masked

    def _typed(self, i: int) -> npt.NDArray[Any]:
        return typed(int(self.types[i]), self.cells[i], self.strings)

    def tolist(self, i: int) -> list[Scalar]:
        """Series i as Python values, None where missing."""
        return [v if p else None for v, p in zip(self._typed(i).tolist(), self.present[i].tolist(), strict=True)]

    def latest(self) -> list[Scalar]:
        """Value of each series in the newest bucket, None where missing."""
        return [self.tolist(i)[-1] for i in range(len(self.keys))]

    def points(self) -> Iterator[tuple[dict[str, str], int, Scalar]]:
        """(labels, end of the bucket, value or None) of every cell, series by series, times ascending."""
        for i, labels in enumerate(self.labels):
            for end, value in zip(self.times, self.tolist(i), strict=True):
                yield labels, end, value

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[str, list[Scalar]]]:
        """(series, values) in canonical order."""
        return ((name, self.tolist(i)) for i, name in enumerate(self.series))

    def __eq__(self, other: object) -> bool:
        """Equal series, types, grid, mask and values (NaN equals NaN); notes do not count."""
        if not isinstance(other, Matrix):
            return NotImplemented
        return (self.keys, self.grid, self.types.tolist()) == (other.keys, other.grid, other.types.tolist()) and all(
            _comparable(self.tolist(i)) == _comparable(other.tolist(i)) for i in range(len(self))
        )

    __hash__ = None  # type: ignore[assignment]

    def with_notes(self, notes: tuple[str, ...], complete: bool, partial: bool, origin: Origin | None = None) -> Matrix:
        """The same values with what must be said about them."""
        origin = origin or self.origin
        return Matrix(self.keys, self.grid, self._column, self.strings, notes, complete, partial, self.query, origin)

    def with_query(self, query: str) -> Matrix:
        """The same values with the text of the query that they answer."""
        column, flags = self._column, (self.complete, self.partial)
        return Matrix(self.keys, self.grid, column, self.strings, self.notes, *flags, query, self.origin)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: NA is None, NaN "NaN", infinities "Infinity" and "-Infinity"; integers exact."""
        return {
            "grid": {
                "start_ms": self.grid.start_ms,
                "end_ms": self.grid.end_ms,
                "step_ms": self.grid.step_ms,
                "n": self.grid.n,
            },
            "complete": self.complete,
            "partial": self.partial,
            "notes": list(self.notes),
            "series": [
                {
                    "name": key.name,
                    "labels": dict(key.labels),
                    "type": ValueType(int(self.types[i])).name,
                    "values": [json_value(v) for v in self.tolist(i)],
                }
                for i, key in enumerate(self.keys)
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def to_pandas(self) -> pd.DataFrame:
        """A frame: index = ends of the buckets (UTC), a nullable column a series; pd.NA is missing, NaN stays NaN."""
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
        """A pyarrow.Table: `time` (ms, UTC), then a column a series in its own type; null is missing, NaN stays NaN. If
        a series is called time, the times are called `__time__`."""
        import pyarrow as pa

        kinds = {DOUBLE: pa.float64(), INTEGER: pa.int64(), BOOLEAN: pa.bool_(), STRING: pa.utf8()}
        columns = [pa.array(self.grid.ends(), pa.timestamp("ms", tz="UTC"))]
        for i in range(len(self.keys)):
            data, missing = self._typed(i), ~self.present[i]
            columns.append(pa.array(data, kinds[int(self.types[i])], mask=missing, from_pandas=False))
        names = self.series
        return pa.table(columns, names=["__time__" if "time" in names else "time", *names])

    def to_polars(self) -> Any:
        """The table of `to_arrow` as a polars.DataFrame. QueryError if Polars is not installed."""
        try:
            polars: Any = import_module("polars")
        except ImportError:
            raise QueryError("Polars is not installed: pip install polars, or use to_arrow or to_pandas") from None
        return polars.from_arrow(self.to_arrow())

    def plot(self, ax: Any = None, *, title: str | None = None, legend: int = 12, **line: Any) -> Any:
        """Draw a line a series and return matplotlib's Axes; missing values are gaps. See query_dsl/answers/plot.py."""
        from query_dsl.answers.plot import plot_matrix

        return plot_matrix(self, ax, title=title, legend=legend, **line)

    def __repr__(self) -> str:
        from query_dsl.answers.render import render_table

        return render_table(self, sparks=True)

    def _repr_html_(self) -> str:
        from query_dsl.answers.render import render_html

        return render_html(self)


def typed(kind: int, cells: Ints, strings: tuple[str, ...]) -> npt.NDArray[Any]:
    """Cells of one type as that type: int64, float64, bool, or objects (str)."""
    if kind == DOUBLE:
        return np.asarray(np.ascontiguousarray(cells).view(np.float64))
    if kind == BOOLEAN:
        booleans: npt.NDArray[Any] = cells.astype(np.bool_)
        return booleans
    if kind == STRING:
        return np.asarray(np.array([*strings, ""], object)[np.clip(cells, 0, len(strings))])
    return np.asarray(cells)


def json_value(value: Scalar) -> Scalar:
    """As JSON has it: NaN and infinities as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _comparable(values: list[Scalar]) -> list[str]:
    return [repr(v) for v in values]


def in_order(keys: list[Key], column: Cells) -> tuple[tuple[Key, ...], Cells]:
    """Keys and rows in canonical order."""
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)
    return tuple(keys[i] for i in order), Cells(column.types[order], column.cells[order], column.present[order])
