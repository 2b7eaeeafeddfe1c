"""Full log: it refuses by default; with `shed` the oldest batches are deleted after a durable record of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from artimon.model.batch import BatchHeader, BatchId
from artimon.model.batch_codec import decode_samples, decode_series, parse_header
from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.protocols import SinkRefusedError
from artimon.model.ranges import LaneRanges
from pipeline.delivery.batch_numbers import BatchNumberer
from pipeline.delivery.wal_sink import WalSink
from pipeline.wal.log import WriteAheadLog
from pipeline.wal.log_core import LogCore
from pipeline.wal.recovery import records_of, segments_in
from pipeline.wal.segment_format import RecordType
from pipeline.wal.shed_records import (
    SHED_BATCHES_VARIABLE,
    SHED_VARIABLE,
    merge_shed_records,
    shed_batches,
    shed_records,
    shed_source,
)
from pipeline.wal.state_records import LogPosition
from tests.crash_disk import CrashDisk, PowerLoss
from tests.pipeline.helpers import AGENT, HOST, MINUTE, FastFiles, RecordingListener, open_log, polled
from tests.seeds import fixed_and_drawn

SEGMENT, QUOTA = 20_000, 100_000
PER_POLL = 40


class GivingUp:
    """The sender's part in shedding: only the batches of `sent` were sent."""

    def __init__(self) -> None:
        self.given: list[LogPosition] = []
        self.sent: set[LogPosition] = set()

    def __call__(self, places: Sequence[LogPosition]) -> set[LogPosition]:
        self.given.extend(places)
        return self.sent & set(places)


def opened(folder: Path, give_up: GivingUp | None) -> tuple[WriteAheadLog, WalSink, RecordingListener]:
    recorded = RecordingListener()
    wal = open_log(folder, recorded, quota=QUOTA, segment=SEGMENT)
    return wal, WalSink(wal, AGENT, folder, give_up), recorded


def fill(intake: WalSink, polls: int, first: int = 0) -> None:
    for number in range(first, first + polls):
        intake.accept_now([polled(f"ctx/host{number % 3}/0", PER_POLL, MINUTE + number * 60_000 - 1000)])


def lost_in(payload: bytes, texts: dict[int, str]) -> Counter[str]:
    samples = decode_samples(parse_header(payload), payload)
    rows = samples.rows()
    return Counter({texts[row[0]]: 0 for row in rows}) + Counter(
        {texts[key]: sum(int(r[3]) for r in rows if r[0] == key and isinstance(r[3], int)) for key, *_ in rows}
    )


def test_by_default_a_full_log_refuses_and_counts(tmp_path: Path) -> None:
    wal, intake, _ = opened(tmp_path, None)
    with pytest.raises(SinkRefusedError, match="quota"):
        fill(intake, 200)
    assert intake.refused["quota"] == 1
    assert intake.shed_batches == 0
    wal.close()


def test_a_damaged_record_does_not_stop_shedding(tmp_path: Path) -> None:
    """Its bytes are quarantined, its batch is given up, and the log goes on without a restart."""
    give_up = GivingUp()
    wal, intake, _ = opened(tmp_path, give_up)
    fill(intake, 20)
    rotten = wal.oldest_live()[0]
    segment = next(path for path in tmp_path.rglob("*.wal") if int(path.stem) == rotten.segment)
    data = bytearray(segment.read_bytes())
    data[rotten.offset + rotten.length // 2] ^= 1
    segment.write_bytes(data)
    fill(intake, 200, first=20)
    assert intake.shed_batches
    assert intake.refused["quota"] == 0
    assert rotten in give_up.given
    assert len(list((tmp_path / "damaged").iterdir())) == 1
    wal.close()


def test_shedding_deletes_the_oldest_and_records_it(tmp_path: Path) -> None:
    """Every accepted batch is in the log or in exactly one shed record; the log exceeds its quota by at most that
    record."""
    give_up = GivingUp()
    wal, intake, recorded = opened(tmp_path, give_up)
    fill(intake, 200)
    assert intake.shed_batches
    assert intake.refused["quota"] == 0
    assert wal.used_bytes < QUOTA + SEGMENT
    wal.close()
    texts = {
        fingerprint(
            canonical(SHED_VARIABLE, {"agent": AGENT, "source": f"ctx/host{n}/0", "state": "unsent"})
        ): f"host{n}"
        for n in range(3)
    }
    texts[fingerprint(canonical(SHED_BATCHES_VARIABLE, {"agent": AGENT}))] = "batches"
    again = open_log(tmp_path)
    assert not again.new_epoch_because
    ours = [(h, again.read(place)) for h, place in again.recovered.batches]
    said: set[BatchId] = set()
    lost = 0
    for header, payload in ours:
        if header.source == shed_source(AGENT):
            ranges = shed_batches(header, payload)
            new = {BatchId(*lane, n) for lane in ranges.lanes() for a, b in ranges[lane] for n in range(a, b)}
            assert not said & new
            said |= new
            lost += sum(count for text, count in lost_in(payload, texts).items() if text != "batches")
    held = {header.id for header, _ in ours}
    accepted = {id for id in recorded.ids if id.lane != 65535}
    assert held | said == accepted
    assert not held & said
    shed_of_polls = {id for id in said if id in accepted}
    assert lost == PER_POLL * len(
        [e for e, _ in recorded.placed if e.header.id in shed_of_polls and "ctx" in e.header.source]
    )
    again.close()


def test_the_series_of_a_record_are_announced(tmp_path: Path) -> None:
    wal, intake, _ = opened(tmp_path, GivingUp())
    fill(intake, 200)
    wal.close()
    announced: set[int] = set()
    recorded: set[int] = set()
    for segment in segments_in(tmp_path):
        for record, payload in records_of(tmp_path, segment):
            if record.type == RecordType.SERIES:
                block = decode_series(parse_header(payload), payload)
                announced |= {fingerprint(info.text) for info in block.series}
            elif record.type == RecordType.BATCH and parse_header(payload).source == shed_source(AGENT):
                recorded |= {row[0] for row in decode_samples(parse_header(payload), payload).rows()}
    assert recorded
    assert recorded <= announced


def test_shed_batches_that_kafka_holds_are_listed_separately(tmp_path: Path) -> None:
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded)
    intake = WalSink(wal, AGENT, tmp_path)
    fill(intake, 2)
    batches = [(e.header, e.payload, n == 0) for n, (e, _) in enumerate(recorded.placed)]
    (record,) = shed_records(AGENT, batches)
    states = {info.text for info in record.blocks[0].series if info.text.startswith(SHED_VARIABLE + "{")}
    assert {'state="sent"' in text for text in states} == {True, False}
    wal.close()


def test_a_shed_record_that_is_shed_is_carried_over(tmp_path: Path) -> None:
    """The first losses stay recorded when the log fills up repeatedly."""
    give_up = GivingUp()
    wal, intake, _ = opened(tmp_path, give_up)
    fill(intake, 250)
    wal.close()
    again = open_log(tmp_path)
    ranges = LaneRanges()
    for header, place in again.recovered.batches:
        ranges.update(shed_batches(header, again.read(place)))
    assert sum(ranges[lane].count() for lane in ranges.lanes()) == intake.shed_batches
    again.close()


def test_a_record_of_shed_records_alone_has_their_time(tmp_path: Path) -> None:
    """Without a time it would be refused as too old, and what it names would be lost without a trace."""
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded)
    fill(WalSink(wal, AGENT, tmp_path), 2)
    (record,) = shed_records(AGENT, [(e.header, e.payload, False) for e, _ in recorded.placed])
    WalSink(wal, AGENT, tmp_path).accept_now([record])
    entry = next(e for e, _ in recorded.placed if e.header.source == shed_source(AGENT) and e.type == RecordType.BATCH)
    (again,) = shed_records(AGENT, [(entry.header, entry.payload, False)])
    assert again.poll_ms == entry.header.poll_ms > 0
    assert {row[1] for row in again.samples.rows()} == {entry.header.poll_ms}
    wal.close()


def test_a_shed_record_in_kafka_is_carried_over_without_its_counts(tmp_path: Path) -> None:
    """Kafka may lose the record before the table reads it: the identities stay named. Counts would count twice."""
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded)
    fill(WalSink(wal, AGENT, tmp_path), 2)
    (record,) = shed_records(AGENT, [(e.header, e.payload, False) for e, _ in recorded.placed])
    WalSink(wal, AGENT, tmp_path).accept_now([record])
    entry = next(e for e, _ in recorded.placed if e.header.source == shed_source(AGENT) and e.type == RecordType.BATCH)
    (unsent,) = merge_shed_records(AGENT, [(entry.header, entry.payload, False)])
    (sent,) = merge_shed_records(AGENT, [(entry.header, entry.payload, True)])
    identities = fingerprint(canonical(SHED_BATCHES_VARIABLE, {"agent": AGENT}))
    assert {row[0] for row in unsent.samples.rows()} > {identities}
    assert {row[0] for row in sent.samples.rows()} == {identities}
    assert [info.text for block in sent.blocks for info in block.series] == [
        canonical(SHED_BATCHES_VARIABLE, {"agent": AGENT})
    ]
    again = WalSink(wal, AGENT, tmp_path)
    again.accept_now([sent])
    carried = [e for e, _ in recorded.placed if e.header.source == shed_source(AGENT) and e.type == RecordType.BATCH]
    assert shed_batches(carried[-1].header, carried[-1].payload) == shed_batches(entry.header, entry.payload)
    wal.close()


@pytest.mark.parametrize("seed", fixed_and_drawn(range(8), "shedding", 8))
def test_after_a_crash_while_shedding_each_batch_is_either_delivered_or_recorded_as_lost(seed: int) -> None:
    """The power fails at a random operation between the record and the deletion."""
    rng = random.Random(seed)
    files = CrashDisk()
    folder = Path("/log")
    core = LogCore(folder, AGENT, 2, files=files, host=HOST, segment_bytes=6000)
    numbering = BatchNumberer(core, AGENT)
    for number in range(12):
        numbering.begin([polled(f"ctx/host{number % 3}/0", 20, MINUTE + number * 60_000 - 1000)])
        core.flush()
    before = {header.id for header in _batches(files, folder)}
    places = core.oldest_live()
    left = iter(range(rng.randrange(1, 12)))

    def go_off(_operation: str, _path: Path) -> None:
        if next(left, None) is None:
            raise PowerLoss

    files.before = go_off
    try:
        victims = [core.read(place) for place in places]
        for record in shed_records(AGENT, ((parse_header(p), p, False) for p in victims)):
            numbering.begin([record])
            core.flush()
        core.release(places)
        core.delete_unneeded()
    except PowerLoss:
        pass
    files.before = lambda _operation, _path: None
    files.power_off(rng)
    again = LogCore(folder, AGENT, 2, files=files, host=HOST, segment_bytes=6000)
    held = {header.id: again.read(place) for header, place in again.recovered.batches}
    said = {
        BatchId(*lane, n)
        for payload in held.values()
        for ranges in [shed_batches(parse_header(payload), payload)]
        for lane in ranges.lanes()
        for a, b in ranges[lane]
        for n in range(a, b)
    }
    assert not said & held.keys(), "recorded as lost and delivered"
    assert before <= held.keys() | said, "lost without a record"


def _batches(files: CrashDisk, folder: Path) -> list[BatchHeader]:
    return [
        parse_header(payload)
        for segment in segments_in(folder, files)
        for record, payload in records_of(folder, segment, files)
        if record.type == RecordType.BATCH
    ]


def test_a_log_of_one_segment_has_nothing_to_shed(tmp_path: Path) -> None:
    wal = WriteAheadLog(tmp_path, AGENT, 2, RecordingListener(), files=FastFiles(), host=HOST, quota_bytes=30_000)
    intake = WalSink(wal, AGENT, tmp_path, GivingUp())
    with pytest.raises(SinkRefusedError, match="quota"):
        fill(intake, 100)
    wal.close()
