"""Reader of the tables' data files on HDFS by ranges and row groups: only requested columns are fetched. Every call has
a timeout."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from artimon.rawtable.schema import TableError
from artimon.runtime import file_access as files
from artimon.runtime.deadline import call_with_timeout

MAX_GROUP_ROWS = 1 << 22
"""Limit of the rows of a row group on read: four times the largest that is written."""
MAX_GROUP_BYTES = 1 << 30
"""Limit of the decompressed bytes of a row group on read; the largest that is written has about 184 MiB."""
OPEN_FILES, OPEN_BYTES = 4_096, 64 * 1024 * 1024
"""Limits of OpenFiles: a year of roll-ups at three levels are 1,095 files for each class."""
FOOTER_FACTOR = 6
"""Memory of the decoded footer of an open file, as a multiple of its size in the file."""
RANGE_BYTES, MAX_RANGE_BYTES = 64 * 1024 * 1024, 4 * 1024 * 1024
"""Limits of KeptRanges, together and of one range: that of a request."""
ColumnBounds = dict[str, tuple[Any, Any]]
"""Minimum and maximum of each column that has statistics; times as epoch microseconds."""


class KeptRanges:
    """Ranges of files as they were fetched, the least recently used ones are dropped first. Threads may share it;
    `_lock` guards `_kept` and `_bytes`."""

    def __init__(self, max_bytes: int = RANGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._bytes = 0

    def get(self, uri: str, start: int, length: int) -> bytes | None:
        with self._lock:
            if (data := self._kept.get((uri, start, length))) is not None:
                self._kept.move_to_end((uri, start, length))
            return data

    def add(self, uri: str, start: int, data: bytes) -> None:
        key = uri, start, len(data)
        with self._lock:
            if len(data) > MAX_RANGE_BYTES or key in self._kept:
                return
            self._kept[key] = data
            self._bytes += len(data)
            while self._bytes > self._max_bytes:
                self._bytes -= len(self._kept.popitem(last=False)[1])

    def keep_only(self, uris: set[str]) -> None:
        """Drop the ranges of other files."""
        with self._lock:
            for key in [key for key in self._kept if key[0] not in uris]:
                self._bytes -= len(self._kept.pop(key))


class _SharedFile:
    """Open file that several readers share."""

    def __init__(self, uri: str, kept: KeptRanges | None) -> None:
        self._uri, self._kept = uri, kept
        self._file: Any = files.open_reader(uri)
        self.size = int(self._file.size)

    def load(self, start: int, length: int) -> tuple[bytes, int]:
        """Return [start, start + length), and the number of bytes fetched for it: 0 if it was kept. Raises OSError."""
        if self._kept is None:
            return self.read(start, length), length
        if (data := self._kept.get(self._uri, start, length)) is not None:
            return data, 0
        data = self.read(start, length)
        self._kept.add(self._uri, start, data)
        return data, length

    def read(self, start: int, length: int) -> bytes:
        """Return [start, start + length). After an error the file is opened anew and asked once more: its blocks may
        have moved since. Raises OSError."""
        file = self._file
        try:
            return self._read(file, start, length)
        except OSError:
            if self._file is file:
                self._file = files.open_reader(self._uri)
        return self._read(self._file, start, length)

    def _read(self, file: Any, start: int, length: int) -> bytes:
        what = f"reading {self._uri}"
        return bytes(call_with_timeout(files.TIMEOUT_S, what, lambda: file.read_range(start, length)))


class RangeReader(io.RawIOBase):
    """File with one buffer. `load` fills it with the range that is read next, so that HDFS gets one request for a row
    group instead of one per column. Used by one thread; `opened` is another reader of the same file."""

    def __init__(self, uri: str, opened: RangeReader | None = None, kept: KeptRanges | None = None) -> None:
        super().__init__()
        self.uri = uri
        self._file: _SharedFile = opened._file if opened else _SharedFile(uri, kept)
        self._size, self._at = self._file.size, 0
        self._start, self._data = 0, b""

    def load(self, start: int, length: int) -> int:
        """Replace the buffer by [start, start + length); return the number of bytes fetched for it."""
        self._data = b""
        data, fetched = self._file.load(start, length) if length > 0 else (b"", 0)
        self._start, self._data = start, data
        return fetched

    @property
    def buffered_bytes(self) -> int:
        """Size of the buffer, bytes."""
        return len(self._data)

    def has_range(self, start: int, length: int) -> bool:
        """True if the buffer holds this range."""
        return self._start <= start and start + length <= self._start + len(self._data)

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._at if size < 0 else min(size, self._size - self._at)
        offset = self._at - self._start
        data = (
            self._data[offset : offset + length] if self.has_range(self._at, length) else self._fetch(self._at, length)
        )
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def _fetch(self, start: int, length: int) -> bytes:
        return self._file.read(start, length) if length > 0 else b""


def oversized_group(metadata: Any) -> str:
    """Describe the first row group of a Parquet file that exceeds the limits of readers; "" if there is none."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(n) for n in range(group.num_columns)]
        held = max(group.total_byte_size, sum(max(0, column.total_uncompressed_size) for column in columns))
        if not 0 <= group.num_rows <= MAX_GROUP_ROWS or held > MAX_GROUP_BYTES:
            return (
                f"row group {number} declares {group.num_rows} rows and {held} bytes: at most {MAX_GROUP_ROWS} rows"
                f" and {MAX_GROUP_BYTES} bytes"
            )
    return ""


def _columns_of(metadata: Any) -> dict[str, int]:
    """Return the number of each column by its path."""
    return {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}


def byte_range(group: Any, columns: Iterable[int] | None = None) -> tuple[int, int]:
    """Return start and length of the smallest byte range with the columns of these numbers, or all, of a row group."""
    starts, ends = [], []
    for number in range(group.num_columns) if columns is None else columns:
        chunk = group.column(number)
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset:
            start = min(start, chunk.dictionary_page_offset)
        starts.append(start)
        ends.append(start + chunk.total_compressed_size)
    return (min(starts), max(ends) - min(starts)) if starts else (0, 0)


class GroupReader:
    """Reader of one data file by row group and columns. Used by one thread; `opened` is another reader of the same
    file, `kept` has the ranges that need not be fetched. `fetched_bytes` counts the fetched bytes, compressed."""

    def __init__(self, uri: str, opened: GroupReader | None = None, kept: KeptRanges | None = None) -> None:
        self._reader: RangeReader = RangeReader(uri, opened._reader if opened else None, kept)
        known = opened._metadata if opened else None
        try:
            self._file = pq.ParquetFile(pa.PythonFile(self._reader, mode="r"), metadata=known)
        except pa.ArrowInvalid as error:
            raise TableError(f"{uri} is not a Parquet file: {error}") from error
        self._metadata: Any = self._file.metadata
        if opened is None and (unfit := oversized_group(self._metadata)):
            raise TableError(f"{uri}: {unfit}")
        self._columns: dict[str, int] = opened._columns if opened else _columns_of(self._metadata)
        self._schema: Any = opened._schema if opened else self._file.schema_arrow
        self._spans: dict[int, tuple[int, int]] = opened._spans if opened else {}
        self.fetched_bytes = 0

    @property
    def footer_bytes(self) -> int:
        """Size of the footer in the file."""
        return int(self._metadata.serialized_size)

    @property
    def columns(self) -> set[str]:
        """Return the names of the columns."""
        return set(self._schema.names)

    @property
    def groups(self) -> int:
        """Return the number of row groups."""
        return int(self._metadata.num_row_groups)

    def rows(self, group: int) -> int:
        return int(self._metadata.row_group(group).num_rows)

    def bounds(self, group: int, columns: Sequence[str]) -> ColumnBounds:
        """Return minimum and maximum of these columns by the statistics of a row group."""
        found: ColumnBounds = {}
        part = self._metadata.row_group(group)
        for name in columns:
            told = part.column(self._columns[name]).statistics if name in self._columns else None
            if told is None or not told.has_min_max:
                continue
            if not pa.types.is_timestamp(type_ := self._schema.field(name).type):
                found[name] = told.min, told.max
            elif type_.unit == "us":
                found[name] = told.min_raw, told.max_raw
        return found

    def read(self, group: int, columns: Sequence[str]) -> Any:
        """Return these columns of a row group as an Arrow table. Those of nulls alone, by the statistics, are not
        decoded."""
        if not self._reader.has_range(*self._span(group)):
            self._load(*self._span(group, columns))
        empty = {name for name in columns if self._is_empty(group, name)}
        if not empty or len(empty) == len(columns):
            return self._file.read_row_group(group, columns=list(columns), use_threads=False)
        held = [name for name in columns if name not in empty]
        table = self._file.read_row_group(group, columns=held, use_threads=False)
        for name in sorted(empty):
            field = self._schema.field(name)
            table = table.append_column(field, pa.nulls(len(table), field.type))
        return table.select([name for name in self._schema.names if name in columns])

    def _is_empty(self, group: int, name: str) -> bool:
        """True if the statistics of a column say that it holds nulls alone."""
        if name not in self._columns:
            return False
        part = self._metadata.row_group(group)
        told = part.column(self._columns[name]).statistics
        return told is not None and told.has_null_count and told.null_count == part.num_rows

    @property
    def uri(self) -> str:
        return self._reader.uri

    @property
    def buffered_bytes(self) -> int:
        """Size of the buffer, bytes."""
        return self._reader.buffered_bytes

    def size(self, group: int) -> int:
        """Return the compressed size of a row group, bytes."""
        return self._span(group)[1]

    def prefetch(self, groups: Sequence[int]) -> None:
        """Fetch adjacent row groups by one request, so that `read` needs no further one."""
        start, _ = self._span(groups[0])
        last, length = self._span(groups[-1])
        self._load(start, last + length - start)

    def _load(self, start: int, length: int) -> None:
        if not self._reader.has_range(start, length):
            self.fetched_bytes += self._reader.load(start, length)

    def _span(self, group: int, columns: Sequence[str] | None = None) -> tuple[int, int]:
        """Return start and length of the bytes of a row group, or of these columns of it."""
        if columns is not None:
            wanted = [at for path, at in self._columns.items() if path.split(".")[0] in columns]
            return byte_range(self._metadata.row_group(group), wanted)
        if group not in self._spans:
            self._spans[group] = byte_range(self._metadata.row_group(group))
        return self._spans[group]


class OpenFiles:
    """Data files that stay open between reads: their footers are not read again. Files never change. The least recently
    used ones beyond the limits are closed. Threads may share it; `_lock` guards `_open` and `_bytes`."""

    def __init__(
        self, max_files: int = OPEN_FILES, max_bytes: int = OPEN_BYTES, kept: KeptRanges | None = None
    ) -> None:
        """`kept`: ranges that stay in memory."""
        self._max_files, self._max_bytes, self._kept = max_files, max_bytes, kept
        self._lock = threading.Lock()
        self._open: OrderedDict[str, GroupReader] = OrderedDict()
        self._bytes = 0

    def reader(self, uri: str) -> GroupReader:
        """Return a reader for one thread. Raises as GroupReader, FileNotFoundError."""
        with self._lock:
            if (held := self._open.get(uri)) is not None:
                self._open.move_to_end(uri)
        if held is None:
            held = GroupReader(uri, kept=self._kept)
            with self._lock:
                self._add(uri, held)
        return GroupReader(uri, held)

    def keep_only(self, uris: set[str]) -> None:
        """Close the other files, and drop what was kept of them."""
        with self._lock:
            for uri in self._open.keys() - uris:
                self._bytes -= FOOTER_FACTOR * self._open.pop(uri).footer_bytes
        if self._kept is not None:
            self._kept.keep_only(uris)

    def _add(self, uri: str, opened: GroupReader) -> None:
        if uri not in self._open:
            self._open[uri] = opened
            self._bytes += FOOTER_FACTOR * opened.footer_bytes
        while self._open and (len(self._open) > self._max_files or self._bytes > self._max_bytes):
            _, closed = self._open.popitem(last=False)
            self._bytes -= FOOTER_FACTOR * closed.footer_bytes
