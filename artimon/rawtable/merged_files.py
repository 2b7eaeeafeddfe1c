"""Files that one commit adds to a merged table. A merge writes pass after pass into a file until it is full."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from artimon.model.clock import Clock
from artimon.rawtable.clustered_copy import ClusteredCopyBuilder, copy_path
from artimon.rawtable.file_statistics import FileStatistics
from artimon.rawtable.schema import DataFile
from artimon.rawtable.term_index import MIN_INDEXED_ROWS, TermIndexBuilder, index_path
from artimon.runtime import file_access as files

FILE_ROWS = 2_000_000
"""Number of rows from which a file is closed. A lookup opens every file, and a file is in memory until it is closed:
about 50 MB, 100 MB of terms, and 120 MB of its clustered copy."""


class MergedFiles:
    """New files by kind, the first word of their names. Row groups have `group_rows` rows; statistics are those of the
    columns `pruned`; `is_indexed`: files of many rows get an index of terms, and a clustered copy with one."""

    def __init__(
        self, uri: str, clock: Clock, group_rows: int, pruned: Sequence[str], is_indexed: bool, file_rows: int = 0
    ) -> None:
        self._uri, self._clock, self._group_rows, self._pruned = uri, clock, group_rows, pruned
        self._is_indexed, self._file_rows = is_indexed, file_rows or FILE_ROWS
        self._open: dict[str, _OpenFile] = {}
        self.closed: list[DataFile] = []

    def add(self, kind: str, rows: Any) -> None:
        """Add rows of one pass, in order. Raises OSError."""
        if not len(rows):
            return
        file = self._open.get(kind)
        if file is None:
            file = self._open[kind] = _OpenFile(rows.schema, self._group_rows, self._pruned, self._is_indexed)
        file.add(rows)
        if file.rows >= self._file_rows:
            self._close(kind)

    def close(self) -> list[DataFile]:
        """Write the files that are not full, and return all. Raises OSError."""
        for kind in list(self._open):
            self._close(kind)
        return self.closed

    def _close(self, kind: str) -> None:
        file = self._open.pop(kind)
        data = file.close()
        path = f"{kind}-{self._clock.now_ms()}-{uuid.uuid4().hex[:12]}.parquet"
        files.write_file(f"{self._uri}/{path}", data)
        self.closed.append(DataFile(path, len(data), file.rows, {}, file.statistics.to_json()))
        if file.index is not None and file.copy is not None and file.rows >= MIN_INDEXED_ROWS:
            files.write_file(f"{self._uri}/{index_path(path)}", file.index.to_bytes())
            copy, copy_index = file.copy.to_bytes()
            files.write_file(f"{self._uri}/{copy_path(path)}", copy)
            files.write_file(f"{self._uri}/{index_path(copy_path(path))}", copy_index)


class _OpenFile:
    """A file in memory."""

    def __init__(self, schema: Any, group_rows: int, pruned: Sequence[str], is_indexed: bool) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")
        self._group_rows = group_rows
        self.statistics = FileStatistics(pruned)
        self.index = TermIndexBuilder(group_rows) if is_indexed else None
        self.copy = ClusteredCopyBuilder(schema, group_rows) if is_indexed else None

    @property
    def rows(self) -> int:
        """Rows so far."""
        return self.statistics.rows

    def add(self, rows: Any) -> None:
        rows = rows.combine_chunks()
        self._writer.write_table(rows, row_group_size=self._group_rows)
        self.statistics.add(rows)
        if self.index is not None and self.copy is not None:
            self.index.add(rows)
            self.copy.add(rows)

    def close(self) -> Any:
        self._writer.close()
        return self._sink.getvalue()


def delete_merged(uri: str, path: str) -> None:
    """Delete a file of a merged table, its copy and their indexes first: no index is without its file. Raises
    OSError."""
    for held in (copy_path(path), path):
        files.delete_file(f"{uri}/{index_path(held)}")
        files.delete_file(f"{uri}/{held}")
