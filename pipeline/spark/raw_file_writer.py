"""Files written by one task: rows of all its Kafka partitions together, one file for each (period, keep)."""

from __future__ import annotations

import uuid
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from artimon.rawtable.schema import DataFile, folder_of, period_of
from artimon.runtime import file_access as files
from pipeline.spark import raw_file as rows
from pipeline.spark.source_numbers import SourceNumbers

WRITER_THREADS = 4
"""Files of one task that are written concurrently: closing a file on HDFS is mostly waiting."""

BATCH_BYTES = 4_096
"""Memory of a batch beside its values: twelve Arrow arrays. Small batches would exceed the buffer otherwise."""


class NamedBatch(NamedTuple):
    """One batch of a source. `columns` has artimon.model.sample_columns.SAMPLE_SCHEMA."""

    source: str
    append_ms: int
    columns: Any


class RawFileWriter:
    """Buffers rows until they are worth a file. Used by one thread at a time; a thread pool writes the files while more
    rows come."""

    def __init__(self, table: str, append: int, chunk_bytes: int, sources: SourceNumbers) -> None:
        self._table, self._append, self._chunk_bytes, self._sources = table, append, chunk_bytes, sources
        self._batches: dict[tuple[str, str], list[NamedBatch]] = {}
        self._bytes = 0
        self._pool = ThreadPoolExecutor(WRITER_THREADS, thread_name_prefix="output")
        self._pending: deque[Future[DataFile]] = deque()
        self._files: list[DataFile] = []

    def __enter__(self) -> RawFileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def append(self, keep: str, part: NamedBatch) -> None:
        """Buffer one batch. Raises OSError if a file could not be written, TableError if sources got no number."""
        self._batches.setdefault((period_of(part.append_ms), keep), []).append(part)
        self._bytes += part.columns.nbytes + BATCH_BYTES
        if self._bytes >= self._chunk_bytes:
            self._flush()

    def close(self) -> list[DataFile]:
        """Write all buffered rows and return the files, all closed. Raises OSError, TableError."""
        self._flush()
        self._wait(0)
        return self._files

    def _flush(self) -> None:
        numbers = self._sources.resolve({part.source for parts in self._batches.values() for part in parts})
        while self._batches:
            (period, keep), named = self._batches.popitem()
            parts = [rows.SourceBatch(numbers[part.source], part.append_ms, part.columns) for part in named]
            named.clear()  # `encode_file` frees the rows as it goes
            data, number, statistics = rows.encode_file(parts)
            path = f"{folder_of(period, keep)}/append-{self._append}-{uuid.uuid4().hex}.parquet"
            file = DataFile(path, len(data), number, {"period": period, "keep": keep}, statistics)
            self._wait(WRITER_THREADS - 1)  # bounds the files that wait to be written
            self._pending.append(self._pool.submit(self._write, file, data))
        self._bytes = 0

    def _write(self, file: DataFile, data: Any) -> DataFile:
        files.write_file(f"{self._table}/{file.path}", data)
        return file

    def _wait(self, pending: int) -> None:
        """Wait until at most `pending` files are being written."""
        while len(self._pending) > pending:
            self._files.append(self._pending.popleft().result())
