"""Codec of batches: round trips are exact bit by bit, and damage is refused; docs/formats/batch.md."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.batch import MAX_BYTES, MAX_SAMPLES, BatchError, BatchId, BatchKind, Samples, SeriesBlock
from artimon.model.batch_codec import (
    HEADER_BYTES,
    decode_samples,
    decode_series,
    encode_samples,
    encode_series,
    parse_header,
    verify,
)
from artimon.model.sample_columns import decode_columns
from artimon.model.values import Value, cell_to_double, double_to_cell
from tests.model.batches import (
    BLOCKS,
    GOLDEN_BLOCK,
    GOLDEN_ID,
    GOLDEN_ROWS,
    IDS,
    INT64,
    ROWS,
    TEXT,
    golden_samples,
    golden_series,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "batch"
Row = tuple[int, int, int, Value | None]


def bits(rows: list[Row]) -> list[tuple[object, ...]]:
    """Make rows comparable by type and bits: NaN equals itself, 1 is not True, 0.0 is not -0.0."""
    return [
        (*row[:3], type(row[3]).__name__, double_to_cell(row[3]) if isinstance(row[3], float) else row[3])
        for row in rows
    ]


@given(IDS, TEXT, st.binary(min_size=16, max_size=16), INT64, INT64, TEXT, ROWS)
@settings(max_examples=200)
def test_samples_round_trip(
    id: BatchId, source: str, endpoint: bytes, birth: int, poll: int, keep: str, rows: list[Row]
) -> None:
    batch = encode_samples(id, source, endpoint, birth, poll, keep, Samples.of(rows))
    header = verify(batch.data)
    assert header == batch.header == parse_header(batch.data)
    assert (header.id, header.source, header.endpoint, header.keep) == (id, source, endpoint, keep)
    assert (header.birth_ms, header.poll_ms, header.rows) == (birth, poll, len(rows))
    assert bits(decode_samples(header, batch.data).rows()) == bits(rows)
    assert decode_columns(header, batch.data).num_rows == len(rows)


@given(BLOCKS)
def test_announcements_round_trip(block: SeriesBlock) -> None:
    batch = encode_series("agent", block)
    assert decode_series(verify(batch.data), batch.data) == block


def test_golden_bytes_are_read() -> None:
    """Bytes written by the first version stay readable for ever."""
    data = (GOLDEN / "samples.bin").read_bytes()
    header = verify(data)
    assert header.id == GOLDEN_ID
    assert (header.source, header.endpoint, header.keep) == ("shop/host-1/0", bytes(range(16)), "default")
    assert bits(decode_samples(header, data).rows()) == bits(GOLDEN_ROWS)
    series = (GOLDEN / "series.bin").read_bytes()
    assert decode_series(verify(series), series) == GOLDEN_BLOCK


def test_encoded_headers_equal_the_golden_ones() -> None:
    """The bytes of the header never change; those of the body may change with Arrow or zstd."""
    for made, name in ((golden_samples(), "samples.bin"), (golden_series(), "series.bin")):
        data = (GOLDEN / name).read_bytes()
        lengths = slice(64, 68)  # of the body
        digest = slice(HEADER_BYTES - 16, HEADER_BYTES)
        ours, golden = bytearray(made.data[: made.header.body_at]), bytearray(data[: made.header.body_at])
        for part in (lengths, digest):
            ours[part] = golden[part] = bytes(part.stop - part.start)
        assert ours == golden


def test_the_page_describes_the_golden_header() -> None:
    """The page names each field with its offset and size, and the golden bytes have the expected values there."""
    page = (Path(__file__).parents[2] / "docs" / "formats" / "batch.md").read_text()
    data = (GOLDEN / "samples.bin").read_bytes()
    fields = {
        "lane": ("<H", 6, 2),
        "epoch": ("<Q", 8, 0x0123456789ABCDEF),
        "sequence": ("<Q", 16, 41),
        "poll_ms": ("<q", 32, 1_700_000_001_000),
        "rows": ("<I", 56, len(GOLDEN_ROWS)),
    }
    for name, (form, offset, value) in fields.items():
        assert f"| {offset} | {struct.calcsize(form)} | {name} |" in page
        assert struct.unpack_from(form, data, offset)[0] == value


@given(st.data())
@settings(max_examples=150)
def test_any_changed_bit_is_found(data: st.DataObject) -> None:
    whole = bytearray(golden_samples().data)
    at = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[at // 8] ^= 1 << (at % 8)
    with pytest.raises(BatchError):
        verify(bytes(whole))


@given(st.data())
def test_any_truncation_is_found(data: st.DataObject) -> None:
    whole = golden_samples().data
    with pytest.raises(BatchError):
        verify(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=300))
def test_garbage_is_refused(data: bytes) -> None:
    for bytes_ in (data, b"ARTB\x01\x01" + data):
        with pytest.raises(BatchError):
            verify(bytes_)


def test_batches_beyond_the_limits_are_refused() -> None:
    too_many = Samples.of([(n, 0, 0, 1) for n in range(MAX_SAMPLES + 1)])
    with pytest.raises(BatchError, match="split"):
        encode_samples(GOLDEN_ID, "s", bytes(16), 0, 0, "d", too_many)
    most = encode_samples(GOLDEN_ID, "s", bytes(16), 0, 0, "d", too_many.slice(0, MAX_SAMPLES))
    assert most.header.rows == MAX_SAMPLES
    noise = random.Random(1).randbytes(MAX_BYTES).hex()
    with pytest.raises(BatchError, match="split"):
        encode_samples(GOLDEN_ID, "s", bytes(16), 0, 0, "d", Samples.of([(1, 0, 0, noise)]))


def test_an_announcement_is_not_read_as_samples() -> None:
    batch = golden_series()
    assert batch.header.kind == BatchKind.SERIES
    with pytest.raises(BatchError):
        decode_samples(batch.header, batch.data)


@given(st.floats())
def test_cells_keep_every_bit_of_a_double(value: float) -> None:
    cell = double_to_cell(value)
    assert double_to_cell(cell_to_double(cell)) == cell
