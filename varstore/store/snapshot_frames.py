"""Frames: checksummed Arrow record batches in sequence, in files and on the wire. docs/formats/image.md."""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, BinaryIO, NamedTuple

import numpy.typing as npt
import pyarrow as pa
import xxhash

from artimon.model.ipc import read_ipc
from artimon.model.ipc_limits import IpcLimits

FORMAT = 1
MAGIC = b"AIMG"
_HEAD = struct.Struct("<4sIQ")  # magic, bytes of the payload, xxh3-64 of the payload
MAX_FRAME = 256 * 1024 * 1024
MAX_DECODED = 512 * 1024 * 1024
"""Limit of the decompressed bytes of the columns of a frame."""
_LIMITS = IpcLimits(1 << 24, MAX_DECODED, 256, 1 << 20)
_KEY = b"artimon.image"
_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)
"""Compress in the calling thread only, to leave the other core to feeding and queries."""


THREADS = 2
DECODE_AHEAD = 4
"""Number of frames decoded ahead."""


class SnapshotFormatError(ValueError):
    """A snapshot is damaged, truncated, of another format, or does not match the request."""


class SnapshotFrame(NamedTuple):
    """One decoded frame; `columns` are read-only arrays, texts a list of str or None."""

    kind: str
    meta: Mapping[str, Any]
    columns: Mapping[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def nbytes(self) -> int:
        """Bytes of the columns that are numbers."""
        return sum(getattr(column, "nbytes", 0) for column in self.columns.values())


def encode_frame(kind: str, meta: Mapping[str, Any], columns: Mapping[str, Any]) -> bytes:
    """Encode one frame; object arrays and lists become utf8. Raises SnapshotFormatError if it is too big."""
    arrays = {
        name: pa.array(column, pa.utf8()) if isinstance(column, list) or column.dtype == object else pa.array(column)
        for name, column in columns.items()
    }
    told = json.dumps({"format": FORMAT, "kind": kind, **meta})
    schema = pa.schema([(name, array.type) for name, array in arrays.items()], {_KEY: told.encode()})
    if (size := sum(array.nbytes for array in arrays.values())) > MAX_DECODED:
        raise SnapshotFormatError(f"part {kind!r} has {size} bytes of columns: at most {MAX_DECODED} are allowed")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
        writer.write_batch(pa.record_batch(list(arrays.values()), schema=schema))
    payload = sink.getvalue()
    if len(payload) > MAX_FRAME:
        raise SnapshotFormatError(f"part {kind!r} has {len(payload)} bytes: at most {MAX_FRAME} are allowed")
    return _HEAD.pack(MAGIC, len(payload), xxhash.xxh3_64_intdigest(payload)) + bytes(payload)


def decode_frame(data: bytes | memoryview, where: str = "image") -> SnapshotFrame:
    """Inverse of `encode_frame`. Raises SnapshotFormatError for anything else."""
    length, checksum = _head(bytes(data[: _HEAD.size]), where)
    payload = memoryview(data)[_HEAD.size :]
    if len(payload) != length or xxhash.xxh3_64_intdigest(payload) != checksum:
        raise SnapshotFormatError(f"{where}: a part is damaged or truncated ({len(payload)} of {length} bytes)")
    try:
        batch = read_ipc(payload, 0, _LIMITS)
        told = json.loads(batch.schema.metadata[_KEY])
        found, kind = told.pop("format"), str(told.pop("kind"))
        columns = {name: _plain(batch.column(i)) for i, name in enumerate(batch.schema.names)}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise SnapshotFormatError(f"{where}: unreadable part: {error}") from error
    if found != FORMAT:
        raise SnapshotFormatError(f"{where}: format {found} is unsupported, this version reads format {FORMAT}")
    return SnapshotFrame(kind, told, columns)


def _plain(array: Any) -> npt.NDArray[Any] | list[str | None]:
    if pa.types.is_string(array.type):
        texts: list[str | None] = array.to_pylist()
        return texts
    plain: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return plain


def _head(head: bytes, where: str) -> tuple[int, int]:
    if len(head) != _HEAD.size:
        raise SnapshotFormatError(f"{where}: truncated in the head of a part")
    magic, length, checksum = _HEAD.unpack(head)
    if magic != MAGIC or length > MAX_FRAME:
        raise SnapshotFormatError(f"{where}: bad magic or length in the head of a part")
    return length, checksum


def read_frames(files: Iterable[tuple[str, Callable[[], BinaryIO]]]) -> Iterator[SnapshotFrame]:
    """Yield every frame of files in order; a few are decoded ahead in other threads. files: (name, opener) pairs.
    Raises SnapshotFormatError at a damaged or truncated frame, and OSError."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="frames") as pool:
        ahead: deque[Future[SnapshotFrame]] = deque()
        for data, where in _read_payloads(files):
            ahead.append(pool.submit(decode_frame, data, where))
            if len(ahead) > DECODE_AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _read_payloads(files: Iterable[tuple[str, Callable[[], BinaryIO]]]) -> Iterator[tuple[bytes, str]]:
    for where, opened in files:
        with closing(opened()) as file:
            while head := file.read(_HEAD.size):
                length, _ = _head(head, where)
                yield head + file.read(length), where
