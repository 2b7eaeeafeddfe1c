"""Files on HDFS as Arrow wants them: read by ranges, written in order. Every call has a deadline."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa

from artimon.model import files
from artimon.model.deadline import within

BUFFER = 4 * 1024 * 1024
MAX_GROUP_ROWS = 1 << 22
"""Rows of a row group that is read: four times those of the largest that is written."""
MAX_GROUP_BYTES = 1 << 30
"""Decompressed bytes of a row group that is read; one that is written has about 184 MiB at most."""


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


class BufferedSink(io.RawIOBase):
    """A new file, written in pieces of BUFFER. `size` is what was written so far. Used by one thread."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.uri, self.size = uri, 0
        self._file = files.open_writer(uri)
        self._held = bytearray()

    def write(self, data: Any) -> int:
        self._held += data
        self.size += len(data)
        if len(self._held) >= BUFFER:
            self._push()
        return len(data)

    def tell(self) -> int:
        return self.size

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Raises OSError: the file is then not whole."""
        if self.closed:
            return
        super().close()
        if self._held:
            self._push()
        within(files.TIMEOUT_S, f"closing {self.uri}", self._file.close)

    def abandon(self) -> None:
        """Let go of a file that is not wanted; what was written stays until it is deleted."""
        self._held.clear()
        super().close()

    def _push(self) -> None:
        held, self._held = self._held, bytearray()
        within(files.TIMEOUT_S, f"writing {self.uri}", lambda: self._file.write(held))


def arrow_sink(sink: BufferedSink) -> Any:
    """As Arrow's writers take it."""
    return pa.PythonFile(sink, mode="w")
