"""A large log accepts at once and is read in the background; damage found then is handled as at any start."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from artimon.model.batch import BatchId
from pipeline.wal.log import WriteAheadLog
from pipeline.wal.log_core import LogCore
from pipeline.wal.recovery import segment_path, segments_in
from pipeline.wal.segment_format import NewerFormatError, RecordType, header_bytes
from pipeline.wal.state_records import encode_acked
from tests.pipeline.helpers import AGENT, HOST, FastFiles, RecordingListener, entry, ids_in, open_log

SEGMENT = 2500


def filled(folder: Path, batches: int = 12) -> list[BatchId]:
    recorded = RecordingListener()
    wal = open_log(folder, recorded, segment=SEGMENT)
    for number in range(batches):
        wal.append([entry(wal, 0, number)]).result(60)
    wal.close()
    assert len(segments_in(folder)) > 3
    return recorded.ids


def opened(folder: Path, recorded: RecordingListener | None = None) -> WriteAheadLog:
    return WriteAheadLog(
        folder,
        AGENT,
        2,
        recorded or RecordingListener(),
        files=FastFiles(),
        host=HOST,
        segment_bytes=SEGMENT,
        lazy=True,
    )


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_log_accepts_before_it_has_been_read(tmp_path: Path) -> None:
    """Numbers continue; nothing old is reported before all of it has been read; then all of it, in order."""
    ids = filled(tmp_path)
    recorded = RecordingListener()
    wal = opened(tmp_path, recorded)
    assert not wal.is_recovered
    assert wal.next_sequences == [12, 0]
    wal.append([entry(wal, 0, 12)]).result(60)
    assert wal.recover()
    assert wal.is_recovered
    assert [header.id for header, _ in wal.recovered.batches] == ids
    assert not wal.new_epoch_because
    wal.close()
    assert ids_in(tmp_path) == [*ids, recorded.ids[0]]


def test_segments_are_read_before_they_are_deleted(tmp_path: Path) -> None:
    filled(tmp_path)
    wal = opened(tmp_path)
    before = segments_in(tmp_path)
    wal.append([entry(wal, 0, 12)]).result(60)
    wal.delete_unneeded()
    assert segments_in(tmp_path) == before
    wal.recover()
    wal.release([place for _, place in wal.recovered.batches])
    wal.delete_unneeded()
    assert len(segments_in(tmp_path)) < len(before)
    wal.close()


def test_notes_of_later_segments_apply_to_old_batches(tmp_path: Path) -> None:
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded, segment=SEGMENT)
    for number in range(12):
        wal.append([entry(wal, 0, number)]).result(60)
    wal.append_notes(RecordType.ACKED, encode_acked([recorded.ids[0], recorded.ids[11]]))
    wal.close()
    wal = opened(tmp_path)
    wal.recover()
    assert [header.id for header, _ in wal.recovered.batches] == recorded.ids[1:11]
    wal.close()


def test_damage_in_an_old_segment_begins_a_new_epoch_while_in_use(tmp_path: Path) -> None:
    """Batches accepted meanwhile keep the old epoch; the new epoch starts at number 0; the rest is delivered."""
    ids = filled(tmp_path)
    path = segment_path(tmp_path, segments_in(tmp_path)[1])
    flip(path, 200)
    wal = opened(tmp_path)
    old = wal.epoch
    wal.append([entry(wal, 0, 12)]).result(60)
    wal.recover()
    assert wal.epoch != old
    assert "damage quarantined" in wal.new_epoch_because
    assert wal.next_sequences == [0, 0]
    found = [header.id for header, _ in wal.recovered.batches]
    assert len(found) == len(ids) - 1
    late = entry(wal, 0, 0)
    wal.append([late]).result(60)
    wal.close()
    assert list((tmp_path / "damaged").iterdir())
    again = opened(tmp_path)
    again.recover()
    assert not again.new_epoch_because
    held = [header.id for header, _ in again.recovered.batches]
    assert held[-2:] == [BatchId(AGENT, old, 0, 12), late.header.id]
    again.close()


def test_a_missing_old_segment_is_detected_at_once(tmp_path: Path) -> None:
    filled(tmp_path)
    number = segments_in(tmp_path)[2]
    segment_path(tmp_path, number).unlink()
    wal = opened(tmp_path)
    assert f"{number:016x}" in wal.new_epoch_because
    wal.recover()
    assert wal.recovered.missing == [number]
    wal.close()


def test_an_old_segment_of_a_newer_version_is_detected_before_any_change(tmp_path: Path) -> None:
    filled(tmp_path)
    path = segment_path(tmp_path, segments_in(tmp_path)[0])
    path.write_bytes(_newer(path.read_bytes()))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.name != "lock"}
    with pytest.raises(NewerFormatError):
        opened(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.name != "lock"} == before


def _newer(data: bytes) -> bytes:
    """Segment with version 2 in its header and a matching checksum."""
    end = header_bytes(2)
    header = data[:4] + bytes([2]) + data[5 : end - 4]
    return header + struct.pack("<I", crc32c(header)) + data[end:]


def test_a_log_closed_before_it_was_read_is_unchanged(tmp_path: Path) -> None:
    ids = filled(tmp_path)
    wal = opened(tmp_path)
    assert not wal.recover(lambda: True)
    wal.close()
    again = opened(tmp_path)
    again.recover()
    assert [header.id for header, _ in again.recovered.batches] == ids
    again.close()


def test_a_small_log_is_read_at_once(tmp_path: Path) -> None:
    core = LogCore(tmp_path / "log", AGENT, 2, files=FastFiles(), host=HOST, lazy=True)
    core.append([])
    core.close()
    core = LogCore(tmp_path / "log", AGENT, 2, files=FastFiles(), host=HOST, lazy=True)
    assert core.is_recovered
    core.close()
