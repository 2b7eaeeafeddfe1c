"""A shard process that lost what it had, on a real ZooKeeper, Kafka and HDFS: from its last snapshot, from the copy on
HDFS, from the raw table; every bucket is that of a shard that was never gone."""

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
from artimon.runtime import files
from artimon.runtime.health import read_health
from tests.varstore.cluster import NOW, SOURCES, Cluster
from tests.varstore.raw_log import RawLog
from tests.varstore.test_cluster import made
from tests.varstore.worlds import Row, print_of
from tests.waiting import eventually
from varstore.cluster.client import StoreUnavailable
from varstore.server import SNAPSHOTS_PATH
from varstore.snapshot.folders import HdfsFolder, LocalFolder, SnapshotFolder
from varstore.snapshot.snapshots import manifests
from varstore.store.frames import read_frames
from varstore.store.groups import FeedGroup

pytestmark = pytest.mark.stack
HOUR, MINUTE = 3_600_000, 60_000
HOURS, POINTS = 60, 5
"""The samples are of so many hours, and of so many of them: each row that holds something is a file on HDFS."""
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
    """One shard, its folder, its copies, and the raw table of what it is fed."""

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
        """Batches of the last three days, in order of time, some hours late: integers, and halves."""
        for _ in range(count):
            self.batches += 1
            source = self.batches % len(SOURCES)
            age = max(0, POINTS - self.batches * POINTS // BATCHES) * HOURS * HOUR // POINTS
            times = [NOW - age - back for back in (0, 20_000, 3 * MINUTE, 5 * HOUR * (self.batches % 7 == 0))]
            rows: list[Row] = [(print_of(2 * source), at, NOW - 70 * HOUR, self.batches + at % 11) for at in times]
            rows += [(print_of(2 * source + 1), at, NOW - 70 * HOUR, self.batches / 2) for at in times]
            self.cluster.send_rows(source, rows, NOW - age)

    def feed(self, count: int) -> None:
        """Batches that the shard has applied when this returns."""
        self.cluster.rest()
        self.sample(count)
        self.cluster.check()

    def start(self, **options: object) -> None:
        """With its snapshots and copies never or often."""
        self.cluster.options |= {"snapshot_s": NEVER, "copy_s": NEVER, "dies_in_refill": 0, **options}
        self.cluster.load()
        self.cluster.restart("0")

    def come_back(self, **options: object) -> None:
        """Start, be fed what is missing, and be as if never gone."""
        self.start(**options)
        self.cluster.settle("0")
        self.cluster.rest()
        self.cluster.check()

    def problem(self) -> str:
        """Of which the shard's health speaks."""
        health = read_health(self.cluster.folder / "shard-0.json")
        return health.problem if health is not None else ""

    def said(self) -> str:
        """What the shard logged since it was last asked."""
        log = self.cluster.folder / "shard-0.log"
        text = log.read_text()
        log.write_text("")
        return text

    def is_saved(self, folder: SnapshotFolder, lacking: bool = False) -> bool:
        """Whether the newest snapshot there has all that there is; or all but what it says is `lacking`."""
        ends = self.cluster.log.ends()
        manifest = next(manifests(folder), None)
        if manifest is None:
            return False
        try:
            frames = list(read_frames([(manifest.state, lambda: folder.open(manifest.state))]))
        except FileNotFoundError:  # there is a newer one by now
            return False
        groups = [FeedGroup.of_frame(frame) for frame in frames if frame.kind == "group"]
        if any(bool(group.lost) != lacking for group in groups):
            return False
        have = [{key.partition: at for key, at in group.positions.items()} for group in groups]
        return bool(have) and all(one.get(p, 0) >= end for one in have for p, end in ends.items())

    def lose(self, copies: bool = False) -> None:
        """The disk, and the copies."""
        shutil.rmtree(self.local.path)
        for path, _, _ in files.list_files(self.copies.uri) if copies else ():
            files.delete_file(f"{self.copies.uri}/{path}")


@pytest.fixture(scope="module")
def running(zookeeper: str, kafka: str, hdfs: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A shard with some days in it, saved at home and on HDFS; Kafka no longer has what it was fed."""
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
    """It is whole; all is saved at home and on HDFS, and is in Kafka no longer."""
    cluster = running.cluster
    if cluster.options["snapshot_s"] != OFTEN:  # another test was here
        cluster.kill("0")
        running.come_back(snapshot_s=OFTEN, copy_s=OFTEN)
    eventually(lambda: running.is_saved(running.local) and running.is_saved(running.copies), "a snapshot and its copy")
    cluster.trim(cluster.log.ends())
    cluster.kill("0")
    running.said()
    return running


@pytest.mark.slow
def test_killed_between_what_was_applied_and_the_next_snapshot(saved_world: World) -> None:
    """The snapshot is older than what the shard had; all that came since comes from Kafka once more."""
    saved_world.come_back()
    saved_world.feed(20)
    assert not saved_world.is_saved(saved_world.local)
    saved_world.cluster.kill("0")
    saved_world.come_back()


@pytest.mark.slow
def test_without_its_disk_it_comes_back_from_the_copy(saved_world: World) -> None:
    """Kafka has only what came since the copy."""
    saved_world.come_back()
    saved_world.feed(10)
    saved_world.cluster.kill("0")
    saved_world.said()
    saved_world.lose()
    saved_world.come_back()
    assert "snapshot: 256 virtual shards" in saved_world.said()


def test_without_both_it_comes_back_from_the_table(saved_world: World) -> None:
    """The table at a version, Kafka from there; the first time it is killed in the middle of it."""
    ends = saved_world.cluster.log.ends()
    saved_world.raw.store(saved_world.cluster.log.batches, ends)
    saved_world.sample(10)
    saved_world.lose(copies=True)
    saved_world.start(dies_in_refill=3)
    saved_world.cluster.processes["0"].wait(30)
    assert saved_world.cluster.processes["0"].returncode == -signal.SIGKILL
    saved_world.come_back()
    assert "refilled from version" in saved_world.said()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_what_kafka_deleted_unread_comes_from_the_table(saved_world: World, killed: bool) -> None:
    """The shard lives; the table has read on, the shard has not. Until the table is past what is lost its answers are
    partial, and say so; also after it was killed in between."""
    cluster = saved_world.cluster
    saved_world.come_back(snapshot_s=OFTEN, copy_s=OFTEN)
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
        told = any("which Kafka deleted before it was read" in note for note in answer.notes)
        return answer.partial and told and cluster.places()["0"].lacking == ALL_VSHARDS

    eventually(lacks, "it says what it lacks")
    if killed:
        eventually(lambda: saved_world.is_saved(saved_world.local, lacking=True), "a snapshot of what it has")
        cluster.kill("0")
        saved_world.start()
        eventually(lacks, "it still does")
        eventually(
            lambda: "cannot be refilled yet: the raw query has read" in saved_world.problem(), "why it still does"
        )
    eventually(lambda: "which Kafka deleted before it was read" in saved_world.problem(), "health says it")
    saved_world.raw.store(cluster.log.batches, lost)
    cluster.rest()
    cluster.load()
    cluster.settle("0")
    cluster.rest()
    cluster.check()
    assert "refilled from version" in saved_world.said()
    assert cluster.places()["0"].lacking == 0
