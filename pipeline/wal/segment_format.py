"""Bytes of a segment of the log: docs/formats/wal.md, golden bytes in tests/golden/wal/. No I/O here.

A segment is a header and records. Each record begins with a mark, so that a reader can resynchronize after damage.
Its checksum covers the number of its segment, so that stale or copied bytes are not taken for a record.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from pipeline.wal.file_system import LogError

MAGIC = b"ARTW"
VERSION = 1
RECORD_MARK = b"\xa5\x17W\xe9"
MAX_PAYLOAD = 1024 * 1024
_HEADER = struct.Struct("<4sBBHQQ")  # magic, version, 0, lanes, segment, epoch; then u64 a lane; then crc32c
_RECORD = struct.Struct("<4sBBHII")  # mark, type, 0, 0, length, crc32c
_CRC = struct.Struct("<I")
_SALT = struct.Struct("<QBI")  # segment, type, length
RECORD_BYTES = _RECORD.size
PAD = b"\xff"
MAX_LANES = 1024

Buffer = bytes | memoryview | mmap.mmap


class NewerFormatError(LogError):
    """A newer program wrote this segment. Nothing was changed, so that program can continue with it."""


class RecordType(IntEnum):
    """Type of a record. The numbers are part of the format."""

    SKIP = 0
    """Overwrites damage that was copied to `damaged/`."""
    BATCH = 1
    """A batch of samples in its wire format."""
    SERIES = 2
    """An announcement in its wire format."""
    SENT = 3
    """Kafka positions of some batches."""
    ACKED = 4
    """Batches that are durable at the configured level."""
    FORGOTTEN = 5
    """Announcements that Kafka has; batches that were quarantined."""
    END = 6
    """Last record of a full segment; names the next one."""
    CURSOR = 8
    """Position up to which one branch of a flow has processed this log."""


class SegmentHeader(NamedTuple):
    """First bytes of a segment: the epoch and, for each lane, the next sequence when the segment was created."""

    segment: int
    epoch: int
    next_sequences: tuple[int, ...]


class RecordFrame(NamedTuple):
    """Whole record: its type, start, and the offset and length of its payload."""

    type: RecordType
    start: int
    payload_at: int
    length: int

    @property
    def end(self) -> int:
        return self.payload_at + self.length


@dataclass(slots=True)
class SegmentScan:
    """Content of a segment. `tail` is the end of the last whole record; the bytes after it could not be read."""

    header: SegmentHeader | None = None
    records: list[RecordFrame] = field(default_factory=list)
    damage: list[tuple[int, int]] = field(default_factory=list)
    """Byte ranges without a whole record, each followed by a whole record."""
    tail: int = 0
    size: int = 0


def encode_header(header: SegmentHeader) -> bytes:
    lanes = header.next_sequences
    fixed = _HEADER.pack(MAGIC, VERSION, 0, len(lanes), header.segment, header.epoch)
    body = fixed + struct.pack(f"<{len(lanes)}Q", *lanes)
    return body + _CRC.pack(crc32c(body))


def header_bytes(lanes: int) -> int:
    """Return the length in bytes of a header for this number of lanes."""
    return _HEADER.size + 8 * lanes + _CRC.size


def decode_header(data: Buffer, segment: int) -> SegmentHeader | None:
    """Return the header at the start of `data`; None unless it is whole, undamaged and of this segment."""
    if len(data) < _HEADER.size:
        return None
    magic, version, _, lanes, number, epoch = _HEADER.unpack_from(data)
    end = header_bytes(lanes)
    if magic != MAGIC or version != VERSION or number != segment or lanes > MAX_LANES or len(data) < end:
        return None
    (crc,) = _CRC.unpack_from(data, end - _CRC.size)
    if crc32c(bytes(data[: end - _CRC.size])) != crc:
        return None
    return SegmentHeader(number, epoch, struct.unpack_from(f"<{lanes}Q", data, _HEADER.size))


def check_version(data: Buffer, segment: int) -> None:
    """Raise NewerFormatError if a newer program wrote this segment. A version byte that only a disk error can explain
    is treated as damage."""
    if len(data) < _HEADER.size:
        return
    magic, version, _, lanes, number, _ = _HEADER.unpack_from(data)
    if magic != MAGIC or version <= VERSION or number != segment:
        return
    end = header_bytes(lanes)
    as_ours = bytes(data[:4]) + bytes([VERSION]) + bytes(data[5 : end - _CRC.size])
    if len(data) >= end and _CRC.unpack_from(data, end - _CRC.size)[0] == crc32c(as_ours):
        return
    raise NewerFormatError(
        f"segment {segment:016x} has format version {version}, this program reads version {VERSION}: run the version"
        " that wrote it until its log is empty, or a newer one (docs/upgrade.md); nothing was changed"
    )


def encode_record(segment: int, type: RecordType, payload: bytes) -> bytes:
    """Return the bytes of a record. Raises ValueError if the payload exceeds 1 MiB."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a record of {len(payload)} bytes is too large: at most {MAX_PAYLOAD}")
    crc = crc32c(payload, crc32c(_SALT.pack(segment, type, len(payload))))
    return _RECORD.pack(RECORD_MARK, type, 0, 0, len(payload), crc) + payload


def read_record(data: Buffer, at: int, segment: int) -> RecordFrame | None:
    """Return the record that starts at `at`; None unless it is whole and undamaged."""
    if len(data) - at < RECORD_BYTES:
        return None
    mark, type_, zero, zeros, length, crc = _RECORD.unpack_from(data, at)
    start = at + RECORD_BYTES
    if mark != RECORD_MARK or zero or zeros or length > MAX_PAYLOAD or start + length > len(data):
        return None
    with memoryview(data) as view, view[start : start + length] as payload:
        if crc32c(payload, crc32c(_SALT.pack(segment, type_, length))) != crc:
            return None
    try:
        return RecordFrame(RecordType(type_), at, start, length)
    except ValueError:  # whole, but of a type that only a later version knows
        return None


def encode_skips(segment: int, length: int) -> bytes:
    """Return SKIP records of exactly `length` bytes in all, to overwrite damage; pad bytes where not even a record head
    fits."""
    if length < RECORD_BYTES:
        return PAD * length
    parts = []
    while length:
        part = min(length, RECORD_BYTES + MAX_PAYLOAD)
        if 0 < length - part < RECORD_BYTES:  # the rest must hold a record as well
            part -= RECORD_BYTES
        parts.append(encode_record(segment, RecordType.SKIP, bytes(part - RECORD_BYTES)))
        length -= part
    return b"".join(parts)


def scan_segment(data: bytes | mmap.mmap, segment: int) -> SegmentScan:
    """Find every whole record of a segment, whatever damage lies between them."""
    result = SegmentScan(decode_header(data, segment), size=len(data))
    at = header_bytes(len(result.header.next_sequences)) if result.header else 0
    result.tail = at
    while at < len(data):
        found = read_record(data, at, segment)
        if found is None:
            found = _next_record(data, at + 1, segment)
            if found is None:
                break
            if not _is_padding(data, at, found.start):
                result.damage.append((at, found.start))
        result.records.append(found)
        at = result.tail = found.end
    return result


def _is_padding(data: bytes | mmap.mmap, start: int, end: int) -> bool:
    return end - start < RECORD_BYTES and data[start:end] == PAD * (end - start)


def _next_record(data: bytes | mmap.mmap, at: int, segment: int) -> RecordFrame | None:
    """Return the first whole record at or after `at`."""
    while (at := data.find(RECORD_MARK, at)) >= 0:
        found = read_record(data, at, segment)
        if found is not None:
            return found
        at += 1
    return None
