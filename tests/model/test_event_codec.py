"""Codec of batches of events; docs/formats/batch.md."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.batch import BatchError, BatchId, BatchKind
from artimon.model.batch_codec import HEADER_BYTES, assemble, verify
from artimon.model.event import MAX_BODY_BYTES, MAX_EVENTS, MAX_HEADERS, Event, EventError, check_limits, split_events
from artimon.model.event_codec import decode_events, encode_events
from artimon.model.ipc import write_ipc
from tests.model.batches import IDS, TEXT, golden_samples
from tests.seeds import fixed_and_drawn

GOLDEN = Path(__file__).parents[1] / "golden" / "batch" / "events.bin"
EVENT_SCHEMA = pa.schema([("headers", pa.map_(pa.utf8(), pa.utf8())), ("body", pa.binary())])
ID = BatchId("agent-1", 0x0123456789ABCDEF, 1, 7)
EVENTS = (
    Event({"host": "web-1", "file": "/var/log/access.log"}, b"GET / 200"),
    Event({}, bytes(range(256))),
    Event({"note": "gr\u00fcn \U0001f7e2"}, b""),
)
MANY = st.lists(st.builds(Event, st.dictionaries(TEXT, TEXT, max_size=5), st.binary(max_size=100)), max_size=30)


@given(IDS, TEXT, MANY)
@settings(max_examples=100)
def test_events_round_trip(id: BatchId, source: str, events: list[Event]) -> None:
    batch = encode_events(id, source, 5, events)
    header = verify(batch.data)
    assert (header.kind, header.id, header.source, header.rows) == (BatchKind.EVENTS, id, source, len(events))
    assert decode_events(batch.data) == tuple(events)


def test_the_same_events_have_the_same_bytes() -> None:
    assert encode_events(ID, "s", 5, EVENTS).data == encode_events(ID, "s", 5, EVENTS).data


def test_golden_bytes_are_read() -> None:
    """Bytes written by the first version stay readable for ever, and the header's bytes never change."""
    data = GOLDEN.read_bytes()
    assert verify(data).id == ID
    assert decode_events(data) == EVENTS
    made = encode_events(ID, "flow-1", 1_700_000_001_000, EVENTS).data
    assert made[:64] == data[:64]
    assert made[68 : HEADER_BYTES - 16] == data[68 : HEADER_BYTES - 16]


def test_the_page_describes_the_body() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats" / "batch.md").read_text()
    for name in EVENT_SCHEMA.names:
        assert f"| {name} |" in page


@given(st.data())
@settings(max_examples=60)
def test_any_changed_bit_is_found(data: st.DataObject) -> None:
    whole = bytearray(encode_events(ID, "s", 5, EVENTS).data)
    at = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[at // 8] ^= 1 << (at % 8)
    with pytest.raises(BatchError):
        decode_events(bytes(whole))


def test_other_kinds_have_no_events() -> None:
    assert decode_events(golden_samples().data) == ()


def test_columns_of_another_shape_are_refused() -> None:
    for columns in ({"body": [b""]}, {"headers": [None], "body": [b""]}):
        table = pa.record_batch(list(columns.values()), names=list(columns))
        data = assemble(BatchKind.EVENTS, ID, "s", bytes(16), 0, 0, 1, 0, "", write_ipc(table)).data
        with pytest.raises(BatchError, match="column"):
            decode_events(data)
    nulls = pa.record_batch([[None], [None]], schema=EVENT_SCHEMA)
    data = assemble(BatchKind.EVENTS, ID, "s", bytes(16), 0, 0, 1, 0, "", write_ipc(nulls)).data
    with pytest.raises(BatchError, match="nulls"):
        decode_events(data)


def test_events_beyond_the_limits_are_refused() -> None:
    check_limits(Event({str(n): "" for n in range(MAX_HEADERS)}, bytes(MAX_BODY_BYTES)))
    check_limits(Event({"h": "x" * (32 * 1024 - 1)}, b""))
    for bad in (
        Event({}, bytes(MAX_BODY_BYTES + 1)),
        Event({str(n): "" for n in range(MAX_HEADERS + 1)}, b""),
        Event({"h": "x" * 32 * 1024}, b""),
        Event({"h": "\ud800"}, b""),
        Event({"h": 5}, b""),  # type: ignore[dict-item]
    ):
        with pytest.raises(EventError):
            check_limits(bad)


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "cut events"))
def test_split_events_fit_into_batches(seed: int) -> None:
    noise = random.Random(seed)
    events = [
        Event({"h": noise.randbytes(2000).hex()}, noise.randbytes(noise.randrange(MAX_BODY_BYTES))) for _ in range(20)
    ]
    events += [Event({}, b"") for _ in range(MAX_EVENTS + 1)]
    portions = list(split_events(events))
    assert [event for portion in portions for event in portion] == events
    for portion in portions:
        encode_events(ID, "s", 5, portion)
    with pytest.raises(BatchError, match="split"):
        encode_events(ID, "s", 5, [Event({}, b"")] * (MAX_EVENTS + 1))
