"""Common part of all query results, on a grid or not: keys of series, notes, and conversions based on them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from query_dsl.results.provenance import Origin
from query_dsl.results.result_cells import BOOLEAN, DOUBLE, STRING, Ints, SeriesKey
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import series_text

if TYPE_CHECKING:
    import pandas as pd

Scalar = int | float | bool | str | None


class Certificate:
    """Line about the completeness of an answer, computed when it is first shown. A pickled one is only its line."""

    __slots__ = ("_compute", "_text")

    def __init__(self, compute: Callable[[], str] | None = None, text: str = "") -> None:
        self._compute, self._text = compute, text

    def __str__(self) -> str:
        if self._compute is not None:
            self._text, self._compute = self._compute(), None
        return self._text

    def __reduce__(self) -> tuple[type[Certificate], tuple[None, str]]:
        return Certificate, (None, "" if self._compute is not None else self._text)


class QueryResult:
    """Base class of results: series in canonical order, one of `keys` per series, `notes` and the flags `complete` and
    `partial`. Subclasses implement `tolist`, `to_arrow` and `_points_of`."""

    __slots__ = ()
    keys: tuple[SeriesKey, ...]
    notes: tuple[str, ...]
    complete: bool
    partial: bool
    query: str
    origin: Origin | None

    def like(self, **parts: Any) -> Self:
        """Return a copy with the given attributes replaced. The constructor takes the attributes by name."""
        slots = (name for base in type(self).__mro__ for name in getattr(base, "__slots__", ()))
        make: Any = type(self)
        made: Self = make(**{name.lstrip("_"): getattr(self, name) for name in slots} | parts)
        return made

    def with_notes(self, notes: tuple[str, ...], complete: bool, partial: bool, origin: Origin | None = None) -> Self:
        """Set the notes, the flags and the origin."""
        return self.like(notes=notes, complete=complete, partial=partial, origin=origin or self.origin)

    def with_query(self, query: str) -> Self:
        """Set the text of the query."""
        return self.like(query=query)

    def tolist(self, i: int) -> Sequence[Any]:
        raise NotImplementedError

    def to_arrow(self) -> Any:
        raise NotImplementedError

    def _points_of(self, i: int) -> dict[str, Any]:
        """Return the type and values of series i, JSON-ready."""
        raise NotImplementedError

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
        """Return the row of the only series with these labels; LookupError if there is none or more than one."""
        rows = [i for i, key in enumerate(self.keys) if all(key.get(k) == v for k, v in labels.items())]
        if len(rows) != 1:
            raise LookupError(
                f"{len(rows)} series have {series_text('', labels)}; there are {', '.join(self.series[:20])}"
            )
        return rows[0]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield (series, its `tolist`) in canonical order."""
        return ((name, self.tolist(i)) for i, name in enumerate(self.series))

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON-ready data, times in ms: NA is None, NaN "NaN", infinities "Infinity" and "-Infinity"."""
        return {
            "complete": self.complete,
            "partial": self.partial,
            "notes": list(self.notes),
            "series": [
                {"name": key.name, "labels": dict(key.labels), **self._points_of(i)} for i, key in enumerate(self.keys)
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """Convert `to_dict` to JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def to_polars(self) -> Any:
        """Convert the table of `to_arrow` to a polars.DataFrame. QueryError if Polars is not installed."""
        return to_polars(self.to_arrow())


def to_polars(table: Any) -> Any:
    """Convert an Arrow table to a polars.DataFrame. QueryError if Polars is not installed."""
    try:
        polars: Any = import_module("polars")
    except ImportError:
        raise QueryError("Polars is not installed: pip install polars, or use to_arrow or to_pandas") from None
    return polars.from_arrow(table)


def to_frame(table: Any) -> pd.DataFrame:
    """Convert an Arrow table to nullable pandas columns: integers stay exact, a missing value is pd.NA, NaN is NaN."""
    import pandas as pd
    import pyarrow as pa

    kinds = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.float64(): pd.Float64Dtype()}
    kinds[pa.utf8()] = pd.StringDtype()
    frame: pd.DataFrame = table.to_pandas(types_mapper=kinds.get)
    return frame


def typed_values(kind: int, cells: Ints, strings: tuple[str, ...]) -> npt.NDArray[Any]:
    """Convert cells of one type to int64, float64, bool, or objects (str)."""
    if kind == DOUBLE:
        return np.asarray(np.ascontiguousarray(cells).view(np.float64))
    if kind == BOOLEAN:
        booleans: npt.NDArray[Any] = cells.astype(np.bool_)
        return booleans
    if kind == STRING:
        return np.asarray(np.array([*strings, ""], object)[np.clip(cells, 0, len(strings))])
    return np.asarray(cells)


def texts_of(kind: int, cells: Ints, strings: tuple[str, ...]) -> list[str]:
    """Format cells of one type: decimal integers, doubles by repr, true or false, texts unchanged."""
    values = typed_values(kind, cells, strings).tolist()
    return [str(value).lower() for value in values] if kind == BOOLEAN else list(map(str, values))


def json_value(value: Scalar) -> Scalar:
    """Replace NaN and infinities by texts, which JSON can represent."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
