"""Channel over the log after a crash, a full disk, a damaged disk and a restart."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from artimon.model.batch import BatchId
from artimon.model.event_codec import encode_events
from pipeline.flows.accepted_ids import MAX_SILENT_MS, AcceptedIds
from pipeline.flows.channels.branch_ledger import BranchPolicy
from pipeline.flows.channels.file_channel import FileChannel, FileOptions
from pipeline.flows.event import EventBatch
from pipeline.flows.spi import ChannelFailed, ChannelFull, Take
from pipeline.wal.file_system import FileSystem
from pipeline.wal.recovery import segment_path, segments_in
from pipeline.wal.state_records import InvalidPayloadError, decode_cursor, encode_cursor
from tests.crash_disk import CrashDisk, allow, refuse
from tests.pipeline.flows.parts import event, event_batch, numbers_of
from tests.pipeline.helpers import FastFiles
from tests.seeds import fixed_and_drawn
from tests.waiting import eventually

BRANCHES = {"a": BranchPolicy(), "b": BranchPolicy()}
FOLDER = Path("/data/log")
"""Of channels on a CrashDisk."""


def opened(
    folder: Path,
    files: FileSystem | None = None,
    branches: dict[str, BranchPolicy] | None = None,
    segment: int = 1 << 20,
    cache: int = 0,
) -> FileChannel:
    options = FileOptions(quota_bytes=1 << 26, segment_bytes=segment, cache_bytes=cache)
    channel = FileChannel(options, folder, "a", "f", branches, files=files or FastFiles())
    channel.start()
    return channel


def rest(channel: FileChannel) -> list[EventBatch]:
    """All waiting event batches, committed."""
    found: list[EventBatch] = []
    while channel.waiting:
        with channel.take(3, 5.0) as take:
            found += take.event_batches
    return found


def foreign(sequence: int, size: int = 0) -> EventBatch:
    id = BatchId("elsewhere", 77, 0, sequence)
    return EventBatch((), id, encode_events(id, "s", 1, [event(sequence, size)]).data)


class NoDescriptors(FastFiles):
    """File opens fail while `on`."""

    on = False

    def open(self, path: Path) -> int:
        if self.on:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open(path)


def test_event_batches_are_kept_when_file_descriptors_run_out(tmp_path: Path) -> None:
    channel = opened(tmp_path / "log")
    channel.put([event_batch(1)], 30.0)
    channel.stop(30.0)
    files = NoDescriptors()
    channel = opened(tmp_path / "log", files)
    files.on = True
    with pytest.raises(ChannelFailed, match="Too many open files"):
        channel.take(1, 30.0)
    files.on = False
    assert numbers_of(rest(channel)) == [1]
    assert channel.damaged == 0
    channel.stop(30.0)


@pytest.mark.parametrize("seed", fixed_and_drawn(range(4), "file channel", 4))
def test_scenario_26_replay_is_exact_after_a_power_failure_at_any_moment(seed: int) -> None:
    """With small segments the file of identities is written during puts and takes. An event batch of a completed put is
    taken again unless it was committed, in order and under the same identity; repeats are recognised."""
    rng = random.Random(seed)
    files = CrashDisk()
    channel = opened(FOLDER, files, segment=8192)
    put, committed = 0, set[int]()
    ids: dict[int, BatchId | None] = {}
    open_takes: list[Take] = []
    for _ in range(rng.randrange(20, 120)):
        match rng.randrange(4):
            case 0 | 1:
                channel.put([EventBatch((event(put, rng.randrange(2000)),))], 30.0)
                put += 1
            case 2:
                take = channel.take(rng.randrange(1, 5), 0.0)
                ids.update(zip(numbers_of(take.event_batches), [p.id for p in take.event_batches], strict=True))
                open_takes.append(take)
            case _ if open_takes:
                take = open_takes.pop(rng.randrange(len(open_takes)))
                if rng.random() < 0.7:
                    take.commit()
                    committed.update(numbers_of(take.event_batches))
                else:
                    take.rollback()
    left = files.survivor(rng)
    channel.stop(30.0)
    after = opened(FOLDER, left)
    again = rest(after)
    numbers = numbers_of(again)
    assert numbers == sorted(set(numbers))
    assert set(numbers) | committed == set(range(put))
    assert all(ids.get(n, p.id) == p.id for n, p in zip(numbers, again, strict=True))
    after.stop(30.0)


def test_an_open_take_is_repeated_after_a_restart(tmp_path: Path) -> None:
    channel = opened(tmp_path)
    channel.put([event_batch(n) for n in range(5)], 30.0)
    channel.take(2, 5.0).commit()
    channel.take(2, 5.0)
    channel.stop(30.0)
    channel = opened(tmp_path)
    assert numbers_of(rest(channel)) == [2, 3, 4]
    channel.stop(30.0)


def test_a_commit_after_stop_is_an_error(tmp_path: Path) -> None:
    channel = opened(tmp_path)
    channel.put([event_batch(1)], 30.0)
    take = channel.take(1, 5.0)
    channel.stop(30.0)
    with pytest.raises(ChannelFailed):
        take.commit()


def test_cursors_of_branches_survive_a_restart(tmp_path: Path) -> None:
    channel = opened(tmp_path, branches=BRANCHES)
    channel.put([event_batch(n) for n in range(5)], 30.0)
    channel.reader("a").take(5, 5.0).commit()
    channel.reader("b").take(2, 5.0).commit()
    channel.stop(30.0)
    channel = opened(tmp_path, branches={**BRANCHES, "new": BranchPolicy()})
    assert not channel.reader("a").take(5, 0.0)
    assert numbers_of(channel.reader("b").take(5, 5.0).event_batches) == [2, 3, 4]
    assert numbers_of(channel.reader("new").take(9, 5.0).event_batches) == [2, 3, 4]  # what is still there
    channel.stop(30.0)


def test_scenario_30_a_folder_has_one_owner(tmp_path: Path) -> None:
    channel = opened(tmp_path)
    with pytest.raises(ChannelFailed, match="in use"):
        opened(tmp_path)
    channel.stop(30.0)


def test_scenario_32_order_at_the_spill_boundary_survives_a_restart(tmp_path: Path) -> None:
    channel = opened(tmp_path, cache=5_000)
    for n in range(20):
        channel.put([EventBatch((event(n, 1000),))], 30.0)
    assert 0 < channel.figures()["cache_bytes"] <= 5_000
    channel.take(3, 5.0).commit()
    channel.take(3, 5.0).rollback()
    assert numbers_of(channel.take(2, 5.0).event_batches) == [3, 4]
    channel.stop(30.0)
    channel = opened(tmp_path, cache=5_000)
    assert numbers_of(rest(channel)) == list(range(3, 20))
    channel.stop(30.0)


def test_scenario_28_a_damaged_record_is_counted_and_the_rest_is_taken(tmp_path: Path) -> None:
    channel = opened(tmp_path)
    channel.put([event_batch(n) for n in range(4)], 30.0)
    (segment,) = segments_in(tmp_path)
    with segment_path(tmp_path, segment).open("r+b") as file:
        file.seek(-40, 2)
        byte = file.read(1)
        file.seek(-40, 2)
        file.write(bytes([byte[0] ^ 1]))
    assert numbers_of(rest(channel)) == [0, 1, 2]
    assert channel.figures()["damaged"] == 1
    channel.stop(30.0)


def test_scenario_29_a_full_disk_refuses_and_loses_nothing() -> None:
    files = CrashDisk()
    channel = opened(FOLDER, files)
    channel.put([event_batch(1)], 30.0)
    files.full = True
    with pytest.raises(ChannelFull, match="No space"):
        channel.put([event_batch(2)], 30.0)
    files.full = False
    channel.put([event_batch(3)], 30.0)
    assert numbers_of(rest(channel)) == [1, 3]
    channel.stop(30.0)


def test_a_failed_fsync_is_never_retried_as_good() -> None:
    files = CrashDisk()
    channel = opened(FOLDER, files)
    channel.put([event_batch(1)], 30.0)
    files.before = refuse("fsync")
    with pytest.raises(ChannelFailed):
        channel.put([event_batch(2)], 30.0)
    files.before = allow
    with pytest.raises(ChannelFailed):
        channel.put([event_batch(3)], 30.0)
    assert channel.figures()["problems"]
    channel.stop(30.0)
    channel = opened(FOLDER, files)
    assert numbers_of(rest(channel)) in ([1], [1, 2])  # the outcome of 2 is unknown
    channel.stop(30.0)


def test_scenario_33_old_identities_are_known_after_their_segment_is_deleted(tmp_path: Path) -> None:
    channel = opened(tmp_path, segment=8192)
    for n in range(20):
        channel.put([foreign(n, 1500)], 30.0)
        channel.take(1, 5.0).commit()
    eventually(lambda: segments_in(tmp_path)[0] > 1, "the first segment is deleted")
    channel.stop(30.0)
    channel = opened(tmp_path)
    channel.put([foreign(n, 1500) for n in range(21)], 30.0)
    assert numbers_of(rest(channel)) == [20]
    assert channel.repeats == 20
    channel.stop(30.0)


@pytest.mark.parametrize("seed", fixed_and_drawn(range(2), "identities of a file channel", 2))
def test_identities_survive_a_power_failure(seed: int) -> None:
    """The file of identities is durable before the segments with these identities are deleted."""
    rng, files = random.Random(seed), CrashDisk()
    channel = opened(FOLDER, files, segment=8192)
    count = rng.randrange(20, 60)
    for n in range(count):
        channel.put([foreign(n, rng.randrange(2000))], 30.0)
        if rng.random() < 0.9:
            channel.take(1, 5.0).commit()
    if seed == 0:
        eventually(lambda: segments_in(FOLDER, files)[0] > 1, "the first segment is deleted")
    left = files.survivor(rng)
    channel.stop(30.0)
    after = opened(FOLDER, left)
    after.put([foreign(n) for n in range(count)], 30.0)
    assert after.repeats == count
    after.stop(30.0)


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "old"])
def test_scenario_27_the_file_of_identities_is_rebuilt_from_the_log(tmp_path: Path, damage: str) -> None:
    """Repeats of batches in the log are recognised in any state of the file."""
    path = tmp_path / "seen"
    channel = opened(tmp_path)
    channel.put([foreign(1)], 30.0)
    channel._save_seen()
    old = path.read_bytes()
    channel.put([foreign(2), foreign(3)], 30.0)
    channel.take(1, 5.0).commit()
    channel._save_seen()
    channel.stop(30.0)
    whole = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "old":
            path.write_bytes(old)
        case "flipped":
            path.write_bytes(whole.replace(b"77", b"78", 1).replace(b"[[1", b"[[9"))
        case _:
            path.write_bytes(whole[: len(whole) // 2 if damage == "cut" else 0])
    channel = opened(tmp_path)
    channel.put([foreign(1), foreign(2), foreign(3), foreign(4)], 30.0)
    assert numbers_of(rest(channel)) == [2, 3, 4]
    broken = damage in ("empty", "cut", "flipped")
    assert bool(channel.figures()["problems"]) == broken
    assert (tmp_path / "seen.damaged").exists() == broken
    channel.stop(30.0)


def test_announcements_have_no_identity_and_are_never_repeats(tmp_path: Path) -> None:
    from tests.model.batches import golden_series

    data = golden_series().data
    channel = opened(tmp_path)
    id = golden_series().header.id
    channel.put([EventBatch((), id, data), EventBatch((), id, data)], 30.0)
    channel.take(1, 5.0).commit()
    channel.stop(30.0)
    channel = opened(tmp_path)
    with channel.take(5, 5.0) as take:
        assert [p.data for p in take.event_batches] == [data]
    assert channel.waiting == 0
    channel.stop(30.0)


def test_identities_of_silent_lanes_are_forgotten() -> None:
    seen = AcceptedIds()
    for n in range(5):
        seen.add(BatchId("agent", n, 0, 1), n)
    seen.forget_silent(MAX_SILENT_MS + 2, most=10)
    assert [seen.has(BatchId("agent", n, 0, 1)) for n in range(5)] == [False, False, True, True, True]
    seen.forget_silent(10, most=1)
    assert [seen.has(BatchId("agent", n, 0, 1)) for n in range(5)] == [False, False, False, False, True]
    assert AcceptedIds.decode(seen.encode()) == seen


def test_a_cursor_has_the_golden_bytes() -> None:
    golden = bytes.fromhex("0400") + b"hdfs" + bytes.fromhex("0500000000000000" + "bc02000000000000")
    assert encode_cursor("hdfs", 5, 700) == golden
    assert decode_cursor(golden) == ("hdfs", (5, 700))
    with pytest.raises(InvalidPayloadError):
        decode_cursor(golden[:-1])


def test_fsyncs_are_counted_and_shared(tmp_path: Path) -> None:
    """Fault 28: one fsync per put, none for takes and commits."""
    channel = opened(tmp_path)
    before = channel.figures()["fsyncs"]
    channel.put([event_batch(n) for n in range(50)], 30.0)
    rest(channel)
    assert channel.figures()["fsyncs"] == before + 1
    channel.stop(30.0)
