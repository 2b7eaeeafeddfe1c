"""Conversion of batches to sorted Parquet, and validation of messages."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.batch import MAX_TIME_MS, BatchError, BatchId, Samples
from artimon.model.batch_codec import encode_samples
from artimon.model.sample_columns import samples_from_body
from artimon.rawtable.file_statistics import statistics_of
from artimon.rawtable.schema import FILE_SCHEMA, period_of
from artimon.rawtable.table_state import FORGET_MS
from pipeline.spark import raw_file as rows_module
from pipeline.spark.message_checks import check_message, decode
from pipeline.spark.raw_file import SourceBatch, encode_file, sorted_table
from tests.raw_files import to_parquet
from tests.seeds import fixed_and_drawn

Row = tuple[int, int, int, int | float | bool | str | None]
NOW = 1_795_000_000_000


def message(rows: list[Row], poll_ms: int = NOW) -> bytes:
    return encode_samples(BatchId("a", 1, 0, 0), "s", bytes(16), 0, poll_ms, "default", Samples.of(rows)).data


def part(source: int, rows: list[Row], append_ms: int = NOW) -> SourceBatch:
    data = message(rows)
    return SourceBatch(source, append_ms, decode(check_message(data, NOW), data))


values = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5))
row = st.tuples(st.integers(0, 2**64 - 1) | st.integers(0, 3), st.integers(0, 5), st.integers(0, 3), values)
parts = st.lists(st.tuples(st.integers(1, 3), st.lists(row, min_size=1, max_size=6)), min_size=1, max_size=6)


@given(parts)
def test_any_batches_are_written_sorted_and_complete(drawn: list[tuple[int, list[Row]]]) -> None:
    table = sorted_table([part(source, rows) for source, rows in drawn])
    assert table.schema == FILE_SCHEMA
    read = pq.read_table(BytesIO(to_parquet(table))).to_pylist()
    keys = [(r["source"], r["series"], r["time"]) for r in read]
    assert keys == sorted(keys)
    got = sorted(repr((r["source"], r["series"] % 2**64, _ms(r["time"]), _ms(r["birth"]), _value(r))) for r in read)
    assert got == sorted(repr((source, *r)) for source, rows in drawn for r in rows)


def _ms(moment: Any) -> int:
    return round(float(moment.timestamp()) * 1000)


def _value(read: dict[str, object]) -> object:
    return next((read[n] for n in ("integer", "double", "boolean", "string") if read[n] is not None), None)


@pytest.mark.parametrize("seed", fixed_and_drawn([5], "polls of the same series"))
def test_polls_of_the_same_series_are_interleaved(seed: int) -> None:
    """The fast path (every poll has the same series) gives the same result as sorting."""
    generator = np.random.default_rng(seed)
    names = [int(n) for n in generator.integers(0, 2**64, 50, np.uint64)]
    polls = [part(1, [(n, NOW + k * 1000, 0, k) for n in names]) for k in (2, 0, 1)]
    table = sorted_table(polls)
    expected = sorted((n - 2**64 if n >= 2**63 else n, k) for n in names for k in range(3))
    assert list(zip(table.column("series").to_pylist(), table.column("integer").to_pylist(), strict=True)) == expected


def test_future_is_decided_by_the_append_time() -> None:
    table = sorted_table([part(1, [(1, NOW + 60_000, 0, 1), (2, NOW + 60_001, 0, 1)])])
    assert table.column("future").to_pylist() == [False, True]


def test_statistics_match_the_rows() -> None:
    stats = json.loads(statistics_of(sorted_table([part(2, [(7, NOW, 0, 1), (2**64 - 1, NOW + 1, 0, 1)])])))
    assert stats["numRecords"] == 2
    assert stats["minValues"] == {"source": 2, "series": -1, "time": "2026-11-18T11:06:40.000Z"}
    assert stats["maxValues"] == {"source": 2, "series": 7, "time": "2026-11-18T11:06:40.001Z"}


def test_the_period_is_the_hour_of_the_append() -> None:
    assert period_of(NOW) == "2026-11-18T11"


@pytest.mark.parametrize(
    ("data", "append_ms", "reason"),
    [
        pytest.param(None, NOW, "without a value", id="no_value"),
        pytest.param(b"", NOW, "too few", id="empty"),
        pytest.param(message([(1, NOW, 0, 1)])[:-1], NOW, "truncated", id="cut"),
        pytest.param(message([(1, NOW, 0, 1)]), NOW + FORGET_MS + 1, "90 days", id="old"),
        pytest.param(message([(1, MAX_TIME_MS + 1, 0, 1)]), NOW, "leaves the years", id="after_9999"),
        pytest.param(message([(1, NOW, -1, 1)]), NOW, "leaves the years", id="before_1970"),
    ],
)
def test_invalid_messages_are_refused(data: bytes | None, append_ms: int, reason: str) -> None:
    with pytest.raises(BatchError, match=reason):
        decode(check_message(data, append_ms), data or b"")


def test_samples_are_restored_from_columns() -> None:
    rows: list[Row] = [(1, 2, 3, 4), (2, 2, 3, 0.5), (3, 2, 3, True), (4, 2, 3, "x"), (5, 2, 3, None)]
    data = message(rows)
    assert samples_from_body(decode(check_message(data, NOW), data)).rows() == rows


@given(parts)
def test_a_file_of_several_row_groups_is_sorted_and_complete(drawn: list[tuple[int, list[Row]]]) -> None:
    """Sources never span two row groups, so the whole file is in order."""
    table = sorted_table([part(source, rows) for source, rows in drawn])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "ROW_GROUP", 2)
        data, number, stats = encode_file([part(source, rows) for source, rows in drawn])
    read = pq.read_table(BytesIO(data))
    keys = [(r["source"], r["series"], r["time"]) for r in read.to_pylist()]
    assert keys == sorted(keys)
    assert sorted(map(repr, read.to_pylist())) == sorted(map(repr, table.to_pylist()))
    assert number == len(table)
    assert stats == statistics_of(table)
