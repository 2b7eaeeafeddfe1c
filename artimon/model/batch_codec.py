"""Codec of batches: docs/formats/batch.md, golden bytes in tests/golden/batch/.

`parse_header` reads the header only; `verify` checks the digest, too; `decode_*` read the body. All raise BatchError.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import gt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from artimon.model.batch import (
    MAX_BLOCK_SERIES,
    MAX_BYTES,
    MAX_DECODED_BYTES,
    MAX_NAME_BYTES,
    MAX_SAMPLES,
    MAX_SOURCE_BYTES,
    NO_LANE,
    Batch,
    BatchError,
    BatchHeader,
    BatchId,
    BatchKind,
    Samples,
    SeriesBlock,
    SeriesInfo,
    UnknownFormatError,
)
from artimon.model.ipc import ZSTD, read_ipc, write_ipc
from artimon.model.ipc_limits import IpcError, IpcLimits, check_stream
from artimon.model.value_traits import TRAITS, VALUE_FIELDS, ValueTraits
from artimon.model.values import CellContent, Kind, ValueType

MAGIC = b"ARTB"
VERSION = 1
_FIXED = struct.Struct("<4sBBHQQqq16sIIIHHH")  # then agent, source, keep; then the body
_DIGEST_BYTES = 16
HEADER_BYTES = _FIXED.size + _DIGEST_BYTES

_ROWS = {BatchKind.SAMPLES: MAX_SAMPLES, BatchKind.SERIES: MAX_BLOCK_SERIES, BatchKind.EVENTS: MAX_SAMPLES}
_LIMITS = {kind: IpcLimits(rows, MAX_DECODED_BYTES) for kind, rows in _ROWS.items()}
_NAME_BYTES = (MAX_NAME_BYTES, MAX_SOURCE_BYTES, MAX_NAME_BYTES)  # agent, source, keep
_HEADER_RESERVE_BYTES = 64 * 1024
"""Reserve below MAX_DECODED for an encoder, bytes: Arrow counts padding in one place and not in another."""

SAMPLE_SCHEMA = pa.schema([("series", pa.uint64()), ("time", pa.int64()), ("birth", pa.int64()), *VALUE_FIELDS])
_SAMPLE_TYPES = [(field.name, field.type) for field in SAMPLE_SCHEMA]
_SERIES_SCHEMA = pa.schema(
    [
        ("text", pa.utf8()),
        ("type", pa.uint8()),
        ("kind", pa.uint8()),
        ("help", pa.utf8()),
        ("unit", pa.utf8()),
        ("first_seen", pa.int64()),
    ]
)


def encode_samples(
    id: BatchId, source: str, endpoint: bytes, birth_ms: int, poll_ms: int, keep: str, samples: Samples
) -> Batch:
    """Encode samples; equal arguments give equal bytes. Raises BatchError beyond 10,000 samples or 512 KiB."""
    if len(samples) > MAX_SAMPLES:
        raise BatchError(f"{len(samples)} samples of {source}: split into batches of at most {MAX_SAMPLES}")
    body = compress_body(_sample_table(samples), source)
    return assemble(BatchKind.SAMPLES, id, source, endpoint, birth_ms, poll_ms, len(samples), 0, keep, body)


def encode_series(agent: str, block: SeriesBlock) -> Batch:
    """Encode an announcement."""
    if len(block.series) > MAX_BLOCK_SERIES:
        raise BatchError(f"{len(block.series)} series in a block of {block.source}: at most {MAX_BLOCK_SERIES}")
    rows = [(s.text, s.type, s.kind, s.help, s.unit, s.first_seen_ms) for s in block.series]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_SERIES_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SERIES_SCHEMA, strict=True)]
    body = compress_body(pa.record_batch(arrays, schema=_SERIES_SCHEMA), block.source)
    id = BatchId(agent, 0, NO_LANE, 0)
    return assemble(
        BatchKind.SERIES,
        id,
        block.source,
        bytes(16),
        0,
        block.version,
        len(block.series),
        block.block,
        "",
        body,
    )


def parse_header(data: bytes) -> BatchHeader:
    """Return the header of a message without a check of its digest or body."""
    if len(data) < HEADER_BYTES:
        raise BatchError(f"{len(data)} bytes are too few for a batch header of {HEADER_BYTES}")
    fields = _FIXED.unpack_from(data)
    magic, version, kind, lane, epoch, sequence, birth, poll, endpoint, rows, block, body_bytes = fields[:12]
    if magic != MAGIC:
        raise BatchError(f"starts with {magic!r}, not with {MAGIC!r}: not a batch")
    if version != VERSION:
        raise UnknownFormatError(
            f"format version {version}: this program reads version {VERSION}; upgrade it, then replay the dead"
            " letters (docs/upgrade.md)"
        )
    if len(data) > MAX_BYTES:
        raise BatchError(f"a batch of {len(data)} bytes: at most {MAX_BYTES}")
    try:
        batch_kind = BatchKind(kind)
        at = HEADER_BYTES
        names = []
        for length in fields[12:]:
            names.append(data[at : at + length].decode())
            at += length
    except ValueError as error:
        raise BatchError(f"unreadable header: {error}") from error
    if at + body_bytes != len(data):
        raise BatchError(f"{len(data)} bytes, the header says {at + body_bytes}: the message is truncated")
    if rows > _ROWS[batch_kind] or any(map(gt, fields[12:], _NAME_BYTES)):
        raise BatchError(
            f"{rows} rows, names of {fields[12:]} bytes: at most {_ROWS[batch_kind]} rows and {_NAME_BYTES} bytes"
        )
    agent, source, keep = names
    id = BatchId(agent, epoch, lane, sequence)
    return BatchHeader(batch_kind, id, source, endpoint, birth, poll, rows, block, keep, at, len(data))


def size_of(data: bytes) -> int:
    """Return the length of a message in bytes by its header; 0 if the bytes do not begin with one."""
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        return 0
    fields = _FIXED.unpack_from(data)
    return HEADER_BYTES + int(sum(fields[11:]))


def verify(data: bytes) -> BatchHeader:
    """Check the digest over header and body (labels, times and values) and return the header."""
    header = parse_header(data)
    expected = data[_FIXED.size : HEADER_BYTES]
    actual = _digest(data[: _FIXED.size], data[HEADER_BYTES:])
    if actual != expected:
        raise BatchError(
            f"digest of {header.id} is {actual.hex()}, its header says {expected.hex()}: damaged in transit"
        )
    return header


def verify_limits(data: bytes) -> BatchHeader:
    """Check digest and limits of a batch before it is passed on, and return its header. The body is not decompressed.
    Raises BatchError."""
    header = verify(data)
    check_body(header, data)
    return header


def decode_columns(header: BatchHeader, data: bytes) -> pa.RecordBatch:
    """Decode the body of a samples batch to SAMPLE_SCHEMA: series, time, birth and one nullable column per type."""
    _check_kind(header, BatchKind.SAMPLES)
    body = read_body(header, data)
    columns = body.columns if body.schema.equals(SAMPLE_SCHEMA) else _sample_columns(header, body)
    _check_values(header, columns[-len(VALUE_FIELDS) :])
    return pa.record_batch(columns, schema=SAMPLE_SCHEMA)


def _sample_columns(header: BatchHeader, body: Any) -> list[Any]:
    """Return the columns of SAMPLE_SCHEMA; a column that the body lacks is all nulls."""
    schema, columns = body.schema, []
    types = schema.types
    for name, type_ in _SAMPLE_TYPES:
        at = schema.get_field_index(name)
        if at < 0:
            columns.append(_nulls(type_).slice(0, header.rows))
        elif types[at] != type_:
            raise BatchError(f"column {name} of {header.id} is {types[at]}, not {type_}")
        else:
            columns.append(body.column(at))
    return columns


@lru_cache(maxsize=8)
def _nulls(type_: Any) -> Any:
    """Return a column of MAX_SAMPLES nulls."""
    return pa.nulls(MAX_SAMPLES, type_)


def _check_values(header: BatchHeader, columns: Sequence[Any]) -> None:
    """Raise BatchError if a row has values in two columns. Validity bits of a column are compared as one integer."""
    seen, every = 0, (1 << header.rows) - 1
    for column in columns:
        if column.null_count == header.rows:
            continue
        bits = int.from_bytes(column.buffers()[0], "little") & every if column.null_count else every
        if seen & bits:
            raise BatchError(f"a row of {header.id} has two values")
        seen |= bits


def decode_samples(header: BatchHeader, data: bytes) -> Samples:
    """Decode the body of a samples batch to numpy columns (views of the decompressed body where possible)."""
    return samples_from_body(decode_columns(header, data))


def samples_from_body(body: pa.RecordBatch) -> Samples:
    """Convert the columns of `decode_columns`, or a subset of them, to numpy columns."""
    rows = len(body)
    types = np.full(rows, ValueType.ENDED, np.uint8)
    cells = np.zeros(rows, np.int64)
    strings: tuple[str, ...] = ()
    for value_type, traits in TRAITS.items():
        at = body.schema.get_field_index(traits.column)
        if at < 0:
            continue
        column = body.column(at)
        if rows and column.null_count == rows:
            continue
        if traits.content is CellContent.TEXT:
            strings, column = _intern(column)
        whole = column.null_count == 0
        bits = _column_cells(traits, column)
        if whole:
            types[:] = value_type
            cells = bits
        else:
            present = np.asarray(column.is_valid())
            types[present] = value_type
            cells[present] = bits[present]
    fixed = [_column_array(body, name) for name in ("series", "time", "birth")]
    return Samples(fixed[0], fixed[1], fixed[2], types, cells, strings)


def decode_series(header: BatchHeader, data: bytes) -> SeriesBlock:
    """Decode the body of an announcement."""
    _check_kind(header, BatchKind.SERIES)
    body = read_body(header, data)
    if not body.schema.equals(_SERIES_SCHEMA):
        raise BatchError(f"announcement of {header.source} has columns {body.schema.names}")
    if any(column.null_count for column in body.columns):
        raise BatchError(f"announcement of {header.source} has nulls")
    try:
        series = tuple(
            SeriesInfo(text, ValueType(type_), Kind(kind), help_, unit, first_seen)
            for text, type_, kind, help_, unit, first_seen in zip(*(c.to_pylist() for c in body.columns), strict=True)
        )
    except ValueError as error:
        raise BatchError(f"announcement of {header.source}: {error}") from error
    return SeriesBlock(header.source, header.block, header.poll_ms, series)


def assemble(
    kind: BatchKind,
    id: BatchId,
    source: str,
    endpoint: bytes,
    birth_ms: int,
    poll_ms: int,
    rows: int,
    block: int,
    keep: str,
    body: bytes,
) -> Batch:
    """Assemble a message with its digest. Raises BatchError beyond 512 KiB."""
    names = [id.agent.encode(), source.encode(), keep.encode()]
    lengths = [len(name) for name in names]
    if any(map(gt, lengths, _NAME_BYTES)):
        raise BatchError(f"names of {lengths} bytes in the header of {source[:80]!r}…: at most {_NAME_BYTES}")
    fixed = _FIXED.pack(
        MAGIC,
        VERSION,
        kind,
        id.lane,
        id.epoch,
        id.sequence,
        birth_ms,
        poll_ms,
        endpoint,
        rows,
        block,
        len(body),
        *lengths,
    )
    rest = b"".join([*names, body])
    data = b"".join([fixed, _digest(fixed, rest), rest])
    if len(data) > MAX_BYTES:
        raise BatchError(f"{len(data)} bytes of {source}: split into batches of at most {MAX_BYTES}")
    body_at = HEADER_BYTES + sum(lengths)
    return Batch(
        BatchHeader(kind, id, source, endpoint, birth_ms, poll_ms, rows, block, keep, body_at, len(data)),
        data,
    )


def _digest(fixed: bytes, rest: bytes) -> bytes:
    digest = xxhash.xxh3_128(fixed)
    digest.update(rest)
    return bytes(digest.digest())


def _sample_table(samples: Samples) -> pa.RecordBatch:
    """Return the columns of samples; a type that does not occur has no column."""
    arrays: list[Any] = [pa.array(samples.fingerprint), pa.array(samples.time_ms), pa.array(samples.birth_ms)]
    fields = [SAMPLE_SCHEMA.field(i) for i in range(3)]
    for value_type, traits in TRAITS.items():
        present = samples.type == value_type
        if not present.any():
            continue
        absent = None if present.all() else ~present
        arrays.append(traits.to_column(samples.cell, samples.strings, absent))
        fields.append(pa.field(traits.column, traits.arrow))
    return pa.record_batch(arrays, schema=pa.schema(fields))


def _column_cells(traits: ValueTraits, column: Any) -> npt.NDArray[np.int64]:
    """Return the 64-bit cells of a column; cells of nulls are arbitrary."""
    if traits.content is CellContent.FLAG:
        return np.asarray(column.fill_null(False).cast(pa.int64()))
    width = np.dtype(np.int64).itemsize
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, np.int64, count=len(column), offset=column.offset * width)


def _intern(column: Any) -> tuple[tuple[str, ...], Any]:
    encoded = column.dictionary_encode()
    return tuple(encoded.dictionary.to_pylist()), encoded.indices.cast(pa.int64())


def _column_array(body: Any, name: str) -> Any:
    at = body.schema.get_field_index(name)
    if at < 0 or body.column(at).null_count:
        raise BatchError(f"column {name} is missing or has nulls")
    if body.schema.field(at).type != SAMPLE_SCHEMA.field(name).type:
        raise BatchError(f"column {name} is {body.schema.field(at).type}")
    return body.column(at).to_numpy(zero_copy_only=True)


def read_body(header: BatchHeader, data: bytes) -> Any:
    """Read the record batch of a message's body and check its row count. Raises BatchError."""
    try:
        body = read_ipc(data, header.body_at, _LIMITS[header.kind])
    except IpcError as error:
        raise BatchError(f"body of {header.id}: {error}") from error
    if len(body) != header.rows:
        raise BatchError(f"body of {header.id} holds {len(body)} rows, its header says {header.rows}")
    return body


def check_body(header: BatchHeader, data: bytes) -> None:
    """Check all limits of a body by its metadata alone. Raises BatchError."""
    try:
        rows = check_stream(data, header.body_at, _LIMITS[header.kind])
    except IpcError as error:
        raise BatchError(f"body of {header.id}: {error}") from error
    if rows != header.rows:
        raise BatchError(f"body of {header.id} declares {rows} rows, its header says {header.rows}")


def compress_body(table: pa.RecordBatch, source: str) -> bytes:
    """Compress columns to a body. Raises BatchError beyond the limit that readers decompress."""
    if table.nbytes > MAX_DECODED_BYTES - _HEADER_RESERVE_BYTES:
        raise BatchError(
            f"{table.nbytes} bytes of columns of {source}: split into batches of at most {MAX_DECODED_BYTES}"
        )
    return write_ipc(table, ZSTD)


def _check_kind(header: BatchHeader, kind: BatchKind) -> None:
    if header.kind != kind:
        raise BatchError(f"a batch of kind {header.kind.name}, expected {kind.name}")
