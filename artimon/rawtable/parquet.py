"""Data files of the tables, read from HDFS by ranges and row groups, so that only the columns that are asked for are
fetched. Every call has a deadline."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from artimon.rawtable.schema import TableError
from artimon.runtime import files
from artimon.runtime.deadline import within

MAX_GROUP_ROWS = 1 << 22
"""Rows of a row group that is read: four times those of the largest that is written."""
MAX_GROUP_BYTES = 1 << 30
"""Decompressed bytes of a row group that is read; one that is written has about 184 MiB at most."""
Bounds = dict[str, tuple[Any, Any]]
"""Least and greatest value of those columns that have statistics; times as epoch microseconds."""


class RangeReader(io.RawIOBase):
    """A file read through one buffer, which `load` fills with the range that is about to be used: one request to HDFS
    for a whole row group, not one for each column. Used by one thread; `opened` is the file of another reader."""

    def __init__(self, uri: str, opened: RangeReader | None = None) -> None:
        super().__init__()
        self.uri = uri
        self._file: Any = opened._file if opened else files.open_reader(uri)
        self._size, self._at = int(self._file.size), 0
        self._start, self._data = 0, b""

    def load(self, start: int, length: int) -> None:
        """Hold [start, start + length), and nothing else."""
        self._data = b""
        self._start, self._data = start, self._fetch(start, length)

    @property
    def held(self) -> int:
        """Bytes of what was loaded."""
        return len(self._data)

    def holds(self, start: int, length: int) -> bool:
        """Whether this range was loaded."""
        return self._start <= start and start + length <= self._start + len(self._data)

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._at if size < 0 else min(size, self._size - self._at)
        offset = self._at - self._start
        data = self._data[offset : offset + length] if self.holds(self._at, length) else self._fetch(self._at, length)
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
        if length <= 0:
            return b""
        what = f"reading {self.uri}"
        return bytes(within(files.TIMEOUT_S, what, lambda: self._file.read_range(start, length)))


def unfit_group(metadata: Any) -> str:
    """The first row group of a Parquet file that declares more than a reader takes, "" if there is none."""
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


def span_of(group: Any, columns: Iterable[int] | None = None) -> tuple[int, int]:
    """Start and length of the bytes of the columns with these numbers in a row group (its metadata), or of all, and of
    those that lie between them."""
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
    """Row groups of one data file, by columns. Used by one thread; `opened` is another reader of the same file.
    `touched` counts the bytes of the column chunks that were fetched, compressed."""

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
        """Number of row groups."""
        return int(self._metadata.num_row_groups)

    def rows(self, group: int) -> int:
        return int(self._metadata.row_group(group).num_rows)

    def bounds(self, group: int, columns: Sequence[str]) -> Bounds:
        """Least and greatest values of these columns, by the statistics of a row group."""
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
        wanted = (at for path, at in self._columns.items() if columns is None or path.split(".")[0] in columns)
        return span_of(self._metadata.row_group(group), wanted)
