"""Restart of an agent, start of a container: at most 20 messages to and from ZooKeeper in the whole fleet each."""

from __future__ import annotations

import asyncio
import threading
from ipaddress import ip_network
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from artimon.runtime.partition_counts import ACKS_PATH
from benchmarks.fleet import Fleet, FleetAgent, MessageCount, collector, process_of
from bookkeeper.process.ephemeral_node import EndpointRegistration
from sources.poll.agent_election import MAX_CLAIMS_DELAY_S, MAX_FLEET_DELAY_S
from tests.waiting import until
from tests.zookeepers import own_tree

pytestmark = pytest.mark.stack
AGENTS = 5
MOST = 20
REACTION_S = MAX_FLEET_DELAY_S + 1
CLAIMS_REACTION_S = MAX_CLAIMS_DELAY_S + 1
CHANGES = 5
"""Changes whose median counts: the checks that every agent makes once a minute may fall into one of them."""


class CausedMessages(MessageCount):
    """The messages that changes cause, as the benchmark counts them, with their paths; those about acks left out."""

    def __init__(self, *at_rest: KazooClient) -> None:
        super().__init__()
        self.found: list[str] = []
        for client in at_rest:
            self.learn(client)

    def _request(self, client: KazooClient, path: str) -> None:
        before = self.caused
        super()._request(client, path)
        self.found += [path] * (self.caused - before)

    def _event(self, client: KazooClient, path: str) -> None:
        if ACKS_PATH not in path:
            super()._event(client, path)
            self.found.append(f"event {path}")

    def take(self) -> list[str]:
        """Return what was caused since the last time."""
        found, self.found = self.found, []
        return found


def typical(counted: list[list[str]]) -> list[str]:
    """Return the median by number of messages."""
    return sorted(counted, key=len)[len(counted) // 2]


@pytest.mark.parametrize(("agents", "pause_s"), [(5, 0.0), (15, MAX_FLEET_DELAY_S + 1)])
def test_a_restart_costs_few_messages(zookeeper: str, tmp_path: Path, agents: int, pause_s: float) -> None:
    """As few in a larger fleet, and if the agent is away for a while: each elected agent has one event and one read."""

    async def run(tree: str, collectors: KazooClient) -> None:
        fleet = Fleet([f"a{n:05d}" for n in range(agents)], tmp_path, tree, asyncio.get_running_loop())
        try:
            await asyncio.to_thread(fleet.start)
            await until(lambda: all(one.held for one in fleet.agents), "each has its host")
            await asyncio.sleep(CLAIMS_REACTION_S)
            count, counted = CausedMessages(collectors, *(one.client for one in fleet.agents)), []
            with count.counting():
                for _ in range(CHANGES):
                    count.forget(fleet.agents[-1].client)
                    await asyncio.to_thread(fleet.restart, -1, pause_s)
                    await until(lambda: fleet.agents[-1].held, "its host again")
                    await asyncio.sleep(CLAIMS_REACTION_S - pause_s)
                    count.learn(fleet.agents[-1].client)
                    counted.append(count.take())
            found = typical(counted)
            assert len(found) <= MOST, (list(map(len, counted)), found)
            assert sum("event" in one for one in found) >= 3, "the elected agents saw it go"
        finally:
            await asyncio.to_thread(fleet.stop)

    with own_tree(zookeeper) as tree, collector(tree) as collectors:
        asyncio.run(run(tree, collectors))


def test_the_start_of_a_container_costs_few_messages(zookeeper: str, tmp_path: Path) -> None:
    """Its address is a host key of its own, in the network of an agent (`--own-network`)."""

    async def run(tree: str, collectors: KazooClient) -> None:
        loop, processes = asyncio.get_running_loop(), list[EndpointRegistration]()
        fleet = Fleet([f"a{n:05d}" for n in range(AGENTS)], tmp_path, tree, loop)
        agent = FleetAgent("of-containers", tmp_path, tree, loop, [ip_network("10.244.3.0/24")])
        fleet.agents.append(agent)
        try:
            await asyncio.to_thread(fleet.start)
            await until(lambda: all(one.held for one in fleet.agents), "each has its host")
            await asyncio.sleep(2 * REACTION_S)
            count, counted = CausedMessages(collectors, *(one.client for one in fleet.agents)), []
            with count.counting():
                for n in range(1, CHANGES + 1):
                    processes.append(process_of(f"10.244.3.{n}", tree, is_first=True))
                    threading.Thread(target=processes[-1].run, daemon=True).start()
                    await until(lambda: agent.held == 1 + len(processes), "the agent of its network polls it")
                    await asyncio.sleep(REACTION_S)
                    counted.append(count.take())
            found = typical(counted)
            assert len(found) <= MOST, (list(map(len, counted)), found)
            assert sum("event" in one for one in found) >= 7, "three elected agents, twice, and the one that polls"
        finally:
            for process in processes:
                await asyncio.to_thread(process.stop)
            await asyncio.to_thread(fleet.stop)

    with own_tree(zookeeper) as tree, collector(tree) as collectors:
        asyncio.run(run(tree, collectors))
