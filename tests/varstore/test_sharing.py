"""Shards that share the memory of one machine: `artimon shard --sharing N`."""

from __future__ import annotations

import pytest

from varstore.index.limits import CapacityLimitError, ShardLimits, memory_limit
from varstore.server import ShardConfig, ShardProcess

NOWHERE = "127.0.0.1:1"


def process(sharing: int, capacity: int = 1_000, memory_bytes: int = 0) -> ShardProcess:
    """Not started: what it may take is settled before."""
    limits = ShardLimits(memory_bytes=memory_bytes)
    return ShardProcess(
        ShardConfig("0", ("0",), NOWHERE, NOWHERE, capacity=capacity, sharing=sharing, limits=limits)
    )  # fmt: skip


def allowed(shard: ShardProcess) -> int:
    """Bytes, as health says them."""
    return int(shard.shard.status()["memory_limit"])


def test_each_takes_its_part() -> None:
    whole = memory_limit()
    assert [allowed(process(n)) for n in (1, 2, 5)] == [whole, whole // 2, whole // 5]


def test_capacity_is_what_fits_into_the_part() -> None:
    """A stated one that does not is refused, and the error says what would fit."""
    parts = 1 + memory_limit() // (1 << 30)
    alone, shared = (process(n, capacity=0).shard.status()["capacity"] for n in (1, parts))
    assert 0 < shared < alone
    with pytest.raises(CapacityLimitError, match="state at most"):
        process(parts, capacity=alone)


def test_a_stated_limit_is_not_divided() -> None:
    shard = process(4, memory_bytes=1 << 30)
    assert allowed(shard) == 1 << 30


def test_more_shards_than_were_thought_of_share_too() -> None:
    """As many as are registered under the same host; never fewer than was said at the start."""
    shard, whole = process(2), memory_limit()
    for here, parts in ((1, 2), (3, 3), (7, 7), (0, 2)):
        shard._share(here)
        assert allowed(shard) == whole // parts
