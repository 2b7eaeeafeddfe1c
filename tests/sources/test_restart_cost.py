"""Restart of an agent: at most 20 messages to and from ZooKeeper in the whole fleet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Watch

from artimon.runtime.partition_counts import ACKS_PATH
from benchmarks.fleet import Fleet, collector
from sources.poll.agent_election import MAX_FLEET_DELAY_S
from tests.waiting import until
from tests.zookeepers import own_tree

pytestmark = pytest.mark.stack
AGENTS = 5
MOST = 20
ATTEMPTS = 3
"""Restarts that are counted: the checks that every agent makes once a minute may fall into one of them."""


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


def test_a_restart_costs_few_messages(zookeeper: str, tmp_path: Path, messages: list[str]) -> None:
    async def run(tree: str) -> None:
        names = [f"a{n:05d}" for n in range(AGENTS)]
        fleet = Fleet(names, tmp_path, tree, asyncio.get_running_loop())
        try:
            await asyncio.to_thread(fleet.start)
            await until(lambda: all(one.holds for one in fleet.agents), "each has its host")
            await asyncio.sleep(MAX_FLEET_DELAY_S + 1)
            for _ in range(ATTEMPTS):
                messages.clear()
                await asyncio.to_thread(fleet.restart, -1)
                await until(lambda: fleet.agents[-1].holds, "its host again")
                await asyncio.sleep(MAX_FLEET_DELAY_S + 1)
                if len(messages) <= MOST:
                    break
            assert len(messages) <= MOST, messages
            assert sum("event" in one for one in messages) >= 3, "the elected agents saw it go"
        finally:
            await asyncio.to_thread(fleet.stop)

    with own_tree(zookeeper) as tree, collector(tree):
        asyncio.run(run(tree))
