"""pipeline.wal.segment_format: whole records are found between damaged bytes. docs/formats/wal.md and golden bytes."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.ack_state import Position
from artimon.model.batch import BatchId
from artimon.model.ranges import LaneId
from pipeline.wal.segment_format import (
    MAX_PAYLOAD,
    RECORD_BYTES,
    RECORD_MARK,
    RecordType,
    SegmentHeader,
    decode_header,
    encode_header,
    encode_record,
    encode_skips,
    header_bytes,
    scan_segment,
)
from pipeline.wal.state_records import (
    InvalidPayloadError,
    LogPosition,
    decode_acked,
    decode_end,
    decode_forgotten,
    decode_sent,
    encode_acked,
    encode_end,
    encode_forgotten,
    encode_sent,
)
from tests.model.batches import golden_samples, golden_series

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "wal"
HEADER = SegmentHeader(5, 0x0123456789ABCDEF, (41, 0, 7, 2**40))
IDS = [BatchId("agent-1", 0x0123456789ABCDEF, 2, n) for n in (41, 42, 44)]
TOPIC = "tP4Rcz9tTXq7n0nT3Yw0Gg"
SENT = [(id, Position("cluster-1", TOPIC, 3, 1000 + n)) for n, id in enumerate(IDS)]


def golden_segment() -> bytes:
    """The segment of tests/golden/wal/segment.bin: a record of each type."""
    records = [
        (RecordType.BATCH, golden_samples().data),
        (RecordType.SERIES, golden_series().data),
        (RecordType.SENT, next(encode_sent("agent-1", SENT))),
        (RecordType.ACKED, next(encode_acked(IDS))),
        (RecordType.FORGOTTEN, next(encode_forgotten([LogPosition(5, 700, 10), LogPosition(4, 60, 10)]))),
        (RecordType.SKIP, bytes(9)),
        (RecordType.END, encode_end(6)),
    ]
    return encode_header(HEADER) + b"".join(encode_record(5, type_, payload) for type_, payload in records)


def test_golden_bytes_are_readable() -> None:
    """The bytes of the first version stay readable; tests/model/test_codec.py compares the bodies of batches."""
    data = (GOLDEN / "segment.bin").read_bytes()
    expected = json.loads((GOLDEN / "segment.json").read_text())
    found = scan_segment(data, 5)
    assert found.header == HEADER
    assert not found.damage
    assert found.tail == len(data)
    assert [[r.type.name, r.start, r.length] for r in found.records] == expected["records"]
    payloads = {r.type: data[r.payload_at : r.end] for r in found.records}
    assert decode_sent(payloads[RecordType.SENT]) == SENT
    lane, numbers = decode_acked(payloads[RecordType.ACKED])
    assert (lane, list(numbers)) == (LaneId("agent-1", 0x0123456789ABCDEF, 2), [(41, 43), (44, 45)])
    assert decode_forgotten(payloads[RecordType.FORGOTTEN]) == [(5, 700), (4, 60)]
    assert decode_end(payloads[RecordType.END]) == 6


def test_written_bytes_are_the_golden_ones() -> None:
    """Every record but the two with compressed bodies is written byte for byte as the golden one."""
    data, ours = (GOLDEN / "segment.bin").read_bytes(), golden_segment()
    golden = {r.type: data[r.start : r.end] for r in scan_segment(data, 5).records}
    made = {r.type: ours[r.start : r.end] for r in scan_segment(ours, 5).records}
    assert ours[: header_bytes(4)] == data[: header_bytes(4)]
    later = {RecordType.CURSOR}  # golden bytes of its own: tests/pipeline/flows/test_file_channel.py
    for type_ in set(RecordType) - {RecordType.BATCH, RecordType.SERIES} - later:
        assert made[type_] == golden[type_], type_.name


def test_the_page_describes_the_golden_bytes() -> None:
    page = (ROOT / "docs" / "formats" / "wal.md").read_text()
    data = (GOLDEN / "segment.bin").read_bytes()
    assert struct.unpack_from("<Q", data, 8)[0] == 5
    assert "| 8 | 8 | segment |" in page
    assert struct.unpack_from("<Q", data, 16)[0] == 0x0123456789ABCDEF
    assert "| 16 | 8 | epoch |" in page
    start = scan_segment(data, 5).records[0].start
    assert data[start : start + 4] == RECORD_MARK
    assert f"| 0 | 4 | mark | `{RECORD_MARK.hex(' ')}` |" in page
    assert data[start + 4] == RecordType.BATCH
    for type_ in RecordType:
        assert f"| {type_.value} | {type_.name} |" in page


RECORDS = st.lists(st.tuples(st.sampled_from([RecordType.BATCH, RecordType.SENT]), st.binary(max_size=60)), max_size=6)


def build(records: list[tuple[RecordType, bytes]], segment: int = 5) -> tuple[bytes, list[int]]:
    data = encode_header(HEADER._replace(segment=segment))
    starts = []
    for type_, payload in records:
        starts.append(len(data))
        data += encode_record(segment, type_, payload)
    return data, [*starts, len(data)]


def payloads(data: bytes, segment: int = 5) -> list[bytes]:
    return [data[r.payload_at : r.end] for r in scan_segment(data, segment).records]


@given(RECORDS, st.data())
@settings(max_examples=200)
def test_whole_records_survive_a_cut(records: list[tuple[RecordType, bytes]], data: st.DataObject) -> None:
    whole, starts = build(records)
    size = data.draw(st.integers(0, len(whole)))
    left = sum(1 for end in starts[1:] if end <= size)
    found = scan_segment(whole[:size], 5)
    assert payloads(whole[:size]) == [payload for _, payload in records[:left]]
    assert found.tail == (starts[left] if size >= starts[0] else 0)
    assert not found.damage


@given(RECORDS.filter(bool), st.data())
@settings(max_examples=200)
def test_garbage_between_records_loses_no_record(records: list[tuple[RecordType, bytes]], data: st.DataObject) -> None:
    """Marks, lengths and partial records inside the garbage are not taken for records."""
    whole, starts = build(records)
    at = data.draw(st.sampled_from(starts[:-1]))
    noise = st.one_of(
        st.binary(min_size=1, max_size=80), st.just(RECORD_MARK * 3), st.just(whole[starts[0] : starts[0] + 10])
    )
    garbage = data.draw(noise.filter(lambda g: g.strip(b"\xff")))
    damaged = whole[:at] + garbage + whole[at:]
    found = scan_segment(damaged, 5)
    assert [damaged[r.payload_at : r.end] for r in found.records] == [payload for _, payload in records]
    assert found.damage == [(at, at + len(garbage))]


def test_a_record_of_another_segment_is_ignored() -> None:
    """Stale bytes of a reused block, or a record inside the payload of another one, do not count."""
    inner = encode_record(4, RecordType.BATCH, b"old")
    data = encode_header(HEADER) + encode_record(5, RecordType.BATCH, b"a") + inner
    assert payloads(data) == [b"a"]
    assert scan_segment(data, 5).tail == len(data) - len(inner)


def test_a_whole_header_of_another_segment_is_ignored() -> None:
    assert decode_header(encode_header(HEADER), 6) is None
    assert decode_header(encode_header(HEADER)[:-1], 5) is None
    assert decode_header(encode_header(HEADER), 5) == HEADER


@pytest.mark.parametrize("length", [1, 15, 16, 17, 1000, RECORD_BYTES + MAX_PAYLOAD, MAX_PAYLOAD + 20, 3 * MAX_PAYLOAD])
def test_skips_fill_exactly_the_damage(length: int) -> None:
    data = encode_header(HEADER) + encode_skips(5, length) + encode_record(5, RecordType.BATCH, b"after")
    found = scan_segment(data, 5)
    assert not found.damage
    assert found.tail == len(data)
    assert [data[r.payload_at : r.end] for r in found.records if r.type != RecordType.SKIP] == [b"after"]


def test_a_record_beyond_the_size_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        encode_record(5, RecordType.BATCH, bytes(MAX_PAYLOAD + 1))


@pytest.mark.parametrize("decode", [decode_sent, decode_acked, decode_forgotten, decode_end])
def test_invalid_payloads_are_refused(decode: object) -> None:
    for payload in (b"\x01", b"\xff\xff" + bytes(9), bytes(3)):
        with pytest.raises(InvalidPayloadError):
            decode(payload)  # type: ignore[operator]


def test_positions_of_several_topics_go_into_several_records() -> None:
    moved = [(IDS[0], Position("cluster-1", "another-topic", 0, 1)), *SENT[1:]]
    made = [decode_sent(payload) for payload in encode_sent("agent-1", moved)]
    assert sorted(entry for part in made for entry in part) == sorted(moved)
    assert len(made) == 2


def test_positions_keep_their_leader_epoch() -> None:
    """A record without an epoch reads as -1, as do those of older versions."""
    epochs = [-1, 0, 2**31 - 1]
    known = [(id, at._replace(leader_epoch=epoch)) for (id, at), epoch in zip(SENT, epochs, strict=True)]
    made = [decode_sent(payload) for payload in encode_sent("agent-1", known)]
    assert sorted(entry for part in made for entry in part) == sorted(known)
    assert len(made) == 3
    assert b"".join(encode_sent("agent-1", known[:1])) == b"".join(encode_sent("agent-1", SENT[:1]))
