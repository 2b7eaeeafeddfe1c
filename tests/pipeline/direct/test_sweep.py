"""Recovery of the files of dead collectors, and the right to close a stream; with a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from artimon.model.ack_state import AckState, PartitionState
from artimon.model.clock import ManualClock
from pipeline.collector.hdfs.ack_publisher import AckNode, StreamTakenOverError
from pipeline.collector.hdfs.batch_file import encode_batch_record, encode_header
from pipeline.collector.hdfs.file_names import ABORTED, DATA, OPEN, Scheme, UnfinishedName, series_path
from pipeline.collector.hdfs.hdfs_writer import OWNERS_PATH
from pipeline.collector.hdfs.stream_sweeper import KEEP_MS, StreamSweeper
from pipeline.rolling_files.file_store import LocalStore
from tests.pipeline.direct.test_container import put
from tests.pipeline.direct.test_service import chroot
from tests.pipeline.direct.test_stream import batch

__all__ = ["chroot"]
pytestmark = pytest.mark.stack
GRACE_S = 30.0


class World:
    """Folder with an open file, the node of its stream, and the sweeper of another collector."""

    def __init__(self, folder: Path, zookeeper: str, scheme: Scheme) -> None:
        self.client = KazooClient(zookeeper)
        self.client.start(10)
        self.store = LocalStore(folder)
        self.clock = ManualClock(1_700_000_000_000)
        self.own: dict[str, Collection[str]] = {}
        self.sweeper = StreamSweeper(self.store, self.client, "other", lambda: self.own, self.clock, GRACE_S)
        self.file = UnfinishedName("dead", 0, scheme)
        self.data = encode_header("dead", 0) + encode_batch_record(0, batch(0)[1])
        put(self.store, self.file.path, self.data + encode_batch_record(0, batch(1)[1])[:-5])
        self.node = AckNode(self.client, "dead", "dead")
        self.node.write(self.state())

    def state(self, until: int = 0) -> AckState:
        return AckState(self.store.uri, "t.samples", "dead", self.clock.now_ms(), {0: PartitionState(until, 0, 9999)})

    def published(self) -> tuple[AckState, bool]:
        data, _ = self.client.get("/artimon/acks/dead")
        return AckState.from_json(data), bool(json.loads(data)["closed"])

    def wait(self) -> None:
        """Advance the clock past the grace period."""
        self.sweeper.sweep()
        self.clock.advance(int(GRACE_S * 1000))

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.fixture(params=list(Scheme))
def sweep_world(request: pytest.FixtureRequest, tmp_path: Path, chroot: str) -> Iterator[World]:
    made = World(tmp_path, chroot, request.param)
    yield made
    made.close()


def test_a_stream_is_kept_during_the_grace_period_and_while_its_owner_is_registered(sweep_world: World) -> None:
    assert sweep_world.sweeper.sweep().closed == []
    sweep_world.clock.advance(int(GRACE_S * 1000) - 1)
    assert sweep_world.sweeper.sweep().closed == []
    sweep_world.client.create(f"{OWNERS_PATH}/dead", b"", ephemeral=True, makepath=True)
    sweep_world.clock.advance(100_000)
    assert sweep_world.sweeper.sweep().closed == []
    sweep_world.client.delete(f"{OWNERS_PATH}/dead")
    assert sweep_world.sweeper.sweep().closed == [], "the grace period restarts"


def test_a_sweep_keeps_durable_batches_and_declares_the_rest_lost(sweep_world: World) -> None:
    put(sweep_world.store, series_path("dead", 1), b"half an announcement")
    sweep_world.wait()
    assert sweep_world.sweeper.sweep().closed == ["dead"]
    state, closed = sweep_world.published()
    kept = (
        len(sweep_world.data) + len(encode_batch_record(0, batch(1)[1])) - 5
        if sweep_world.file.scheme is Scheme.LENGTH
        else 0
    )
    assert (state.partitions[0].until, closed, state.partitions[0].closed) == (kept, True, True)
    assert sweep_world.store.list_folder(OPEN) == []
    assert len(sweep_world.store.list_folder(DATA if kept else ABORTED)) == 1
    assert sweep_world.sweeper.sweep().closed == [], "once"


def test_an_owner_that_returns_too_late_learns_that_it_lost_its_stream(sweep_world: World) -> None:
    sweep_world.wait()
    sweep_world.sweeper.sweep()
    with pytest.raises(StreamTakenOverError):
        sweep_world.node.write(sweep_world.state(50))
    assert sweep_world.published()[1]


def test_an_owner_that_publishes_meanwhile_keeps_its_stream(sweep_world: World) -> None:
    """The sweeper writes conditionally on the version it read; a newer one is kept."""
    sweep_world.wait()
    real = sweep_world.sweeper._finish_files

    def slow(*arguments: object) -> bool:
        sweep_world.node.write(sweep_world.state(7))
        return real(*arguments)  # type: ignore[arg-type]

    sweep_world.sweeper._finish_files = slow  # type: ignore[method-assign,assignment]
    assert sweep_world.sweeper.sweep().closed == []
    state, closed = sweep_world.published()
    assert (state.partitions[0].until, closed) == (7, False)


def test_only_one_collector_sweeps_at_a_time(sweep_world: World) -> None:
    sweep_world.wait()
    sweep_world.client.create("/artimon/direct-sweeps/dead", b"third", ephemeral=True, makepath=True)
    assert sweep_world.sweeper.sweep().closed == []
    sweep_world.client.delete("/artimon/direct-sweeps/dead")
    assert sweep_world.sweeper.sweep().closed == ["dead"]


def test_a_collector_recovers_its_own_failed_files_at_once_and_no_others(sweep_world: World) -> None:
    sweep_world.own = {"dead": {sweep_world.file.name}}
    sweep_world.clock.advance(1_000_000)
    sweep_world.sweeper.sweep()
    assert len(sweep_world.store.list_folder(OPEN)) == 1, "the file is open"
    sweep_world.own = {"dead": set()}
    sweep_world.sweeper.sweep()
    assert sweep_world.store.list_folder(OPEN) == []
    assert not sweep_world.published()[1], "its stream goes on"


def test_the_node_of_a_closed_stream_is_deleted_after_a_week(sweep_world: World) -> None:
    sweep_world.wait()
    sweep_world.sweeper.sweep()
    sweep_world.clock.advance(KEEP_MS)
    assert sweep_world.sweeper.sweep().deleted == []
    sweep_world.clock.advance(1000)
    assert sweep_world.sweeper.sweep().deleted == ["dead"]
    assert sweep_world.client.exists("/artimon/acks/dead") is None
