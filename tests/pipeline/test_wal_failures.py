"""Power failures, full and failing disks: accepted batches survive; others are not promised."""

from __future__ import annotations

import random
from concurrent.futures import Future
from pathlib import Path

import pytest

from artimon.model.protocols import SinkRefusedError
from pipeline.wal import log_core as core
from pipeline.wal.log import LogWriteError
from pipeline.wal.log_core import QuotaExceededError
from pipeline.wal.recovery import segment_path, segments_in
from pipeline.wal.segment_format import RECORD_BYTES, RecordType
from pipeline.wal.state_records import LogPosition, encode_acked
from tests.crash_disk import CrashDisk, allow, refuse
from tests.pipeline.helpers import FastFiles, RecordingListener, entry, ids_in, open_log
from tests.seeds import fixed_and_drawn
from tests.waiting import eventually

FOLDER = Path("/data/log")
"""Of logs on a CrashDisk."""


@pytest.mark.parametrize("seed", fixed_and_drawn(range(8), "power failures of the log", 8))
def test_accepted_batches_survive_a_power_failure(seed: int) -> None:
    """With any part of the unsynced writes left, accepted batches are whole and no identity is lost."""
    rng = random.Random(seed)
    files, recorded = CrashDisk(), RecordingListener()
    wal = open_log(FOLDER, recorded, files=files, segment=2500)
    accepted = []
    for number in range(rng.randrange(1, 20)):
        wal.append([entry(wal, 0, number)]).result(60)
        accepted = list(recorded.ids)
        wal.append_notes(RecordType.ACKED, encode_acked([]))
        if rng.random() < 0.3:
            wal.append_notes(RecordType.SKIP, [bytes(rng.randrange(50))])
    left = files.survivor(rng)
    wal.close()
    after = open_log(FOLDER, files=left)
    assert [header.id for header, _ in after.recovered.batches] == accepted
    assert (after.epoch, 0, after.next_sequences[0]) > (0, 0, -1)
    if after.epoch == accepted[0].epoch:
        assert after.next_sequences[0] == len(accepted)
    after.close()


def test_no_listener_or_caller_learns_of_a_batch_before_fsync() -> None:
    """The listener (audit, sender) and the waiting callers learn of a batch only after the fsync that
    made it durable."""
    seen: list[int] = []

    class Watching(CrashDisk):
        def fsync(self, descriptor: int) -> None:
            seen.append(len(recorded.ids))
            super().fsync(descriptor)

    recorded, files = RecordingListener(), Watching()
    wal = open_log(FOLDER, recorded, files=files)
    before = files.fsyncs
    wal.append([entry(wal, 0, 0)]).result(60)
    assert files.fsyncs > before
    assert seen[-1] == 0
    assert len(recorded.ids) == 1
    wal.close()


def test_one_fsync_serves_all_waiting_callers(tmp_path: Path) -> None:
    """Group commit: everything that arrives during an fsync shares the next one."""
    import threading

    gate = threading.Event()

    class Slow(FastFiles):
        def fsync(self, descriptor: int) -> None:
            gate.wait(60)

    gate.set()
    wal = open_log(tmp_path, files=Slow())
    gate.clear()
    futures: list[Future[list[LogPosition]]] = [wal.append([entry(wal, 0, number)]) for number in range(100)]
    gate.set()
    for future in futures:
        future.result(60)
    assert wal.fsyncs <= 3
    wal.close()


def test_a_failed_fsync_is_never_retried_as_good() -> None:
    """The log accepts nothing more. After a restart refused batches are not delivered, and a new epoch begins."""
    files, recorded = CrashDisk(), RecordingListener()
    wal = open_log(FOLDER, recorded, files=files)
    epoch = wal.epoch
    wal.append([entry(wal, 0, 0)]).result(60)
    good = list(recorded.ids)
    files.before = refuse("fsync")
    with pytest.raises(LogWriteError):
        wal.append([entry(wal, 0, 1)]).result(60)
    count = files.fsyncs
    assert wal.problem
    with pytest.raises(SinkRefusedError, match="restart"):
        wal.append([entry(wal, 0, 2)])
    assert files.fsyncs <= count + 1, "only the note of the failure may be written"
    assert recorded.ids == good
    wal.close()
    files.before = allow
    again = open_log(FOLDER, files=files)
    assert [header.id for header, _ in again.recovered.batches][:1] == good
    assert not files.exists(FOLDER / "failed"), "the note must be settled"
    again.append([entry(again, 0, again.next_sequences[0])]).result(60)
    again.close()
    assert len(set(ids_in(FOLDER, files))) == len(ids_in(FOLDER, files))
    assert epoch is not None


def test_the_note_of_a_failed_fsync_cuts_what_was_never_accepted() -> None:
    recorded = RecordingListener()

    class FailOnce(CrashDisk):
        """The fsync of the log fails; the small file beside it can still be written."""

        armed = False

        def fsync(self, descriptor: int) -> None:
            if self.armed:
                self.armed = False
                raise OSError(5, "Input/output error")
            super().fsync(descriptor)

    files = FailOnce()
    wal = open_log(FOLDER, recorded, files=files)
    epoch = wal.epoch
    wal.append([entry(wal, 0, 0)]).result(60)
    files.armed = True
    with pytest.raises(LogWriteError):
        wal.append([entry(wal, 0, 1)]).result(60)
    wal.close()
    assert len(ids_in(FOLDER, files)) == 2, "the page cache still shows it"
    again = open_log(FOLDER, files=files)
    assert [header.id for header, _ in again.recovered.batches] == recorded.ids
    assert again.epoch != epoch
    assert again.recovered.cut_bytes
    again.close()


def test_a_full_disk_refuses_and_resumes() -> None:
    """Half a write is truncated at once, so that no later record follows garbage."""
    files, recorded = CrashDisk(), RecordingListener()
    wal = open_log(FOLDER, recorded, files=files)
    wal.append([entry(wal, 0, 0)]).result(60)
    files.full = True
    with pytest.raises(SinkRefusedError, match="No space left"):
        wal.append([entry(wal, 0, 1)]).result(60)
    files.full = False
    wal.append([entry(wal, 0, 1)]).result(60)
    wal.close()
    again = open_log(FOLDER, files=files)
    assert [header.id.sequence for header, _ in again.recovered.batches] == [0, 1]
    assert not again.new_epoch_because
    again.close()


def test_a_disk_full_at_a_new_segment_refuses_and_resumes() -> None:
    files, recorded = CrashDisk(), RecordingListener()
    wal = open_log(FOLDER, recorded, files=files, segment=2500)
    number = 0
    while len(segments_in(FOLDER, files)) < 2:
        wal.append([entry(wal, 0, number)]).result(60)
        number += 1
    for _ in range(3):
        files.full = True
        with pytest.raises(SinkRefusedError):
            wal.append([entry(wal, 0, number) for _ in range(6)]).result(60)
        files.full = False
    wal.append([entry(wal, 0, number)]).result(60)
    wal.close()
    again = open_log(FOLDER, files=files)
    assert [header.id.sequence for header, _ in again.recovered.batches] == list(range(number + 1))
    again.close()


def test_a_log_limits_the_number_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of batches has a limit too, since each takes memory; acks make room."""
    monkeypatch.setattr(core, "MAX_BATCHES", 5)
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded)
    for number in range(5):
        wal.append([entry(wal, 0, number)]).result(60)
    with pytest.raises(QuotaExceededError, match="holds 5 batches without ack, at most 5"):
        wal.append([entry(wal, 0, 5)])
    wal.release([recorded.placed[0][1]])
    wal.append([entry(wal, 0, 5)]).result(60)
    wal.close()


def test_a_log_that_one_segment_fills_takes_batches_again_once_all_are_acked(tmp_path: Path) -> None:
    """The newest segment is never deleted, so a quota of about one segment would stay full for ever."""
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded, segment=4_000, quota=4_500)
    number = 0
    while wal.used_bytes + 2 * len(entry(wal, 0, number).payload) <= wal.quota_bytes:
        wal.append([entry(wal, 0, number)]).result(60)
        number += 1
    with pytest.raises(QuotaExceededError):
        wal.append([entry(wal, 0, number), entry(wal, 0, number + 1)])
    wal.append_notes(RecordType.ACKED, encode_acked(recorded.ids))
    wal.release([place for _, place in recorded.placed])
    eventually(lambda: wal.used_bytes < 1_000)
    wal.append([entry(wal, 0, number)]).result(60)
    assert wal.used_bytes < 4_000
    wal.close()
    again = open_log(tmp_path)
    assert [header.id.sequence for header, _ in again.recovered.batches] == [number]
    again.close()


def test_close_writes_waiting_batches(tmp_path: Path) -> None:
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded)
    futures = [wal.append([entry(wal, 0, number)]) for number in range(20)]
    wal.close()
    assert all(future.done() and not future.exception() for future in futures)
    with pytest.raises(SinkRefusedError, match="closed"):
        wal.append([entry(wal, 0, 20)])


def test_notes_of_acks_survive_a_restart(tmp_path: Path) -> None:
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded)
    for number in range(3):
        wal.append([entry(wal, 0, number)]).result(60)
    wal.append_notes(RecordType.ACKED, encode_acked([recorded.ids[1]]))
    wal.close()
    again = open_log(tmp_path)
    assert [header.id.sequence for header, _ in again.recovered.batches] == [0, 2]
    again.close()


def test_a_damaged_record_is_not_sent(tmp_path: Path) -> None:
    from pipeline.wal.segments import CorruptRecordError

    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded)
    wal.append([entry(wal, 0, 0)]).result(60)
    place = recorded.placed[0][1]
    path = next(tmp_path.glob("*.wal"))
    with path.open("r+b") as file:
        file.seek(place.offset + 30)
        file.write(b"\x00\x01")
    with pytest.raises(CorruptRecordError, match=path.name):
        wal.read(place)
    wal.close()


def test_a_damaged_record_does_not_keep_later_segments(tmp_path: Path) -> None:
    """Otherwise one bad bit would fill the log until a restart. The bytes are kept."""
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded, segment=2500)
    for number in range(12):
        wal.append([entry(wal, 0, number)]).result(60)
    place, rest = recorded.placed[0][1], [place for _, place in recorded.placed[1:]]
    path = segment_path(tmp_path, place.segment)
    with path.open("r+b") as file:
        file.seek(place.offset + 30)
        file.write(b"\x00\x01")
    wal.release(rest)
    wal.delete_unneeded()
    assert path.exists()
    wal.quarantine_bytes([place])
    wal.delete_unneeded()
    assert [path.name for path in tmp_path.glob("*.wal")] == [segment_path(tmp_path, rest[-1].segment).name]
    (kept,) = (tmp_path / "damaged").iterdir()
    assert kept.stat().st_size == place.length + RECORD_BYTES
    assert wal.quarantine_size().damaged == 1
    wal.close()


def test_a_deleted_segment_counts_as_held_until_no_loss_of_power_brings_it_back() -> None:
    disk = CrashDisk()
    log = core.LogCore(FOLDER, "a", 1, files=disk, host="host")
    places = []
    for number in range(3):
        log.append([entry(log, 0, number)])
        places += [place for _, place in log.flush()]
        log.roll()
    log.release(places[:1])
    disk.before = refuse("fsync_folder")
    with pytest.raises(OSError):
        log.delete_unneeded()
    assert list(log.segment_range) == [1, 2, 3]
    disk.before = allow
    log.release(places[1:])
    log.delete_unneeded()
    assert list(log.segment_range) == [3], "the newest stays"
    log.close()
    again = core.LogCore(FOLDER, "a", 1, files=disk, host="host")
    assert list(again.segment_range) == [3, 4]
    again.close()


def test_a_listener_that_fails_does_not_stop_the_log(tmp_path: Path) -> None:
    recorded = RecordingListener()

    def listener(placed: object) -> None:
        recorded(placed)  # type: ignore[arg-type]
        raise RuntimeError("listener")

    wal = open_log(tmp_path, listener)  # type: ignore[arg-type]
    for number in range(3):
        wal.append([entry(wal, 0, number)]).result(60)
    eventually(lambda: len(recorded.ids) == 3, "the listener was told of all")
    wal.close()
