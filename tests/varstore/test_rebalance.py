"""Rebalancing after a change of the membership: only virtual shards that must move are copied, and each has a holder at
any time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.vshards import ALL_VSHARDS, mask_of, vshards_of
from varstore.cluster.cluster_directory import ClusterState, ShardAddress
from varstore.cluster.membership import Membership, MembershipError
from varstore.cluster.rebalance import GRACE_S, VSHARDS_PER_STEP, Rebalancer, plan_donors, surplus
from varstore.shard.shard import Shard


class World:
    """Shards that move towards a membership, one step of one shard at a time."""

    def __init__(self, ids: str, replicas: int) -> None:
        self.membership = Membership(tuple(ids), replicas)
        self.now = 0.0
        self.shards: dict[str, FakeShard] = {}
        self.gone: set[str] = set()
        self.copied = 0
        for id_ in ids:
            self.begin(id_)

    def begin(self, id_: str) -> None:
        self.shards[id_] = FakeShard(self, id_)
        self.gone.discard(id_)

    def seen(self) -> ClusterState:
        live = [shard.place() for id_, shard in self.shards.items() if id_ not in self.gone]
        return ClusterState(self.membership, tuple(live))

    def step(self, id_: str) -> bool:
        self.now += 0.5
        return id_ not in self.gone and self.shards[id_].mover.step(self.membership, self.seen(), self.now)

    def settle(self) -> None:
        for _ in range(60):
            for id_ in self.shards:
                self.step(id_)
                self.shards[id_].whole = self.shards[id_].vshards
                self.check()

    def holders(self, vshard: int) -> set[str]:
        return {id_ for id_, s in self.shards.items() if id_ not in self.gone and s.whole >> vshard & 1}

    def check(self) -> None:
        """Check that every virtual shard that a live shard ever held complete is still held complete."""
        if not self.gone:
            assert self.lost() == []

    def lost(self) -> list[int]:
        return [v for v in range(256) if not self.holders(v) and any(s.ever >> v & 1 for s in self.shards.values())]

    def is_placed(self) -> bool:
        return all(
            self.shards[id_].vshards == self.membership.owned_by(id_) for id_ in self.shards if id_ not in self.gone
        )


class FakeShard:
    """A shard that copies at once, and is complete when the test says so."""

    def __init__(self, world: World, id_: str) -> None:
        self.id, self._world = id_, world
        self.vshards = self.whole = self.ever = 0
        self.mover = Rebalancer(id_, cast(Shard, self), self.bring)

    def bring(self, vshards: int, giver: ShardAddress | None) -> None:
        assert not vshards & self.vshards
        if giver is not None:
            assert vshards & self._world.shards[giver.id].whole == vshards
            self._world.copied += vshards.bit_count()
        self.vshards |= vshards

    def drop(self, vshards: int) -> int:
        self.vshards &= ~vshards
        self.whole &= ~vshards
        return vshards

    def place(self) -> ShardAddress:
        self.ever |= self.whole
        return ShardAddress(self.id, "h", 1, "", self.vshards, self.whole & ~self.mover.leaving)


def started(ids: str, replicas: int = 1) -> World:
    world = World(ids, replicas)
    world.settle()
    assert world.is_placed()
    world.copied = 0
    return world


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_joining_shard_gets_its_part_and_nothing_else_moves(replicas: int) -> None:
    world = started("01", replicas)
    before = {id_: shard.vshards for id_, shard in world.shards.items()}
    world.membership = world.membership.with_member("2")
    world.begin("2")
    world.settle()
    assert world.is_placed()
    assert world.copied == (world.shards["2"].vshards).bit_count()
    assert all(shard.vshards & ~before[id_] == 0 for id_, shard in world.shards.items() if id_ in before)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_removed_shard_hands_over_everything(replicas: int) -> None:
    world = started("012", replicas)
    world.membership = world.membership.without_member("1")
    world.settle()
    assert world.is_placed()
    assert world.shards["1"].vshards == 0


def test_nothing_is_dropped_before_the_new_owner_is_complete() -> None:
    world = started("01")
    world.membership = world.membership.with_member("2")
    world.begin("2")
    held = world.shards["0"].vshards
    for _ in range(40):  # the new one never becomes whole
        for id_ in world.shards:
            world.step(id_)
    assert world.shards["0"].vshards == held
    world.shards["2"].whole = world.shards["2"].vshards
    world.step("0")
    assert world.shards["0"].vshards == held  # clients have not read it yet
    assert world.shards["0"].place().ready_vshards == held & ~world.shards["2"].vshards
    for _ in range(int(GRACE_S * 2) + 1):
        world.step("0")
    assert world.shards["0"].vshards == held & ~world.shards["2"].vshards


def test_nothing_moves_while_the_state_of_zookeeper_is_unknown() -> None:
    world = started("01")
    mover = world.shards["0"].mover
    held = world.shards["0"].vshards
    assert not mover.step(Membership(("1",)), None, 1e9)
    assert world.shards["0"].vshards == held


def test_an_empty_replica_copies_from_the_others() -> None:
    world = started("012", 2)
    world.begin("1")
    world.settle()
    assert world.is_placed()
    assert world.copied == world.shards["1"].vshards.bit_count()


def test_copies_are_split_and_virtual_shards_without_a_holder_are_not() -> None:
    half = mask_of(range(128))
    shards = ClusterState(Membership(("0", "1")), (ShardAddress("1", "h", 1, "", half, half),))
    plan = plan_donors(shards, "0", ALL_VSHARDS)
    assert [(giver.id if giver else None, mask.bit_count()) for giver, mask in plan] == [
        ("1", VSHARDS_PER_STEP), ("1", VSHARDS_PER_STEP), (None, 128),
    ]  # fmt: skip
    lagging = ClusterState(Membership(("0", "1")), (ShardAddress("1", "h", 1, "", half, half, half),))
    assert plan_donors(lagging, "0", half) == [(None, half)]


def test_a_failed_copy_is_reported_and_retried() -> None:
    def fail(_vshards: int, _giver: ShardAddress | None) -> None:
        raise OSError("the peer went away")

    world = World("0", 1)
    world.shards["0"].mover._bring = fail
    world.step("0")
    assert "the peer went away" in world.shards["0"].mover.problem
    world.shards["0"].mover._bring = world.shards["0"].bring
    world.step("0")
    assert (world.shards["0"].mover.problem, world.shards["0"].vshards) == ("", ALL_VSHARDS)


@settings(max_examples=25)
@given(
    st.lists(st.one_of(st.sampled_from(["+", "1", "2"]), st.integers(0, 3), st.tuples(st.integers(0, 3))), max_size=12)
)
def test_any_sequence_of_changes_ends_with_the_wanted_placement(steps: list[object]) -> None:
    """Members join and leave, replicas change, single steps in between: nothing is lost."""
    world = started("01")
    for step in steps:
        ids = list(world.shards)
        try:
            if step == "+":
                fresh = str(len(ids))
                world.membership = world.membership.with_member(fresh)
                world.begin(fresh)
            elif isinstance(step, str):
                world.membership = world.membership.with_replicas(int(step))
            elif isinstance(step, tuple):
                world.membership = world.membership.without_member(ids[step[0] % len(ids)])
            else:
                one = world.shards[ids[int(str(step)) % len(ids)]]
                world.step(one.id)
                one.whole = one.vshards
        except MembershipError:
            continue
        world.check()
    world.settle()
    assert world.is_placed()
    assert world.lost() == []


def test_a_former_owner_drops_only_what_enough_owners_hold() -> None:
    mine = ShardAddress("old", "h", 1, "", ALL_VSHARDS, ALL_VSHARDS)
    assert surplus(ClusterState(Membership(("0",)), (mine,)), "old", ALL_VSHARDS) == 0
    assert surplus(ClusterState(Membership(()), (mine,)), "old", ALL_VSHARDS) == 0
    some = mask_of(vshards_of(ALL_VSHARDS)[:9])
    assert (
        surplus(ClusterState(Membership(("0",)), (mine, ShardAddress("0", "h", 1, "", some, some))), "old", ALL_VSHARDS)
        == some
    )
    both = Membership(("0", "1"), 2)
    zero, one = ShardAddress("0", "h", 1, "", ALL_VSHARDS, ALL_VSHARDS), ShardAddress("1", "h", 1, "", some, some)
    assert surplus(ClusterState(both, (mine, zero)), "old", ALL_VSHARDS) == 0
    assert surplus(ClusterState(both, (mine, zero, one)), "old", ALL_VSHARDS) == some
    assert surplus(ClusterState(both, (mine, zero, replace(one, lagging_vshards=some))), "old", ALL_VSHARDS) == 0


def test_invalid_memberships_are_refused() -> None:
    two = Membership(("0", "1"), 2)
    assert Membership.from_bytes(two.to_bytes()) == two
    refusals: list[Callable[[], object]] = [
        lambda: two.with_member("1"),
        lambda: two.with_member("a/b"),
        lambda: two.without_member("7"),
        lambda: two.without_member("1"),
        lambda: two.with_replicas(3),
        lambda: two.with_replicas(0),
        lambda: Membership.from_bytes(b'{"replicas": 1}'),
        lambda: Membership.from_bytes(b'{"members": ["0"], "levels": "60x"}'),
    ]
    for refused in refusals:
        with pytest.raises(MembershipError):
            refused()
    assert two.owned_by("0") == two.owned_by("1") == ALL_VSHARDS
    assert two.owned_by("2") == 0
