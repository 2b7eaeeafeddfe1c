"""Real agents, collectors that write files, ZooKeeper and HDFS: every accepted batch is in the folder, and is acked
only when durable there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from artimon.model.batch import BatchId
from artimon.stack.stack import Stack
from pipeline.collector.hdfs.file_names import ABORTED, DATA, OPEN, Scheme, parse_finished
from pipeline.collector.hdfs.folder_reader import FolderReader
from pipeline.collector.hdfs.hdfs_collector import HdfsCollectorConfig, run_hdfs_collector
from pipeline.collector.hdfs.stream_state import RollConfig
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.rolling_files.file_store import open_store
from tests.pipeline.helpers import polled, started
from tests.waiting import eventually
from tests.zookeepers import connected, own_tree

pytestmark = pytest.mark.stack

COLLECTOR = """
import sys, threading
from pipeline.collector.hdfs.file_names import Scheme
from pipeline.collector.hdfs.stream_state import RollConfig
from pipeline.collector.hdfs.hdfs_collector import HdfsCollectorConfig, run_hdfs_collector
id, zookeeper, folder, scheme, seconds = sys.argv[1:]
roll = RollConfig(seconds=float(seconds))
config = HdfsCollectorConfig(id, zookeeper, folder, Scheme(scheme), roll, scan_s=0.5, grace_s=1.0, sync_s=0.1)
run_hdfs_collector(config, threading.Event())
"""


@pytest.fixture
def chroot(zookeeper: str) -> Iterator[str]:
    """Unique ZooKeeper tree."""
    with own_tree(zookeeper) as place:
        yield place


@pytest.fixture
def folder(hdfs: str) -> str:
    return f"{hdfs}/t{uuid.uuid4().hex[:12]}"


@contextmanager
def collector(id: str, zookeeper: str, folder: str, scheme: Scheme, seconds: float = 1.0) -> Iterator[None]:
    """Run a collector in a thread of this process; it must stop in time."""
    stop = threading.Event()
    config = HdfsCollectorConfig(
        id, zookeeper, folder, scheme, RollConfig(seconds=seconds), scan_s=0.5, grace_s=1.0, sync_s=0.1, stop_s=4.0
    )
    thread = threading.Thread(target=run_hdfs_collector, args=(config, stop), name=id)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive(), "the collector did not stop in time"


def spawn(id: str, zookeeper: str, folder: str, scheme: Scheme, seconds: float = 60.0) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", COLLECTOR, id, zookeeper, folder, scheme, str(seconds)])


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


@contextmanager
def agent(data: Path, zookeeper: str, level: str = "hdfs") -> Iterator[Agent]:
    with started(Agent(AgentConfig("agent-1", data, zookeeper, level))) as running:  # type: ignore[arg-type]
        yield running


def pending(one: Agent) -> int:
    count: int = one.figures()["pending_batches"]
    return count


def sent(one: Agent) -> int:
    return len(one._sender.unacked())


def stored(folder: str) -> tuple[set[BatchId], FolderReader]:
    reader = FolderReader(open_store(folder))
    ids = {found.header.id for found in reader.batches()}
    assert reader.report.damaged == []
    return ids, reader


@pytest.mark.parametrize("scheme", list(Scheme))
def test_everything_is_in_the_folder_once_and_the_log_empties(
    tmp_path: Path, chroot: str, folder: str, scheme: Scheme
) -> None:
    with agent(tmp_path, chroot) as one, collector("c", chroot, folder, scheme):
        for n in range(40):
            one.wal_sink.accept_now([polled(f"source-{n % 7}", 100, announce=n < 7)])
        eventually(lambda: pending(one) == 0, "all are acked")
        assert one.figures()["resent_batches"] == 0
    ids, reader = stored(folder)
    assert len(ids) == reader.report.batches == 40
    assert reader.report.samples == 4000
    assert len(reader.blocks()) == 7, "announcements are durable when they are answered"
    found = [
        parse_finished(one.path)
        for hour in open_store(folder).list_folder(DATA)
        for one in open_store(folder).list_folder(hour.path)
    ]
    assert found
    assert None not in found
    with agent(tmp_path, chroot) as again:
        assert pending(again) == 0, "acks are persisted"


def test_an_open_file_acks_nothing_at_any_level(tmp_path: Path, chroot: str, folder: str) -> None:
    """Level `kafka` takes an answer for an ack; here the answer holds only the future position of the batch."""
    with agent(tmp_path, chroot, "kafka") as one, collector("c", chroot, folder, Scheme.ROLL, 3600.0):
        one.wal_sink.accept_now([polled("a")])
        eventually(lambda: sent(one) == 1, "it has a position")
        assert pending(one) == 1


@pytest.mark.parametrize("scheme", [pytest.param(Scheme.ROLL, marks=pytest.mark.slow), Scheme.LENGTH])
def test_scenario_23_a_collector_killed_in_the_middle_of_a_file(tmp_path: Path, chroot: str, scheme: Scheme) -> None:
    """Another collector closes its stream: durable batches are kept, all others are sent again, each stored once."""
    killed_in_the_middle(tmp_path / "agent", chroot, f"file://{tmp_path / 'store'}", scheme)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", list(Scheme))
def test_scenario_23_a_collector_killed_in_the_middle_of_a_file_on_hdfs(
    tmp_path: Path, chroot: str, folder: str, scheme: Scheme
) -> None:
    killed_in_the_middle(tmp_path, chroot, folder, scheme)


def killed_in_the_middle(data: Path, chroot: str, folder: str, scheme: Scheme) -> None:
    with agent(data, chroot) as one:
        process = spawn("first", chroot, folder, scheme)
        try:
            for n in range(20):
                one.wal_sink.accept_now([polled(f"source-{n % 5}", 50)])
            eventually(lambda: sent(one) == 20 or pending(one) == 0, "all have positions")
            if scheme is Scheme.LENGTH:
                eventually(lambda: pending(one) == 0, "acked before the file is closed")
            else:
                if folder.startswith("file:"):  # the position is assigned before the batch is written
                    eventually(lambda: any(f.length for f in open_store(folder).list_folder(OPEN)), "the file is begun")
                assert pending(one) == 20, "an unclosed file acks nothing"
        finally:
            kill(process)
        with collector("second", chroot, folder, scheme):
            for n in range(10):
                one.wal_sink.accept_now([polled(f"source-{n % 5}", 50)])
            eventually(lambda: pending(one) == 0, "all are acked")
            eventually(lambda: not foreign(folder, "second"), "what the dead one left is taken care of")
        resent = one.figures()["resent_batches"]
    ids, _ = stored(folder)
    assert len(ids) == 30
    assert resent == (0 if scheme is Scheme.LENGTH else 20)
    if folder.startswith("file:"):  # HDFS has nothing of a file that was never synced
        assert bool(open_store(folder).list_folder(ABORTED)) == (scheme is Scheme.ROLL)


def foreign(folder: str, mine: str) -> list[str]:
    """Open files of other collectors than `mine`."""
    return [
        found.path for found in open_store(folder).list_folder(OPEN) if not found.path.startswith(f"{OPEN}/{mine}-")
    ]


@pytest.mark.slow
def test_hdfs_down_for_a_while_loses_nothing(tmp_path: Path, chroot: str, folder: str, hdfs_stack: Stack) -> None:
    """Scenarios 17 and 21: while the NameNode is down agents keep their batches; they are sent once it is back."""
    with agent(tmp_path, chroot) as one, collector("c", chroot, folder, Scheme.ROLL):
        one.wal_sink.accept_now([polled("a")])
        eventually(lambda: pending(one) == 0, "the way is open")
        hdfs_stack.stop_part("namenode")
        try:
            for n in range(30):
                one.wal_sink.accept_now([polled(f"source-{n}", 20)])
            eventually(lambda: sent(one) > 0 or bool(one.figures()["nacks"]), "they reach the collector")
            assert pending(one) == 30, "nothing is acked meanwhile"
        finally:
            hdfs_stack.start_part("namenode")
            hdfs_stack.wait_healthy(90)
        eventually(lambda: pending(one) == 0, "it drains")
    assert len(stored(folder)[0]) == 31


@pytest.mark.slow
def test_scenario_17_stop_is_bounded_while_hdfs_is_down(
    tmp_path: Path, chroot: str, folder: str, hdfs_stack: Stack
) -> None:
    with agent(tmp_path, chroot) as one:
        with collector("c", chroot, folder, Scheme.ROLL, 3600.0):
            one.wal_sink.accept_now([polled("a")])
            eventually(lambda: sent(one) == 1, "it waits in an open file")
            hdfs_stack.stop_part("namenode")
            began = monotonic()
        try:
            assert monotonic() - began < 15
        finally:
            hdfs_stack.start_part("namenode")
            hdfs_stack.wait_healthy(90)
        with collector("d", chroot, folder, Scheme.ROLL):
            eventually(lambda: pending(one) == 0, "sent again to another one")


def test_scenario_42_zookeeper_gone_and_wiped(tmp_path: Path, chroot: str, folder: str) -> None:
    """The ack nodes are lost while batches wait for them: the living collector publishes them again."""
    with (
        connected(chroot) as client,
        agent(tmp_path, chroot) as one,
        collector("c", chroot, folder, Scheme.ROLL),
    ):
        one.wal_sink.accept_now([polled("a")])
        client.delete("/artimon/acks", recursive=True)
        one.wal_sink.accept_now([polled("b")])
        eventually(lambda: pending(one) == 0, "all are acked")
        nodes = client.get_children("/artimon/acks")
        assert len(nodes) == 1
        assert json.loads(client.get(f"/artimon/acks/{nodes[0]}")[0])["cluster"] == folder
    assert len(stored(folder)[0]) == 2
