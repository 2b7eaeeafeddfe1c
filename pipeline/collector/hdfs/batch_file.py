"""Bytes of a file of batches: docs/formats/direct.md. No I/O here.

A header names the stream and the base of the file. Records follow, framed as in the log
(pipeline/wal/segment_format.py). Their checksums are salted with the base, so bytes of another file are never taken for
records of this one. The last record of a properly closed file is an index: the number of batches, and the ranges of
sequences of each lane."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from artimon.model.ranges import LaneRanges
from pipeline.wal.segment_format import RECORD_BYTES, RecordType, encode_record, scan_segment

MAGIC = b"ARTD"
VERSION = 1
_FIXED = struct.Struct("<4sBBHQ")  # magic, version, 0, bytes of the stream's name, base
_CRC = struct.Struct("<I")


class BatchFileError(ValueError):
    """The file does not hold batches, or is of a newer version. The text says what was found."""


class FileHeader(NamedTuple):
    """Header of a file; `size` is its length in bytes."""

    stream: str
    base: int
    size: int


@dataclass(slots=True)
class DecodedFile:
    """Content of a file. Offsets are within the file."""

    header: FileHeader
    records: list[tuple[RecordType, int, int]] = field(default_factory=list)
    """Type, begin and end of the payload of each record."""
    damage: list[tuple[int, int]] = field(default_factory=list)
    """Byte ranges without a whole record, each followed by a whole record."""
    torn_bytes: int = 0
    """Bytes after the last whole record: the file was cut off, which does not count as damage."""
    index: LaneRanges | None = None


def encode_header(stream: str, base: int) -> bytes:
    name = stream.encode()
    body = _FIXED.pack(MAGIC, VERSION, 0, len(name), base) + name
    return body + _CRC.pack(crc32c(body))


def decode_header(data: bytes) -> FileHeader | None:
    """Return the header at the start of `data`; None if it is cut off. Raises BatchFileError."""
    if len(data) < _FIXED.size:
        return None
    magic, version, _, length, base = _FIXED.unpack_from(data)
    if magic != MAGIC:
        raise BatchFileError(f"begins with {magic!r}: not a file of batches")
    if version != VERSION:
        raise BatchFileError(f"has format version {version}, this program reads version {VERSION}")
    end = _FIXED.size + length + _CRC.size
    if len(data) < end:
        return None
    if _CRC.unpack_from(data, end - _CRC.size)[0] != crc32c(data[: end - _CRC.size]):
        raise BatchFileError("the checksum of its header is wrong")
    return FileHeader(data[_FIXED.size : end - _CRC.size].decode(), base, end)


def encode_batch_record(base: int, payload: bytes, type: RecordType = RecordType.BATCH) -> bytes:
    return encode_record(base, type, payload)


def record_bytes(payload: int) -> int:
    """Return the length of a record whose payload has `payload` bytes."""
    return RECORD_BYTES + payload


def encode_index(base: int, lanes: LaneRanges, count: int) -> bytes:
    """Return the record that ends a file; b"" if it would be too large for a record (then readers read the headers)."""
    payload = json.dumps({"count": count, "lanes": lanes.to_json()}).encode()
    try:
        return encode_record(base, RecordType.END, payload)
    except ValueError:
        return b""


def decode(data: bytes) -> DecodedFile | None:
    """Decode all whole records of a file; None if the header is cut off. Raises BatchFileError."""
    head = decode_header(data)
    if head is None:
        return None
    body = data[head.size :]
    found = scan_segment(body, head.base)
    content = DecodedFile(head, torn_bytes=len(body) - found.tail)
    content.damage = [(start + head.size, end + head.size) for start, end in found.damage]
    for record in found.records:
        if record.type == RecordType.END:
            content.index = _index(body[record.payload_at : record.end])
        else:
            content.records.append((record.type, record.payload_at + head.size, record.end + head.size))
    return content


def payloads(data: bytes, content: DecodedFile) -> Iterator[tuple[RecordType, bytes]]:
    """Yield the messages of a file, in order, as they were received."""
    for type, start, end in content.records:
        yield type, data[start:end]


def _index(payload: bytes) -> LaneRanges | None:
    try:
        return LaneRanges.from_json(json.loads(payload)["lanes"])
    except (ValueError, KeyError, TypeError):
        return None
