"""A shard process that lost its data on a real ZooKeeper, Kafka and HDFS: it is restored from its last snapshot, the
copy on HDFS or the raw table, and every bucket is that of a shard that never stopped."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from artimon.compute.statistics import STATISTICS
from artimon.model.grid import DEFAULT_LEVELS, Grid
from artimon.model.select import NAME, Matcher, SelectRequest
from artimon.model.vshards import ALL_VSHARDS
from artimon.runtime import file_access as files
from artimon.runtime.health import read_health
from tests.varstore.cluster import NOW, SOURCES, Cluster
from tests.varstore.raw_log import RawLog
from tests.varstore.test_cluster import made
from tests.varstore.worlds import Row, print_of
from tests.waiting import eventually
from varstore.cluster.varstore_client import StoreUnavailable
from varstore.shard_process import SNAPSHOTS_PATH
from varstore.snapshot.snapshot_folders import HdfsFolder, LocalFolder, SnapshotFolder
from varstore.snapshot.snapshots import manifests
from varstore.store.feed_groups import FeedGroup
from varstore.store.snapshot_frames import read_frames

pytestmark = pytest.mark.stack
HOUR, MINUTE = 3_600_000, 60_000
HOURS, POINTS = 60, 5
"""The samples are spread over this many hours, at this many points: each row with data is a file on HDFS."""
BATCHES = 150
NEVER = 3_600.0
OFTEN = 0.3
EVERY_LEVEL = tuple(
    SelectRequest(
        (Matcher(NAME, "prefix", "test."),),
        Grid(-(-NOW // level.step_ms) * level.step_ms + level.step_ms, level.step_ms, level.count),
        STATISTICS,
    )
    for level in DEFAULT_LEVELS
)


@dataclass
class World:
    """One shard, its folder, its copies, and the raw table of its batches."""

    cluster: Cluster
    hdfs: str
    data: Path
    raw: RawLog
    batches: int = 0

    @property
    def local(self) -> LocalFolder:
        return LocalFolder(self.data / "shard-0" / "snapshots")

    @property
    def copies(self) -> HdfsFolder:
        return HdfsFolder(f"{self.hdfs}{SNAPSHOTS_PATH}/0")

    def sample(self, count: int) -> None:
        """Send batches of the last three days, in order of time, some hours late: integers, and halves."""
        for _ in range(count):
            self.batches += 1
            source = self.batches % len(SOURCES)
            age = max(0, POINTS - self.batches * POINTS // BATCHES) * HOURS * HOUR // POINTS
            times = [NOW - age - back for back in (0, 20_000, 3 * MINUTE, 5 * HOUR * (self.batches % 7 == 0))]
            rows: list[Row] = [(print_of(2 * source), at, NOW - 70 * HOUR, self.batches + at % 11) for at in times]
            rows += [(print_of(2 * source + 1), at, NOW - 70 * HOUR, self.batches / 2) for at in times]
            self.cluster.send_rows(source, rows, NOW - age)

    def feed(self, count: int) -> None:
        """Send batches and wait until the shard has applied them."""
        self.cluster.rest()
        self.sample(count)
        self.cluster.check()

    def start(self, **options: object) -> None:
        """Start the shard; snapshots and copies are never made unless the options say otherwise."""
        self.cluster.options |= {"snapshot_s": NEVER, "copy_s": NEVER, "dies_in_refill": 0, **options}
        self.cluster.load()
        self.cluster.restart("0")

    def restart_and_check(self, **options: object) -> None:
        """Start, feed what is missing, and compare with a shard that never stopped."""
        self.start(**options)
        self.cluster.settle("0")
        self.cluster.rest()
        self.cluster.check()

    def problem(self) -> str:
        """Return the problem that the shard's health file reports."""
        health = read_health(self.cluster.folder / "shard-0.json")
        return health.problem if health is not None else ""

    def read_log(self) -> str:
        """Return the log lines since the last call."""
        log = self.cluster.folder / "shard-0.log"
        text = log.read_text()
        log.write_text("")
        return text

    def is_saved(self, folder: SnapshotFolder, lacking: bool = False) -> bool:
        """Return True if the newest snapshot there has everything, or everything but what it says is `lacking`."""
        ends = self.cluster.log.ends()
        manifest = next(manifests(folder), None)
        if manifest is None:
            return False
        try:
            frames = list(read_frames([(manifest.state, lambda: folder.open(manifest.state))]))
        except FileNotFoundError:  # a newer one replaced it
            return False
        groups = [FeedGroup.from_frame(frame) for frame in frames if frame.kind == "group"]
        if any(bool(group.lost) != lacking for group in groups):
            return False
        have = [{key.partition: at for key, at in group.positions.items()} for group in groups]
        return bool(have) and all(one.get(p, 0) >= end for one in have for p, end in ends.items())

    def lose(self, copies: bool = False) -> None:
        """Delete the local snapshots, and optionally the copies."""
        shutil.rmtree(self.local.path)
        for path, _, _ in files.list_files(self.copies.uri) if copies else ():
            files.delete_file(f"{self.copies.uri}/{path}")


@pytest.fixture(scope="module")
def running(zookeeper: str, kafka: str, hdfs: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A shard with some days of data, saved locally and on HDFS; Kafka no longer has its batches."""
    root, data = f"{hdfs}/coming-back", tmp_path_factory.mktemp("data")
    folder = tmp_path_factory.mktemp("coming")
    options = {"hdfs": root, "data": str(data), "snapshot_s": OFTEN, "copy_s": OFTEN, "notice_s": OFTEN}
    with made(zookeeper, kafka, folder, "back", "0", 1, 0, **options) as cluster:
        cluster.asked = EVERY_LEVEL
        raw = RawLog(root, len(cluster.log.records), cluster.topic_id)
        saved_world = World(cluster, root, data, raw)
        saved_world.feed(BATCHES - 30)
        yield saved_world


@pytest.fixture
def saved_world(running: World) -> World:
    """The stopped shard, complete and saved locally and on HDFS; Kafka no longer has its batches."""
    cluster = running.cluster
    if cluster.options["snapshot_s"] != OFTEN:  # another test ran before
        cluster.kill("0")
        running.restart_and_check(snapshot_s=OFTEN, copy_s=OFTEN)
    eventually(lambda: running.is_saved(running.local) and running.is_saved(running.copies), "a snapshot and its copy")
    cluster.trim(cluster.log.ends())
    cluster.kill("0")
    running.read_log()
    return running


@pytest.mark.slow
def test_a_shard_killed_before_its_next_snapshot_rereads_kafka(saved_world: World) -> None:
    """The snapshot is older than the data of the shard; everything newer is read from Kafka again."""
    saved_world.restart_and_check()
    saved_world.feed(20)
    assert not saved_world.is_saved(saved_world.local)
    saved_world.cluster.kill("0")
    saved_world.restart_and_check()


@pytest.mark.slow
def test_a_shard_without_its_disk_is_restored_from_the_copy(saved_world: World) -> None:
    """Kafka has only the batches after the copy."""
    saved_world.restart_and_check()
    saved_world.feed(10)
    saved_world.cluster.kill("0")
    saved_world.read_log()
    saved_world.lose()
    saved_world.restart_and_check()
    assert "snapshot: 256 virtual shards" in saved_world.read_log()


def test_a_shard_without_disk_and_copy_is_restored_from_the_raw_table(saved_world: World) -> None:
    """The table is read at a version, Kafka from there; the first attempt is killed in the middle."""
    ends = saved_world.cluster.log.ends()
    saved_world.raw.store(saved_world.cluster.log.batches, ends)
    saved_world.sample(10)
    saved_world.lose(copies=True)
    saved_world.start(dies_in_refill=3)
    saved_world.cluster.processes["0"].wait(30)
    assert saved_world.cluster.processes["0"].returncode == -signal.SIGKILL
    saved_world.restart_and_check()
    assert "refilled from version" in saved_world.read_log()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_batches_that_kafka_deleted_unread_are_refilled_from_the_raw_table(saved_world: World, killed: bool) -> None:
    """The shard runs; the table has read on, the shard has not. Until the table is past the lost range the answers are
    partial and say so, also after the shard was killed in between."""
    cluster = saved_world.cluster
    saved_world.restart_and_check(snapshot_s=OFTEN, copy_s=OFTEN)
    saved_world.raw.store(cluster.log.batches, cluster.log.ends())
    saved_world.sample(10)
    lost = cluster.log.ends()
    cluster.trim(lost)
    saved_world.sample(5)

    def lacks() -> bool:
        cluster.feed_once()
        try:
            answer = cluster.answer()
        except StoreUnavailable:
            return False
        noted = any("which Kafka deleted before it was read" in note for note in answer.notes)
        return answer.partial and noted and cluster.places()["0"].lacking_vshards == ALL_VSHARDS

    eventually(lacks, "the answer names what it lacks")
    if killed:
        eventually(lambda: saved_world.is_saved(saved_world.local, lacking=True), "a snapshot of its data")
        cluster.kill("0")
        saved_world.start()
        eventually(lacks, "the answer still names it")
        eventually(
            lambda: "cannot be refilled yet: the raw query has read" in saved_world.problem(),
            "the reason in its health",
        )
    eventually(lambda: "which Kafka deleted before it was read" in saved_world.problem(), "health says it")
    saved_world.raw.store(cluster.log.batches, lost)
    cluster.rest()
    cluster.load()
    cluster.settle("0")
    cluster.rest()
    cluster.check()
    assert "refilled from version" in saved_world.read_log()
    assert cluster.places()["0"].lacking_vshards == 0
