"""What dead collectors leave behind, and who may have the last word on a stream; with a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from artimon.model.acks import AckState, PartitionState
from artimon.model.clock import ManualClock
from pipeline.collector.direct.container import encode_head, frame
from pipeline.collector.direct.names import ABORTED, DATA, OPEN, Scheme, UnderWay, series_path
from pipeline.collector.direct.publish import Node, TakenOver
from pipeline.collector.direct.stream_broker import OWNERS_PATH
from pipeline.collector.direct.sweep import KEEP_MS, Sweeper
from pipeline.rolling.store import LocalStore
from tests.pipeline.direct.test_container import put
from tests.pipeline.direct.test_service import chroot
from tests.pipeline.direct.test_stream import batch

__all__ = ["chroot"]
pytestmark = pytest.mark.stack
GRACE_S = 30.0


class World:
    """A folder with a file under way, its stream's node, and a sweeper of another collector."""

    def __init__(self, folder: Path, zookeeper: str, scheme: Scheme) -> None:
        self.client = KazooClient(zookeeper)
        self.client.start(10)
        self.store = LocalStore(folder)
        self.clock = ManualClock(1_700_000_000_000)
        self.own: dict[str, Collection[str]] = {}
        self.sweeper = Sweeper(self.store, self.client, "other", lambda: self.own, self.clock, GRACE_S)
        self.file = UnderWay("dead", 0, scheme)
        self.data = encode_head("dead", 0) + frame(0, batch(0)[1])
        put(self.store, self.file.path, self.data + frame(0, batch(1)[1])[:-5])
        self.node = Node(self.client, "dead", "dead")
        self.node.write(self.state())

    def state(self, until: int = 0) -> AckState:
        return AckState(self.store.uri, "t.samples", "dead", self.clock.now_ms(), {0: PartitionState(until, 0, 9999)})

    def published(self) -> tuple[AckState, bool]:
        data, _ = self.client.get("/artimon/acks/dead")
        return AckState.from_json(data), bool(json.loads(data)["closed"])

    def wait(self) -> None:
        """The grace goes by."""
        self.sweeper.turn()
        self.clock.advance(int(GRACE_S * 1000))

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.fixture(params=list(Scheme))
def world(request: pytest.FixtureRequest, tmp_path: Path, chroot: str) -> Iterator[World]:
    made = World(tmp_path, chroot, request.param)
    yield made
    made.close()


def test_nobody_is_dead_before_the_grace_is_over_or_while_its_owner_is_there(world: World) -> None:
    assert world.sweeper.turn().closed == []
    world.clock.advance(int(GRACE_S * 1000) - 1)
    assert world.sweeper.turn().closed == []
    world.client.create(f"{OWNERS_PATH}/dead", b"", ephemeral=True, makepath=True)
    world.clock.advance(100_000)
    assert world.sweeper.turn().closed == []
    world.client.delete(f"{OWNERS_PATH}/dead")
    assert world.sweeper.turn().closed == [], "the grace begins anew"


def test_the_last_word_keeps_what_was_durable_and_names_the_rest_lost(world: World) -> None:
    put(world.store, series_path("dead", 1), b"half an announcement")
    world.wait()
    assert world.sweeper.turn().closed == ["dead"]
    state, closed = world.published()
    kept = len(world.data) + len(frame(0, batch(1)[1])) - 5 if world.file.scheme is Scheme.LENGTH else 0
    assert (state.partitions[0].until, closed, state.partitions[0].closed) == (kept, True, True)
    assert world.store.listing(OPEN) == []
    assert len(world.store.listing(DATA if kept else ABORTED)) == 1
    assert world.sweeper.turn().closed == [], "once"


def test_an_owner_that_comes_back_too_late_learns_that_it_lost_its_stream(world: World) -> None:
    world.wait()
    world.sweeper.turn()
    with pytest.raises(TakenOver):
        world.node.write(world.state(50))
    assert world.published()[1]


def test_an_owner_that_publishes_meanwhile_keeps_its_stream(world: World) -> None:
    """The sweeper names the version that it saw; a newer one is not written over."""
    world.wait()
    real = world.sweeper._settle_all

    def slow(*arguments: object) -> bool:
        world.node.write(world.state(7))
        return real(*arguments)  # type: ignore[arg-type]

    world.sweeper._settle_all = slow  # type: ignore[method-assign,assignment]
    assert world.sweeper.turn().closed == []
    state, closed = world.published()
    assert (state.partitions[0].until, closed) == (7, False)


def test_one_collector_at_a_time(world: World) -> None:
    world.wait()
    world.client.create("/artimon/direct-sweeps/dead", b"third", ephemeral=True, makepath=True)
    assert world.sweeper.turn().closed == []
    world.client.delete("/artimon/direct-sweeps/dead")
    assert world.sweeper.turn().closed == ["dead"]


def test_files_of_its_own_that_failed_are_taken_care_of_at_once_and_no_others(world: World) -> None:
    world.own = {"dead": {world.file.name}}
    world.clock.advance(1_000_000)
    world.sweeper.turn()
    assert len(world.store.listing(OPEN)) == 1, "it is being written"
    world.own = {"dead": set()}
    world.sweeper.turn()
    assert world.store.listing(OPEN) == []
    assert not world.published()[1], "its stream goes on"


def test_the_last_word_is_forgotten_after_a_week(world: World) -> None:
    world.wait()
    world.sweeper.turn()
    world.clock.advance(KEEP_MS)
    assert world.sweeper.turn().forgotten == []
    world.clock.advance(1000)
    assert world.sweeper.turn().forgotten == ["dead"]
    assert world.client.exists("/artimon/acks/dead") is None
