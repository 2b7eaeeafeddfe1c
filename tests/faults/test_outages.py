"""Servers that are away for long, under load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from tests.faults.conftest import Scale
from tests.faults.world import World
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.stack, pytest.mark.timeout(5400)]
STORM = 1.1
"""Bytes sent, at most, for one byte accepted."""
NEAR = 2_000
"""Batches that wait for the next append anyway."""


@pytest.fixture(scope="module")
def world(folder: Path, load_options: dict[str, str]) -> Iterator[World]:
    with World(folder, load_options) as made:
        yield made


def test_zookeeper_is_away(world: World, scale: Scale) -> None:
    world.produce()
    world.wait_appends(2)
    world.stack.kill_part("zookeeper")
    SYSTEM_CLOCK.wait(threading.Event(), scale.zookeeper_s / 2)
    rows, applied, accepted = rows_of(world), world.applied(), accepted_of(world)
    SYSTEM_CLOCK.wait(threading.Event(), scale.zookeeper_s / 2)
    eventually(lambda: rows_of(world) > rows, "the table grows without ZooKeeper")
    eventually(lambda: world.applied() > applied, "buckets grow without ZooKeeper")
    assert accepted_of(world) > accepted
    world.stack.start_part("zookeeper")
    world.stack.wait_healthy(240)
    print(f"# {world.prove()}", flush=True)


def test_hdfs_is_away(world: World, scale: Scale) -> None:
    world.produce()
    world.wait_appends(2)
    accepted, carried = bytes_of(world)
    for part in ("datanode", "namenode"):
        world.stack.kill_part(part)
    began, rows = SYSTEM_CLOCK.monotonic(), rows_of(world)
    while SYSTEM_CLOCK.monotonic() - began < scale.outage_s:
        buckets_grow(world, min(15.0, scale.outage_s / 4))
    assert rows_of(world) <= rows + 8_000 * 10_000, "nothing can be stored without HDFS"
    for part in ("namenode", "datanode"):
        world.stack.start_part(part)
    world.stack.wait_healthy(240)
    caught_up = catch_up(world, 2 * scale.outage_s)
    proof = world.prove(1800)
    more, sent = (now - then for now, then in zip(bytes_of(world), (accepted, carried), strict=True))
    print(f"# {caught_up}; bytes sent / accepted {sent / more:.3f}; {proof}", flush=True)
    assert sent <= STORM * more
    assert proof.dead_letters == 0


def buckets_grow(world: World, seconds: float) -> None:
    """Within a minute after `seconds`."""
    applied = world.applied()
    SYSTEM_CLOCK.wait(threading.Event(), seconds)
    eventually(lambda: world.applied() > applied, "buckets grow without HDFS")


def catch_up(world: World, seconds: float) -> str:
    """Let the table catch up under load for at most `seconds`, which a busy machine may not manage: what came of it."""
    began = SYSTEM_CLOCK.monotonic()
    while behind(world) > NEAR and SYSTEM_CLOCK.monotonic() - began < seconds:
        SYSTEM_CLOCK.wait(threading.Event(), 1.0)
    return f"{behind(world):,} batches behind {SYSTEM_CLOCK.monotonic() - began:.0f} s after HDFS is back"


def behind(world: World) -> int:
    """Messages that the table lacks."""
    return int(world.figures("spark")["raw"]["behind"])


def rows_of(world: World) -> int:
    return int(world.figures("spark")["raw"]["rows"])


def accepted_of(world: World) -> int:
    return int(world.figures("load")["accepted_samples"])


def bytes_of(world: World) -> tuple[int, int]:
    """Accepted by the agents, and carried to collectors, since their start."""
    load = world.figures("load")
    return int(load["accepted_bytes"]), int(load["carried_bytes"])
