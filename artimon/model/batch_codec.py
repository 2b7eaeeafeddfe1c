"""Codec of batches: docs/formats/batch.md, golden bytes in tests/golden/batch/.

`parse_header` reads the header only; `verify` checks the digest, too; `decode_*` read the body. All raise BatchError.
Needs no Arrow library; `sample_columns` decodes to one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import gt
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from artimon.model.arrow_columns import (
    BOOL,
    DOUBLE,
    INT64,
    UINT8,
    UINT64,
    UTF8,
    Array,
    ArrayError,
    Field,
    Mask,
    blob_array,
    flag_array,
    number_array,
)
from artimon.model.arrow_stream import Columns, decode_stream, decoded_bytes, encode_stream
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
from artimon.model.ipc_limits import IpcError, IpcLimits, check_stream
from artimon.model.values import COLUMNS, CONTENTS, CellContent, Kind, ValueType

MAGIC = b"ARTB"
VERSION = 1
_FIXED = struct.Struct("<4sBBHQQqq16sIIIHHH")  # then agent, source, keep; then the body
_DIGEST_BYTES = 16
HEADER_BYTES = _FIXED.size + _DIGEST_BYTES

_ROWS = {BatchKind.SAMPLES: MAX_SAMPLES, BatchKind.SERIES: MAX_BLOCK_SERIES, BatchKind.EVENTS: MAX_SAMPLES}
BODY_LIMITS = {kind: IpcLimits(rows, MAX_DECODED_BYTES) for kind, rows in _ROWS.items()}
_NAME_BYTES = (MAX_NAME_BYTES, MAX_SOURCE_BYTES, MAX_NAME_BYTES)  # agent, source, keep
_HEADER_RESERVE_BYTES = 64 * 1024
"""Reserve below MAX_DECODED for an encoder, bytes: readers count padding, too."""

_ARROW_TYPES = {
    CellContent.INT64: INT64,
    CellContent.FLOAT64: DOUBLE,
    CellContent.FLAG: BOOL,
    CellContent.TEXT: UTF8,
}
_FIXED_FIELDS = (Field("series", UINT64), Field("time", INT64), Field("birth", INT64))
_VALUE_FIELDS = {type_: Field(name, _ARROW_TYPES[CONTENTS[type_]]) for type_, name in COLUMNS.items()}
_SERIES_FIELDS = (
    Field("text", UTF8),
    Field("type", UINT8),
    Field("kind", UINT8),
    Field("help", UTF8),
    Field("unit", UTF8),
    Field("first_seen", INT64),
)


def encode_samples(
    id: BatchId, source: str, endpoint: bytes, birth_ms: int, poll_ms: int, keep: str, samples: Samples
) -> Batch:
    """Encode samples; equal arguments give equal bytes. Raises BatchError beyond 10,000 samples or 512 KiB."""
    if len(samples) > MAX_SAMPLES:
        raise BatchError(f"{len(samples)} samples of {source}: split into batches of at most {MAX_SAMPLES}")
    body = compress_body(len(samples), _sample_arrays(samples), source)
    return assemble(BatchKind.SAMPLES, id, source, endpoint, birth_ms, poll_ms, len(samples), 0, keep, body)


def encode_series(agent: str, block: SeriesBlock) -> Batch:
    """Encode an announcement."""
    if len(block.series) > MAX_BLOCK_SERIES:
        raise BatchError(f"{len(block.series)} series in a block of {block.source}: at most {MAX_BLOCK_SERIES}")
    rows = [(s.text, s.type, s.kind, s.help, s.unit, s.first_seen_ms) for s in block.series]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_SERIES_FIELDS)
    arrays = [
        blob_array(field, [text.encode() for text in column])
        if field.type == UTF8
        else number_array(field, np.array(column, np.int64))
        for field, column in zip(_SERIES_FIELDS, columns, strict=True)
    ]
    body = compress_body(len(rows), arrays, block.source)
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


def decode_samples(header: BatchHeader, data: bytes) -> Samples:
    """Decode the body of a samples batch to numpy columns (views of the decompressed body where possible)."""
    check_kind(header, BatchKind.SAMPLES)
    body = read_body(header, data)
    try:
        return _samples(header, body)
    except ArrayError as error:
        raise BatchError(f"body of {header.id}: {error}") from error


def _samples(header: BatchHeader, body: Columns) -> Samples:
    arrays = {array.field.name: array for array in body.arrays}
    types = np.full(body.rows, ValueType.ENDED, np.uint8)
    cells = np.zeros(body.rows, np.int64)
    strings: tuple[str, ...] = ()
    for type_, field in _VALUE_FIELDS.items():
        array = arrays.get(field.name)
        if array is None or (array.null_count and array.null_count == body.rows):
            continue
        present = _present(header, array, field)
        if (types[present] != ValueType.ENDED).any():
            raise BatchError(f"a row of {header.id} has two values")
        types[present] = type_
        if field.type == UTF8:
            strings, cells[present] = _intern(array, present)
        else:
            cells[present] = _cells(array)[present]
    series, time, birth = (_fixed_column(header, arrays, field) for field in _FIXED_FIELDS)
    return Samples(series, time, birth, types, cells, strings)


def _present(header: BatchHeader, array: Array, field: Field) -> Mask:
    if array.field.type != field.type:
        raise BatchError(f"column {field.name} of {header.id} is {array.field.type}, not {field.type}")
    present = array.present()
    return np.ones(array.length, np.bool_) if present is None else present


def _cells(array: Array) -> npt.NDArray[np.int64]:
    """Return the 64-bit cells of a column; cells of nulls are arbitrary."""
    return array.flags().astype(np.int64) if array.field.type == BOOL else array.numbers().view(np.int64)


def _intern(array: Array, present: Mask) -> tuple[tuple[str, ...], list[int]]:
    """Return the distinct texts of a column, and for each value that is present its index among them."""
    numbers: dict[str, int] = {}
    texts = array.texts()
    found = [numbers.setdefault(text, len(numbers)) for text, here in zip(texts, present, strict=True) if here]
    return tuple(numbers), found


def _fixed_column(header: BatchHeader, arrays: dict[str, Array], field: Field) -> npt.NDArray[Any]:
    array = arrays.get(field.name)
    if array is None or array.null_count or array.field.type != field.type:
        raise BatchError(f"column {field.name} of {header.id} is missing, has nulls, or is not {field.type}")
    return array.numbers()


def decode_series(header: BatchHeader, data: bytes) -> SeriesBlock:
    """Decode the body of an announcement."""
    check_kind(header, BatchKind.SERIES)
    body = read_body(header, data)
    if body.fields != _SERIES_FIELDS:
        raise BatchError(f"announcement of {header.source} has columns {[field.name for field in body.fields]}")
    if any(array.null_count for array in body.arrays):
        raise BatchError(f"announcement of {header.source} has nulls")
    try:
        columns = (one.texts() if one.field.type == UTF8 else one.numbers().tolist() for one in body.arrays)
        series = tuple(
            SeriesInfo(text, ValueType(type_), Kind(kind), help_, unit, first_seen)
            for text, type_, kind, help_, unit, first_seen in zip(*columns, strict=True)
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


def _sample_arrays(samples: Samples) -> list[Array]:
    """Return the columns of samples; a type that does not occur has no column."""
    columns = (samples.fingerprint, samples.time_ms, samples.birth_ms)
    arrays = [number_array(field, values) for field, values in zip(_FIXED_FIELDS, columns, strict=True)]
    for type_, field in _VALUE_FIELDS.items():
        here = samples.type == type_
        if here.any():
            arrays.append(_value_array(field, samples, None if here.all() else here))
    return arrays


def _value_array(field: Field, samples: Samples, present: Mask | None) -> Array:
    if field.type == BOOL:
        return flag_array(field, samples.cell != 0, present)
    if field.type != UTF8:
        return number_array(field, samples.cell.view(np.float64) if field.type == DOUBLE else samples.cell, present)
    texts = [text.encode() for text in samples.strings]
    here = np.ones(len(samples), np.bool_) if present is None else present
    values = [texts[cell] if there else b"" for cell, there in zip(samples.cell.tolist(), here, strict=True)]
    return blob_array(field, values, present)


def read_body(header: BatchHeader, data: bytes) -> Columns:
    """Read the columns of a message's body and check its row count. Raises BatchError."""
    try:
        body = decode_stream(data, header.body_at, BODY_LIMITS[header.kind])
    except IpcError as error:
        raise BatchError(f"body of {header.id}: {error}") from error
    if body.rows != header.rows:
        raise BatchError(f"body of {header.id} holds {body.rows} rows, its header says {header.rows}")
    return body


def check_body(header: BatchHeader, data: bytes) -> None:
    """Check all limits of a body by its metadata alone. Raises BatchError."""
    try:
        rows = check_stream(data, header.body_at, BODY_LIMITS[header.kind])
    except IpcError as error:
        raise BatchError(f"body of {header.id}: {error}") from error
    if rows != header.rows:
        raise BatchError(f"body of {header.id} declares {rows} rows, its header says {header.rows}")


def compress_body(rows: int, arrays: Sequence[Array], source: str) -> bytes:
    """Compress columns to a body. Raises BatchError beyond the limit that readers decompress."""
    size = decoded_bytes(arrays)
    if size > MAX_DECODED_BYTES - _HEADER_RESERVE_BYTES:
        raise BatchError(f"{size} bytes of columns of {source}: split into batches of at most {MAX_DECODED_BYTES}")
    return encode_stream(rows, arrays)


def check_kind(header: BatchHeader, kind: BatchKind) -> None:
    if header.kind != kind:
        raise BatchError(f"a batch of kind {header.kind.name}, expected {kind.name}")
