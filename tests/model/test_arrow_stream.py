"""Streams that are written and read without an Arrow library: pyarrow writes and reads the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from artimon.model.arrow_columns import INT64, UTF8, Array, Field, blob_array, number_array
from artimon.model.arrow_stream import decode_stream, encode_stream
from artimon.model.batch import BatchId, BatchKind, Samples
from artimon.model.batch_codec import assemble, decode_samples, encode_samples, encode_series, parse_header
from artimon.model.event import Event
from artimon.model.event_codec import decode_events, encode_events
from artimon.model.ipc import ZSTD, read_ipc, write_ipc
from artimon.model.ipc_limits import IpcError, IpcLimits
from artimon.model.sample_columns import decode_columns, samples_from_body
from artimon.model.values import COLUMNS
from tests.model.batches import GOLDEN_BLOCK, GOLDEN_ID, ROWS, golden_samples
from tests.model.test_codec import Row, bits

LIMITS = IpcLimits(1_000, 1 << 20)
NUMBER, TEXT = Field("n", INT64), Field("t", UTF8)


def encode(rows: list[Row]) -> Any:
    return encode_samples(GOLDEN_ID, "s", bytes(16), 0, 0, "d", Samples.of(rows))


@given(ROWS)
@settings(max_examples=100)
def test_pyarrow_reads_what_is_written(rows: list[Row]) -> None:
    batch = encode(rows)
    assert bits(samples_from_body(decode_columns(batch.header, batch.data)).rows()) == bits(rows)


@given(ROWS)
@settings(max_examples=100)
def test_what_pyarrow_writes_is_read(rows: list[Row]) -> None:
    """Logs of versions that wrote with pyarrow: with columns of nulls, and texts below the nulls' bits."""
    batch = encode(rows)
    table = decode_columns(batch.header, batch.data)
    data = assemble(BatchKind.SAMPLES, GOLDEN_ID, "s", bytes(16), 0, 0, len(rows), 0, "d", write_ipc(table, ZSTD)).data
    assert bits(decode_samples(parse_header(data), data).rows()) == bits(rows)


def test_pyarrow_reads_announcements_and_events() -> None:
    batch = encode_series("a", GOLDEN_BLOCK)
    table = read_ipc(batch.data, batch.header.body_at, LIMITS)
    assert [str(field.type) for field in table.schema] == ["string", "uint8", "uint8", "string", "string", "int64"]
    assert table.column("text").to_pylist() == [one.text for one in GOLDEN_BLOCK.series]
    events = (Event({"a": "1", "b": ""}, b"x"), Event({}, b""), Event({"c": "\u00fc"}, b"\xff"))
    made = encode_events(BatchId("a", 1, 0, 0), "s", 5, events)
    table = read_ipc(made.data, made.header.body_at, LIMITS)
    assert table.schema.field("headers").type == pa.map_(pa.utf8(), pa.utf8())
    assert [dict(one) for one in table.column("headers").to_pylist()] == [event.headers for event in events]
    body = write_ipc(table, ZSTD)
    assert (
        decode_events(assemble(BatchKind.EVENTS, made.header.id, "s", bytes(16), 0, 5, 3, 0, "", body).data) == events
    )


def test_cells_of_other_types_are_not_written() -> None:
    """A column of integers holds zeros, not the bits of the doubles in other rows: they would be stored twice."""
    batch = encode([(1, 0, 0, 7), (2, 0, 0, 0.1)])
    column = decode_columns(batch.header, batch.data).column("integer")
    assert np.frombuffer(column.buffers()[1], np.int64).tolist() == [7, 0]
    assert set(COLUMNS.values()) >= {"integer", "double"}


def read_array(data: bytes) -> None:
    (array,) = decode_stream(data, 0, LIMITS).arrays
    array.present()
    if array.field.type == UTF8:
        array.texts()
    else:
        array.numbers()


@pytest.mark.parametrize(
    ("rows", "array", "text"),
    [
        pytest.param(2, Array(NUMBER, 2, 0, (b"", bytes(8))), "8 bytes, too few for 2 values", id="short_values"),
        pytest.param(2, Array(NUMBER, 2, 1, (b"\3", bytes(16))), "has not the 1 nulls", id="null_count"),
        pytest.param(9, Array(NUMBER, 9, 1, (b"\3", bytes(72))), "1 bytes, too few", id="short_validity"),
        pytest.param(2, number_array(NUMBER, np.arange(3)), "other lengths", id="length"),
        pytest.param(1, Array(TEXT, 1, 0, (b"", b"\0\0\0\0\5\0\0\0", b"x")), "its offsets say 5", id="beyond_data"),
        pytest.param(2, Array(TEXT, 2, 0, (b"", b"\5\0\0\0\1\0\0\0\1\0\0\0", b"xxxxx")), "decrease", id="decreasing"),
        pytest.param(1, blob_array(TEXT, [b"\xff"]), "utf-8", id="not_utf8"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(rows: int, array: Array, text: str) -> None:
    data = encode_stream(rows, [array])
    with pytest.raises(ValueError, match=text):
        read_array(data)


def test_damaged_frames_are_refused() -> None:
    data = golden_samples()
    start = data.header.body_at
    found = 0
    for at in range(start, len(data.data)):
        damaged = bytearray(data.data)
        damaged[at] ^= 0xFF
        try:
            decode_stream(bytes(damaged), start, LIMITS)
        except IpcError:
            found += 1
    assert found
