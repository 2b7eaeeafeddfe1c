"""Generator of the folders under tests/golden/upgrade/: `python -m tests.upgrade.make_golden FOLDER`, run once with
the program of the version that the folder is named after, and never again. A new version adds a folder of its own.

It holds one story. Agent `golden` has accepted ten batches, of every type, in its log. The raw table holds the first
six, of two hours, the older of which is compacted; the series are announced. What Kafka held is gone.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from artimon.model.batch import Batch, BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_samples, encode_series
from artimon.model.fingerprint import fingerprint
from artimon.model.hash_routing import partition_of
from artimon.model.ranges import LaneId, LaneRanges
from artimon.model.sample_columns import decode_columns
from artimon.model.values import Kind, Value, ValueType
from artimon.rawtable import table_state as states
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.commit import RawTable
from artimon.rawtable.file_statistics import statistics_of
from artimon.rawtable.schema import DataFile, folder_of, period_of
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable
from artimon.rawtable.table_state import Increment, RawState, TableTotals
from artimon.runtime import file_access as files
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.compactor import Compactor
from pipeline.spark import raw_file as rows
from pipeline.wal.log import LogEntry, WriteAheadLog
from pipeline.wal.segment_format import RecordType
from sources.state import state_files as source_state
from sources.state.series_memory import SourceSeries
from sources.state.series_rows import SeriesDescription
from tests.raw_files import to_parquet

HOUR_MS = 3_600_000
START_MS = 1_795_273_200_000
"""2026-11-21T15:00:00Z."""
AGENT, LANES, PARTITIONS, TOPIC_ID = "golden", 4, 4, "Z29sZGVuLWdvbGRlbi0xMQ"
IN_TABLE = 6
SOURCES = ("shop/web1/0", "shop/web2/0")
TEXTS = {
    "golden.requests{}": (ValueType.INTEGER, Kind.COUNTER),
    "golden.load{}": (ValueType.DOUBLE, Kind.GAUGE),
    "golden.up{}": (ValueType.BOOLEAN, Kind.GAUGE),
    "golden.version{}": (ValueType.STRING, Kind.UNKNOWN),
    "golden.ends{}": (ValueType.INTEGER, Kind.UNKNOWN),
}
EXTREMES: tuple[tuple[Value | None, ...], ...] = (
    (2**63 - 1, float("inf"), True, "", 1),
    (-(2**63), -0.0, False, "naïve ☃ 𝄞", None),
)


def values_of(number: int) -> tuple[Value | None, ...]:
    """Return the content of batch `number`, in the order of TEXTS."""
    plain = (number, number / 7, number % 2 == 0, f"v{number}", None if number == 5 else number)
    return EXTREMES[number] if number < len(EXTREMES) else plain


def batch(number: int, epoch: int) -> tuple[Batch, int]:
    """Batch and its append time; the first four were appended an hour before the others."""
    source = SOURCES[number % 2]
    at = START_MS + number * 60_000 + (HOUR_MS if number >= 4 else 0)
    found = [(fingerprint(text), at, START_MS - 5_000, v) for text, v in zip(TEXTS, values_of(number), strict=True)]
    lane = number % 2
    id_ = BatchId(AGENT, epoch, lane, number // 2)
    return encode_samples(id_, source, bytes(range(16)), START_MS - 5_000, at, "", Samples.of(found)), at + 700


def block(source: str) -> SeriesBlock:
    told = [SeriesInfo(text, type_, kind, "help", "unit", START_MS) for text, (type_, kind) in TEXTS.items()]
    return SeriesBlock(source, 0, START_MS, tuple(told))


def make_log(place: Path) -> tuple[int, list[tuple[Batch, int]]]:
    log = WriteAheadLog(place, AGENT, LANES, lambda _placed: None)
    made = [batch(number, log.epoch) for number in range(10)]
    entries = [LogEntry(RecordType.BATCH, one.header, one.data) for one, _ in made]
    for source in SOURCES:
        announcement = encode_series(AGENT, block(source))
        entries.append(LogEntry(RecordType.SERIES, announcement.header, announcement.data))
    for entry in entries:
        log.append([entry]).result(20)
    log.close()
    return log.epoch, made


def make_source_state(place: Path) -> None:
    place.mkdir()
    series = SourceSeries(SOURCES[0], 100)
    for text, (type_, kind) in TEXTS.items():
        series.rows.add(fingerprint(text), type_, SeriesDescription(text, kind, "help", "unit", START_MS))
    series.rows.state["cell"][:] = [41, 0, 1, 0, 7]
    series.rows.state["birth_ms"][:] = START_MS - 5_000
    series.rows.state["last_ms"][:] = START_MS
    series.rows.state["live"][:] = True
    series.uuid, series.process_ms, series.last_poll_ms = bytes(range(16)), START_MS - 5_000, START_MS
    key = source_state.key_of(series.name)
    source_state.replace_file(place / (key + source_state.SERIES), source_state.encode_descriptions(series))
    source_state.replace_file(place / (key + source_state.VALUES), source_state.encode_values(series))


def make_tables(hdfs: str, made: list[tuple[Batch, int]], scratch: Path) -> None:
    table, sources = RawTable(hdfs), SourcesTable(hdfs)
    ids = sources.assign(SOURCES)
    state = states.close_gaps(RawState(), "golden-0", "golden-cluster", "golden.samples", TOPIC_ID, PARTITIONS, [])
    table.append([], RawState(), state)
    for number, (one, at) in enumerate(made[:IN_TABLE]):
        data = _write(table.uri, ids[one.header.source], one, at)
        lane = one.header.id.lane_id
        partition = partition_of(lane.agent, lane.epoch, lane.lane, PARTITIONS)
        seen = LaneRanges()
        seen.add(lane, one.header.id.sequence)
        until = {partition: state.until()[partition] + 1}
        after = states.advance(
            state,
            f"golden-{number + 1}",
            Increment(until, {partition: seen}, {lane: at}, TableTotals(data.rows, 1), at),
        )
        table.append([data], state, after)
        state = after
    _settle(table, state, START_MS + HOUR_MS + 1_800_000)
    _make_series(hdfs, ids)
    _compact(hdfs, scratch)


def _settle(table: RawTable, state: RawState, at: int) -> None:
    """An append without rows, after which nothing before `at` is missing in any partition."""
    lanes = {p: LaneId("settler", 1, p) for p in range(PARTITIONS)}
    seen = {p: LaneRanges.from_json({str(lane): [[0, 1]]}) for p, lane in lanes.items()}
    step = Increment(state.until(), seen, dict.fromkeys(lanes.values(), at), TableTotals(), at)
    table.append([], state, states.advance(state, "golden-end", step))


def _write(uri: str, source: int, one: Batch, at: int) -> DataFile:
    found = rows.sorted_table([rows.SourceBatch(source, at, decode_columns(one.header, one.data))])
    data, period = to_parquet(found), period_of(at)
    path = f"{folder_of(period, 'default')}/0-{one.header.id.sequence}-golden{one.header.id.lane}.parquet"
    files.write_file(f"{uri}/{path}", data)
    return DataFile(path, len(data), len(found), {"period": period, "keep": "default"}, statistics_of(found))


def _make_series(hdfs: str, ids: dict[str, int]) -> None:
    table = SeriesTable(hdfs)
    found, refused = rows_of([block(source) for source in SOURCES], ids)
    if refused or not table.add(found, TOPIC_ID, {0: 0}, {0: 2}):
        raise SystemExit(f"the series were not added: {refused}")


def _compact(hdfs: str, scratch: Path) -> None:
    """The first hour; the second one stays as it was appended."""
    compactor = Compactor(CompactorConfig("", hdfs, scratch), None)
    compactor.run_due(threading.Event())


def download(hdfs: str, place: Path) -> None:
    for name in ("raw", "sources", "series"):
        for path, _, _ in files.list_files(f"{hdfs}/artimon/{name}"):
            target = place / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files.read_file(f"{hdfs}/artimon/{name}/{path}"))


def main(place: Path, hdfs: str) -> None:
    place.mkdir(parents=True)
    epoch, made = make_log(place / "log")
    make_source_state(place / "source")
    make_tables(hdfs, made, place / "scratch")
    download(hdfs, place / "tables")
    about: dict[str, Any] = {"epoch": f"{epoch:016x}", "in_table": IN_TABLE, "topic_id": TOPIC_ID}
    (place / "about.json").write_text(json.dumps(about) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
