"""The page docs/formats/feed.md, the golden bytes and the code agree."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from artimon.model.batch import BatchId, Samples
from artimon.model.feed_codec import FeedEntry, FeedRange, decode_range, encode_range
from artimon.model.values import Value

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "feed"
PARTS = ("entries", "samples", "strings")

SOURCE = "shop/h1/0"
ROWS: list[tuple[int, int, int, Value | None]] = [
    (2**64 - 1, 1_800_000_000_000, 1_799_999_000_000, 2**53 + 1),
    (1, 1_800_000_000_000, 1_799_999_000_000, -0.5),
    (2, 1_800_000_000_001, 0, True),
    (3, 1_800_000_000_002, 0, "ünïcødé"),
    (4, 1_800_000_000_003, 0, None),
]
RANGE = FeedRange(
    "AAAAAAAAAAAAAAAAAAAAAQ",
    3,
    40,
    45,
    (
        FeedEntry(40, 1_800_000_001_000, BatchId("agent-1", 2**64 - 2, 3, 17), SOURCE, 1_800_000_000_000, 5, True, 99),
        FeedEntry(41, 1_800_000_001_001, None, "", 0, 0, False, 0),
        FeedEntry(44, 1_800_000_001_002, BatchId("agent-1", 2**64 - 2, 3, 18), SOURCE, 1_800_000_000_500, 0, False, 7),
    ),
    Samples.of(ROWS),
    2**255 | 0b101,
)


def test_golden_bytes_are_still_read() -> None:
    """The golden file was written by the first version."""
    range_ = decode_range([(GOLDEN / f"{part}.arrow").read_bytes() for part in PARTS])
    assert range_.samples.rows() == ROWS
    assert (range_.topic_id, range_.partition, range_.start, range_.until) == ("AAAAAAAAAAAAAAAAAAAAAQ", 3, 40, 45)
    assert range_.entries == RANGE.entries
    assert range_.vshards == RANGE.vshards


def test_encoded_columns_match_the_page() -> None:
    """Column names and types, in order, of all three parts."""
    page = (ROOT / "docs" / "formats" / "feed.md").read_text()
    documented = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    names = [(name.strip(" `"), kind.split(",")[0].strip()) for name, kind in documented]
    written = []
    for part in encode_range(RANGE)[:2]:
        with pa.ipc.open_stream(pa.py_buffer(part)) as reader:
            written += [(field.name, str(field.type).replace("string", "utf8")) for field in reader.schema]
    assert names == written
