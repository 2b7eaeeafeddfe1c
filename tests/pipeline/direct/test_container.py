"""Files of batches (docs/formats/direct.md): whole, cut off and damaged bytes, and reading a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from artimon.model.batch import BatchId, SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_series, verify
from artimon.model.ranges import LaneRanges
from artimon.model.values import ValueType
from pipeline.collector.hdfs.batch_file import (
    BatchFileError,
    decode,
    encode_batch_record,
    encode_header,
    encode_index,
    payloads,
)
from pipeline.collector.hdfs.file_names import (
    DATA,
    OPEN,
    SERIES,
    FinishedName,
    Scheme,
    UnfinishedName,
    parse_finished,
    parse_unfinished,
    stream_name,
)
from pipeline.collector.hdfs.folder_reader import FolderReader
from pipeline.rolling_files.file_store import LocalStore, StoreError, open_store
from pipeline.wal.segment_format import RecordType
from tests.pipeline.direct.test_stream import batch

GOLDEN = Path(__file__).parents[2] / "golden" / "direct" / "two.batches"
STREAM, BASE = "collector_0-0000000003e8-00000007", 4096
BODIES = (b"first", b"second " * 3)


def lanes() -> LaneRanges:
    held = LaneRanges()
    for sequence in (0, 1, 5):
        held.add(BatchId("agent", 7, 0, sequence).lane_id, sequence)
    return held


def whole() -> bytes:
    return (
        encode_header(STREAM, BASE)
        + b"".join(encode_batch_record(BASE, body) for body in BODIES)
        + encode_index(BASE, lanes(), 2)
    )


def test_written_bytes_are_the_golden_bytes() -> None:
    assert whole() == GOLDEN.read_bytes()
    content = decode(GOLDEN.read_bytes())
    assert content is not None
    assert (content.header.stream, content.header.base, content.torn_bytes, content.damage) == (STREAM, BASE, 0, [])
    assert [body for _, body in payloads(whole(), content)] == list(BODIES)
    assert content.index == lanes()


Damage = Callable[[bytes], bytes]
HEAD = len(encode_header(STREAM, BASE))


@pytest.mark.parametrize(
    ("damage", "survivors", "damaged"),
    [
        pytest.param(lambda raw: raw, 2, False, id="whole"),
        pytest.param(lambda raw: raw[:-1], 2, False, id="index_cut"),
        pytest.param(lambda raw: raw[: HEAD + 16 + 5 + 3], 1, False, id="torn_in_the_second"),
        pytest.param(lambda raw: raw[: HEAD + 20] + b"X" + raw[HEAD + 21 :], 1, True, id="first_flipped"),
        pytest.param(lambda raw: raw + bytes(100), 2, False, id="zeros_behind"),
    ],
)
def test_every_whole_record_survives(damage: Damage, survivors: int, damaged: bool) -> None:
    raw = damage(whole())
    content = decode(raw)
    assert content is not None
    assert len(content.records) == survivors
    assert bool(content.damage) is damaged


def test_a_file_of_another_format_is_an_error() -> None:
    assert decode(b"AR") is None, "cut off, not damaged"
    for raw in (b"PAR1" * 20, whole()[:4] + b"\x09" + whole()[5:], whole()[:8] + b"\xff" + whole()[9:]):
        with pytest.raises(BatchFileError):
            decode(raw)
    other = encode_header(STREAM, BASE + 1) + encode_batch_record(BASE, b"x")
    content = decode(other)
    assert content is not None
    assert content.records == [], "a record of another file is ignored"


def test_names_of_files_are_parsed() -> None:
    stream = stream_name("host.a/b", 1000, 7)
    final, open_file = FinishedName(stream, 5, 900), UnfinishedName(stream, 5, Scheme.LENGTH, 2)
    assert parse_finished(f"{DATA}/2026-11-21T13/{final.name}") == final
    assert parse_unfinished(open_file.path) == open_file
    assert parse_finished(open_file.path) is None
    assert parse_unfinished(final.name) is None
    for uri in ("hdfs:/x", "s3://a/b", "file://host/x", "/x"):
        with pytest.raises(ValueError, match="hdfs://HOST:PORT"):
            open_store(uri)


def put(store: LocalStore, path: str, data: bytes) -> None:
    writing = store.create(path)
    writing.write(data)
    writing.close()


def records(base: int, *sequences: int) -> bytes:
    return encode_header("s", base) + b"".join(encode_batch_record(base, batch(n)[1]) for n in sequences)


def test_a_reader_drops_repeats_by_identity_and_names_damaged_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    first, second = records(0, 0, 1, 2), records(5000, 2, 3)
    put(
        store, f"{DATA}/2026-11-21T13/{FinishedName('s', 0, len(first)).name}", first + encode_index(0, LaneRanges(), 3)
    )
    put(store, f"{DATA}/2026-11-21T13/{FinishedName('s', 5000, 5000 + len(second) + 9).name}", second)
    put(store, UnfinishedName("t", 0, Scheme.LENGTH).path, records(0, 4, 5)[:-1])
    put(store, UnfinishedName("u", 0, Scheme.ROLL).path, records(0, 6))
    reader = FolderReader(store)
    assert [one.header.id.sequence for one in reader.batches()] == [0, 1, 2, 3, 4]
    report = reader.report
    assert (report.batches, report.repeats, report.open_files) == (5, 1, 1)
    assert len(report.damaged) == 1, "only the file that is shorter than its name says"
    assert all(one.data == batch(one.header.id.sequence)[1] for one in FolderReader(store).batches()), "the same bytes"


def test_the_newest_announcement_of_each_block_counts(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for n, version in enumerate((5, 9, 7)):
        block = SeriesBlock("src", 0, version, (SeriesInfo("a{}", ValueType.INTEGER),))
        data = encode_header("s", 0) + encode_batch_record(0, encode_series("agent", block).data, RecordType.SERIES)
        put(store, f"{SERIES}/{FinishedName(f's{n}', 0, len(data)).name}", data)
    blocks = FolderReader(store).blocks()
    assert [block.version for block in blocks.values()] == [9]


def test_a_store_never_overwrites_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    put(store, f"{OPEN}/a", b"1")
    with pytest.raises(StoreError):
        store.create(f"{OPEN}/a")
    put(store, f"{OPEN}/b", b"2")
    with pytest.raises(StoreError):
        store.rename(f"{OPEN}/b", f"{OPEN}/a")
    assert store.read(f"{OPEN}/a") == b"1"
    assert verify(batch(0)[1]).id.sequence == 0
