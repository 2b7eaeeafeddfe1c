"""Snapshots and their copies: a restored shard holds the saved data, also after failures, crashes and damage."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from tests.spark.local_files import local_files
from tests.varstore.keeping import (
    ALL,
    HOUR,
    MINUTE,
    SOURCES,
    START,
    Log,
    announce_sources,
    catch_up,
    check,
    empty,
    feed,
    masks,
    random_log,
)
from tests.varstore.worlds import print_of
from varstore.shard.shard import Shard
from varstore.snapshot.manifest import Manifest, sequences
from varstore.snapshot.restore import LogSpan, Restore
from varstore.snapshot.snapshot_folders import LocalFolder
from varstore.snapshot.snapshots import KEPT_SNAPSHOTS, Snapshots, SnapshotWriteError
from varstore.store.snapshot_frames import SnapshotFormatError


@pytest.fixture
def log() -> Log:
    """Batches of three sources."""
    return random_log(random.Random(11), 60)


def advance(shard: Shard, log: Log, batches: int) -> None:
    """Feed every group at most this many batches of each partition."""
    for group in shard.groups():
        for partition in log.partitions:
            feed(shard, log, group, partition, batches)


def restarted(folder: Path, **more: object) -> Shard | None:
    """Return a shard restored from that folder; None if it holds nothing usable."""
    shard = empty(0)
    return shard if Snapshots(shard, folder, **more).load() else None  # type: ignore[arg-type]


def test_a_restart_continues_from_the_snapshot(log: Log, tmp_path: Path) -> None:
    """The later batches give the same result as without a restart."""
    shard = empty()
    snapshots = Snapshots(shard, tmp_path)
    for _ in range(6):
        advance(shard, log, 3)
        assert snapshots.take() is not None
    after = restarted(tmp_path)
    assert after is not None
    assert after.groups() == shard.groups()
    assert after.names() == shard.names()
    catch_up(after, log)
    check(after, log, ALL)


def test_announcements_wait_until_a_snapshot_is_loaded(log: Log, tmp_path: Path) -> None:
    """A series announced while a snapshot is loaded must not get a slot that a series of the snapshot had."""
    shard = empty()
    advance(shard, log, 10)
    Snapshots(shard, tmp_path).take()
    after = empty(0)
    blocks = [
        SeriesBlock(source, 9, 1, (SeriesInfo(canonical(f"new.{i}", {"a": "b"}), ValueType.DOUBLE, Kind.GAUGE),))
        for i, source in enumerate(SOURCES)
    ]
    announcing = threading.Thread(target=lambda: [after.announce(block) for block in blocks])

    def meanwhile(_groups: object) -> bool:
        announcing.start()
        announcing.join(0.2)
        return True

    assert Snapshots(after, tmp_path).load(meanwhile)
    announcing.join()
    assert {f"new.{i}" for i in range(len(SOURCES))} <= set(after.names())
    catch_up(after, log)
    check(after, log, ALL)


def test_snapshots_of_a_restarted_shard_stay_incremental(log: Log, tmp_path: Path) -> None:
    """Unchanged rows are not written again, and later restarts find them."""
    shard = empty()
    advance(shard, log, 10)
    Snapshots(shard, tmp_path).take()
    for _ in range(5):
        after = empty(0)
        snapshots = Snapshots(after, tmp_path)
        assert snapshots.load()
        again = snapshots.take()
        assert again is not None
        assert again.rows == 0
        advance(after, log, 2)
        taken = snapshots.take()
        assert taken is not None
    last = restarted(tmp_path)
    assert last is not None
    catch_up(last, log)
    check(last, log, ALL)


def test_only_changed_rows_are_written(tmp_path: Path) -> None:
    """Rows of old buckets and announced series are referenced, not copied."""
    log = Log()
    for minute in range(40):
        append = START + minute * MINUTE
        log.add("s0", append, [(print_of(0), append - 5, START, minute)])
    shard = empty()
    snapshots = Snapshots(shard, tmp_path)
    advance(shard, log, 30)
    first = snapshots.take()
    advance(shard, log, 1)
    second = snapshots.take()
    assert first is not None
    assert second is not None
    assert first.rows >= 30
    assert second.rows <= 8
    assert len(list(tmp_path.glob("series-*"))) == 1
    announce_sources(shard)  # nothing new
    from artimon.model.batch import SeriesBlock, SeriesInfo
    from artimon.model.values import Kind, ValueType

    shard.announce(SeriesBlock("s0", 7, 1, (SeriesInfo("test.v99{}", ValueType.INTEGER, Kind.GAUGE),)))
    snapshots.take()
    assert len(list(tmp_path.glob("series-*"))) == 2
    after = restarted(tmp_path)
    assert after is not None
    assert "test.v99" in after.names()


def test_old_files_are_deleted(log: Log, tmp_path: Path) -> None:
    """Two manifests stay, with the files that they name."""
    shard = empty()
    snapshots = Snapshots(shard, tmp_path)
    for _ in range(8):
        advance(shard, log, 2)
        snapshots.take()
    names = {file.name for file in tmp_path.iterdir()}
    newest = sequences(names)
    assert len(newest) == KEPT_SNAPSHOTS
    named = [Manifest.from_bytes((tmp_path / f"manifest-{s:015d}.json").read_bytes(), "here") for s in newest]
    assert names == {m.name for m in named} | set().union(*(m.file_names for m in named))
    assert snapshots.figures()["snapshot_disk_bytes"] == sum(file.stat().st_size for file in tmp_path.iterdir())


def test_a_dropped_virtual_shard_is_not_restored(log: Log, tmp_path: Path) -> None:
    """Other series use its slots by then."""
    shard = empty()
    snapshots = Snapshots(shard, tmp_path)
    advance(shard, log, 10)
    snapshots.take()
    shard.drop(masks(["s1"]))
    catch_up(shard, log)
    snapshots.take()
    after = restarted(tmp_path)
    assert after is not None
    assert after.vshards == masks(["s0", "s2"])
    check(after, log)


def test_incomplete_virtual_shards_are_not_saved(log: Log, tmp_path: Path) -> None:
    """An interrupted refill begins again; once it is complete all its rows are written."""
    shard = empty(masks(["s0"]))
    snapshots = Snapshots(shard, tmp_path)
    shard.adopt(masks(["s1", "s2"]), ready=False)
    announce_sources(shard)
    catch_up(shard, log)
    snapshots.take()
    after = restarted(tmp_path)
    assert after is not None
    assert after.vshards == masks(["s0"])
    shard.ownership.set_ready(masks(["s1"]))
    snapshots.take()
    whole = restarted(tmp_path)
    assert whole is not None
    check(whole, log, ALL)


def test_an_empty_shard_takes_no_snapshot(tmp_path: Path) -> None:
    assert Snapshots(empty(0), tmp_path).take() is None
    assert restarted(tmp_path) is None


class Killed(BaseException):
    """Stands for the end of the process."""


class BreakingFolder(LocalFolder):
    """Folder that fails at the n-th operation, before or in the middle of it."""

    def __init__(self, path: Path, at: int, error: BaseException) -> None:
        super().__init__(path)
        self.left, self._error = at, error

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self._error

    def create(self, name: str, parts: Iterable[bytes]) -> int:
        self._step()
        whole = list(parts)
        if self.left == 1:  # half a file
            self.left = 0
            super().create(name, [whole[0][: len(whole[0]) // 2]])
            raise self._error
        return super().create(name, whole)

    def publish(self, name: str, data: bytes) -> None:
        self._step()
        super().publish(name, data)

    def delete(self, name: str) -> None:
        self._step()
        super().delete(name)

    def open(self, name: str) -> BinaryIO:
        return super().open(name)


@pytest.mark.parametrize("at", range(1, 60, 3))
@pytest.mark.parametrize("error", [Killed(), OSError(errno.EIO, "broken disk")], ids=["killed", "broken"])
def test_an_interrupted_snapshot_leaves_a_complete_one(log: Log, tmp_path: Path, at: int, error: BaseException) -> None:
    """The shard is restored from the previous snapshot or from this one."""
    shard = empty()
    advance(shard, log, 5)
    Snapshots(shard, tmp_path).take()
    advance(shard, log, 5)
    breaking = Snapshots(shard, BreakingFolder(tmp_path, at, error))
    try:
        breaking.take()
    except (Killed, SnapshotWriteError):
        pass
    after = restarted(tmp_path)
    assert after is not None
    catch_up(after, log)
    check(after, log, ALL)


def test_the_snapshot_after_a_failure_is_complete(log: Log, tmp_path: Path) -> None:
    """Announcements made before the failure are included."""
    shard = empty()
    folder = BreakingFolder(tmp_path, 0, OSError(errno.ENOSPC, "no space left"))
    snapshots = Snapshots(shard, folder)
    advance(shard, log, 4)
    snapshots.take()
    for at in (1, 3, 6):
        advance(shard, log, 2)
        folder.left = at
        with pytest.raises(SnapshotWriteError, match="no space"):
            snapshots.take()
        assert "no space" in snapshots.problems[0]
        assert shard.feed is not None
    assert snapshots.figures()["snapshot_failures"] == 3
    snapshots.take()
    assert snapshots.problems == []
    after = restarted(tmp_path)
    assert after is not None
    assert after.groups() == shard.groups()
    catch_up(after, log)
    check(after, log, ALL)


def test_the_quota_is_kept(log: Log, tmp_path: Path) -> None:
    """A snapshot beyond the quota is not written, and the error is reported."""
    shard = empty()
    catch_up(shard, log)
    snapshots = Snapshots(shard, tmp_path, quota_bytes=20_000)
    with pytest.raises(SnapshotWriteError, match="quota"):
        snapshots.take()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 20_000
    assert restarted(tmp_path) is None


def damage(file: Path, how: str) -> None:
    """Damage a file, like a bad disk."""
    data = bytearray(file.read_bytes())
    match how:
        case "flipped":
            data[len(data) // 2] ^= 4
        case "cut":
            del data[-1]
        case "gone":
            file.unlink()
            return
        case _:
            data[:] = b""
    file.write_bytes(data)


@pytest.mark.parametrize("how", ["flipped", "cut", "gone", "emptied"])
@pytest.mark.parametrize("kind", ["manifest", "state", "row"])
def test_a_damaged_snapshot_falls_back_to_the_one_before(log: Log, tmp_path: Path, how: str, kind: str) -> None:
    """Nothing of the damaged one remains."""
    shard = empty()
    snapshots = Snapshots(shard, tmp_path)
    advance(shard, log, 8)
    snapshots.take()
    before = {file.name for file in tmp_path.iterdir()}
    positions = shard.groups()
    advance(shard, log, 4)
    snapshots.take()
    victims = sorted(file for file in tmp_path.iterdir() if file.name not in before and file.name.startswith(kind))
    damage(victims[-1], how)
    after = restarted(tmp_path)
    assert after is not None
    assert after.groups() == positions
    catch_up(after, log)
    check(after, log, ALL)


def test_a_snapshot_older_than_the_log_is_not_loaded(log: Log, tmp_path: Path) -> None:
    """Kafka no longer has the batches since."""
    shard = empty()
    advance(shard, log, 8)
    Snapshots(shard, tmp_path).take()
    after = empty(0)
    assert not Snapshots(after, tmp_path).load(lambda groups: not groups)
    assert (after.vshards, after._store.slots.live) == (0, 0)


def test_feeding_continues_while_a_snapshot_is_taken(log: Log, tmp_path: Path) -> None:
    """The snapshot is consistent all the same."""
    shard = empty()
    snapshots = Snapshots(shard, tmp_path)
    done = threading.Event()

    def take() -> None:
        while not done.is_set():
            snapshots.take()

    thread = threading.Thread(target=take)
    thread.start()
    for _ in range(30):
        advance(shard, log, 1)
    done.set()
    thread.join(20)
    after = restarted(tmp_path)
    assert after is not None
    catch_up(after, log)
    check(after, log, ALL)
    catch_up(shard, log)
    check(shard, log, ALL)


def test_each_part_of_a_snapshot_is_made_in_a_turn_of_its_own(log: Log, tmp_path: Path) -> None:
    """Nothing is fed while a part is copied and encoded, and a range may be fed between any two parts, which go to the
    disk outside of a turn."""
    shard, turns = empty(), list[str]()
    advance(shard, log, 3)
    feeding = shard.ownership._locks.feeding

    class Turns:
        def __enter__(self) -> None:
            feeding.__enter__()
            turns.append("begin")

        def __exit__(self, *error: Any) -> None:
            turns.append("end")
            feeding.__exit__(*error)

    class Folder(LocalFolder):
        def create(self, name: str, parts: Iterable[bytes]) -> int:
            def noted() -> Iterator[bytes]:
                for part in parts:
                    assert turns[-1] != "begin"
                    turns.append("write")
                    yield part

            return super().create(name, noted())

    shard.ownership._locks.feeding = Turns()  # type: ignore[assignment]
    assert Snapshots(shard, Folder(tmp_path)).take() is not None
    held = [turn for turn in turns if turn != "write"]
    assert held == ["begin", "end"] * (len(held) // 2)
    assert len(held) // 2 > turns.count("write") > 5


def test_the_snapshot_thread_takes_snapshots(log: Log, tmp_path: Path) -> None:
    """A snapshot is taken every interval, and a last one at the end."""
    shard = empty()
    snapshots = Snapshots(shard, tmp_path, interval_s=0.01)
    advance(shard, log, 2)
    snapshots.start()
    waited = threading.Event()
    for _ in range(200):
        if sequences(file.name for file in tmp_path.iterdir()):
            break
        waited.wait(0.05)
    catch_up(shard, log)
    snapshots.stop(last=True)
    after = restarted(tmp_path)
    assert after is not None
    assert after.groups() == shard.groups()


def test_manifests_are_checked() -> None:
    """Every defect is a SnapshotFormatError."""
    good = Manifest(7, "a", 5, 1, "state", ("series",), {(60_000, 3): "row"}, {"state": 1, "series": 2, "row": 3})
    assert Manifest.from_bytes(good.to_bytes(), "here") == good
    assert good.missing_files({"state": 1, "series": 2, "row": 4}) == ["row"]
    for bad in (b"", good.to_bytes()[:-5], good.to_bytes().replace(b'"a"', b'"b"')):
        with pytest.raises(SnapshotFormatError):
            Manifest.from_bytes(bad, "here")


def test_copies_restore_a_shard_on_another_machine(log: Log, tmp_path: Path) -> None:
    """The shard restores all of its own copy, or the wanted virtual shards of several shards."""
    with local_files(SYSTEM_CLOCK):
        root = f"file://{tmp_path}/hdfs"
        for id_, held in (("a", ["s0"]), ("b", ["s1", "s2"])):
            shard = Shard(id_, capacity=1_000, owned=frozenset())
            shard.adopt(masks(held))
            announce_sources(shard)
            snapshots = Snapshots(shard, tmp_path / id_, root)
            for _ in range(3):
                advance(shard, log, 4)
                snapshots.take()
                assert snapshots._copier is not None
                snapshots._copier.copy()
            assert snapshots.problems == []
        after = Shard("a", capacity=1_000, owned=frozenset())
        assert Snapshots(after, tmp_path / "elsewhere", root).load()
        assert after.vshards == masks(["s0"])
        other = Shard("c", capacity=1_000, owned=frozenset())
        Restore(other, lambda: memoryview(b""), lambda: None, lambda _: True, None, root).restore(masks(["s0", "s2"]))  # type: ignore[arg-type,return-value]
        assert other.vshards == masks(["s0", "s2"])
        for shard in (after, other):
            announce_sources(shard)
            catch_up(shard, log)
            check(shard, log)


def test_an_unreachable_hdfs_is_reported_and_stops_nothing(log: Log, tmp_path: Path) -> None:
    """Local snapshots continue."""
    shard = empty()
    snapshots = Snapshots(shard, tmp_path, "hdfs://127.0.0.1:1/copies")
    catch_up(shard, log)
    snapshots.take()
    assert snapshots._copier is not None
    snapshots._copier.copy()
    assert "not reachable" in snapshots.problems[0]
    assert restarted(tmp_path) is not None


def test_a_stopped_copy_does_not_count_as_made(log: Log, tmp_path: Path) -> None:
    with local_files(SYSTEM_CLOCK):
        snapshots = Snapshots(empty(), tmp_path / "a", f"file://{tmp_path}/hdfs")
        snapshots.take()
        mirror = snapshots._copier
        assert mirror is not None
        mirror.stop()
        mirror.copy()
        assert mirror.figures()["snapshot_copy_age_ms"] == -1, "no copy was made"


def test_a_log_counts_as_short_only_if_complete_and_small() -> None:
    """Otherwise the table is faster."""
    assert LogSpan("t", {0: (0, 10), 1: (0, 5)}).is_short
    assert not LogSpan("t", {0: (0, 10), 1: (1, 5)}).is_short
    assert not LogSpan("t", {0: (0, 10**9)}).is_short
    assert HOUR
