"""The end of a collector costs its agents no message to ZooKeeper: they know the others, and turn to them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

from artimon.model.ack_state import Position, SentBatch
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.partition_counts import ACKS_PATH
from pipeline.collector.collector import Collector
from pipeline.collector.collector_handler import CollectorHandler
from pipeline.collector.link_server import LinkServer
from pipeline.collector.notice_board import NoticeBoard
from pipeline.control import collector_notices
from pipeline.control.ack_watcher import AckWatcher
from pipeline.control.collector_notices import CollectorNotices
from pipeline.link.collector_choice import COLLECTORS_PATH
from pipeline.link.collector_client import CollectorClient
from pipeline.link.collector_link import CollectorLink
from pipeline.link.config_changes import ConfigChanges
from pipeline.link.idl import collector_idl
from tests.pipeline.link.test_notices import TOPIC, place, state
from tests.sources.helpers import registry
from tests.waiting import eventually
from tests.zookeepers import own_tree

AGENTS = 12
pytestmark = pytest.mark.stack


@dataclass
class LightCollector:
    """Collector that has news and takes no batches."""

    name: str
    zk: KazooClient

    def __enter__(self) -> LightCollector:
        self.board = NoticeBoard(self.zk, SYSTEM_CLOCK)
        self.handler = CollectorHandler(Collector(SimpleNamespace()), 8, self.board)
        self.server = LinkServer(collector_idl().Collector, self.handler)
        self.zk.create(f"{COLLECTORS_PATH}/{self.name}", place(self.server.start()), makepath=True)
        self.board.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.board.stop()
        self.server.stop(0.1)
        self.handler.stop()

    def die(self) -> None:
        self.server.stop(0.0)
        self.zk.delete(f"{COLLECTORS_PATH}/{self.name}")


class LightAgent:
    """What an agent has of its collectors: a connection, news, and a batch that waits for its ack."""

    def __init__(self, name: str, zk: KazooClient) -> None:
        self.client = CollectorClient(CollectorLink.of(name), SYSTEM_CLOCK)
        self.notices = CollectorNotices(self.client, [f"agent/{name}"], SYSTEM_CLOCK)
        self.notices.config_read(ConfigChanges())
        self.acked: list[Any] = []
        self.watcher = AckWatcher(zk, self, TOPIC, self.notices)
        self.notices.on_acks = self.watcher.wake

    def update_collectors(self, found: Any) -> None:
        self.client.update(found)

    def unacked(self) -> list[Any]:
        return [] if self.acked else [SentBatch("batch", Position("c", "T", 0, 7))]

    def apply_verdict(self, verdict: Any) -> None:
        self.acked += verdict.acked


@contextlib.contextmanager
def agents(zk: KazooClient) -> Iterator[list[LightAgent]]:
    """Agents that share a session, so that its messages are all of theirs."""
    fleet = [LightAgent(f"agent-{n}", zk) for n in range(AGENTS)]
    for agent in fleet:
        agent.watcher.start()
        agent.notices.start()
    try:
        yield fleet
    finally:
        for agent in fleet:
            agent.notices.stop(0.0)
            agent.watcher.stop()
            agent.client.close()


@contextlib.contextmanager
def counting(zk: KazooClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the requests and the watch events of a session."""
    found: Counter[str] = Counter()
    call, event = KazooClient._call, ConnectionHandler._read_watch_event

    def counted_call(client: Any, request: Any, answer: Any) -> Any:
        found[type(request).__name__] += client is zk
        return call(client, request, answer)

    def counted_event(handler: Any, *arguments: Any) -> Any:
        found["event"] += handler.client is zk
        return event(handler, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(KazooClient, "_call", counted_call)
        patch.setattr(ConnectionHandler, "_read_watch_event", counted_event)
        yield found


def test_agents_of_a_collector_that_ends_ask_zookeeper_nothing(zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_notices, "GRACE_S", 300.0)  # the agents of a busy machine need longer
    with own_tree(zookeeper) as tree, registry(tree) as ours, registry(tree) as theirs, contextlib.ExitStack() as stack:
        ours.create(f"{ACKS_PATH}/T", state(5), makepath=True)
        collectors = [stack.enter_context(LightCollector(name, ours)) for name in ("a", "b", "c")]
        fleet = stack.enter_context(agents(theirs))
        eventually(lambda: sum(one.board.waiting for one in collectors) == AGENTS, "all wait for news")
        assert all(one.board.waiting for one in collectors), "they are spread"
        dying, others = max(collectors, key=lambda one: one.board.waiting), list(collectors)
        others.remove(dying)
        eventually(lambda: all(len(agent.notices.collectors or ()) == 3 for agent in fleet), "they know all collectors")
        with counting(theirs, monkeypatch) as messages:
            dying.die()
            eventually(lambda: sum(one.board.waiting for one in others) == AGENTS, "all wait at the others")
            eventually(lambda: all(len(agent.notices.collectors or ()) == 2 for agent in fleet), "they know it is gone")
            ours.set(f"{ACKS_PATH}/T", state(8))
            eventually(lambda: all(agent.acked for agent in fleet), "acks arrive")
            assert sum(messages.values()) == 0, messages
