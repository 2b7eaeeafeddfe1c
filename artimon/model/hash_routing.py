"""Routing and ownership: source -> lane, lane -> partition, source -> virtual shard -> shards.

Every function is pure and part of the contract between processes of different versions: results must never change.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

DEFAULT_LANES = 4
VIRTUAL_SHARDS = 256


def _hash(text: str) -> int:
    return int(xxhash.xxh3_64_intdigest(text.encode()))


def lane_of(source: str, lanes: int = DEFAULT_LANES) -> int:
    """Return the lane of an agent that carries the batches of `source`."""
    return _hash(source) % lanes


def partition_of(agent: str, epoch: int, lane: int, partitions: int) -> int:
    """Return the Kafka partition of a lane; permanent, and equal at every collector."""
    return _hash(f"{agent}/{epoch:016x}/{lane}") % partitions


def virtual_shard(source: str) -> int:
    """Return the virtual shard (0..255) that holds every series of `source`."""
    return _hash(source) >> 56


def owners_of(shard: int, members: Sequence[str], replicas: int = 1) -> list[str]:
    """Return the members that hold virtual shard `shard`, best first. Rendezvous hashing: a new member only moves the
    virtual shards that it receives."""
    ranked = sorted(members, key=lambda member: (-_hash(f"{shard}@{member}"), member))
    return ranked[:replicas]


def ownership(members: Sequence[str], replicas: int = 1) -> dict[str, frozenset[int]]:
    """Return the virtual shards of each member."""
    held: dict[str, set[int]] = {member: set() for member in members}
    for shard in range(VIRTUAL_SHARDS):
        for member in owners_of(shard, members, replicas):
            held[member].add(shard)
    return {member: frozenset(shards) for member, shards in held.items()}
