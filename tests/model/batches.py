"""Batches for tests: hypothesis strategies, and the fixed ones of the golden files."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from artimon.model.batch import Batch, BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_samples, encode_series
from artimon.model.values import Kind, Value, ValueType

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.one_of(INT64, st.floats(), st.booleans(), TEXT, st.none())
ROWS = st.lists(st.tuples(UINT64, INT64, INT64, VALUES), max_size=60)
IDS = st.builds(BatchId, TEXT, UINT64, st.integers(0, 0xFFFE), UINT64)
INFOS = st.builds(
    SeriesInfo,
    TEXT,
    st.sampled_from([ValueType.INTEGER, ValueType.DOUBLE, ValueType.BOOLEAN, ValueType.STRING]),
    st.sampled_from(Kind),
    TEXT,
    TEXT,
    INT64,
)
BLOCKS = st.builds(SeriesBlock, TEXT, st.integers(0, 2**32 - 1), INT64, st.lists(INFOS, max_size=20).map(tuple))

GOLDEN_ID = BatchId("agent-1", 0x0123456789ABCDEF, 2, 41)
GOLDEN_ROWS: list[tuple[int, int, int, Value | None]] = [
    (1, 1_700_000_001_000, 1_699_999_000_000, 2**53 + 1),
    (2**64 - 1, 1_700_000_001_000, 1_699_999_000_000, -(2**63)),
    (3, 1_700_000_001_000, 1_699_999_000_000, 0.1),
    (4, 1_700_000_001_000, 1_699_999_000_000, math.nan),
    (5, 1_700_000_001_000, 1_699_999_000_000, True),
    (6, 1_700_000_001_000, 1_699_999_000_000, "grün 🟢"),
    (7, 1_700_000_001_000, 1_699_999_000_000, None),
]
GOLDEN_BLOCK = SeriesBlock(
    "shop/host-1/0",
    3,
    1_700_000_000_123,
    (
        SeriesInfo('http.requests{route="/"}', ValueType.INTEGER, Kind.COUNTER, "requests", "1", 1_699_999_000_000),
        SeriesInfo("queue.length{}", ValueType.DOUBLE, Kind.GAUGE),
    ),
)


def golden_samples() -> Batch:
    """Return the batch of tests/golden/batch/samples.bin."""
    samples = Samples.of(GOLDEN_ROWS)
    return encode_samples(
        GOLDEN_ID, "shop/host-1/0", bytes(range(16)), 1_699_999_000_000, 1_700_000_001_000, "default", samples
    )


def golden_series() -> Batch:
    """Return the announcement of tests/golden/batch/series.bin."""
    return encode_series("agent-1", GOLDEN_BLOCK)
