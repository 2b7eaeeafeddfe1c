"""Restart of an agent, start of a container: at most 20 messages to and from ZooKeeper in the whole fleet each."""

from __future__ import annotations

import asyncio
import threading
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Watch

from artimon.runtime.partition_counts import ACKS_PATH
from benchmarks.fleet import Fleet, FleetAgent, collector, process_of
from sources.poll.agent_election import MAX_CLAIMS_DELAY_S, MAX_FLEET_DELAY_S
from tests.waiting import until
from tests.zookeepers import own_tree

pytestmark = pytest.mark.stack
AGENTS = 5
MOST = 20
REACTION_S = MAX_FLEET_DELAY_S + 1
CLAIMS_REACTION_S = MAX_CLAIMS_DELAY_S + 1
ATTEMPTS = 6
"""Changes that are counted: the checks that every agent makes once a minute may fall into one of them."""


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Requests and watch events of all clients of this process, without those about acks."""
    found: list[str] = []
    call, event = KazooClient._call, ConnectionHandler._read_watch_event

    def note(kind: str, path: str) -> None:
        if ACKS_PATH not in path:
            found.append(f"{kind} {path}")

    def noted_call(client: Any, request: Any, answer: Any) -> Any:
        note(type(request).__name__, getattr(request, "path", ""))
        return call(client, request, answer)

    def noted_event(handler: Any, buffer: Any, offset: int) -> Any:
        note("event", Watch.deserialize(buffer, offset)[0].path)
        return event(handler, buffer, offset)

    monkeypatch.setattr(KazooClient, "_call", noted_call)
    monkeypatch.setattr(ConnectionHandler, "_read_watch_event", noted_event)
    return found


@pytest.mark.parametrize(("agents", "pause_s"), [(5, 0.0), (15, MAX_FLEET_DELAY_S + 1)])
def test_a_restart_costs_few_messages(
    zookeeper: str, tmp_path: Path, messages: list[str], agents: int, pause_s: float
) -> None:
    """As few in a larger fleet, and if the agent is away for a while: each elected agent has one event and one read."""

    async def run(tree: str) -> None:
        names, root = [f"a{n:05d}" for n in range(agents)], "/" + tree.rpartition("/")[2]
        fleet = Fleet(names, tmp_path, tree, asyncio.get_running_loop())
        try:
            await asyncio.to_thread(fleet.start)
            await until(lambda: all(one.held for one in fleet.agents), "each has its host")
            await asyncio.sleep(CLAIMS_REACTION_S)
            for _ in range(ATTEMPTS):
                messages.clear()
                await asyncio.to_thread(fleet.restart, -1, pause_s)
                await until(lambda: fleet.agents[-1].held, "its host again")
                await asyncio.sleep(CLAIMS_REACTION_S - pause_s)
                found = [one for one in messages if not one.endswith(root)]  # but proofs of sessions
                if len(found) <= MOST:
                    break
            assert len(found) <= MOST, found
            assert sum("event" in one for one in found) >= 3, "the elected agents saw it go"
        finally:
            await asyncio.to_thread(fleet.stop)

    with own_tree(zookeeper) as tree, collector(tree):
        asyncio.run(run(tree))


def test_the_start_of_a_container_costs_few_messages(zookeeper: str, tmp_path: Path, messages: list[str]) -> None:
    """Its address is a host key of its own, in the network of an agent (`--own-network`)."""

    async def run(tree: str) -> None:
        loop, processes, root = asyncio.get_running_loop(), list[Any](), "/" + tree.rpartition("/")[2]
        fleet = Fleet([f"a{n:05d}" for n in range(AGENTS)], tmp_path, tree, loop)
        agent = FleetAgent("of-containers", tmp_path, tree, loop, [ip_network("10.244.3.0/24")])
        fleet.agents.append(agent)
        try:
            await asyncio.to_thread(fleet.start)
            await until(lambda: all(one.held for one in fleet.agents), "each has its host")
            await asyncio.sleep(2 * REACTION_S)
            for n in range(1, ATTEMPTS + 1):
                messages.clear()
                processes.append(process_of(f"10.244.3.{n}", tree, is_first=True))
                threading.Thread(target=processes[-1].run, daemon=True).start()
                await until(lambda: agent.held == 1 + len(processes), "the agent of its network polls the container")
                await asyncio.sleep(REACTION_S)
                found = [one for one in messages if not one.endswith(root)]  # but proofs of sessions
                if len(found) <= MOST:
                    break
            assert len(found) <= MOST, found
            assert sum("event" in one for one in found) >= 7, "three elected agents, twice, and the one that polls"
        finally:
            for process in processes:
                await asyncio.to_thread(process.stop)
            await asyncio.to_thread(fleet.stop)

    with own_tree(zookeeper) as tree, collector(tree):
        asyncio.run(run(tree))
