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
def loaded(folder: Path, load_options: dict[str, str]) -> Iterator[World]:
    with World(folder, load_options) as made:
        yield made


def test_zookeeper_is_away(loaded: World, scale: Scale) -> None:
    loaded.produce()
    loaded.wait_appends(2)
    loaded.stack.kill_part("zookeeper")
    SYSTEM_CLOCK.wait(threading.Event(), scale.zookeeper_s / 2)
    rows, applied, accepted = rows_of(loaded), loaded.applied(), accepted_of(loaded)
    SYSTEM_CLOCK.wait(threading.Event(), scale.zookeeper_s / 2)
    eventually(lambda: rows_of(loaded) > rows, "the table grows without ZooKeeper")
    eventually(lambda: loaded.applied() > applied, "buckets grow without ZooKeeper")
    assert accepted_of(loaded) > accepted
    loaded.stack.start_part("zookeeper")
    loaded.stack.wait_healthy(240)
    print(f"# {loaded.prove()}", flush=True)


def test_hdfs_is_away(loaded: World, scale: Scale) -> None:
    loaded.produce()
    loaded.wait_appends(2)
    accepted, carried = bytes_of(loaded)
    for part in ("datanode", "namenode"):
        loaded.stack.kill_part(part)
    began, rows = SYSTEM_CLOCK.monotonic(), rows_of(loaded)
    while SYSTEM_CLOCK.monotonic() - began < scale.outage_s:
        buckets_grow(loaded, min(15.0, scale.outage_s / 4))
    assert rows_of(loaded) <= rows + 8_000 * 10_000, "nothing can be stored without HDFS"
    for part in ("namenode", "datanode"):
        loaded.stack.start_part(part)
    loaded.stack.wait_healthy(240)
    caught_up = catch_up(loaded, 2 * scale.outage_s)
    proof = loaded.prove(1800)
    more, sent = (now - then for now, then in zip(bytes_of(loaded), (accepted, carried), strict=True))
    print(f"# {caught_up}; bytes sent / accepted {sent / more:.3f}; {proof}", flush=True)
    assert sent <= STORM * more
    assert proof.dead_letters == 0


def buckets_grow(loaded: World, seconds: float) -> None:
    """Within a minute after `seconds`."""
    applied = loaded.applied()
    SYSTEM_CLOCK.wait(threading.Event(), seconds)
    eventually(lambda: loaded.applied() > applied, "buckets grow without HDFS")


def catch_up(loaded: World, seconds: float) -> str:
    """Let the table catch up under load for at most `seconds`, which a busy machine may not manage: what came of it."""
    began = SYSTEM_CLOCK.monotonic()
    while behind(loaded) > NEAR and SYSTEM_CLOCK.monotonic() - began < seconds:
        SYSTEM_CLOCK.wait(threading.Event(), 1.0)
    return f"{behind(loaded):,} batches behind {SYSTEM_CLOCK.monotonic() - began:.0f} s after HDFS is back"


def behind(loaded: World) -> int:
    """Messages that the table lacks."""
    return int(loaded.figures("spark")["raw"]["behind"])


def rows_of(loaded: World) -> int:
    return int(loaded.figures("spark")["raw"]["rows"])


def accepted_of(loaded: World) -> int:
    return int(loaded.figures("load")["accepted_samples"])


def bytes_of(loaded: World) -> tuple[int, int]:
    """Accepted by the agents, and carried to collectors, since their start."""
    load = loaded.figures("load")
    return int(load["accepted_bytes"]), int(load["carried_bytes"])
