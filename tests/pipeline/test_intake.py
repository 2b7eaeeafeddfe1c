"""Intake and audit of the log: numbers without gaps, splits at the limits, counts that survive kills."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from artimon.model.batch import MAX_BYTES, MAX_SAMPLES, PollResult, Samples
from artimon.model.batch_codec import decode_samples, verify
from artimon.model.hash_routing import lane_of
from artimon.model.protocols import Sink, SinkRefusedError
from pipeline.delivery.wal_sink import WalSink
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.wal.accepted_counts import AcceptedCounts
from pipeline.wal.log import WriteAheadLog
from pipeline.wal.recovery import records_of, segments_in
from pipeline.wal.shed_records import minutes_of
from pipeline.wal.state_records import LogPosition
from scripts.proof.counts import accepted_counts
from tests.pipeline.helpers import AGENT, MINUTE, RecordingListener, open_log, polled, samples

NOWHERE = "127.0.0.1:1"


def open_intake(folder: Path, **options: int) -> tuple[WriteAheadLog, WalSink, RecordingListener]:
    recorded = RecordingListener()
    wal = open_log(folder, recorded, **options)  # type: ignore[arg-type]
    return wal, WalSink(wal, AGENT, folder), recorded


def test_an_intake_is_a_sink(tmp_path: Path) -> None:
    wal, intake, _ = open_intake(tmp_path)
    sink: Sink = intake
    asyncio.run(sink.accept([polled("a"), polled("b")]))
    assert intake.batches == 2
    assert intake.samples == 6
    wal.close()


def test_each_lane_is_numbered_without_gaps_in_log_order(tmp_path: Path) -> None:
    wal, intake, recorded = open_intake(tmp_path, lanes=4)

    async def many() -> None:
        await asyncio.gather(*(intake.accept([polled(f"source-{n}") for n in range(k, k + 5)]) for k in range(60)))

    asyncio.run(many())
    by_lane: dict[int, list[int]] = {}
    for entry, _ in recorded.placed:
        assert entry.header.id.lane == lane_of(entry.header.source, 4)
        by_lane.setdefault(entry.header.id.lane, []).append(entry.header.id.sequence)
    assert sorted(by_lane) == [0, 1, 2, 3]
    assert all(numbers == list(range(len(numbers))) for numbers in by_lane.values())
    wal.close()


def test_a_replay_leaves_out_samples_that_the_sources_have(tmp_path: Path) -> None:
    wal, intake, _ = open_intake(tmp_path)
    for minute in range(3):
        intake.accept_now([polled("a", 3, MINUTE + minute), polled("b", 3, MINUTE + minute, announce=minute == 0)])
    wal.close()
    wal, intake, _ = open_intake(tmp_path)
    known = {"a": MINUTE + 2, "b": 0}

    def since(name: str) -> int:
        return known[name]

    found = [(one.source, one.poll_ms - MINUTE) for one in intake.replay(since) if len(one.samples)]
    assert sorted(found) == [("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    assert [one.source for one in intake.replay(lambda _: 1 << 60)] == ["b"], "announcements always come"
    assert len([one for one in intake.replay() if len(one.samples)]) == 6
    wal.close()


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    wal, intake, _ = open_intake(tmp_path)
    intake.accept_now([polled("a")])
    wal.close()
    wal, intake, recorded = open_intake(tmp_path)
    intake.accept_now([polled("a")])
    assert [id.sequence for id in recorded.ids] == [1]
    wal.close()


def test_more_than_ten_thousand_samples_are_split(tmp_path: Path) -> None:
    wal, intake, recorded = open_intake(tmp_path)
    intake.accept_now([polled("big", MAX_SAMPLES * 2 + 1)])
    assert [e.header.rows for e, _ in recorded.placed] == [MAX_SAMPLES, MAX_SAMPLES, 1]
    fingerprints = [f for e, _ in recorded.placed for f in decode_samples(e.header, e.payload).fingerprint.tolist()]
    assert fingerprints == list(range(MAX_SAMPLES * 2 + 1))
    wal.close()


def test_more_than_512_kib_are_split_and_an_impossible_sample_is_counted(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = [(n, MINUTE - 1, 1, rng.randbytes(50_000).hex()) for n in range(20)]
    rows.insert(7, (99, MINUTE - 1, 1, rng.randbytes(MAX_BYTES).hex()))
    wal, intake, recorded = open_intake(tmp_path)
    intake.accept_now([PollResult("s", bytes(16), 1, MINUTE, Samples.of(rows))])
    assert all(len(e.payload) <= MAX_BYTES and verify(e.payload) for e, _ in recorded.placed)
    values = [row for e, _ in recorded.placed for row in decode_samples(e.header, e.payload).rows()]
    assert values == [row for row in rows if row[0] != 99]
    assert intake.refused == {"sample": 1}
    assert [id.sequence for id in recorded.ids] == list(range(len(recorded.ids)))
    wal.close()


def test_announcements_stand_before_the_samples_they_explain(tmp_path: Path) -> None:
    wal, intake, recorded = open_intake(tmp_path)
    intake.accept_now([polled("a", announce=True)])
    assert [e.type.name for e, _ in recorded.placed] == ["SERIES", "BATCH"]
    wal.close()


def test_nothing_of_a_refused_call_is_kept(tmp_path: Path) -> None:
    wal, intake, recorded = open_intake(tmp_path, quota=3000)
    with pytest.raises(SinkRefusedError, match="quota"):
        intake.accept_now([polled("a"), polled("b", 5000)])
    assert recorded.ids == []
    assert intake.refused == {"quota": 1}
    intake.accept_now([polled("a")])
    assert [id.sequence for id in recorded.ids] == [0], "the refused call used no number"
    wal.close()


def test_an_empty_poll_is_no_batch(tmp_path: Path) -> None:
    wal, intake, recorded = open_intake(tmp_path)
    intake.accept_now([polled("a", 0)])
    asyncio.run(intake.accept([]))
    assert recorded.ids == []
    wal.close()


def test_replay_returns_the_polled_samples(tmp_path: Path) -> None:
    wal, intake, _ = open_intake(tmp_path, segment=2000)
    given = [polled(f"source-{n}", 3, MINUTE + n, announce=n % 3 == 0) for n in range(12)]
    for one in given:
        intake.accept_now([one])
    wal.close()
    wal, intake, _ = open_intake(tmp_path)
    wal.deletion_paused = True
    intake.accept_now([polled("later")])
    back = list(intake.replay())
    assert [p.source for p in back if len(p.samples)] == [p.source for p in given]
    assert [p.samples.rows() for p in back if len(p.samples)] == [p.samples.rows() for p in given]
    assert [p.blocks for p in back if p.blocks] == [p.blocks for p in given if p.blocks]
    assert not wal.deletion_paused
    wal.close()


def test_minutes_count_values_by_the_end_of_their_minute() -> None:
    rows: list[tuple[int, int, int, int | None]] = [
        (1, MINUTE, 1, 5),
        (2, MINUTE - 59_999, 1, 5),
        (3, MINUTE + 1, 1, 5),
        (4, MINUTE, 1, None),
    ]
    assert minutes_of(Samples.of(rows)) == ((MINUTE, 2), (MINUTE + 60_000, 1))
    assert minutes_of(Samples.of(rows[3:])) == ()
    assert minutes_of(samples(7, MINUTE - 5)) == ((MINUTE, 7),)


def test_the_audit_continues_after_a_truncation(tmp_path: Path) -> None:
    """From any truncation on, the audit counts exactly up to its position; counting from there gives the same sums."""
    entries = [
        (f"shop/h,{n}/0", ((MINUTE + 60_000 * (n % 2), n + 1),), LogPosition(1, 100 * (n + 1), 9)) for n in range(6)
    ]
    audit = AcceptedCounts(tmp_path / "origin", 0)
    for one in entries:
        audit.add([one], 0)
    whole = (tmp_path / "origin" / "0.csv").read_bytes()
    expected = accepted_counts(tmp_path / "origin")
    assert sum(expected.values()) == 21
    for size in range(len(whole) + 1):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / "0.csv").write_bytes(whole[:size])
        again = AcceptedCounts(folder, 0)
        again.add(entries, 0)
        assert accepted_counts(folder) == expected


def test_audit_counts_refused_by_a_full_disk_are_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = AcceptedCounts(tmp_path, 0)
    audit.add([("s", ((MINUTE, 1),), LogPosition(1, 1, 9))], 0)
    write = os.pwrite

    def full(descriptor: int, data: memoryview, offset: int) -> int:
        if len(data) > 5:
            return write(descriptor, data[:5], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        audit.add([("s", ((MINUTE, 2),), LogPosition(1, 2, 9))], 0)
    assert accepted_counts(tmp_path) == {(MINUTE, "s"): 1}
    monkeypatch.undo()
    audit.add([("s", ((MINUTE, 4),), LogPosition(1, 3, 9))], 0)
    assert accepted_counts(tmp_path) == {(MINUTE, "s"): 7}
    assert AcceptedCounts(tmp_path, 0).position == (1, 3)


def test_old_audit_files_are_deleted(tmp_path: Path) -> None:
    audit = AcceptedCounts(tmp_path, 0)
    hour = 3_600_000
    for n in range(30):
        audit.add([("s", ((MINUTE, 1),), LogPosition(1, n + 1, 9))], n * hour)
    assert sorted(int(p.stem) // hour for p in tmp_path.iterdir()) == list(range(4, 30))


def test_a_start_counts_batches_that_a_kill_left_uncounted(tmp_path: Path) -> None:
    """A kill between the fsync of the log and the audit file leaves the audit behind; the next start completes it."""
    config = AgentConfig(AGENT, tmp_path, NOWHERE)
    agent = Agent(config)
    for n in range(5):
        agent.wal_sink.accept_now([polled("a", 3 + n), polled("b", 2)])
    agent.log.close()
    file = next((tmp_path / "accepted").iterdir())
    expected = accepted_counts(tmp_path / "accepted")
    assert expected == {(MINUTE, "a"): 25, (MINUTE, "b"): 10}
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:5]) + lines[5][:3])
    again = Agent(config)
    assert accepted_counts(tmp_path / "accepted") == expected
    again.log.close()
    third = Agent(config)
    assert accepted_counts(tmp_path / "accepted") == expected
    third.log.close()


def test_a_new_log_beside_an_old_audit_is_counted_from_its_beginning(tmp_path: Path) -> None:
    import shutil

    config = AgentConfig(AGENT, tmp_path, NOWHERE)
    agent = Agent(config)
    for _ in range(5):
        agent.wal_sink.accept_now([polled("a", 3)])
    agent.log.close()
    shutil.rmtree(tmp_path / "log")
    again = Agent(config)
    again.wal_sink.accept_now([polled("a", 4)])
    again.log.close()
    assert accepted_counts(tmp_path / "accepted") == {(MINUTE, "a"): 19}


def test_an_agent_without_servers_accepts_and_stops_in_time(tmp_path: Path) -> None:
    """Without ZooKeeper, collectors and Kafka the agent accepts, reports that, and stops in time."""
    import time

    agent = Agent(AgentConfig(AGENT, tmp_path, NOWHERE))
    agent.start()
    agent.wal_sink.accept_now([polled("a")])
    figures = agent.figures()
    assert figures["pending_batches"] == 1
    assert figures["accepted_samples"] == 3
    assert figures["oldest_unacked_ms"] >= 0
    began = time.monotonic()
    agent.stop()
    assert time.monotonic() - began < 30
    again = Agent(AgentConfig(AGENT, tmp_path, NOWHERE))
    assert again.figures()["pending_batches"] == 1
    again.log.close()
    assert len(segments_in(tmp_path / "log")) == 2
    assert sum(1 for s in segments_in(tmp_path / "log") for _ in records_of(tmp_path / "log", s)) >= 1
