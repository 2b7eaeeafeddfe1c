"""One Parquet file on HDFS, read by row groups and columns: what its statistics rule out is never fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.compaction.storage import RangeReader, unfit_group
from pipeline.spark.table import TableError

Bounds = dict[str, tuple[Any, Any]]
"""Least and greatest value of those columns that have statistics; times as epoch microseconds."""


class GroupReader:
    """Used by one thread; `opened` is another reader of the same file. `touched` counts the bytes of the column chunks
    that were fetched, compressed."""

    def __init__(self, uri: str, opened: GroupReader | None = None) -> None:
        self._reader: RangeReader = RangeReader(uri, opened._reader if opened else None)
        known = opened._metadata if opened else None
        try:
            self._file = pq.ParquetFile(pa.PythonFile(self._reader, mode="r"), metadata=known)
        except pa.ArrowInvalid as error:
            raise TableError(f"{uri} is no Parquet file: {error}") from error
        self._metadata: Any = self._file.metadata
        if opened is None and (unfit := unfit_group(self._metadata)):
            raise TableError(f"{uri}: {unfit}")
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

    def bounds(self, group: int, columns: Sequence[str]) -> Bounds:
        """What the statistics of a row group say of these columns."""
        found: Bounds = {}
        part = self._metadata.row_group(group)
        for name in columns:
            told = part.column(self._columns[name]).statistics if name in self._columns else None
            if told is None or not told.has_min_max:
                continue
            if not pa.types.is_timestamp(type_ := self._file.schema_arrow.field(name).type):
                found[name] = told.min, told.max
            elif type_.unit == "us":
                found[name] = told.min_raw, told.max_raw
        return found

    def read(self, group: int, columns: Sequence[str]) -> Any:
        """These columns of a row group, an Arrow table."""
        self._load(*self._span(group, columns))
        return self._file.read_row_group(group, columns=list(columns), use_threads=False)

    @property
    def uri(self) -> str:
        return self._reader.uri

    @property
    def held(self) -> int:
        """Bytes that were fetched last, and are held."""
        return self._reader.held

    def size(self, group: int) -> int:
        """Bytes of a row group, compressed."""
        return self._span(group)[1]

    def hold(self, groups: Sequence[int]) -> None:
        """Fetch row groups that follow one another by one request: `read` then asks for nothing."""
        start, _ = self._span(groups[0])
        last, length = self._span(groups[-1])
        self._load(start, last + length - start)

    def _load(self, start: int, length: int) -> None:
        if not self._reader.holds(start, length):
            self._reader.load(start, length)
            self.touched += length

    def _span(self, group: int, columns: Sequence[str] | None = None) -> tuple[int, int]:
        """Start and length of the bytes of these columns, or of all, and of those that lie between them."""
        part = self._metadata.row_group(group)
        starts, ends = [], []
        for path, at in self._columns.items():
            if columns is not None and path.split(".")[0] not in columns:
                continue
            chunk = part.column(at)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page:
                start = min(start, chunk.dictionary_page_offset)
            starts.append(start)
            ends.append(start + chunk.total_compressed_size)
        return (min(starts), max(ends) - min(starts)) if starts else (0, 0)
