"""Shards that share the memory of one machine: `artimon shard --sharing N`."""

from __future__ import annotations

import pytest

from artimon.runtime.machine_memory import memory_limit
from varstore.index.shard_limits import CapacityLimitError, ShardLimits
from varstore.shard_process import ShardConfig, ShardProcess

NOWHERE = "127.0.0.1:1"


def process(sharing: int, capacity: int = 1_000, memory_bytes: int = 0) -> ShardProcess:
    """Return a process that is not started; its memory limit is set before."""
    limits = ShardLimits(memory_bytes=memory_bytes)
    return ShardProcess(
        ShardConfig("0", ("0",), NOWHERE, NOWHERE, capacity=capacity, sharing=sharing, limits=limits)
    )  # fmt: skip


def allowed(shard: ShardProcess) -> int:
    """Return the memory limit in bytes, as health reports it."""
    return int(shard.shard.status()["memory_limit"])


def test_each_shard_takes_its_share_of_the_memory() -> None:
    whole = memory_limit()
    assert [allowed(process(n)) for n in (1, 2, 5)] == [whole, whole // 2, whole // 5]


def test_the_default_capacity_fits_into_the_share() -> None:
    """A stated capacity beyond it is refused, and the error names the largest that fits."""
    parts = 1 + memory_limit() // (1 << 30)
    alone, shared = (process(n, capacity=0).shard.status()["capacity"] for n in (1, parts))
    assert 0 < shared < alone
    with pytest.raises(CapacityLimitError, match="state at most"):
        process(parts, capacity=alone)


def test_a_stated_limit_is_not_divided() -> None:
    shard = process(4, memory_bytes=1 << 30)
    assert allowed(shard) == 1 << 30


def test_shards_beyond_the_configured_number_share_too() -> None:
    """The divisor is the number of shards registered on the same host, at least the configured number."""
    shard, whole = process(2), memory_limit()
    for here, parts in ((1, 2), (3, 3), (7, 7), (0, 2)):
        shard._share_memory(here)
        assert allowed(shard) == whole // parts
