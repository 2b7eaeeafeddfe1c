"""Quarantined batches are kept, counted and restored under their identity; `artimon wal` lists,
verifies and repairs."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from typer.testing import CliRunner

from artimon.cli import app
from artimon.model.ack_state import Position
from artimon.model.batch import BatchId
from pipeline.delivery.tracker import QUARANTINE_AFTER, Tracker
from pipeline.delivery.wal_sink import WalSink
from pipeline.link.answers import MessageAnswer
from pipeline.wal import quarantine as aside
from pipeline.wal.accepted_counts import AcceptedCounts
from pipeline.wal.batch_states import BatchState
from pipeline.wal.inspection import LogNotFoundError, inspect, repair
from pipeline.wal.log import WriteAheadLog
from pipeline.wal.recovery import segment_path, segments_in
from pipeline.wal.segment_format import RECORD_BYTES, RecordType, header_bytes
from pipeline.wal.state_records import LogPosition, encode_acked
from scripts.proof.counts import accepted_counts
from tests.pipeline.helpers import AGENT, HOST, MINUTE, FastFiles, RecordingListener, entry, open_log, polled
from tests.pipeline.test_tracker import header

NOW = MINUTE + 60_000
RUN = CliRunner()


def filled(folder: Path, batches: int = 4) -> RecordingListener:
    recorded = RecordingListener()
    wal = open_log(folder, recorded)
    for number in range(batches):
        wal.append([entry(wal, 0, number)]).result(60)
    wal.close()
    return recorded


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def held(folder: Path) -> list[BatchId]:
    wal = open_log(folder)
    ids = [header.id for header, _ in wal.recovered.batches]
    wal.close()
    return ids


def test_a_permanently_refused_batch_is_quarantined() -> None:
    """Quarantined after the limit of refusals and not sent again; later batches are sent all the time."""
    tracker = Tracker()
    item = tracker.add(header(0, 0), LogPosition(1, 100, 50), 0)
    now = 0.0
    for tries in range(QUARANTINE_AFTER):
        now += 1000.0
        group = tracker.take_call(now)
        assert group is not None, tries
        outcome = tracker.apply_answers(group, [MessageAnswer(None, "damaged: digest", is_permanent=True)], now)
    assert [(one.id, why) for one, why in outcome.quarantined] == [(item.id, "damaged: digest")]
    assert item.state is BatchState.ERROR
    assert tracker.pending == 0
    assert tracker.take_call(now + 1000.0) is None


def test_quarantined_batches_are_durable_counted_and_not_sent_after_a_restart(tmp_path: Path) -> None:
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded)
    for number in range(3):
        wal.append([entry(wal, 0, number)]).result(60)
    place = recorded.placed[1][1]
    assert wal.quarantine_batches([(place, "damaged: digest")]) == [place]
    assert wal.quarantine_size().errors == 1
    assert wal.quarantine_size().error_bytes > place.length
    wal.close()
    assert held(tmp_path) == [recorded.ids[0], recorded.ids[2]]
    (one,) = aside.quarantined_files(tmp_path)
    assert one.reason == "damaged: digest"
    assert [header.id for header in one.batches] == [recorded.ids[1]]


def test_a_lost_note_costs_only_a_repeat(tmp_path: Path) -> None:
    """A kill between the copy and the note: the batch is sent again, refused again, and quarantined under the same
    name."""
    recorded = filled(tmp_path)
    wal = open_log(tmp_path)
    header, place = wal.recovered.batches[0]
    wal._core.quarantine_batch(place, "first")
    wal.close()
    assert held(tmp_path) == recorded.ids
    wal = open_log(tmp_path)
    wal.quarantine_batches([(next(p for h, p in wal.recovered.batches if h.id == header.id), "second")])
    assert wal.quarantine_size().errors == 1
    wal.close()


def test_quarantined_batches_are_restored_under_their_identity(tmp_path: Path) -> None:
    recorded = filled(tmp_path)
    wal = open_log(tmp_path)
    wal.quarantine_batches([(wal.recovered.batches[1][1], "refused")])
    wal.close()
    assert recorded.ids[1] not in held(tmp_path)
    done = repair(tmp_path, ["all"], NOW)
    assert [header.id for _, header in done.restored] == [recorded.ids[1]]
    wal = open_log(tmp_path)
    assert sorted(header.id for header, _ in wal.recovered.batches) == recorded.ids
    place = next(place for header, place in wal.recovered.batches if header.id == recorded.ids[1])
    assert wal.read(place) == recorded.placed[1][0].payload
    assert wal.next_sequences == [4, 0], "a restored old number is not used twice"
    assert not wal.new_epoch_because
    assert wal.quarantine_size().errors == 0
    wal.close()
    assert not repair(tmp_path, ["all"], NOW).restored, "once"


@pytest.mark.parametrize("at", [0, 5, 9, 13])
def test_an_intact_batch_in_a_damaged_record_is_restored(tmp_path: Path, at: int) -> None:
    """The mark, type, length or checksum of its record is wrong; its own digest is right."""
    recorded = filled(tmp_path)
    flip(segment_path(tmp_path, 1), recorded.placed[1][1].offset - RECORD_BYTES + at)
    assert held(tmp_path) == [id for n, id in enumerate(recorded.ids) if n != 1]
    done = repair(tmp_path, ["all"], NOW)
    assert [header.id for _, header in done.restored] == [recorded.ids[1]]
    assert sorted(held(tmp_path)) == recorded.ids


def test_a_damaged_batch_is_kept_and_not_restored(tmp_path: Path) -> None:
    recorded = filled(tmp_path)
    flip(segment_path(tmp_path, 1), recorded.placed[1][1].offset + 100)
    held(tmp_path)
    assert not repair(tmp_path, ["all"], NOW).restored
    (one,) = aside.quarantined_files(tmp_path)
    assert not one.batches
    assert one.size == RECORD_BYTES + recorded.placed[1][1].length


def test_restored_batches_are_not_counted_as_accepted_twice(tmp_path: Path) -> None:
    """Proofs of delivery start from the agent's own count."""
    log, accepted = tmp_path / "log", tmp_path / "accepted"
    recorded = RecordingListener()
    wal = open_log(log, recorded)
    intake = WalSink(wal, AGENT, log)
    for number in range(3):
        intake.accept_now([polled("a", 5, MINUTE - 1000 + number)])
    audit = AcceptedCounts(accepted, NOW)
    audit.add([(e.header.source, e.minutes, p) for e, p in recorded.placed[:2]], NOW)
    wal.quarantine_batches([(recorded.placed[0][1], "refused")])
    wal.close()
    repair(log, ["all"], NOW)
    wal = open_log(log)
    AcceptedCounts(accepted, NOW).catch_up(log, wal.first_own_segment, NOW)
    wal.close()
    assert accepted_counts(accepted) == {(MINUTE, "a"): 15}


def test_torn_tails_are_quarantined_and_old_ones_deleted(tmp_path: Path) -> None:
    """The valid prefix is kept, the rest is quarantined; repeated crashes do not fill the disk."""
    filled(tmp_path)
    for number in range(12):
        path = segment_path(tmp_path, segments_in(tmp_path)[-1])
        with path.open("ab") as file:
            file.write(f"half a record {number}".encode())
        held(tmp_path)
    tails = sorted(p for p in (tmp_path / "damaged").iterdir() if p.suffix == ".tail")
    assert len(tails) == 8
    assert tails[-1].read_bytes().startswith(b"half a record 11")


# --- the tool


def test_verify_accepts_a_whole_log(tmp_path: Path) -> None:
    filled(tmp_path)
    before = everything(tmp_path)
    found = RUN.invoke(app, ["wal", "verify", str(tmp_path), "--json"])
    assert found.exit_code == 0
    assert json.loads(found.stdout)["good"]
    assert everything(tmp_path) == before, "it changes nothing"


@pytest.mark.parametrize("damage", ["payload", "tail", "missing", "digest", "epoch", "failed"])
def test_verify_names_the_damage_and_changes_nothing(tmp_path: Path, damage: str) -> None:
    recorded = filled(tmp_path)
    path = segment_path(tmp_path, 1)
    if damage == "payload":
        flip(path, recorded.placed[2][1].offset + 30)
    elif damage == "tail":
        os.truncate(path, path.stat().st_size - 3)
    elif damage == "missing":
        held(tmp_path)
        held(tmp_path)
        segment_path(tmp_path, 2).unlink()
    elif damage == "digest":
        _wrong_digest(tmp_path)
    elif damage == "epoch":
        (tmp_path / "epoch").write_text("{")
    else:
        (tmp_path / "failed").write_text('{"segment": 1, "synced": 100000}')
    before = everything(tmp_path)
    found = RUN.invoke(app, ["wal", "verify", str(tmp_path), "--json"])
    assert found.exit_code == 1
    assert len(json.loads(found.stdout)["trouble"]) >= 1
    assert everything(tmp_path) == before


def _wrong_digest(folder: Path) -> None:
    """Write a record with a valid checksum around a batch with a wrong digest."""
    wal = open_log(folder)
    one = entry(wal, 0, 4)
    payload = bytearray(one.payload)
    payload[-1] ^= 1
    wal.append([replace(one, payload=bytes(payload))]).result(60)
    wal.close()


def test_verify_of_a_log_in_use_ignores_the_tail_under_way(tmp_path: Path) -> None:
    wal = open_log(tmp_path)
    wal.append([entry(wal, 0, 0)]).result(60)
    with segment_path(tmp_path, 1).open("ab") as file:
        file.write(b"half")
    found = RUN.invoke(app, ["wal", "verify", str(tmp_path), "--json"])
    assert found.exit_code == 0
    assert str(os.getpid()) in json.loads(found.stdout)["used_by"]
    wal.close()


def test_repair_of_a_log_in_use_is_refused_with_the_owner(tmp_path: Path) -> None:
    wal = open_log(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.glob("*.wal")}
    found = RUN.invoke(app, ["wal", "repair", str(tmp_path)])
    assert found.exit_code == 4
    assert str(os.getpid()) in found.stderr
    assert {p.name: p.read_bytes() for p in tmp_path.glob("*.wal")} == before
    wal.close()


def test_repair_acts_like_the_next_start_and_keeps_the_cut_bytes(tmp_path: Path) -> None:
    recorded = filled(tmp_path)
    path = segment_path(tmp_path, 1)
    flip(path, recorded.placed[1][1].offset + 30)
    whole = path.read_bytes()
    found = RUN.invoke(app, ["wal", "repair", str(tmp_path), "--json"])
    assert found.exit_code == 0, found.stderr
    assert len(json.loads(found.stdout)["set_aside"]) == 1
    (kept,) = (tmp_path / "damaged").iterdir()
    assert kept.read_bytes() in whole
    assert RUN.invoke(app, ["wal", "verify", str(tmp_path)]).exit_code == 0
    assert held(tmp_path) == [id for n, id in enumerate(recorded.ids) if n != 1]


def test_repair_of_a_whole_log_begins_no_epoch(tmp_path: Path) -> None:
    recorded = filled(tmp_path)
    assert not repair(tmp_path, (), NOW).new_epoch_because
    wal = WriteAheadLog(tmp_path, AGENT, 2, RecordingListener(), files=FastFiles(), host=HOST)
    assert not wal.new_epoch_because
    assert [header.id for header, _ in wal.recovered.batches] == recorded.ids
    wal.close()


def test_inspect_lists_segments_and_quarantine(tmp_path: Path) -> None:
    recorded = filled(tmp_path)
    wal = open_log(tmp_path)
    wal.quarantine_batches([(wal.recovered.batches[0][1], "refused: too odd")])
    wal.close()
    report = inspect(tmp_path)
    assert report.batches == 3
    assert report.sources == 1
    assert report.next_sequences[f"{recorded.ids[0].epoch:016x}/0"] == 4
    shown = RUN.invoke(app, ["wal", "inspect", str(tmp_path)])
    assert shown.exit_code == 0
    assert "refused: too odd" in " ".join(shown.stdout.split())
    assert "polled from " in shown.stdout
    assert "--again NAME" in shown.stderr, "and how to bring it back"
    told_json = json.loads(RUN.invoke(app, ["wal", "inspect", str(tmp_path), "--json"]).stdout)
    assert told_json["batches"] == 3
    assert told_json["agent"] == AGENT


def test_a_folder_without_a_log_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in (["inspect"], ["verify"], ["repair"]):
        assert RUN.invoke(app, ["wal", *command, str(tmp_path / "empty")]).exit_code == 2
    filled(tmp_path / "log")
    near = RUN.invoke(app, ["wal", "verify", str(tmp_path)])
    assert near.exit_code == 2
    assert f"here: {tmp_path / 'log'}\n" in near.stderr, "it names the log that is below"
    with pytest.raises(LogNotFoundError, match="no such quarantined file"):
        repair(tmp_path / "log", ["nonsense.batch"], NOW)


def test_a_log_of_a_newer_version_is_named_as_such(tmp_path: Path) -> None:
    filled(tmp_path)
    path = segment_path(tmp_path, 1)
    data, end = path.read_bytes(), header_bytes(2)
    header = data[:4] + bytes([9]) + data[5 : end - 4]
    path.write_bytes(header + struct.pack("<I", crc32c(header)) + data[end:])
    before = everything(tmp_path)
    for command in ("inspect", "verify", "repair"):
        assert RUN.invoke(app, ["wal", command, str(tmp_path)]).exit_code == 3
    changed = {name for name, content in everything(tmp_path).items() if before.get(name) != content}
    assert {Path(name).name for name in changed} <= {"lock"}


def test_shed_batches_are_neither_sent_nor_waited_for() -> None:
    """A shed batch leaves the tracker from any state: waiting, on a call, sent."""
    tracker = Tracker()
    places = [LogPosition(1, 100 * n, 50) for n in range(4)]
    tracker.add(header(0, 0), places[0], 0)
    tracker.add(header(0, 1), places[1], 0)
    first = tracker.take_call(1.0, 1)
    assert first is not None
    tracker.apply_answers(first, [MessageAnswer(Position("c", "t", 0, 7))], 1.0)
    flying = tracker.take_call(2.0, 1)
    assert flying is not None
    tracker.add(header(0, 2), places[2], 0)
    tracker.add(header(1, 0), places[3], 0)
    assert tracker.stop_sending(places[:3]) == {places[0]}
    tracker.call_failed(flying, 3.0)
    assert tracker.pending == 1
    left = tracker.take_call(100.0)
    assert left is not None
    assert [item.place for item in left.items] == [places[3]]
    assert tracker.take_call(200.0) is None


def test_a_reframed_batch_is_acked_and_deleted(tmp_path: Path) -> None:
    """Its record was damaged and rewritten: an ack of its old identity deletes it for good."""
    recorded = filled(tmp_path)
    flip(segment_path(tmp_path, 1), recorded.placed[1][1].offset - RECORD_BYTES)
    held(tmp_path)
    repair(tmp_path, ["all"], NOW)
    wal = open_log(tmp_path)
    batches = wal.recovered.batches
    assert sorted(header.id for header, _ in batches) == recorded.ids
    wal.append_notes(RecordType.ACKED, encode_acked(recorded.ids))
    wal.release([place for _, place in batches])
    wal.delete_unneeded()
    assert len(segments_in(tmp_path)) == 1
    wal.close()
    assert held(tmp_path) == []
