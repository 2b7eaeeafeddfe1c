"""Limits of an Arrow IPC stream, checked on its metadata alone, without decompression or allocation.

The metadata of a message is a flatbuffer (Message.fbs and Schema.fbs of the Arrow format). Only the fields that
determine a reader's memory are parsed: a few bytes of a stream may otherwise declare any number of rows or bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

_prefix = struct.Struct("<Ii").unpack_from  # continuation marker, bytes of the metadata
_u16, _i32 = struct.Struct("<H").unpack_from, struct.Struct("<i").unpack_from
_u32, _i64 = struct.Struct("<I").unpack_from, struct.Struct("<q").unpack_from
_FIELDS = 8
"""Greatest number of fields of the tables that are parsed here."""
_VTables = list[Callable[[bytes, int], tuple[int, ...]]]
_vtables: _VTables = [struct.Struct(f"<{n}H").unpack_from for n in range(_FIELDS + 1)]
_ABSENT: list[tuple[int, ...]] = [(0,) * (_FIELDS - n) for n in range(_FIELDS + 1)]
_CONTINUATION = 0xFFFFFFFF
_DECLARED_BYTES = 8
_PREFIX_BYTES = 8
_V5 = b"\4\0"
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3  # header types of a message
_ZSTD = 1
_FLAT = frozenset((2, 3, 4, 5, 6, 10))  # Int, FloatingPoint, Binary, Utf8, Bool, Timestamp
_TYPES = _FLAT | {12, 13, 16, 17}  # List, Struct, FixedSizeList, Map
_BUFFERS_A_COLUMN = 3
_MAX_DEPTH = 4
_CACHED_SCHEMA = 4_096
"""Greatest size of a schema in the cache of checked schemas, bytes: 64 entries take 256 KiB."""


class IpcError(ValueError):
    """A stream that breaks a limit or cannot be read. The text names the limit and the excess."""


class IpcLimits(NamedTuple):
    """Bounds of a stream: one schema, dictionaries if allowed, one record batch."""

    rows: int
    memory: int
    """Decompressed bytes of all buffers together."""
    columns: int = 16
    """Fields of the schema, including nested ones."""
    schema: int = 4_096
    """Bytes of the schema, and of all its texts together, counted once per reference."""
    compressed: bool = True
    """True if buffers may be compressed, with zstd only."""
    dictionaries: int = 0


class StreamParts(NamedTuple):
    """Record batch of a stream that keeps the limits."""

    schema: bytes
    """Metadata of the schema."""
    rows: int
    nodes: tuple[int, ...]
    """Length and number of nulls of each array."""
    spans: tuple[int, ...]
    """Start in the body and size of each buffer."""
    compressed: bool
    body_at: int


def check_stream(data: bytes | memoryview, at: int, limits: IpcLimits) -> int:
    """Check the stream that begins at byte `at` and return the rows of its record batch. Raises IpcError."""
    return read_stream(data, at, limits).rows


def read_stream(data: bytes | memoryview, at: int, limits: IpcLimits) -> StreamParts:
    """Check the stream that begins at byte `at` and return the parts of its record batch. Raises IpcError."""
    try:
        return _read_stream(data, at, limits)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise IpcError(f"unreadable metadata of an Arrow stream: {error}") from error


def _read_stream(data: bytes | memoryview, at: int, limits: IpcLimits) -> StreamParts:
    schema = _metadata(data, at)
    if len(schema) > limits.schema:
        raise IpcError(f"a schema of {len(schema)} bytes: at most {limits.schema}")
    (_check_known_schema if len(schema) <= _CACHED_SCHEMA else _check_schema)(schema, limits)
    at += _PREFIX_BYTES + len(schema)
    memory = 0
    for _ in range(limits.dictionaries + 1):
        metadata = _metadata(data, at)
        at += _PREFIX_BYTES + len(metadata)
        header_type, header, body_bytes = message_header(metadata)
        if not 0 <= body_bytes <= len(data) - at:
            raise IpcError(f"a message body of {body_bytes} bytes, only {len(data) - at} are left")
        if header_type == _DICTIONARY and limits.dictionaries:
            header = target_of(metadata, header + table_fields(metadata, header)[1])
        elif header_type != _RECORDS:
            raise IpcError(f"a message of type {header_type}, expected a record batch")
        rows, nodes, spans, compressed = _read_records(metadata, header, limits)
        memory += _check_buffers(spans, compressed, data, at, body_bytes)
        if memory > limits.memory:
            raise IpcError(f"{memory} bytes of decompressed columns: at most {limits.memory}")
        if header_type == _RECORDS:
            return StreamParts(schema, rows, nodes, spans, compressed, at)
        at += body_bytes
    raise IpcError(f"more than {limits.dictionaries} dictionaries")


def _metadata(data: bytes | memoryview, at: int) -> bytes:
    """Return the flatbuffer of the message that begins at `at`."""
    marker, size = _prefix(data, at)
    start = at + _PREFIX_BYTES
    if marker != _CONTINUATION or not 0 < size <= len(data) - start:
        raise IpcError(f"no message of an Arrow stream at byte {at}, or it is truncated")
    return bytes(data[start : start + size])


def message_header(metadata: bytes) -> tuple[int, int, int]:
    """Return header type, position of the header, and bytes of the body."""
    (at,) = _u32(metadata)
    version, kind, header, size, own = table_fields(metadata, at)[:5]
    if not version or metadata[at + version : at + version + 2] != _V5:
        raise IpcError("an Arrow message with a metadata version other than V5")
    if own or not kind or not header:
        raise IpcError("an Arrow message without a header, or with metadata of its own")
    return metadata[at + kind], target_of(metadata, at + header), _i64(metadata, at + size)[0] if size else 0


def _read_records(metadata: bytes, at: int, limits: IpcLimits) -> tuple[int, tuple[int, ...], tuple[int, ...], bool]:
    """Return rows, nodes and buffers of a record batch, and True if its buffers are compressed."""
    length, nodes, buffers, compression = table_fields(metadata, at)[:4]
    rows: int = _i64(metadata, at + length)[0] if length else 0
    if not 0 <= rows <= limits.rows:
        raise IpcError(f"{rows} rows declared: at most {limits.rows}")
    lengths = _pairs(metadata, at + nodes, limits.columns) if nodes else ()
    counts = lengths[::2]
    if counts and not (min(counts) >= 0 and max(counts) <= max(limits.rows, limits.memory)):
        raise IpcError(
            f"columns declare {min(counts)} to {max(counts)} values: at most {max(limits.rows, limits.memory)}"
        )
    spans = _pairs(metadata, at + buffers, _BUFFERS_A_COLUMN * limits.columns) if buffers else ()
    compressed = bool(compression) and _check_compression(metadata, at + compression, limits)
    return rows, lengths, spans, compressed


def _check_buffers(spans: tuple[int, ...], compressed: bool, data: bytes | memoryview, at: int, body_bytes: int) -> int:
    """Return the decompressed bytes of the buffers of the body that begins at `at`."""
    total, pairs = 0, iter(spans)
    for start, size in zip(pairs, pairs, strict=True):
        if start < 0 or size < 0 or start + size > body_bytes:
            raise IpcError(f"a buffer of {size} bytes at {start} of a body of {body_bytes}")
        total += _decompressed(data, at + start, size) if compressed and size else size
    return total


def _decompressed(data: bytes | memoryview, at: int, size: int) -> int:
    """Return the size that a compressed buffer declares before its zstd frame; a reader allocates exactly this size."""
    (declared,) = _i64(data, at)
    if size < _DECLARED_BYTES or declared < -1:
        raise IpcError(f"a buffer of {size} bytes that declares {declared}")
    return int(declared) if declared >= 0 else size - _DECLARED_BYTES


def _check_compression(metadata: bytes, at: int, limits: IpcLimits) -> bool:
    at = target_of(metadata, at)
    codec, method = table_fields(metadata, at)[:2]
    if not limits.compressed:
        raise IpcError("compressed buffers, expected uncompressed ones")
    if not codec or metadata[at + codec] != _ZSTD or (method and metadata[at + method]):
        raise IpcError("buffers with a compression other than zstd")
    return True


def _check_schema(metadata: bytes, limits: IpcLimits) -> None:
    kind, header, body_bytes = message_header(metadata)
    if kind != _SCHEMA or body_bytes:
        raise IpcError("the stream does not begin with a schema")
    _, fields, pairs = table_fields(metadata, header)[:3]
    walk = _Schema(metadata, limits)
    if fields:
        walk.children(header + fields, 1)
    if pairs:
        walk.pairs(header + pairs)


_check_known_schema = lru_cache(maxsize=64)(_check_schema)


class _Schema:
    """Walk over the fields of a schema. Each reference counts: a reader makes an object for each."""

    def __init__(self, metadata: bytes, limits: IpcLimits) -> None:
        self._metadata, self._limits = metadata, limits
        self._columns, self._text = limits.columns, limits.schema

    def children(self, at: int, depth: int) -> None:
        for field in vector_targets(self._metadata, at):
            self._columns -= 1
            if self._columns < 0 or depth > _MAX_DEPTH:
                raise IpcError(f"more than {self._limits.columns} columns, or nested more than {_MAX_DEPTH} deep")
            name, _, kind, _, dictionary, children, pairs = table_fields(self._metadata, field)[:7]
            type_ = self._metadata[field + kind] if kind else 0
            if type_ not in _TYPES or (dictionary and not self._limits.dictionaries):
                raise IpcError(f"a column of Arrow type {type_}, or with an encoding, that is not supported")
            if name:
                self._take(field + name).decode()
            if pairs:
                self.pairs(field + pairs)
            if children:
                self.children(field + children, depth + 1)

    def pairs(self, at: int) -> None:
        """Check the key-value metadata of a schema or a field."""
        for pair in vector_targets(self._metadata, at):
            self._text -= _PREFIX_BYTES
            for text in table_fields(self._metadata, pair)[:2]:
                if text:
                    self._take(pair + text)

    def _take(self, at: int) -> bytes:
        """Read a text and charge it to the limit of texts."""
        start = target_of(self._metadata, at)
        (size,) = _u32(self._metadata, start)
        self._text -= size
        if self._text < 0:
            raise IpcError(f"texts of a schema beyond {self._limits.schema} bytes")
        return self._metadata[start + 4 : start + 4 + size]


def vector_targets(metadata: bytes, at: int) -> list[int]:
    """Return the positions of the tables of a vector."""
    vector = target_of(metadata, at)
    (count,) = _u32(metadata, vector)
    if count > len(metadata) // 4:
        raise IpcError(f"a schema of {len(metadata)} bytes declares a list of {count} elements")
    return [target_of(metadata, vector + 4 + 4 * i) for i in range(count)]


def table_fields(metadata: bytes, at: int) -> tuple[int, ...]:
    """Return the offsets of a table's fields relative to its position `at`, padded to eight; 0 for absent fields."""
    vtable = at - _i32(metadata, at)[0]
    if vtable < 0:
        raise IpcError("flatbuffer table that points outside of the message")
    count: int = min((_u16(metadata, vtable)[0] - 4) >> 1, _FIELDS)
    if count < 0:
        raise IpcError("a table of a flatbuffer without fields")
    return _vtables[count](metadata, vtable + 4) + _ABSENT[count]


def target_of(metadata: bytes, at: int) -> int:
    """Return the target of the offset at `at`."""
    return at + int(_u32(metadata, at)[0])


def _pairs(metadata: bytes, at: int, most: int) -> tuple[int, ...]:
    """Read a vector of structs of two 64-bit integers."""
    vector = target_of(metadata, at)
    (count,) = _u32(metadata, vector)
    if count > most:
        raise IpcError(f"{count} columns or buffers: at most {most}")
    return _integers(count)(metadata, vector + 4)


@lru_cache(maxsize=64)
def _integers(pairs: int) -> Callable[[bytes, int], tuple[int, ...]]:
    return struct.Struct(f"<{2 * pairs}q").unpack_from
