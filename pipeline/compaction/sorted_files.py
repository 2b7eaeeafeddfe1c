"""Parquet files of compaction: encodings chosen by measuring the rows, statistics for pruning."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from artimon.model.value_traits import DICTIONARY, TRAITS
from artimon.model.values import ValueType
from artimon.rawtable.file_statistics import FileStatistics
from artimon.rawtable.rollup_rows import DOUBLE_FOLDS, INTEGER_FOLDS
from artimon.rawtable.schema import DataFile, is_hour
from artimon.runtime import file_access as files
from artimon.runtime.deadline import call_with_timeout
from pipeline.compaction.row_order import KEYS, Key, SortKeys
from pipeline.compaction.sorted_runs import check_order, slices_of

ROW_GROUP = 262_144
"""Rows: few enough that statistics of row groups prune, many enough that times shared by a poll compress."""
LEVELS = {"hour": 3, "day": 19}
"""Levels of zstd. A day is written once and read for years: 19 saves 6 % of it and takes three times the time."""
SMALL_FILE_ROWS, SMALL_FILE_LEVEL = ROW_GROUP, 22
"""Level of files with at most this many rows: takes a few seconds and saves a tenth of what one machine collects in
an hour. (For large hours it would be 30 times the work for 3 %.)"""
BUFFER_BYTES = 4 * 1024 * 1024
"""Bytes of one write to HDFS."""
PAGE_BYTES = 1024 * 1024
MAX_PAGE_ROWS = 2**31 - 1
"""No limit of rows: Arrow ends a page after 20,000 rows by default, and each page would repeat the times of a poll."""
GROUP_BYTES = 64 * 1024 * 1024
"""Size at which a row group is closed early, because its strings are long."""
BATCH_ROWS = 64
"""Rows between two checks of the size of a page: pages of long strings stay small."""
_CANDIDATES: dict[str, tuple[str, ...]] = {
    "source": (DICTIONARY,),
    "series": ("DELTA_BINARY_PACKED", DICTIONARY, "PLAIN"),
    "time": ("DELTA_BINARY_PACKED", "PLAIN", DICTIONARY),
    "birth": ("DELTA_BINARY_PACKED", DICTIONARY),
    "future": ("PLAIN",),
    **{one.column: one.encodings for one in TRAITS.values()},
    "first_time": ("DELTA_BINARY_PACKED", "PLAIN", DICTIONARY),
    "last_time": ("DELTA_BINARY_PACKED", "PLAIN", DICTIONARY),
    "count": ("DELTA_BINARY_PACKED", DICTIONARY),
    **dict.fromkeys(INTEGER_FOLDS.values(), TRAITS[ValueType.INTEGER].encodings),
    **dict.fromkeys(DOUBLE_FOLDS.values(), TRAITS[ValueType.DOUBLE].encodings),
}
"""Encodings that every reader supports, by the columns of samples and of roll-ups. Spark's does not support
BYTE_STREAM_SPLIT."""


@dataclass(frozen=True, slots=True)
class FileEncoding:
    """Encoding of each column of a file."""

    dictionary: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    """Columns of nulls alone. Their statistics tell readers not to decode them."""

    def options(self, level: int) -> dict[str, Any]:
        """Return the options of Arrow's Parquet writer; `level` is zstd's."""
        return {
            "compression": "zstd",
            "compression_level": level,
            "use_dictionary": self.dictionary,
            "column_encoding": self.others,
            "data_page_size": PAGE_BYTES,
            "max_rows_per_page": MAX_PAGE_ROWS,
            "write_batch_size": BATCH_ROWS,
            "write_statistics": [*KEYS, *self.empty],
            "store_schema": False,  # Arrow's schema repeats Parquet's: 700 bytes a file
        }


def choose_encoding(sample: Any, level: int) -> FileEncoding:
    """Return the encoding that makes each column of `sample` smallest; of equals, the first of _CANDIDATES."""
    best: dict[str, tuple[int, str]] = {}
    for n in range(max(map(len, _CANDIDATES.values()))):
        names = {column: _CANDIDATES[column][n] for column in sample.column_names if n < len(_CANDIDATES[column])}
        for column, size in _column_sizes(sample.select(list(names)), _encoding(names), level).items():
            if column not in best or size < best[column][0]:
                best[column] = size, names[column]
    return _encoding({column: name for column, (_, name) in best.items()}, empty_columns(sample))


def empty_columns(rows: Any) -> list[str]:
    """Return the names of the columns of nulls alone."""
    return [column for column in rows.column_names if rows.column(column).null_count == len(rows)]


def _encoding(names: dict[str, str], empty: Sequence[str] = ()) -> FileEncoding:
    dictionary = [column for column, name in names.items() if name == DICTIONARY]
    others = {column: name for column, name in names.items() if name != DICTIONARY}
    return FileEncoding(dictionary, others, list(empty))


def _column_sizes(rows: Any, encoding: FileEncoding, level: int) -> dict[str, int]:
    sink = pa.BufferOutputStream()
    options = {**encoding.options(level), "write_statistics": False}
    pq.write_table(rows, sink, row_group_size=ROW_GROUP, **options)
    meta = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    columns = [meta.column(n) for n in range(meta.num_columns)]
    return {column.path_in_schema: column.total_compressed_size for column in columns}


OnFile = Callable[[], None]


class SortedFileWriter:
    """Takes tables in order, all of one schema, and writes them as files of a partition, `rows_per_file` rows each.

    `files` are the closed ones. Their names begin with `prefix`, by default the kind of the period. `level` is
    zstd's, 0: by rows and period. `encoding`: that of another file, for files whose columns have values in the same
    columns. Raises RunError if the rows are not in order; OSError."""

    def __init__(
        self,
        table: str,
        folder: str,
        partition: dict[str, str],
        rows_per_file: int,
        on_file: OnFile = lambda: None,
        prefix: str = "",
        level: int = 0,
        encoding: FileEncoding | None = None,
    ) -> None:
        self.table, self._folder, self.partition = table, folder, partition
        self._rows_per_file, self._on_file, self._encoding = rows_per_file, on_file, encoding
        self._kind = "hour" if is_hour(partition["period"]) else "day"
        self._prefix = prefix or self._kind
        small = rows_per_file <= SMALL_FILE_ROWS
        self._level = level or (SMALL_FILE_LEVEL if small else LEVELS[self._kind])
        self._pending: list[Any] = []
        self._pending_rows = self._pending_bytes = 0
        self._file: _ParquetFile | None = None
        self._last: Key | None = None
        self.files: list[DataFile] = []
        self.names: list[str] = []
        """Paths of all files begun, relative to the table."""
        self.encoding: FileEncoding | None = None
        """Encoding of the newest file begun."""

    def add(self, rows: Any) -> None:
        if not len(rows):
            return
        keys = SortKeys.of(rows)
        check_order(keys, self._last, f"the merge for {self._folder}")
        self._last = keys.at(len(keys) - 1)
        self._pending.append(rows)
        self._pending_rows += len(rows)
        self._pending_bytes += rows.nbytes
        while self._pending_rows >= ROW_GROUP or self._pending_bytes >= GROUP_BYTES:
            self._write(ROW_GROUP)

    def close(self) -> list[DataFile]:
        """Write the remaining rows and return all files, closed."""
        while self._pending_rows:
            self._write(ROW_GROUP)
        self._close_file()
        return self.files

    def new_path(self) -> str:
        """Return the path of a new file, relative to the table."""
        self.names.append(f"{self._folder}/{self._prefix}-{uuid.uuid4().hex}.parquet")
        return self.names[-1]

    def discard(self) -> None:
        """Drop the open file."""
        if self._file is not None:
            self._file.sink.abandon()
            self._file = None

    def _write(self, most: int) -> None:
        written = self._file.rows if self._file else 0
        held = pa.concat_tables(self._pending)
        group = next(slices_of(held, min(most, self._rows_per_file - written), GROUP_BYTES))
        rest = held.slice(len(group))
        self._pending, self._pending_rows, self._pending_bytes = ([rest] if len(rest) else []), len(rest), rest.nbytes
        if self._file is None:
            path = self.new_path()
            encoding = self._encoding
            if encoding is None or encoding.empty != empty_columns(group):
                encoding = choose_encoding(group, self._level)
            self.encoding, options = encoding, encoding.options(self._level)
            self._file = _ParquetFile(f"{self.table}/{path}", path, group.schema, options)
        self._file.add(group)
        if self._file.rows >= self._rows_per_file:
            self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self.files.append(self._file.close(self.partition))
            self._file = None
            self._on_file()


class _ParquetFile:
    """One file that is being written."""

    def __init__(self, uri: str, path: str, schema: Any, options: dict[str, Any]) -> None:
        self.path = path
        self.sink = HdfsSink(uri)
        self._writer = pq.ParquetWriter(pa.PythonFile(self.sink, mode="w"), schema, **options)
        self._statistics = FileStatistics(KEYS)

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self._statistics.rows

    def add(self, group: Any) -> None:
        self._writer.write_table(group, row_group_size=ROW_GROUP)
        self._statistics.add(group)

    def close(self, partition: dict[str, str]) -> DataFile:
        self._writer.close()
        self.sink.close()
        return DataFile(self.path, self.sink.size, self.rows, partition, self._statistics.to_json())


class HdfsSink(io.RawIOBase):
    """A new file, written in pieces of BUFFER. `size` counts the bytes so far. Used by one thread."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.uri, self.size = uri, 0
        self._file = files.open_writer(uri)
        self._buffer = bytearray()

    def write(self, data: Any) -> int:
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush_buffer()
        return len(data)

    def tell(self) -> int:
        return self.size

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Write the rest and close. Raises OSError: the file is then incomplete."""
        if self.closed:
            return
        super().close()
        if self._buffer:
            self._flush_buffer()
        call_with_timeout(files.TIMEOUT_S, f"closing {self.uri}", self._file.close)

    def abandon(self) -> None:
        """Drop an unwanted file without closing it on HDFS; its written bytes stay until it is deleted."""
        self._buffer.clear()
        super().close()

    def _flush_buffer(self) -> None:
        held, self._buffer = self._buffer, bytearray()
        call_with_timeout(files.TIMEOUT_S, f"writing {self.uri}", lambda: self._file.write(held))
