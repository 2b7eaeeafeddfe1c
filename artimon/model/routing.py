"""Who carries and who owns: source -> lane, lane -> partition, source -> virtual shard -> shards.

Every function is pure and part of the contract between processes of different versions: never change a result.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

DEFAULT_LANES = 4
VIRTUAL_SHARDS = 256


def _hash(text: str) -> int:
    return int(xxhash.xxh3_64_intdigest(text.encode()))


def lane_of(source: str, lanes: int = DEFAULT_LANES) -> int:
    """The lane of an agent that carries the batches of `source`."""
    return _hash(source) % lanes


def partition_of(agent: str, epoch: int, lane: int, partitions: int) -> int:
    """The Kafka partition of a lane: the same for ever, whichever collector carries it."""
    return _hash(f"{agent}/{epoch:016x}/{lane}") % partitions


def virtual_shard(source: str) -> int:
    """The virtual shard (0..255) that holds every series of `source`."""
    return _hash(source) >> 56


def owners(shard: int, members: Sequence[str], replicas: int = 1) -> list[str]:
    """The members that hold virtual shard `shard`, best first (rendezvous hashing: adding a member moves only what it
    gets)."""
    ranked = sorted(members, key=lambda member: (-_hash(f"{shard}@{member}"), member))
    return ranked[:replicas]


def ownership(members: Sequence[str], replicas: int = 1) -> dict[str, frozenset[int]]:
    """Virtual shards of each member."""
    held: dict[str, set[int]] = {member: set() for member in members}
    for shard in range(VIRTUAL_SHARDS):
        for member in owners(shard, members, replicas):
            held[member].add(shard)
    return {member: frozenset(shards) for member, shards in held.items()}
