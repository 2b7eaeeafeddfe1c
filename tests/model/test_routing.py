"""Routing is a contract between processes of different versions: results never change."""

from __future__ import annotations

from collections import Counter

from artimon.model.fingerprint import fingerprint, signed, unsigned
from artimon.model.hash_routing import VIRTUAL_SHARDS, lane_of, owners_of, ownership, partition_of, virtual_shard

GOLDEN_LANES = [2, 2, 2, 3]
GOLDEN_PARTITIONS = [5, 2, 5, 0]
GOLDEN_SHARDS = [219, 130, 150, 247]
GOLDEN_FINGERPRINT = 7580181166378795345
SOURCES = [f"shop/host-{n}/0" for n in range(4000)]


def test_results_never_change() -> None:
    assert [lane_of(s) for s in ("shop/a/0", "shop/b/0", "host", "é")] == GOLDEN_LANES
    assert [partition_of("agent-1", 0xDEADBEEF, lane, 8) for lane in range(4)] == GOLDEN_PARTITIONS
    assert [virtual_shard(s) for s in ("shop/a/0", "shop/b/0", "host", "é")] == GOLDEN_SHARDS
    assert fingerprint('a.b{k="v"}') == GOLDEN_FINGERPRINT


def test_lanes_and_shards_are_spread() -> None:
    lanes = Counter(lane_of(s) for s in SOURCES)
    assert sorted(lanes) == [0, 1, 2, 3]
    assert max(lanes.values()) < 1.2 * min(lanes.values())
    assert len({virtual_shard(s) for s in SOURCES}) == VIRTUAL_SHARDS


def test_only_virtual_shards_of_a_new_member_move() -> None:
    before, after = ownership(["0", "1"]), ownership(["0", "1", "2"])
    assert set().union(*before.values()) == set(range(VIRTUAL_SHARDS))
    for member in before:
        assert after[member] <= before[member]
    assert 60 < len(after["2"]) < 110


def test_replicas_are_distinct_members() -> None:
    for shard in range(VIRTUAL_SHARDS):
        held = owners_of(shard, ["a", "b", "c"], replicas=2)
        assert len(set(held)) == 2
        assert owners_of(shard, ["c", "b", "a"], replicas=2) == held


def test_signed_and_unsigned_are_the_same_bits() -> None:
    for number in (0, 1, 2**63 - 1, 2**63, 2**64 - 1):
        assert unsigned(signed(number)) == number
        assert -(2**63) <= signed(number) < 2**63
