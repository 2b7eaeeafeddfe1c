"""Ack states reach an agent through its collector; ZooKeeper is read if no collector tells them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient

from artimon.model.ack_state import AckState, PartitionState, Position, SentBatch
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from artimon.runtime.partition_counts import ACKS_PATH
from bookkeeper.rpc.framed_server import FramedServer
from pipeline.collector.ack_mirror import AckMirror
from pipeline.collector.collector import Collector
from pipeline.control.ack_watcher import MAX_ASK_S, UNANSWERED_S, AckWatcher
from pipeline.link.collector_choice import COLLECTORS_PATH, CollectorEndpoint
from pipeline.link.collector_client import CollectorCallError, CollectorClient
from pipeline.link.collector_link import CollectorLink
from pipeline.link.idl import collector_idl
from tests.sources.helpers import registry
from tests.waiting import eventually
from tests.zookeepers import own_tree

TOPIC = "artimon.samples"


def state(until: int, topic_id: str = "T") -> bytes:
    return AckState("c", TOPIC, topic_id, 0, {0: PartitionState(until, 0, 100)}).to_json()


class Sent:
    """Sender with one batch at offset 7."""

    def __init__(self) -> None:
        self.batches: list[Any] = [SentBatch("batch", Position("c", "T", 0, 7))]
        self.acked: list[Any] = []

    def update_collectors(self, found: dict[str, CollectorEndpoint]) -> None:
        pass

    def unacked(self) -> list[Any]:
        return self.batches

    def apply_verdict(self, verdict: Any) -> None:
        self.acked += verdict.acked
        if verdict.acked:
            self.batches = []


@contextlib.contextmanager
def served(collector: object) -> Iterator[CollectorClient]:
    """Serve a collector on a real port; yield a client of it."""
    server = FramedServer(collector_idl().Collector, collector)
    client = CollectorClient(CollectorLink.of("agent-1"), SYSTEM_CLOCK)
    client.update({"c": CollectorEndpoint("127.0.0.1", server.start())})
    try:
        yield client
    finally:
        client.close()
        server.stop(0.1)


@pytest.fixture
def zk(zookeeper: str) -> Iterator[KazooClient]:
    with own_tree(zookeeper) as tree, registry(tree) as client:
        yield client


@pytest.mark.stack
def test_a_collector_tells_what_changed(zk: KazooClient) -> None:
    """And nothing while it cannot know: before the first read, and without a session."""
    mirror = AckMirror(zk)
    with served(Collector(SimpleNamespace(), mirror=mirror)) as client:

        def ask(versions: Mapping[str, int]) -> Any:
            return client.ask("acks", versions, 5.0)

        assert not ask({}).known
        mirror.start()
        eventually(lambda: ask({}).known, "the first read")
        assert ask({}).topics == []
        zk.create(f"{ACKS_PATH}/T", state(5), makepath=True)
        told = eventually(lambda: ask({}).changed, "the state of a new topic")
        assert [(one.topic_id, one.data, one.version) for one in told] == [("T", state(5), 0)]
        assert ask({"T": 0}).changed == []
        zk.set(f"{ACKS_PATH}/T", state(8))
        told = eventually(lambda: ask({"T": 0}).changed, "its next state")
        assert (told[0].data, told[0].version) == (state(8), 1)
        zk.delete(f"{ACKS_PATH}/T")
        eventually(lambda: ask({"T": 1}).topics == [], "the topic to be gone")
        mirror._on_state("SUSPENDED")
        assert not AckMirror(zk).answer({}).known
        mirror.stop()


@pytest.mark.stack
def test_an_agent_needs_no_ack_state_of_zookeeper(zk: KazooClient) -> None:
    """It asks as long as batches wait, and less often while nothing changes."""
    zk.create(f"{ACKS_PATH}/T", state(7), makepath=True)
    mirror, clock, sent = AckMirror(zk), ManualClock(), Sent()
    mirror.start()
    try:
        with served(Collector(SimpleNamespace(), mirror=mirror)) as client:
            eventually(lambda: mirror.answer({}).known, "the first read")
            zk.create(f"{COLLECTORS_PATH}/c", b'{"host": "127.0.0.1", "port": 1}', makepath=True)
            watcher = AckWatcher(zk, sent, TOPIC, lambda versions: client.ask("acks", versions, 5.0), clock)
            for _ in range(6):
                watcher.refresh()
            assert (sent.acked, watcher._pause_s()) == ([], MAX_ASK_S)
            zk.set(f"{ACKS_PATH}/T", state(8))
            eventually(lambda: mirror.answer({"T": 0}).changed, "the next state")
            watcher.refresh()
            assert sent.acked == ["batch"]
            calls = client.link.calls
            watcher.refresh()
            assert client.link.calls == calls, "nothing waits"
    finally:
        mirror.stop()


@pytest.mark.stack
@pytest.mark.parametrize("collector", ["older", "without states", "none"])
def test_zookeeper_is_read_if_no_collector_tells_states(zk: KazooClient, collector: str) -> None:
    """A collector of the version before keeps its batches: the unknown method counts as no failure of it."""
    zk.create(f"{ACKS_PATH}/T", state(8), makepath=True)
    zk.create(f"{COLLECTORS_PATH}/c", b'{"host": "127.0.0.1", "port": 1}', makepath=True)
    clock, sent, asked = ManualClock(), Sent(), list[Any]()
    handlers: dict[str, object] = {"older": SimpleNamespace(), "without states": Collector(SimpleNamespace())}
    with served(handlers.get(collector, SimpleNamespace())) as client:

        def ask(versions: Mapping[str, int]) -> Any:
            asked.append(versions)
            if collector == "none":
                raise CollectorCallError("no collector is known")
            return client.ask("acks", versions, 5.0)

        watcher = AckWatcher(zk, sent, TOPIC, ask, clock)
        watcher.refresh()
        assert sent.acked == ["batch"]
        sent.batches = [SentBatch("other", Position("c", "T", 0, 9))]
        watcher.refresh()
        assert len(asked) == 1
        clock.advance(round(UNANSWERED_S * 1000) + 1)
        watcher.refresh()
        assert len(asked) == 2
        assert client.link.collectors.count_healthy() == 1
