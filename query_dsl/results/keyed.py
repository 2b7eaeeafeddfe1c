"""What every answer has, on a grid or not: series by their keys, notes, and the forms that follow from both."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from query_dsl.results.cells import BOOLEAN, DOUBLE, STRING, Ints, Key
from query_dsl.tree.errors import QueryError
from query_dsl.tree.selector import series_text

Scalar = int | float | bool | str | None


class Keyed:
    """Series in canonical order. `keys`: one a series; `notes`, `complete`, `partial`: what must be known of them.
    `tolist`, `to_arrow` and `_points_of` are those of the answer itself."""

    __slots__ = ()
    keys: tuple[Key, ...]
    notes: tuple[str, ...]
    complete: bool
    partial: bool

    def tolist(self, i: int) -> Sequence[Any]:
        raise NotImplementedError

    def to_arrow(self) -> Any:
        raise NotImplementedError

    def _points_of(self, i: int) -> dict[str, Any]:
        """Type and values of series i as JSON has them."""
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
        """Row of the one series that has these labels; LookupError if there is none or more than one."""
        rows = [i for i, key in enumerate(self.keys) if all(key.get(k) == v for k, v in labels.items())]
        if len(rows) != 1:
            raise LookupError(
                f"{len(rows)} series have {series_text('', labels)}; there are {', '.join(self.series[:20])}"
            )
        return rows[0]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """(series, what `tolist` gives of it) in canonical order."""
        return ((name, self.tolist(i)) for i, name in enumerate(self.series))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, times in ms: NA is None, NaN "NaN", infinities "Infinity" and "-Infinity"; integers exact."""
        return {
            "complete": self.complete,
            "partial": self.partial,
            "notes": list(self.notes),
            "series": [
                {"name": key.name, "labels": dict(key.labels), **self._points_of(i)} for i, key in enumerate(self.keys)
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def to_polars(self) -> Any:
        """The table of `to_arrow` as a polars.DataFrame. QueryError if Polars is not installed."""
        try:
            polars: Any = import_module("polars")
        except ImportError:
            raise QueryError("Polars is not installed: pip install polars, or use to_arrow or to_pandas") from None
        return polars.from_arrow(self.to_arrow())


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
