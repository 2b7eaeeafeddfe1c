"""One Parquet file on HDFS, read by row groups and columns: what its statistics rule out is never fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.compaction.storage import RangeReader
from pipeline.spark.table import TableError

Bounds = dict[str, tuple[Any, Any]]
"""Least and greatest value of those columns that have statistics."""


class GroupReader:
    """Used by one thread. `touched` counts the bytes of the column chunks that were fetched, compressed."""

    def __init__(self, uri: str) -> None:
        self._reader = RangeReader(uri)
        try:
            self._file = pq.ParquetFile(pa.PythonFile(self._reader, mode="r"))
        except pa.ArrowInvalid as error:
            raise TableError(f"{uri} is no Parquet file: {error}") from error
        self._metadata = self._file.metadata
        self._columns = {self._metadata.schema.column(at).path: at for at in range(self._metadata.num_columns)}
        self.touched = 0

    @property
    def columns(self) -> set[str]:
        """Names of the columns."""
        return set(self._file.schema_arrow.names)

    @property
    def groups(self) -> int:
        """How many row groups there are."""
        return int(self._metadata.num_row_groups)

    def rows(self, group: int) -> int:
        return int(self._metadata.row_group(group).num_rows)

    def bounds(self, group: int) -> Bounds:
        """What the statistics of a row group say."""
        found: Bounds = {}
        part = self._metadata.row_group(group)
        for path, at in self._columns.items():
            told = part.column(at).statistics
            if told is not None and told.has_min_max:
                found[path] = told.min, told.max
        return found

    def read(self, group: int, columns: Sequence[str]) -> Any:
        """These columns of a row group, an Arrow table."""
        start, length = self._span(group, columns)
        self._reader.load(start, length)
        return self._file.read_row_group(group, columns=list(columns), use_threads=False)

    def _span(self, group: int, columns: Sequence[str]) -> tuple[int, int]:
        """The bytes of these columns, and of those that lie between them."""
        part = self._metadata.row_group(group)
        starts, ends = [], []
        for path, at in self._columns.items():
            if path.split(".")[0] not in columns:
                continue
            chunk = part.column(at)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page:
                start = min(start, chunk.dictionary_page_offset)
            starts.append(start)
            ends.append(start + chunk.total_compressed_size)
        if not starts:
            return 0, 0
        self.touched += max(ends) - min(starts)
        return min(starts), max(ends) - min(starts)
