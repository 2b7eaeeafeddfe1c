"""Crash table of the log: fault, survivors, then further writes. A cut-off write is not damage."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from artimon.model.batch import BatchId
from artimon.model.protocols import SinkRefusedError
from pipeline.wal.file_system import LogLockedError
from pipeline.wal.log import WriteAheadLog
from pipeline.wal.recovery import segment_path, segments_in
from pipeline.wal.segment_format import RECORD_BYTES, header_bytes
from tests.pipeline.helpers import AGENT, HOST, RecordingListener, entry, ids_in, open_log
from tests.waiting import eventually

LANES = 2


def fill(folder: Path, count: int) -> tuple[list[int], list[BatchId], int]:
    """Folder with `count` batches in lane 0 of segment 1, as a kill leaves it: offsets, ids, epoch."""
    recorded = RecordingListener()
    wal = open_log(folder, recorded)
    epoch = wal.epoch
    for number in range(count):
        wal.append([entry(wal, 0, number)]).result(60)
    wal.close()
    starts = [place.offset - RECORD_BYTES for _, place in recorded.placed]
    return [*starts, segment_path(folder, 1).stat().st_size], recorded.ids, epoch


def survivors(wal: WriteAheadLog) -> list[BatchId]:
    return [header.id for header, _ in wal.recovered.batches]


def goes_on(wal: WriteAheadLog, folder: Path) -> None:
    """After recovery the log accepts a batch under an unused identity and reads it back."""
    lane = 0
    number = wal.next_sequences[lane]
    fresh = entry(wal, lane, number)
    assert fresh.header.id not in survivors(wal)
    wal.append([fresh]).result(60)
    before = [*survivors(wal), fresh.header.id]
    epoch = wal.epoch
    wal.close()
    again = open_log(folder)
    try:
        assert survivors(again) == before
        assert again.epoch == epoch, again.new_epoch_because
    finally:
        again.close()


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def flip_both(path: Path, first: int, second: int) -> None:
    flip(path, first)
    flip(path, second)


Damage = Callable[[Path, list[int]], object]


def _truncate(size_from: Callable[[list[int]], int]) -> Damage:
    return lambda path, starts: os.truncate(path, size_from(starts))


def _append(data: bytes) -> Damage:
    return lambda path, starts: path.write_bytes(path.read_bytes() + data)


def _replace(change: Callable[[bytes, list[int]], bytes]) -> Damage:
    return lambda path, starts: path.write_bytes(change(path.read_bytes(), starts))


TABLE = [
    pytest.param(lambda path, starts: None, [0, 1, 2, 3], "", id="clean_stop"),
    pytest.param(_truncate(lambda s: s[4] - 1), [0, 1, 2], "cut", id="torn_last_byte"),
    pytest.param(_truncate(lambda s: s[3] + 1), [0, 1, 2], "cut", id="torn_after_one_byte"),
    pytest.param(_truncate(lambda s: s[3]), [0, 1, 2], "", id="tail_never_written"),
    pytest.param(_append(bytes(4096)), [0, 1, 2, 3], "cut", id="preallocated_zeros"),
    pytest.param(_append(b"\xa5\x17W\xe9" * 50), [0, 1, 2, 3], "cut", id="marks_without_records"),
    pytest.param(lambda p, s: flip(p, s[1] + 20), [0, 2, 3], "aside", id="flipped_payload"),
    pytest.param(lambda p, s: flip(p, s[1] + 8), [0, 2, 3], "aside", id="flipped_length"),
    pytest.param(lambda p, s: flip(p, s[1] + 10, 6), [0, 2, 3], "aside", id="huge_length"),
    pytest.param(lambda p, s: flip(p, s[1]), [0, 2, 3], "aside", id="flipped_mark"),
    pytest.param(lambda p, s: flip_both(p, s[0] + 5, s[2] + 30), [1, 3], "aside", id="two_places"),
    pytest.param(_replace(lambda d, s: d[: s[1]] + bytes(s[3] - s[1]) + d[s[3] :]), [0, 3], "aside", id="zeroed"),
    pytest.param(_replace(lambda d, s: d[: s[1]] + d[s[1] + 7 :]), [0, 2, 3], "aside", id="bytes_lost_in_the_middle"),
    pytest.param(_replace(lambda d, s: d[: s[2]] + b"xyz" + d[s[2] :]), [0, 1, 2, 3], "aside", id="bytes_put_in"),
    pytest.param(lambda p, s: flip(p, 9), [0, 1, 2, 3], "aside", id="flipped_header"),
    pytest.param(_replace(lambda d, s: d[s[0] :]), [0, 1, 2, 3], "", id="header_gone"),
    pytest.param(_truncate(lambda s: 0), [], "missing", id="empty_segment"),
    pytest.param(_truncate(lambda s: 11), [], "aside", id="half_a_header"),
]


@pytest.mark.parametrize(("damage", "left", "trouble"), TABLE)
def test_every_intact_record_survives(tmp_path: Path, damage: Damage, left: list[int], trouble: str) -> None:
    """After any fault every intact batch is readable, lost ones are counted, and the log accepts new ones."""
    starts, ids, epoch = fill(tmp_path, 4)
    damage(segment_path(tmp_path, 1), starts)
    wal = open_log(tmp_path)
    found = wal.recovered
    assert survivors(wal) == [ids[n] for n in left]
    assert bool(found.cut_bytes) == (trouble == "cut")
    assert bool(found.quarantined) == (trouble == "aside")
    assert bool(found.missing) == (trouble == "missing")
    assert (wal.epoch != epoch) == bool(trouble), "a new epoch begins if and only if something was cut or quarantined"
    for id, place in [(header.id, place) for header, place in found.batches]:
        assert ids.index(id) in left
        assert len(wal.read(place)) == place.length
    if trouble == "aside":
        kept = {path.name for path in (tmp_path / "damaged").iterdir()}
        assert kept == {f"{s:016x}-{at:012x}.bin" for s, at, n in found.quarantined if n}
    goes_on(wal, tmp_path)


def test_whole_records_survive_a_cut_at_any_byte(tmp_path: Path) -> None:
    """For any length of the file the whole records are readable and nothing else."""
    starts, ids, _ = fill(tmp_path / "origin", 3)
    for size in [*range(starts[1] - 2, starts[1] + 20), *range(starts[2], starts[3], 13)]:
        folder = tmp_path / str(size)
        shutil.copytree(tmp_path / "origin", folder)
        os.truncate(segment_path(folder, 1), size)
        wal = open_log(folder)
        whole = sum(1 for end in starts[1:] if end <= size)
        assert survivors(wal) == ids[:whole]
        wal.close()
        shutil.rmtree(folder)


def test_a_flipped_bit_loses_at_most_its_record(tmp_path: Path) -> None:
    """A flipped bit damages no record but its own."""
    starts, ids, _ = fill(tmp_path / "origin", 3)
    for at in [*range(starts[1], starts[1] + 18), *range(starts[1] + 18, starts[2], 29)]:
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "origin", folder)
        flip(segment_path(folder, 1), at, at % 8)
        wal = open_log(folder)
        assert ids[0] in survivors(wal)
        assert ids[2] in survivors(wal)
        wal.close()
        shutil.rmtree(folder)


def rolled(folder: Path, batches: int = 12) -> list[BatchId]:
    """Several segments with several batches each."""
    recorded = RecordingListener()
    wal = open_log(folder, recorded, segment=2500)
    for number in range(batches):
        wal.append([entry(wal, 0, number)]).result(60)
    wal.close()
    assert len(segments_in(folder)) > 3
    return recorded.ids


def test_segments_roll_and_are_read_in_order(tmp_path: Path) -> None:
    ids = rolled(tmp_path)
    wal = open_log(tmp_path)
    assert survivors(wal) == ids
    assert wal.next_sequences == [12, 0]
    assert not wal.new_epoch_because
    goes_on(wal, tmp_path)


@pytest.mark.parametrize("which", [0, 1, -2, -1])
def test_a_missing_segment_begins_a_new_epoch(tmp_path: Path, which: int) -> None:
    """The oldest one may have been deleted after its acks; any other missing one begins a new epoch, once."""
    ids = rolled(tmp_path)
    number = segments_in(tmp_path)[which]
    gone = [i for i in ids if i not in _ids_without(tmp_path, number)]
    segment_path(tmp_path, number).unlink()
    wal = open_log(tmp_path)
    assert survivors(wal) == [i for i in ids if i not in gone]
    assert bool(wal.new_epoch_because) == (which != 0)
    assert (number in wal.recovered.missing) == (which != 0)
    goes_on(wal, tmp_path)


def _ids_without(folder: Path, number: int) -> list[BatchId]:
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)
    segment_path(copy, number).unlink()
    ids = ids_in(copy)
    shutil.rmtree(copy)
    return ids


@pytest.mark.parametrize("which", [1, 2])
def test_a_full_segment_that_was_cut_short_is_damage_not_a_torn_tail(tmp_path: Path, which: int) -> None:
    rolled(tmp_path)
    number = segments_in(tmp_path)[which]
    path = segment_path(tmp_path, number)
    os.truncate(path, path.stat().st_size - 3)
    wal = open_log(tmp_path)
    assert not wal.recovered.cut_bytes
    assert wal.recovered.quarantined
    assert wal.new_epoch_because
    goes_on(wal, tmp_path)


def test_one_or_two_empty_segments_are_recovered(tmp_path: Path) -> None:
    ids = rolled(tmp_path)
    numbers = segments_in(tmp_path)
    gone: list[BatchId] = []
    for number in numbers[1:3]:
        before = ids_in(tmp_path)
        os.truncate(segment_path(tmp_path, number), 0)
        gone += [i for i in before if i not in ids_in(tmp_path)]
    wal = open_log(tmp_path)
    assert survivors(wal) == [i for i in ids if i not in gone]
    goes_on(wal, tmp_path)


def test_a_crash_while_recovering_leads_to_the_same_epoch_decision(tmp_path: Path) -> None:
    """Damage is repaired only after the new epoch is durable."""
    starts, _, epoch = fill(tmp_path, 3)
    flip(segment_path(tmp_path, 1), starts[1] + 30)
    before = segment_path(tmp_path, 1).read_bytes()
    first = open_log(tmp_path)
    assert first.epoch != epoch
    second_epoch = first.epoch
    first.close()
    segment_path(tmp_path, 2).unlink()
    segment_path(tmp_path, 1).write_bytes(before)  # simulate a crash before the repair
    second = open_log(tmp_path)
    assert second.epoch not in (epoch, second_epoch)
    second.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"host": "elsewhere"}, "came from host"), ({"agent": "other"}, "was called"), ({"lanes": 3}, "had 2 lanes")],
)
def test_a_folder_that_moved_begins_a_new_epoch(tmp_path: Path, change: dict[str, str], reason: str) -> None:
    """Batches already in the log keep their identity."""
    _, ids, epoch = fill(tmp_path, 2)
    wal = open_log(tmp_path, **change)  # type: ignore[arg-type]
    assert wal.epoch != epoch
    assert reason in wal.new_epoch_because
    assert survivors(wal) == ids
    assert all(id.epoch == epoch and id.agent == AGENT for id in survivors(wal))
    assert set(wal.next_sequences) == {0}
    wal.close()


def test_a_restored_copy_of_the_folder_begins_a_new_epoch(tmp_path: Path) -> None:
    """An old copy does not know the sequences that its original has used since."""
    _, _, epoch = fill(tmp_path / "origin", 2)
    shutil.copytree(tmp_path / "origin", tmp_path / "copy")
    wal = open_log(tmp_path / "copy")
    assert wal.epoch != epoch
    assert "copy" in wal.new_epoch_because
    wal.close()


@pytest.mark.parametrize("content", ["", "{", '{"epoch": "zz"}'])
def test_an_unreadable_epoch_file_begins_a_new_epoch(tmp_path: Path, content: str) -> None:
    _, ids, epoch = fill(tmp_path, 2)
    (tmp_path / "epoch").write_text(content)
    wal = open_log(tmp_path)
    assert wal.epoch != epoch
    assert survivors(wal) == ids
    goes_on(wal, tmp_path)


def test_clean_restarts_keep_the_epoch(tmp_path: Path) -> None:
    epochs = set()
    for number in range(3):
        wal = open_log(tmp_path)
        epochs.add(wal.epoch)
        assert wal.next_sequences == [number, 0]
        wal.append([entry(wal, 0, number)]).result(60)
        wal.close()
    assert len(epochs) == 1


def test_a_second_process_is_refused_with_the_owner(tmp_path: Path) -> None:
    wal = open_log(tmp_path)
    code = (
        "import sys; from pathlib import Path; from pipeline.wal.log import WriteAheadLog\n"
        f"WriteAheadLog(Path(sys.argv[1]), {AGENT!r}, {LANES}, lambda placed: None, host={HOST!r})"
    )
    outcome = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert outcome.returncode != 0
    assert "LogLockedError" in outcome.stderr
    assert str(os.getpid()) in outcome.stderr
    wal.append([entry(wal, 0, 0)]).result(60)
    wal.close()


def test_the_same_process_is_refused_as_well(tmp_path: Path) -> None:
    wal = open_log(tmp_path)
    with pytest.raises(LogLockedError):
        open_log(tmp_path)
    wal.close()
    open_log(tmp_path).close()


def test_quota_refuses_whole_calls_and_resumes(tmp_path: Path) -> None:
    """Beyond the quota nothing of a call is kept; deleted segments make room."""
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded, quota=6000, segment=2000)
    number = 0
    while wal.used_bytes < 5000:
        wal.append([entry(wal, 0, number)]).result(60)
        number += 1
    assert len(recorded.ids) == number
    with pytest.raises(SinkRefusedError, match="quota"):
        wal.append([entry(wal, 0, number)])
    with pytest.raises(SinkRefusedError):
        wal.append([entry(wal, 0, number), entry(wal, 0, number + 1)])
    wal.release([place for _, place in recorded.placed])
    eventually(lambda: wal.used_bytes < 4000, "done segments are deleted")
    wal.append([entry(wal, 0, number)]).result(60)
    wal.close()


def test_segments_are_deleted_oldest_first_and_only_when_done(tmp_path: Path) -> None:
    recorded = RecordingListener()
    wal = open_log(tmp_path, recorded, segment=2500)
    for number in range(12):
        wal.append([entry(wal, 0, number)]).result(60)
    first = [place for _, place in recorded.placed if place.segment == 1]
    rest = [place for _, place in recorded.placed if place.segment != 1]
    wal.release(rest)
    wal.append([entry(wal, 0, 12)]).result(60)
    assert segments_in(tmp_path)[0] == 1, "a later segment holds the acks of this one"
    wal.release(first)
    eventually(lambda: len(segments_in(tmp_path)) == 1, "all but the open segment are deleted")
    wal.close()
    again = open_log(tmp_path)
    assert again.next_sequences == [13, 0], "the header of the open segment holds the used sequences"
    assert not again.new_epoch_because
    again.close()


def test_header_length_matches_the_page() -> None:
    assert header_bytes(4) == 24 + 4 * 8 + 4
