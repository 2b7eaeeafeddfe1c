"""Payloads of records about the state of batches: SENT, ACKED, FORGOTTEN, CURSOR, END. docs/formats/wal.md."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from artimon.model.ack_state import Position
from artimon.model.batch import BatchId
from artimon.model.ranges import LaneId, RangeSet


class LogPosition(NamedTuple):
    """Location of a payload in the log."""

    segment: int
    offset: int
    length: int


class InvalidPayloadError(ValueError):
    """A record with a valid checksum and an invalid payload: another version wrote it."""


_SENT = struct.Struct("<QHQIQ")
_LANE = struct.Struct("<QHI")
_RANGE = struct.Struct("<QQ")
_PLACE = struct.Struct("<QQ")
_NUMBER = struct.Struct("<Q")
MAX_ENTRIES = 20_000


def encode_sent(agent: str, sent: Sequence[tuple[BatchId, Position]]) -> Iterator[bytes]:
    """Yield a payload for each (cluster, topic id, leader epoch) and at most 20,000 batches, all of one agent name."""
    groups: dict[tuple[str, str], list[bytes]] = {}
    for id, position in sent:
        entry = _SENT.pack(id.epoch, id.lane, id.sequence, position.partition, position.offset)
        known = position.leader_epoch >= 0  # a topic id holds no blank
        topic = f"{position.topic_id} {position.leader_epoch}" if known else position.topic_id
        groups.setdefault((position.cluster, topic), []).append(entry)
    for (cluster, topic), entries in groups.items():
        for at in range(0, len(entries), MAX_ENTRIES):
            part = entries[at : at + MAX_ENTRIES]
            yield _text(agent) + _text(cluster) + _text(topic) + struct.pack("<I", len(part)) + b"".join(part)


def decode_sent(payload: bytes) -> list[tuple[BatchId, Position]]:
    """Inverse of `encode_sent` for one payload."""
    try:
        agent, at = _read_text(payload, 0)
        cluster, at = _read_text(payload, at)
        topic, at = _read_text(payload, at)
        topic_id, _, told = topic.partition(" ")
        leader_epoch = int(told or -1)
        (count,) = struct.unpack_from("<I", payload, at)
        entries = _SENT.iter_unpack(payload[at + 4 : at + 4 + count * _SENT.size])
        return [
            (BatchId(agent, epoch, lane, sequence), Position(cluster, topic_id, partition, offset, leader_epoch))
            for epoch, lane, sequence, partition, offset in entries
        ]
    except (struct.error, ValueError) as error:
        raise InvalidPayloadError(f"SENT record: {error}") from error


def encode_acked(ids: Iterable[BatchId]) -> Iterator[bytes]:
    """Yield ranges of sequences, one payload for each lane (and at most 20,000 ranges)."""
    lanes: dict[LaneId, RangeSet] = {}
    for id in sorted(ids):
        lanes.setdefault(id.lane_id, RangeSet()).add(id.sequence)
    for lane, numbers in lanes.items():
        ranges = list(numbers)
        for at in range(0, len(ranges), MAX_ENTRIES):
            part = ranges[at : at + MAX_ENTRIES]
            body = b"".join(_RANGE.pack(*r) for r in part)
            yield _text(lane.agent) + _LANE.pack(lane.epoch, lane.lane, len(part)) + body


def decode_acked(payload: bytes) -> tuple[LaneId, RangeSet]:
    """Inverse of `encode_acked` for one payload."""
    try:
        agent, at = _read_text(payload, 0)
        epoch, lane, count = _LANE.unpack_from(payload, at)
        at += _LANE.size
        ranges = RangeSet(_RANGE.iter_unpack(payload[at : at + count * _RANGE.size]))
        return LaneId(agent, epoch, lane), ranges
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidPayloadError(f"ACKED record: {error}") from error


def encode_forgotten(places: Sequence[LogPosition]) -> Iterator[bytes]:
    """Yield payloads with the places of records that need not be sent again."""
    for at in range(0, len(places), MAX_ENTRIES):
        yield b"".join(_PLACE.pack(place.segment, place.offset) for place in places[at : at + MAX_ENTRIES])


def decode_forgotten(payload: bytes) -> list[tuple[int, int]]:
    """Return (segment, offset of the payload) of each record."""
    try:
        return list(_PLACE.iter_unpack(payload))
    except struct.error as error:
        raise InvalidPayloadError(f"FORGOTTEN record: {error}") from error


def encode_cursor(branch: str, segment: int, offset: int) -> bytes:
    """Record that a branch of a flow has processed every batch whose payload begins before this place."""
    return _text(branch) + _PLACE.pack(segment, offset)


def decode_cursor(payload: bytes) -> tuple[str, tuple[int, int]]:
    """Inverse of `encode_cursor`: branch, (segment, offset)."""
    try:
        branch, at = _read_text(payload, 0)
        return branch, _PLACE.unpack_from(payload, at)
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidPayloadError(f"CURSOR record: {error}") from error


def encode_end(next_segment: int) -> bytes:
    return _NUMBER.pack(next_segment)


def decode_end(payload: bytes) -> int:
    try:
        return int(_NUMBER.unpack(payload)[0])
    except struct.error as error:
        raise InvalidPayloadError(f"END record: {error}") from error


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<H", len(data)) + data


def _read_text(payload: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<H", payload, at)
    at += 2
    if at + length > len(payload):
        raise struct.error("text is longer than the record")
    return payload[at : at + length].decode(), at + length
