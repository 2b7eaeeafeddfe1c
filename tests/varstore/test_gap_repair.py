"""Gap repair among shards that lack offsets deleted by Kafka: order of refills, copies from replicas, and nothing
dropped too early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from artimon.model.vshards import ALL_VSHARDS, vshards_of
from artimon.rawtable.schema import TableError
from varstore.cluster.cluster_directory import ClusterState, ShardAddress
from varstore.cluster.gap_repair import LONGEST_PAUSE_S, MAX_TURN_WAIT_S, REPAIR_DELAY_S, GapRepair, LostByGroup
from varstore.cluster.membership import Membership
from varstore.cluster.rebalance import VSHARDS_PER_STEP, Rebalancer
from varstore.shard.shard import Shard
from varstore.store.feed_groups import LostRange, Partition

LOST = {Partition("t", 0): LostRange(10, 20)}
MINUTE = 60


class World:
    """Shards with lost offsets, one raw table, and a clock that all share."""

    def __init__(self, ids: str, replicas: int) -> None:
        self.membership = Membership(tuple(ids), replicas)
        self.now = 0.0
        self.table: str = ""
        """Reason why the table cannot be used for refills yet; empty if it can."""
        self.has_it, self.asked = True, 0
        self.refill_s = 30.0
        self.shards = {id_: FakeShard(self, id_) for id_ in ids}

    def has_lost(self, lost: Mapping[Partition, LostRange]) -> bool:
        assert lost == LOST
        self.asked += 1
        if self.table:
            raise TableError(self.table)
        return self.has_it

    def seen(self) -> ClusterState:
        return ClusterState(self.membership, tuple(shard.place() for shard in self.shards.values()))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 1
            for shard in self.shards.values():
                shard.step()
            if not self.table and self.has_it:
                assert not self.unanswered(), "one of two owners must answer"

    def unanswered(self) -> list[int]:
        """Return the virtual shards that no shard holds complete, though there are replicas."""
        if self.membership.replicas == 1:
            return []
        having = [shard.full for shard in self.shards.values()]
        return [v for v in range(256) if not any(mask >> v & 1 for mask in having)]


class FakeShard:
    """A shard that is refilled in some seconds, and copies at once."""

    def __init__(self, world: World, id_: str) -> None:
        self.id, self._world = id_, world
        self.vshards = self.full = world.membership.owned_by(id_)
        """Virtual shards that it holds, and those of them that are not being refilled."""
        self.lacking = 0
        self.refilled = self.copied = 0
        self._done_s = 0.0
        self.mover = Rebalancer(id_, cast(Shard, self), self.bring)
        self.healing = GapRepair(id_, cast(Shard, self), world.has_lost)

    def step(self) -> None:
        if self._world.now >= self._done_s:
            self.full = self.vshards
        if self.full == self.vshards:  # otherwise its thread is busy with the refill
            self.mover.step(self._world.membership, self._world.seen(), self._world.now)
            self.healing.step(self._world.membership, self._world.seen(), self._world.now)

    def bring(self, vshards: int, giver: ShardAddress | None) -> None:
        self.vshards |= vshards
        if giver is not None:
            assert vshards & giver.healthy_vshards == vshards
            self.full |= vshards
            self.copied += vshards.bit_count()
        else:
            self._done_s = self._world.now + self._world.refill_s
            self.refilled += vshards.bit_count()

    def lost(self) -> LostByGroup:
        return [(self.lacking, LOST)] if self.lacking else []

    def excuse(self, lost: Mapping[Partition, LostRange]) -> None:
        assert lost == LOST
        self.lacking = 0

    def drop(self, vshards: int) -> int:
        self.vshards &= ~vshards
        self.full &= ~vshards
        self.lacking &= ~vshards
        return vshards

    def place(self) -> ShardAddress:
        return ShardAddress(self.id, "h", 1, "", self.vshards, self.full, self.lacking, self.lacking)


def test_virtual_shards_that_a_replica_holds_complete_are_copied_in_steps() -> None:
    world = World("01", 2)
    one = world.shards["1"]
    one.lacking = ALL_VSHARDS
    world.run(REPAIR_DELAY_S)
    assert one.vshards == ALL_VSHARDS
    world.run(1)
    assert one.vshards.bit_count() == 256 - VSHARDS_PER_STEP, "the rest must answer meanwhile"
    world.run(10)
    assert (one.lacking, one.full, one.copied, one.refilled, world.asked) == (0, ALL_VSHARDS, 256, 0, 0)


@pytest.mark.parametrize(("ids", "replicas"), [("01", 2), ("012", 2), ("012", 3)])
def test_one_replica_is_refilled_and_the_others_copy_if_all_lack_offsets(ids: str, replicas: int) -> None:
    """`World.run` checks that one owner answers at any time."""
    world = World(ids, replicas)
    for shard in world.shards.values():
        shard.lacking = shard.vshards
    world.run(5 * MINUTE)
    assert not any(shard.lacking for shard in world.shards.values())
    assert all(shard.full == world.membership.owned_by(id_) for id_, shard in world.shards.items())
    assert sum(shard.refilled for shard in world.shards.values()) == 256
    assert sum(shard.copied for shard in world.shards.values()) == 256 * (replicas - 1)


def test_nothing_is_dropped_before_the_raw_table_is_past_the_lost_range() -> None:
    world = World("0", 1)
    shard = world.shards["0"]
    shard.lacking, world.table = ALL_VSHARDS, "the raw query has read partition 0 to 9"
    world.run(10 * MINUTE)
    assert (shard.full, shard.lacking) == (ALL_VSHARDS, ALL_VSHARDS)
    assert world.asked <= 10 * MINUTE / 5, "at most one query every five seconds"
    assert shard.healing.problems == [
        "lacks offsets 10 to 20 of partition 0, which Kafka deleted before it was read: it cannot be refilled yet: "
        "the raw query has read partition 0 to 9"
    ]
    world.table = ""
    world.run(MINUTE)
    assert (shard.full, shard.lacking, shard.refilled) == (ALL_VSHARDS, 0, 256)
    assert shard.healing.problems == []


def test_waiting_for_a_replica_that_should_refill_first_is_bounded() -> None:
    world = World("01", 2)
    broken, well = world.shards["0"], world.shards["1"]
    broken.lacking = well.lacking = ALL_VSHARDS

    def fails(_lost: Mapping[Partition, LostRange]) -> bool:
        raise OSError("no HDFS here")

    broken.healing._has = fails
    world.run(MAX_TURN_WAIT_S / 2)
    first = [v for v in vshards_of(ALL_VSHARDS) if world.membership.owners(v)[0] == "1"]
    assert well.refilled == len(first), "the virtual shards that it refills first"
    assert broken.lacking
    world.run(MAX_TURN_WAIT_S)
    assert (well.lacking, broken.lacking) == (0, 0)
    assert (broken.refilled, broken.copied) == (0, 256)


def test_pauses_between_refills_grow_while_kafka_deletes_more() -> None:
    world = World("0", 1)
    shard, hours = world.shards["0"], 5
    for _ in range(hours * 60):
        shard.lacking = shard.vshards
        world.run(MINUTE)
    assert LONGEST_PAUSE_S == 3_600
    assert hours <= shard.healing.figures()["refills"] <= hours + 7, "some more while the pause grows"


def test_no_repair_begins_without_zookeeper() -> None:
    world = World("0", 1)
    shard = world.shards["0"]
    shard.lacking = ALL_VSHARDS
    for now in range(100):
        assert not shard.healing.step(world.membership, None, float(now))
    assert (shard.lacking, world.asked) == (ALL_VSHARDS, 0)


def test_virtual_shards_of_other_owners_are_dropped_not_refilled() -> None:
    world = World("01", 1)
    shard = world.shards["0"]
    shard.vshards = shard.full = shard.lacking = ALL_VSHARDS
    for _ in range(20):
        world.now += 1
        shard.healing.step(world.membership, world.seen(), world.now)
    assert shard.vshards == ALL_VSHARDS & ~world.membership.owned_by("0")
