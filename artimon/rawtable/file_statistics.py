"""Delta's statistics of a data file: number of rows, minimum and maximum of the columns that readers prune by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PRUNED = ("source", "series", "time")
"""Columns of the raw table that readers prune by."""


class FileStatistics:
    """Accumulates statistics of one file, part by part."""

    def __init__(self, columns: Sequence[str] = PRUNED) -> None:
        self.rows = 0
        self._columns = columns
        self._min: dict[str, Any] = {}
        self._max: dict[str, Any] = {}
        self._times: set[str] = set()

    def add(self, part: Any) -> None:
        """Add a non-empty table or batch without nulls in these columns."""
        self.rows += len(part)
        for name in self._columns:
            low, high = self._min_max(name, part.column(name))
            self._min[name] = min(low, self._min.get(name, low))
            self._max[name] = max(high, self._max.get(name, high))

    def _min_max(self, name: str, column: Any) -> tuple[Any, Any]:
        if pa.types.is_timestamp(column.type):
            self._times.add(name)
            column = column.cast(pa.int64())
        ends = pc.min_max(column)
        return ends["min"].as_py(), ends["max"].as_py()

    def to_json(self) -> str:
        """Return the JSON form in a commit; times in ms, rounded outward."""
        least = {name: _iso(at // 1000) if name in self._times else at for name, at in self._min.items()}
        most = {name: _iso(-(-at // 1000)) if name in self._times else at for name, at in self._max.items()}
        nulls = dict.fromkeys(self._columns, 0)
        return json.dumps({"numRecords": self.rows, "minValues": least, "maxValues": most, "nullCount": nulls})


def statistics_of(rows: Any, columns: Sequence[str] = PRUNED) -> str:
    """Return the statistics of a file that holds exactly these rows."""
    found = FileStatistics(columns)
    found.add(rows)
    return found.to_json()


def _iso(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{milliseconds % 1000:03d}Z"
