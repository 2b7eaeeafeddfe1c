"""Reader of the tables' data files on HDFS by ranges and row groups: only requested columns are fetched. Every call has
a timeout."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from artimon.rawtable.file_parts import DECODED_BYTES, FileParts
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
WHOLE_BYTES = 1024 * 1024
"""Maximum size of a file that is read whole as it is opened, instead of its footer first and its rows later."""
SHARED_NULLS = 1 << 18
"""Rows of the columns of nulls that readers share: those of the row groups that are written."""
ColumnBounds = dict[str, tuple[Any, Any]]
"""Minimum and maximum of each column that has statistics; times as epoch microseconds."""


class KeptRanges:
    """Ranges of files as they were fetched. Threads may share it."""

    def __init__(self, max_bytes: int = RANGE_BYTES) -> None:
        self._ranges = FileParts[bytes](max_bytes, MAX_RANGE_BYTES)

    def get(self, uri: str, start: int, length: int) -> tuple[int, bytes] | None:
        """Return start and data of a range that contains this one: of the same start, or from the start of the file."""
        for begin in (start, 0):
            data = self._ranges.get(uri, begin)
            if data is not None and start + length <= begin + len(data):
                return begin, data
        return None

    def add(self, uri: str, start: int, data: bytes) -> None:
        """Keep a range unless as much of it is held."""
        held = self._ranges.get(uri, start)
        if len(held or b"") < len(data):
            self._ranges.add(uri, start, data, len(data))

    def keep_only(self, uris: set[str]) -> None:
        """Drop the ranges of other files."""
        self._ranges.keep_only(uris)


class _SharedFile:
    """File that several readers share, opened by the first request for a range."""

    def __init__(self, uri: str, kept: KeptRanges | None) -> None:
        self._uri, self._kept = uri, kept
        self._file: Any = None
        self._size: int | None = None

    @property
    def size(self) -> int:
        """Size in bytes. Raises OSError."""
        if self._size is None:
            self._size = int(self._opened(None).size)
        return self._size

    def load_whole(self) -> bytes:
        """Return the whole file. Raises OSError."""
        data = files.read_file(self._uri)
        self._size = len(data)
        if self._kept is not None:
            self._kept.add(self._uri, 0, data)
        return data

    def load(self, start: int, length: int) -> tuple[int, bytes, int]:
        """Return start and data of a range that contains [start, start + length), and the number of bytes fetched for
        it: 0 if it was kept. Raises OSError."""
        if self._kept is None:
            return start, self.read(start, length), length
        if (held := self._kept.get(self._uri, start, length)) is not None:
            return *held, 0
        data = self.read(start, length)
        self._kept.add(self._uri, start, data)
        return start, data, length

    def read(self, start: int, length: int) -> bytes:
        """Return [start, start + length). After an error the file is opened anew and asked once more: its blocks may
        have moved since. Raises OSError."""
        file = self._file or self._opened(None)
        try:
            return self._read(file, start, length)
        except OSError:
            return self._read(self._opened(file), start, length)

    def _opened(self, unfit: Any) -> Any:
        """Return the open file, another one than `unfit`."""
        if self._file is unfit:
            self._file = files.open_reader(self._uri)
        return self._file

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
        self._at = 0
        self._start: int = opened._start if opened else 0
        self._data: bytes = opened._data if opened else b""

    def load(self, start: int, length: int) -> int:
        """Replace the buffer by a range that contains [start, start + length); return the number of bytes fetched for
        it."""
        self._data = b""
        self._start, self._data, fetched = self._file.load(start, length) if length > 0 else (start, b"", 0)
        return fetched

    def load_whole(self) -> int:
        """Fill the buffer with the whole file; return its size."""
        self._start, self._data = 0, self._file.load_whole()
        return len(self._data)

    def forget(self) -> None:
        """Empty the buffer."""
        self._start, self._data = 0, b""

    def source(self) -> Any:
        """Return the file for Arrow: memory if the buffer has all of it, so that no column is copied."""
        whole = self._start == 0 and len(self._data) == self._file.size
        return pa.BufferReader(self._data) if whole else pa.PythonFile(self, mode="r")

    @property
    def buffered_bytes(self) -> int:
        """Size of the buffer, bytes."""
        return len(self._data)

    def has_range(self, start: int, length: int) -> bool:
        """True if the buffer holds this range."""
        return self._start <= start and start + length <= self._start + len(self._data)

    def read(self, size: int = -1) -> bytes:
        rest = self._file.size - self._at
        length = rest if size < 0 else min(size, rest)
        offset = self._at - self._start
        data = (
            self._data[offset : offset + length] if self.has_range(self._at, length) else self._fetch(self._at, length)
        )
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
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


@lru_cache(maxsize=16)
def _shared_nulls(type_: Any) -> Any:
    return pa.nulls(SHARED_NULLS, type_)


def _nulls(type_: Any, count: int) -> Any:
    """Return a column of nulls; all share their memory."""
    return _shared_nulls(type_).slice(0, count) if count <= SHARED_NULLS else pa.nulls(count, type_)


class _Footer:
    """Footer of a file, and what readers ask of it again and again. Threads may share it: they compute equal values."""

    def __init__(self, file: Any) -> None:
        self.metadata: Any = file.metadata
        self.schema: Any = file.schema_arrow
        self.columns = _columns_of(self.metadata)
        self._spans: dict[int, tuple[int, int]] = {}
        self._empty: dict[tuple[int, str], bool] = {}
        self._bounds: dict[tuple[int, str], tuple[Any, Any] | None] = {}

    def span(self, group: int) -> tuple[int, int]:
        """Return start and length of the bytes of a row group."""
        if group not in self._spans:
            self._spans[group] = byte_range(self.metadata.row_group(group))
        return self._spans[group]

    def is_empty(self, group: int, name: str) -> bool:
        """True if the statistics of a column say that it holds nulls alone."""
        key = group, name
        if key not in self._empty:
            told = self._statistics(group, name)
            rows = self.metadata.row_group(group).num_rows
            self._empty[key] = told is not None and told.has_null_count and told.null_count == rows
        return self._empty[key]

    def bounds(self, group: int, name: str) -> tuple[Any, Any] | None:
        """Return minimum and maximum of a column by the statistics of a row group; None if they do not tell."""
        key = group, name
        if key not in self._bounds:
            self._bounds[key] = self._bounds_of(group, name)
        return self._bounds[key]

    def _bounds_of(self, group: int, name: str) -> tuple[Any, Any] | None:
        told = self._statistics(group, name)
        if told is None or not told.has_min_max:
            return None
        if not pa.types.is_timestamp(type_ := self.schema.field(name).type):
            return told.min, told.max
        return (told.min_raw, told.max_raw) if type_.unit == "us" else None

    def _statistics(self, group: int, name: str) -> Any:
        return self.metadata.row_group(group).column(self.columns[name]).statistics if name in self.columns else None


class GroupReader:
    """Reader of one data file by row group and columns. Used by one thread; `opened` is another reader of the same
    file, `kept` has the ranges that need not be fetched. `fetched_bytes` counts the fetched bytes, compressed. `size`:
    that of the file, if it is known; at most WHOLE_BYTES are fetched at once."""

    def __init__(
        self, uri: str, opened: GroupReader | None = None, kept: KeptRanges | None = None, size: int = 0
    ) -> None:
        self._reader: RangeReader = RangeReader(uri, opened._reader if opened else None, kept)
        self.fetched_bytes = self._reader.load_whole() if opened is None and 0 < size <= WHOLE_BYTES else 0
        self.was_open: bool = opened is not None and opened.was_open
        """True if the file was open before this reading."""
        self._file: Any = None
        self._footer: _Footer = opened._footer if opened else _Footer(self._opened())
        if opened is None and (unfit := oversized_group(self._footer.metadata)):
            raise TableError(f"{uri}: {unfit}")

    def _opened(self, known: Any = None) -> Any:
        """Return the file as Arrow reads it; `known`: its footer. Raises TableError."""
        if self._file is None:
            try:
                self._file = pq.ParquetFile(self._reader.source(), metadata=known)
            except pa.ArrowInvalid as error:
                raise TableError(f"{self.uri} is not a Parquet file: {error}") from error
        return self._file

    def without_data(self) -> GroupReader:
        """Return a reader of the same file that has its footer, but nothing of its rows."""
        made = GroupReader(self.uri, self)
        made._reader.forget()
        return made

    @property
    def footer_bytes(self) -> int:
        """Size of the footer in the file."""
        return int(self._footer.metadata.serialized_size)

    @property
    def columns(self) -> set[str]:
        """Return the names of the columns."""
        return set(self._footer.schema.names)

    @property
    def groups(self) -> int:
        """Return the number of row groups."""
        return int(self._footer.metadata.num_row_groups)

    def rows(self, group: int) -> int:
        return int(self._footer.metadata.row_group(group).num_rows)

    def bounds(self, group: int, columns: Sequence[str]) -> ColumnBounds:
        """Return minimum and maximum of these columns by the statistics of a row group."""
        found = {name: self._footer.bounds(group, name) for name in columns}
        return {name: bounds for name, bounds in found.items() if bounds is not None}

    def read(self, group: int, columns: Sequence[str]) -> Any:
        """Return these columns of a row group as an Arrow table. Those of nulls alone, by the statistics, are not
        decoded."""
        if not self._reader.has_range(*self._span(group)):
            self._load(*self._span(group, columns))
        empty = {name for name in columns if self._footer.is_empty(group, name)}
        if not empty or len(empty) == len(columns):
            return self._decode(group, list(columns))
        held = [name for name in columns if name not in empty]
        table = self._decode(group, held)
        for name in sorted(empty):
            field = self._footer.schema.field(name)
            table = table.append_column(field, _nulls(field.type, len(table)))
        return table.select([name for name in self._footer.schema.names if name in columns])

    def _decode(self, group: int, columns: list[str]) -> Any:
        return self._opened(self._footer.metadata).read_row_group(group, columns=columns, use_threads=False)

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
        if columns is None:
            return self._footer.span(group)
        wanted = [at for path, at in self._footer.columns.items() if path.split(".")[0] in columns]
        return byte_range(self._footer.metadata.row_group(group), wanted)


class OpenFiles:
    """Data files that stay open between reads: their footers are not read again. Files never change. The least recently
    used ones beyond the limits are closed. Threads may share it; `_lock` guards `_open` and `_bytes`."""

    def __init__(
        self, max_files: int = OPEN_FILES, max_bytes: int = OPEN_BYTES, kept: KeptRanges | None = None
    ) -> None:
        """`kept`: ranges that stay in memory."""
        self._max_files, self._max_bytes, self._kept = max_files, max_bytes, kept
        self.decoded = FileParts[Any](DECODED_BYTES, DECODED_BYTES // 4)
        self._lock = threading.Lock()
        self._open: OrderedDict[str, GroupReader] = OrderedDict()
        self._bytes = 0

    def reader(self, uri: str, size: int = 0) -> GroupReader:
        """Return a reader for one thread; `size`: of the file if it is known. Raises as GroupReader,
        FileNotFoundError."""
        with self._lock:
            if (held := self._open.get(uri)) is not None:
                self._open.move_to_end(uri)
        if held is not None:
            again = GroupReader(uri, held)
            again.was_open = True
            return again
        first = GroupReader(uri, kept=self._kept, size=size)
        with self._lock:
            self._add(uri, first.without_data())
        return first

    def keep_only(self, uris: set[str]) -> None:
        """Close the other files, and drop what was kept of them."""
        with self._lock:
            for uri in self._open.keys() - uris:
                self._bytes -= FOOTER_FACTOR * self._open.pop(uri).footer_bytes
        if self._kept is not None:
            self._kept.keep_only(uris)
        self.decoded.keep_only(uris)

    def _add(self, uri: str, opened: GroupReader) -> None:
        if uri not in self._open:
            self._open[uri] = opened
            self._bytes += FOOTER_FACTOR * opened.footer_bytes
        while self._open and (len(self._open) > self._max_files or self._bytes > self._max_bytes):
            _, closed = self._open.popitem(last=False)
            self._bytes -= FOOTER_FACTOR * closed.footer_bytes
