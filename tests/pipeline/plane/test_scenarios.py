"""Scenarios 20, 24 and 36 of the agent: dead peers, bad names, a configuration that keeps changing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from artimon.model.batch import BatchId
from artimon.model.batch_codec import verify
from pipeline.control import rollout as decide
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from tests.pipeline.helpers import polled
from tests.pipeline.plane.world import Operator, Store, key_file, new_name, running, serving
from tests.waiting import eventually

pytestmark = pytest.mark.stack

STOP_S = 30.0
"""`Agent.stop` says about 8 s; the rest is for a busy machine."""


@pytest.fixture
def operator(zookeeper: str) -> Iterator[Operator]:
    made = Operator(zookeeper)
    yield made
    made.close()


@contextmanager
def registered(operator: Operator, host: str, port: int, group: str) -> Iterator[None]:
    """Register a collector endpoint, with or without a server behind it."""
    path = f"/artimon/collectors/{new_name()}"
    data = json.dumps({"host": host, "port": port, "group": group}).encode()
    operator.client.create(path, data, ephemeral=True, makepath=True)
    try:
        yield
    finally:
        operator.client.delete(path)


def stop_of(agent: Agent) -> float:
    began = monotonic()
    agent.stop()
    return monotonic() - began


def test_scenario_20_stop_is_bounded_with_a_dead_peer_and_bad_names(
    tmp_path: Path, zookeeper: str, operator: Operator
) -> None:
    """One peer accepts connections and never answers, one has no address; accepted batches stay in the log."""
    name, group = new_name(), new_name()
    operator.push(f"agent/{name}", collectors=[group])
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        registered(operator, "127.0.0.1", silent.getsockname()[1], group),
        registered(operator, "no-such-host.invalid", 4141, group),
    ):
        agent = Agent(AgentConfig(name, tmp_path, zookeeper, "kafka", keys=key_file(tmp_path)))
        agent.start()
        eventually(lambda: agent.figures()["collectors"] >= 2, "it knows both")
        for number in range(8):
            agent.wal_sink.accept_now([polled(f"source-{number}")])
        eventually(lambda: agent.figures()["carried_bytes"] > 0, "calls are under way")
        assert stop_of(agent) < STOP_S
    again = Agent(AgentConfig(name, tmp_path, "no-such-host.invalid:2181", "kafka", keys=key_file(tmp_path)))
    again.start()
    assert again.figures()["pending_batches"] == 8
    assert stop_of(again) < STOP_S, "also with a ZooKeeper that has no address"


def test_scenario_24_no_collector_can_be_resolved(tmp_path: Path, zookeeper: str, operator: Operator) -> None:
    """Nothing is acked or lost; every batch is sent as soon as a collector can be reached."""
    name, group = new_name(), new_name()
    operator.push(f"agent/{name}", collectors=[group])
    with registered(operator, "no-such-host.invalid", 4141, group), running(name, tmp_path, zookeeper) as agent:
        eventually(lambda: agent.plane.figures()["good"] == f"agent/{name}@1", "it knows its group")
        for number in range(10):
            agent.wal_sink.accept_now([polled(f"source-{number}")])
        eventually(lambda: agent.figures()["collectors"] > agent.figures()["collectors_up"], "it was tried")
        assert (agent.figures()["acked_batches"], agent.figures()["pending_batches"]) == (0, 10)
        with serving(operator.client, new_name(), group) as store:
            eventually(lambda: agent.figures()["pending_batches"] == 0, "all are acked")
            assert store.messages == 10


class Ledger(Store):
    """Records the batches that arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[BatchId] = set()

    def send(self, messages: list[bytes]) -> list[object]:
        self.ids.update(verify(message).id for message in messages)
        return super().send(messages)


def test_scenario_36_reconfigured_live_and_stopped_just_after_its_start(
    tmp_path: Path, zookeeper: str, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are accepted and sent while versions follow one another; then starts are followed at once by stops.
    Every accepted batch arrives, and nothing hangs."""
    monkeypatch.setattr(decide, "PROBATION_S", 0.2)
    name, one, other = new_name(), new_name(), new_name()
    ledger, accepted = Ledger(), 0
    operator.push(f"agent/{name}", collectors=[one])
    with (
        serving(operator.client, new_name(), one, store=ledger),
        serving(operator.client, new_name(), other, store=ledger),
    ):
        with running(name, tmp_path, zookeeper) as agent:
            for number in range(12):
                operator.push(
                    f"agent/{name}",
                    collectors=[(one, other)[number % 2]],
                    quota=f"{100 + number}MiB",
                    credits=f"{1 + number % 3}MiB",
                    level=("kafka", "hdfs")[number % 5 == 4],
                )
                for source in range(5):
                    agent.wal_sink.accept_now([polled(f"source-{source}", 50)])
                    accepted += 1
            eventually(lambda: agent.log.quota_bytes == 111 * 2**20, "the last version runs")
            # two ends during its trial would be a reason to refuse it
            eventually(lambda: not agent.plane.figures()["trial"], "and has passed its trial")
        for _ in range(4):
            agent = Agent(AgentConfig(name, tmp_path, zookeeper, "kafka", keys=key_file(tmp_path)))
            agent.start()
            agent.wal_sink.accept_now([polled("source-0", 50)])
            accepted += 1
            assert stop_of(agent) < STOP_S
        with running(name, tmp_path, zookeeper) as agent:
            eventually(lambda: len(ledger.ids) == accepted, "every accepted batch came")
            eventually(lambda: agent.figures()["pending_batches"] == 0, "and is acked")
