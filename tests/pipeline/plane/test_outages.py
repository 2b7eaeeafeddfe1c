"""Scenario 42, control plane lost: ZooKeeper killed, wiped, cut off. Data flows, and the last configuration stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from artimon.stack.stack import Stack
from pipeline.control import rollout as decide
from tests.pipeline.helpers import polled
from tests.pipeline.plane.wire import Wire
from tests.pipeline.plane.world import Operator, new_name, running, serving
from tests.waiting import eventually
from tests.zookeepers import own_tree

pytestmark = pytest.mark.stack


@pytest.fixture
def chroot(zookeeper: str) -> Iterator[str]:
    """ZooKeeper tree that the test may wipe."""
    with own_tree(zookeeper) as place:
        yield place


def wipe(client: KazooClient) -> None:
    """Delete every node; living processes recreate theirs at once."""
    for name in client.get_children("/artimon"):
        with suppress(NotEmptyError):
            client.delete(f"/artimon/{name}", recursive=True)
    assert not {"config", "collectors"} & set(client.get_children("/artimon"))


@pytest.fixture(autouse=True)
def _short_probation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "PROBATION_S", 0.3)


@pytest.fixture
def operator(chroot: str) -> Iterator[Operator]:
    made = Operator(chroot)
    yield made
    made.close()


def test_scenario_42_zookeeper_killed(tmp_path: Path, zookeeper_stack: Stack, chroot: str, operator: Operator) -> None:
    """Data flows; a restart uses the last configuration; a push is applied once ZooKeeper is back."""
    name, group = new_name(), new_name()
    operator.push(f"agent/{name}", collectors=[group], quota="100MiB")
    with serving(operator.client, new_name(), group) as store, running(name, tmp_path, chroot) as agent:
        eventually(lambda: agent.figures()["collectors_up"] == 1, "it knows the collector")
        eventually(lambda: agent.plane.figures()["good"] == f"agent/{name}@1", "and its configuration")
        zookeeper_stack.kill_part("zookeeper")
        try:
            for number in range(20):
                agent.wal_sink.accept_now([polled(f"source-{number}")])
            eventually(lambda: agent.figures()["pending_batches"] == 0, "data flows without ZooKeeper")
            assert store.messages == 20
            eventually(lambda: "not reachable" in agent.plane.problem, "it says so")
            agent.stop()
            with running(name, tmp_path, chroot) as again:
                assert again.log.quota_bytes == 100 * 2**20
                assert again.plane.figures()["running"] == f"agent/{name}@1"
                again.wal_sink.accept_now([polled("source-1")])
                zookeeper_stack.start_part("zookeeper")
                zookeeper_stack.wait_healthy(60.0, ["zookeeper"])
                eventually(lambda: operator.client.connected, "ZooKeeper is back")
                operator.push(f"agent/{name}", collectors=[group], quota="200MiB")
                eventually(lambda: again.log.quota_bytes == 200 * 2**20, "a push is taken")
                eventually(lambda: "config" in operator.report(name), "and the agent is seen again")
        finally:
            zookeeper_stack.start_part("zookeeper")
            zookeeper_stack.wait_healthy(60.0, ["zookeeper"])


@pytest.mark.slow
def test_scenario_42_zookeeper_wiped(tmp_path: Path, chroot: str, operator: Operator) -> None:
    """An empty tree changes nothing: configuration, collectors and the mode stay. Later pushes count in spite of their
    small version number."""
    name, group = new_name(), new_name()
    for megabytes in (100, 101, 102):
        operator.push(f"agent/{name}", collectors=[group], quota=f"{megabytes}MiB")
    with serving(operator.client, new_name(), group) as store, running(name, tmp_path, chroot) as agent:
        eventually(lambda: agent.plane.figures()["good"] == f"agent/{name}@3", "it runs the third version")
        eventually(lambda: agent.figures()["collectors_up"] == 1, "it knows the collector")
        wipe(operator.client)
        eventually(lambda: "config" in operator.report(name), "it registers again")
        agent.wal_sink.accept_now([polled("source-1")])
        eventually(lambda: store.messages == 1, "data flows")
        assert agent.log.quota_bytes == 102 * 2**20
        assert operator.push(f"agent/{name}", collectors=[group], quota="50MiB").number == 1
        eventually(lambda: agent.log.quota_bytes == 50 * 2**20, "a new lineage counts")


@pytest.mark.slow
def test_scenario_42_cut_off_from_zookeeper_past_its_session(
    tmp_path: Path, zookeeper_stack: Stack, chroot: str, operator: Operator
) -> None:
    """The session expires and others see the agent gone. Once reconnected it obeys commands given meanwhile, unless
    they are too late."""
    name, group = new_name(), new_name()
    wire = Wire(int(zookeeper_stack.zookeeper.rpartition(":")[2]))
    cut_off = f"127.0.0.1:{wire.port}{chroot[chroot.index('/') :]}"
    operator.push(f"agent/{name}", collectors=[group])
    try:
        with serving(operator.client, new_name(), group) as store, running(name, tmp_path, cut_off) as agent:
            eventually(lambda: agent.figures()["collectors_up"] == 1, "it knows the collector")
            eventually(lambda: "config" in operator.report(name), "it is seen")
            wire.cut()
            eventually(lambda: not operator.report(name), "its session ends")
            agent.wal_sink.accept_now([polled("source-1")])
            eventually(lambda: store.messages == 1, "data flows")
            late, kept = operator.give(name, "pause", patience_ms=1), operator.give(name, "roll")
            wire.heal()
            eventually(lambda: operator.answer(name, kept) is not None, "it does what it was told")
            answers = [operator.answer(name, id) for id in (late, kept)]
            assert [answer.state for answer in answers if answer] == ["expired", "done"]
            eventually(lambda: "config" in operator.report(name), "it is seen again")
    finally:
        wire.close()
