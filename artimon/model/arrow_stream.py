"""Codec of one record batch as an Arrow IPC stream with zstd, without an Arrow library (`arrow_columns`).

The metadata of a message is a flatbuffer (Message.fbs and Schema.fbs of the Arrow format). Messages of equal columns
differ only in counts and positions, so each is built once and these are filled in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import cramjam

from artimon.model.arrow_columns import BUFFERS, Array, ArrayError, ArrowType, Field
from artimon.model.ipc_limits import (
    IpcError,
    IpcLimits,
    StreamParts,
    message_header,
    read_stream,
    table_fields,
    target_of,
    vector_targets,
)

_ZSTD_LEVEL = 1
_V5, _SCHEMA, _RECORDS, _ZSTD = 4, 1, 3, 1
_PREFIX_BYTES = 8
_INT, _FLOAT = 2, 3
_END = struct.pack("<Ii", 0xFFFFFFFF, 0)
_LENGTH = struct.Struct("<q")
_ALIGNMENT = 8


class Columns(NamedTuple):
    """Record batch that was read."""

    rows: int
    arrays: tuple[Array, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(one.field for one in self.arrays)


def encode_stream(rows: int, arrays: Sequence[Array]) -> bytes:
    """Return a stream that holds these columns only; equal columns give equal bytes."""
    every = list(_flatten(arrays))
    body, spans, at = [], [], 0
    for buffer in (buffer for array in every for buffer in array.buffers):
        data = _compress(buffer)
        padding = -len(data) % _ALIGNMENT
        body += [data, bytes(padding)]
        spans += [at, len(data)]
        at += len(data) + padding
    nodes = [count for array in every for count in (array.length, array.null_count)]
    schema = _schema_message(tuple(array.field for array in arrays))
    return b"".join([schema, _records_message(rows, at, nodes, spans), *body, _END])


def decode_stream(data: bytes, at: int, limits: IpcLimits) -> Columns:
    """Read the stream that begins at byte `at`; checks its limits before decompression. Raises IpcError."""
    parts = read_stream(data, at, limits)
    try:
        reader = _ArrayReader(data, parts)
        arrays = tuple(map(reader.read, _read_fields(parts.schema)))
    except (ArrayError, cramjam.DecompressionError, struct.error, IndexError, UnicodeDecodeError) as error:
        raise IpcError(f"{type(error).__name__}: {error}") from error
    if any(array.length != parts.rows for array in arrays):
        raise IpcError(f"columns of other lengths than the {parts.rows} rows of the batch")
    return Columns(parts.rows, arrays)


def decoded_bytes(arrays: Sequence[Array]) -> int:
    """Return the bytes of all buffers before compression."""
    return sum(len(buffer) for array in _flatten(arrays) for buffer in array.buffers)


def _flatten(arrays: Sequence[Array]) -> Iterator[Array]:
    for array in arrays:
        yield array
        yield from _flatten(array.children)


def _compress(buffer: Any) -> bytes:
    """Return a buffer as it is sent: its size, then a zstd frame; an empty one as nothing."""
    return _LENGTH.pack(len(buffer)) + bytes(cramjam.zstd.compress(buffer, _ZSTD_LEVEL)) if len(buffer) else b""


class _ArrayReader:
    """Reader of the arrays of a batch in the order of its schema."""

    def __init__(self, data: bytes, parts: StreamParts) -> None:
        self._data, self._parts = data, parts
        self._nodes = iter(zip(parts.nodes[::2], parts.nodes[1::2], strict=True))
        self._spans = iter(zip(parts.spans[::2], parts.spans[1::2], strict=True))

    def read(self, field: Field) -> Array:
        """Read the next array. Raises ArrayError if the batch has too few."""
        count = BUFFERS.get(field.type.kind)
        try:
            length, null_count = next(self._nodes)
            buffers = tuple(self._buffer(*next(self._spans)) for _ in range(count or 0))
        except (StopIteration, RuntimeError):
            raise ArrayError(f"no array or buffer for column {field.name}") from None
        if count is None or not 0 <= null_count <= length:
            raise ArrayError(f"column {field.name} of Arrow type {field.type.kind} with {null_count} nulls")
        return Array(field, length, null_count, buffers, tuple(map(self.read, field.children)))

    def _buffer(self, start: int, size: int) -> bytes:
        start += self._parts.body_at
        data = self._data[start : start + size]
        if not size or not self._parts.compressed:
            return data
        (declared,) = _LENGTH.unpack_from(data)
        if declared < 0:  # stored as it is
            return data[_LENGTH.size :]
        into = bytearray(declared)
        if cramjam.zstd.decompress_into(data[_LENGTH.size :], into) != declared:
            raise ArrayError(f"a buffer shorter than the {declared} bytes that it declares")
        return bytes(into)


@lru_cache(maxsize=64)
def _read_fields(metadata: bytes) -> tuple[Field, ...]:
    """Read the fields of a schema whose limits were checked."""
    _, header, _ = message_header(metadata)
    fields = table_fields(metadata, header)[1]
    return tuple(_read_field(metadata, at) for at in vector_targets(metadata, header + fields)) if fields else ()


def _read_field(metadata: bytes, at: int) -> Field:
    name, nullable, kind, type_, _, children = table_fields(metadata, at)[:6]
    inner = vector_targets(metadata, at + children) if children else []
    number = metadata[at + kind] if kind else 0
    return Field(
        _read_text(metadata, at + name) if name else "",
        _read_type(metadata, number, target_of(metadata, at + type_)) if type_ else ArrowType(number),
        bool(metadata[at + nullable]) if nullable else False,
        tuple(_read_field(metadata, one) for one in inner),
    )


def _read_type(metadata: bytes, kind: int, at: int) -> ArrowType:
    width, signed = table_fields(metadata, at)[:2]
    if kind == _INT:
        (bits,) = struct.unpack_from("<i", metadata, at + width) if width else (0,)
        return ArrowType(kind, bits, bool(signed and metadata[at + signed]))
    if kind == _FLOAT:
        (precision,) = struct.unpack_from("<h", metadata, at + width) if width else (0,)
        return ArrowType(kind, precision)
    return ArrowType(kind)


def _read_text(metadata: bytes, at: int) -> str:
    start = target_of(metadata, at)
    (size,) = struct.unpack_from("<I", metadata, start)
    return metadata[start + 4 : start + 4 + size].decode()


@lru_cache(maxsize=64)
def _schema_message(fields: tuple[Field, ...]) -> bytes:
    """Return the first message of a stream."""
    return _message(_SCHEMA, _table(None, _vector(map(_field, fields))), 0)


def _field(field: Field) -> Part:
    children = _vector(map(_field, field.children))
    nullable = ("<B", field.nullable) if field.nullable else None
    return _table(_text(field.name), nullable, ("<B", field.type.kind), _type(field.type), None, children)


def _type(type_: ArrowType) -> Part:
    if type_.kind == _INT:
        return _table(("<i", type_.width), ("<B", type_.signed))
    return _table(("<h", type_.width)) if type_.kind == _FLOAT else _table()


def _records_message(rows: int, body_bytes: int, nodes: Sequence[int], spans: Sequence[int]) -> bytes:
    template, places = _records_template(len(nodes), len(spans))
    message = bytearray(template)
    for place, numbers in zip(places, ((body_bytes,), (rows,), nodes, spans), strict=True):
        struct.pack_into(f"<{len(numbers)}q", message, place, *numbers)
    return bytes(message)


@lru_cache(maxsize=64)
def _records_template(nodes: int, spans: int) -> tuple[bytes, tuple[int, ...]]:
    """Return the message of a batch of zeros, and the places of body bytes, rows, nodes and buffers in it."""
    compression = _table(("<b", _ZSTD))
    message = _message(_RECORDS, _table(("<q", 0), _zeros(nodes), _zeros(spans), compression), 0)
    metadata = message[_PREFIX_BYTES:]
    (root,) = struct.unpack_from("<I", metadata)
    header = message_header(metadata)[1]
    length, first, second = table_fields(metadata, header)[:3]
    vectors = (target_of(metadata, header + at) + 4 for at in (first, second))
    places = (root + table_fields(metadata, root)[3], header + length, *vectors)
    return message, tuple(_PREFIX_BYTES + place for place in places)


def _message(kind: int, header: Part, body_bytes: int) -> bytes:
    part = _table(("<h", _V5), ("<B", kind), header, ("<q", body_bytes))
    metadata = struct.pack("<II", _ALIGNMENT + part.start, 0) + part.data
    metadata += bytes(-len(metadata) % _ALIGNMENT)
    return struct.pack("<Ii", 0xFFFFFFFF, len(metadata)) + metadata


class Part(NamedTuple):
    """Table, vector or text of a flatbuffer with everything that it refers to."""

    data: bytes
    start: int
    """Position in `data` to which a reference points."""
    alignment: int = 4
    """Required alignment of `data`, bytes."""


def _table(*slots: Part | tuple[str, int] | None) -> Part:
    """Build a table. A slot is a number with its format, a part that the table refers to, or absent."""
    alignment = max([4, *(_slot_bytes(one) for one in slots), *(s.alignment for s in slots if isinstance(s, Part))])
    vtable_bytes = 4 + 2 * len(slots)
    start = vtable_bytes + -vtable_bytes % alignment
    table, offsets, references = bytearray(struct.pack("<i", start)), [], []
    for slot in slots:
        table += bytes(-len(table) % _slot_bytes(slot))
        offsets.append(len(table) if slot is not None else 0)
        if isinstance(slot, Part):
            references.append((len(table), slot))
            table += bytes(4)
        elif slot is not None:
            table += struct.pack(*slot)
    vtable = struct.pack(f"<{2 + len(slots)}H", vtable_bytes, len(table), *offsets)
    data = bytearray(vtable + bytes(start - vtable_bytes) + table)
    for at, part in references:
        _append(data, start + at, part)
    return Part(bytes(data), start, alignment)


def _slot_bytes(slot: Part | tuple[str, int] | None) -> int:
    return 1 if slot is None else 4 if isinstance(slot, Part) else struct.calcsize(slot[0])


def _append(data: bytearray, reference: int, part: Part) -> None:
    """Append a part and make the reference at a position point to it."""
    data += bytes(-len(data) % part.alignment)
    struct.pack_into("<I", data, reference, len(data) + part.start - reference)
    data += part.data


def _vector(parts: Iterable[Part]) -> Part:
    parts = list(parts)
    data = bytearray(struct.pack("<I", len(parts)) + bytes(4 * len(parts)))
    for index, part in enumerate(parts):
        _append(data, 4 + 4 * index, part)
    return Part(bytes(data), 0)


def _text(text: str) -> Part:
    return Part(struct.pack("<I", len(text.encode())) + text.encode() + b"\0", 0)


def _zeros(numbers: int) -> Part:
    """Build a vector of structs of two 64-bit numbers, which begins at a multiple of eight after its length."""
    return Part(bytes(4) + struct.pack("<I", numbers // 2) + bytes(8 * numbers), 4, _ALIGNMENT)
