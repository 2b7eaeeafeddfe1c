"""Offsets that Kafka deleted before a shard had read them: the shard records and reports them, and is refilled once the
raw table has them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.feed_codec import FeedAnswer, FeedRange, concat_samples
from artimon.model.vshards import ALL_VSHARDS, from_hex
from artimon.rawtable.schema import TableError
from artimon.rawtable.table_state import END_OF_LOG, RawState, TopicState
from tests.spark.local_files import local_files
from tests.varstore.keeping import (
    ALL,
    HOUR,
    START,
    Log,
    announce_sources,
    catch_up,
    check,
    empty,
    feed,
    masks,
    position,
    random_log,
)
from tests.varstore.raw_log import RawLog
from tests.varstore.test_refill import legal
from tests.varstore.worlds import TOPIC, print_of
from varstore.cluster.cluster_directory import ClusterState, ShardAddress
from varstore.cluster.gap_repair import REPAIR_DELAY_S, TABLE_CHECK_S, GapRepair
from varstore.cluster.membership import Membership
from varstore.cluster.rebalance import Rebalancer
from varstore.shard.shard import Shard
from varstore.snapshot.raw_head import RawHead
from varstore.snapshot.restore import LogSpan, Restore, can_continue, table_has
from varstore.snapshot.snapshots import Snapshots
from varstore.store.feed_groups import LostRange, Partition

P0, P1 = Partition(TOPIC, 0), Partition(TOPIC, 1)


def deleted(shard: Shard, partition: int, until: int) -> list[FeedAnswer]:
    """Feed the lost range to every group below `until`, as the buckets job does."""
    below = [group for group in shard.groups() if position(group, partition) < until]
    return [
        shard.feed(
            FeedRange(
                TOPIC, partition, position(g, partition), until, (), concat_samples([]), from_hex(str(g["vshards"]))
            )
        )
        for g in below
    ]


@pytest.fixture
def log() -> Log:
    return legal(random_log(random.Random(5), 80))


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[str]:
    """A local folder in place of HDFS."""
    with local_files(SYSTEM_CLOCK):
        yield f"file://{tmp_path}/hdfs"


# records of lost ranges


def test_a_lost_range_is_recorded_by_the_feed_that_skips_it(log: Log) -> None:
    shard = empty()
    feed(shard, log, shard.groups()[0], 0, 5)
    assert [answer.next_offset for answer in deleted(shard, 0, 8)] == [8]
    assert shard.lost() == [(ALL, {P0: LostRange(5, 8)})]
    again = FeedRange(TOPIC, 0, 5, 8, (), concat_samples([]), ALL)
    assert shard.feed(again).next_offset == 8
    assert shard.lost() == [(ALL, {P0: LostRange(5, 8)})], "a range reported twice is lost once"
    feed(shard, log, shard.groups()[0], 0, 2)
    ((_, lost),) = shard.lost()
    assert (lost[P0].start, lost[P0].until) == (5, 8)
    assert lost[P0].detected_ms == shard._store.head_ms
    deleted(shard, 0, 15)
    deleted(shard, 1, 3)
    ((_, lost),) = shard.lost()
    assert {key: one[:2] for key, one in lost.items()} == {P0: (5, 15), P1: (0, 3)}


def test_images_and_snapshots_include_lost_ranges(log: Log, tmp_path: Path) -> None:
    shard = empty()
    deleted(shard, 0, 4)
    catch_up(shard, log)
    lost = shard.lost()
    export = shard.ownership.export(ALL)
    other = empty(0)
    other.adopt(ALL, export)
    assert other.lost() == lost
    Snapshots(shard, tmp_path).take()
    after = empty(0)
    assert Snapshots(after, tmp_path).load()
    assert after.lost() == lost


def test_a_group_with_a_lost_range_is_not_merged_with_others(log: Log) -> None:
    """Both stand at the same offsets and have seen the same numbers, but the lost batch was missed by one group
    only."""
    shard = empty(masks(["s0"]))
    deleted(shard, 0, 1)
    log.partitions[0][0] = log.partitions[0][1]  # a repeat
    catch_up(shard, log)
    shard.adopt(masks(["s1"]))
    catch_up(shard, log)
    assert len(shard.groups()) == 2
    shard.clear_lost(shard.lost()[0][1])
    log.add("s0", log.head_ms + 1, [(print_of(0), log.head_ms, START, 1)])
    catch_up(shard, log)
    assert len(shard.groups()) == 1


def test_a_lost_range_is_forgotten_when_no_level_reaches_it(log: Log) -> None:
    shard = empty()
    deleted(shard, 0, 4)
    feed(shard, log, shard.groups()[0], 0)
    first = shard._store.head_ms
    for hours in (60, 90):
        at = first + hours * HOUR
        log.add("s0", at, [(print_of(0), at, START, 1)])
        feed(shard, log, shard.groups()[0], 0)
        assert bool(shard.lost()) == (hours == 60)


def test_a_truncation_below_a_lost_range_leaves_a_range_to_refill() -> None:
    """Its offsets have other batches now, so an entry of the table that names them lost does not cover the old ones."""
    shard = empty()
    deleted(shard, 0, 9)
    shard.rewind(P0, 4)
    assert shard.lost() == [(ALL, {P0: LostRange(0, 4)})]
    shard.rewind(P0, 0)
    lost = shard.lost()[0][1]
    assert lost == {P0: LostRange(0, 0)}
    assert table_has(head(12, lost=((0, 12),)), SPAN, lost)


# the raw table's view of lost ranges

SPAN = LogSpan(TOPIC, {0: (10, 30), 1: (0, 5)})


def head(until: int, topic: str = TOPIC, lost: tuple[tuple[int, int], ...] = ()) -> RawHead:
    """Return the head of a table that has read partition 0 to `until`."""
    before = TopicState("before", {0: 9}, {0: ((7, END_OF_LOG),)})
    current = TopicState(topic, {0: until}, {0: lost} if lost else {})
    return RawHead.of(RawState(1, "w", topics=(before, current), newest_append_ms=1))


@pytest.mark.parametrize(
    ("table", "lost", "there"),
    [
        (head(20), {P0: LostRange(4, 10)}, True),
        (head(20, lost=((0, 4),)), {P0: LostRange(4, 10)}, True),
        (head(20, lost=((4, 9),)), {P0: LostRange(4, 10)}, True),
        (head(20, lost=((3, 12),)), {P0: LostRange(4, 10)}, False),
        (head(20, lost=((3, 12),)), {P0: LostRange(4, 10), P1: LostRange(0, 0)}, True),
        (head(20), {Partition("before", 0): LostRange(3, 9)}, True),
        (head(20), {Partition("before", 0): LostRange(8, 9)}, False),
    ],
)
def test_the_table_has_a_lost_range_unless_it_names_it_lost(
    table: RawHead, lost: dict[Partition, LostRange], there: bool
) -> None:
    assert table_has(table, SPAN, lost) == there


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (head(9), "read partition 0 to 9, and not to 10 yet"),
        (head(20, topic="another"), "has not begun topic"),
    ],
)
def test_the_answer_is_unknown_until_the_table_is_past_the_range(table: RawHead, why: str) -> None:
    with pytest.raises(TableError, match=why):
        table_has(table, SPAN, {P0: LostRange(4, 10)})


# a shard, its log, its table


class World:
    """One shard that holds everything, without process or server."""

    def __init__(self, log: Log, hdfs: str | None, folder: Path) -> None:
        self.log, self.folder, self.hdfs = log, folder, hdfs
        self.raw = RawLog(hdfs) if hdfs else None
        self.starts, self.now = {0: 0, 1: 0}, 0.0
        self.while_refilling: Callable[[], None] = lambda: None
        self.hold(empty(ALL_VSHARDS))

    def hold(self, shard: Shard) -> None:
        """Start the process with this shard."""
        self.shard = shard
        usable = lambda groups: can_continue(self.span(), groups)  # noqa: E731
        self.bringing = Restore(shard, self.again, self.span, usable, self.hdfs)
        self.mover = Rebalancer("0", shard, lambda vshards, _: self.bringing.restore(vshards))
        self.healing = GapRepair("0", shard, self.bringing.table_has)

    def span(self) -> LogSpan:
        return LogSpan(TOPIC, {p: (self.starts[p], len(batches)) for p, batches in self.log.partitions.items()})

    @contextmanager
    def again(self) -> Iterator[None]:
        yield
        announce_sources(self.shard)
        self.while_refilling()

    def step(self, seconds: float) -> None:
        """Run the steps of the mover's thread, one a second."""
        for _ in range(int(seconds)):
            self.now += 1
            membership = Membership(("0",))
            shards = ClusterState(membership, (ShardAddress("0", "h", 1, "", self.shard.vshards),))
            self.mover.step(membership, shards, self.now)
            assert not self.mover.problem
            self.healing.step(membership, shards, self.now)

    def store(self, share: float) -> None:
        assert self.raw is not None
        self.raw.store(self.log, self.upto(share))

    def upto(self, share: float) -> dict[int, int]:
        return {p: int(len(batches) * share) for p, batches in self.log.partitions.items()}

    def read(self, share: float = 1.0) -> None:
        """Feed the shard, as the buckets job does."""
        for partition, until in self.upto(share).items():
            deleted(self.shard, partition, self.starts[partition])
            for group in self.shard.groups():
                feed(self.shard, self.log, group, partition, until - position(group, partition))

    def delete(self, share: float) -> None:
        self.starts = self.upto(share)


@pytest.fixture
def lossy_world(log: Log, hdfs: str, tmp_path: Path) -> World:
    """A world in which shard and table have read half of the log, and Kafka has deleted a quarter more."""
    lossy_world = World(log, hdfs, tmp_path)
    lossy_world.read(0.5)
    lossy_world.store(0.5)
    lossy_world.delete(0.75)
    lossy_world.read()
    return lossy_world


@pytest.mark.parametrize("restarted", [False, True])
def test_a_shard_is_refilled_once_the_table_is_past_the_lost_range(lossy_world: World, restarted: bool) -> None:
    """Afterwards nothing is missing; until then it answers with its data. Also if it was killed in between."""
    with pytest.raises(AssertionError):
        check(lossy_world.shard, lossy_world.log)
    before = lossy_world.shard.lost()
    lossy_world.step(REPAIR_DELAY_S + 3 * TABLE_CHECK_S)
    assert lossy_world.shard.lost() == before
    assert "the raw query has read partition" in lossy_world.healing.describe_loss(ALL)
    if restarted:
        Snapshots(lossy_world.shard, lossy_world.folder / "snapshots").take()
        lossy_world.hold(empty(0))
        assert Snapshots(lossy_world.shard, lossy_world.folder / "snapshots").load()
        announce_sources(lossy_world.shard)
    lossy_world.store(0.9)
    lossy_world.step(REPAIR_DELAY_S + 2 * TABLE_CHECK_S)
    assert (lossy_world.shard.lost(), lossy_world.healing.problems) == ([], [])
    assert lossy_world.healing.figures() == {"offsets_lacking": 0, "refills": 1}
    lossy_world.read()
    check(lossy_world.shard, lossy_world.log)
    assert len(lossy_world.shard.groups()) == 1


def test_offsets_lost_during_a_refill_are_refilled_too(lossy_world: World) -> None:
    lossy_world.store(0.75)

    def lose_more() -> None:
        lossy_world.while_refilling = lambda: None
        lossy_world.delete(0.9)
        lossy_world.read()

    lossy_world.while_refilling = lose_more
    lossy_world.step(REPAIR_DELAY_S + 2 * TABLE_CHECK_S)
    assert lossy_world.shard.ready == ALL_VSHARDS
    assert [mask for mask, _ in lossy_world.shard.lost()] == [ALL_VSHARDS]
    assert "it is refilled soon" in lossy_world.healing.describe_loss(ALL)
    lossy_world.store(1.0)
    lossy_world.step(200)
    assert (lossy_world.shard.lost(), lossy_world.healing.figures()["refills"]) == ([], 2)
    lossy_world.read()
    check(lossy_world.shard, lossy_world.log)


def test_offsets_lost_by_the_table_too_are_reported_and_nothing_is_dropped(lossy_world: World) -> None:
    """The answers continue and count as complete, because no copy has more."""
    assert lossy_world.raw is not None
    lossy_world.raw.lose({p: (lossy_world.raw.state.until()[p], start) for p, start in lossy_world.starts.items()})
    lossy_world.step(REPAIR_DELAY_S + 2 * TABLE_CHECK_S)
    assert lossy_world.shard.lost() == []
    assert lossy_world.healing.figures() == {"offsets_lacking": 0, "refills": 0}
    (problem,) = lossy_world.healing.problems
    assert "are lost: neither Kafka nor the raw table has them" in problem
    assert f"offsets {lossy_world.upto(0.5)[0]} to {lossy_world.starts[0]} of partition 0" in problem
    lossy_world.now += 24 * 3_600
    lossy_world.step(1)
    assert lossy_world.healing.problems == []


def test_without_a_table_a_shard_answers_with_its_data(log: Log, tmp_path: Path) -> None:
    """A shard that begins above the start of the log is not missing anything that it could have."""
    lossy_world = World(log, None, tmp_path)
    lossy_world.delete(0.2)
    lossy_world.read(0.5)
    assert lossy_world.shard.lost()
    lossy_world.step(REPAIR_DELAY_S + 2 * TABLE_CHECK_S)
    assert (lossy_world.shard.lost(), lossy_world.healing.problems) == ([], [])
    lossy_world.delete(0.7)
    lossy_world.read()
    lossy_world.step(REPAIR_DELAY_S + 2 * TABLE_CHECK_S)
    assert lossy_world.shard.vshards == ALL_VSHARDS
    assert "started without HDFS" in lossy_world.healing.problems[0]


def test_a_copy_with_lost_ranges_is_not_restored(lossy_world: World, hdfs: str) -> None:
    """The copy would have to be refilled at once."""
    snapshots = Snapshots(lossy_world.shard, lossy_world.folder / "snapshots", f"{hdfs}/copies")
    snapshots.take()
    assert snapshots._copier is not None
    snapshots._copier.copy()
    lossy_world.store(1.0)
    fresh = empty(0)
    bringing = Restore(fresh, lossy_world.again, lossy_world.span, lambda _: True, hdfs, f"{hdfs}/copies")
    bringing.restore(ALL_VSHARDS)
    assert fresh.lost() == []
    announce_sources(fresh)
    check(fresh, lossy_world.log)
