"""Sorted runs: files whose rows are in order, read batch by batch in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.compaction.order import Key, Keys
from pipeline.compaction.storage import RangeReader
from pipeline.spark.table import FILE_SCHEMA

FLAT_ROW_BYTES = 56
"""What a row takes in memory without its string."""
OnBatch = Callable[[Any], None]


class RunError(RuntimeError):
    """A file cannot be merged: it is not what the table says. The text names it."""


class Run(Protocol):
    """Batches of FILE_SCHEMA whose rows are in order, also from batch to batch."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def weight(self) -> int:
        """Bytes of memory that reading it takes, besides its batches."""
        ...

    def batches(self, rows: int) -> Iterator[Any]:
        """RecordBatches of at most `rows` rows."""
        ...


class ParquetRun:
    """A data file of the table. `on_batch` sees every batch that is read from it."""

    def __init__(self, uri: str, rows: int, size: int, on_batch: OnBatch | None = None) -> None:
        self.name, self.uri, self.rows, self.size = uri, uri, rows, size
        self._on_batch = on_batch

    @property
    def weight(self) -> int:
        """A row group as it lies in the file, and a page of each column."""
        return min(self.size, 16 * 1024 * 1024) + 2 * 1024 * 1024

    def batches(self, rows: int) -> Iterator[Any]:
        """Raises RunError if the rows are not as many as the table says; OSError, FileNotFoundError."""
        source = RangeReader(self.uri)
        try:
            file = pq.ParquetFile(source, pre_buffer=False, memory_map=False)
        except pa.ArrowInvalid as error:
            raise RunError(f"{self.uri} is no whole Parquet file: {error}") from error
        if file.metadata.num_rows != self.rows:
            raise RunError(f"{self.uri} holds {file.metadata.num_rows} rows, the table says {self.rows}")
        for group in range(file.metadata.num_row_groups):
            yield from self._group(source, file, group, rows)

    def _group(self, source: RangeReader, file: Any, group: int, rows: int) -> Iterator[Any]:
        meta = file.metadata.row_group(group)
        source.load(*_range(meta))
        least = max(256, rows * FLAT_ROW_BYTES // _row_bytes(meta))
        for batch in file.iter_batches(batch_size=min(rows, least), row_groups=[group], use_threads=False):
            fitting = batch if batch.schema.equals(FILE_SCHEMA) else _fit(batch)
            if self._on_batch:
                self._on_batch(fitting)
            yield fitting


class SpilledRun:
    """A run in a local file, made by `spill`."""

    def __init__(self, path: Path) -> None:
        self.name, self.path = str(path), path

    @property
    def weight(self) -> int:
        return 4 * 1024 * 1024

    def batches(self, rows: int) -> Iterator[Any]:
        with pa.OSFile(str(self.path)) as source, pa.ipc.open_stream(source) as reader:
            for whole in reader:
                for start in range(0, len(whole), rows):
                    yield whole.slice(start, rows)


def spill(path: Path, tables: Iterator[Any], batch_rows: int) -> SpilledRun:
    """Write sorted tables to a local file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, FILE_SCHEMA, options=options) as writer:
        for table in tables:
            writer.write_table(table, max_chunksize=batch_rows)
    return SpilledRun(path)


def check_order(keys: Keys, before: Key | None, name: str) -> None:
    """Raises RunError unless rows are in order, and behind the row `before`."""
    if len(keys.breaks()) or (before is not None and len(keys) and keys.at(0) < before):
        raise RunError(f"{name}: its rows are not in the order of source, series and time")


def _range(group: Any) -> tuple[int, int]:
    """Where a row group lies: start and length."""
    starts, ends = [], []
    for n in range(group.num_columns):
        column = group.column(n)
        start = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset:
            start = min(start, column.dictionary_page_offset)
        starts.append(start)
        ends.append(start + column.total_compressed_size)
    return min(starts), max(ends) - min(starts)


def _row_bytes(group: Any) -> int:
    """Bytes of memory that a row takes, at least FLAT_ROW_BYTES; more where there are strings."""
    strings = next(
        (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "string"),
        None,
    )
    held = strings.total_uncompressed_size if strings else 0
    # strings in a dictionary take more room once they are read: their mean length cannot be told from here
    return FLAT_ROW_BYTES + (8 * held // max(1, group.num_rows) if held > group.num_rows // 4 else 0)


def _fit(batch: Any) -> Any:
    """A batch with the columns and types of FILE_SCHEMA; a column that an older file lacks is null."""
    columns = []
    for field in FILE_SCHEMA:
        found = batch.schema.get_field_index(field.name)
        column = pa.nulls(len(batch), field.type) if found < 0 else batch.column(found)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.record_batch(columns, schema=FILE_SCHEMA)
