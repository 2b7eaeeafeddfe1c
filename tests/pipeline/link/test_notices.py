"""Acks, other collectors and changes of the configuration reach an agent through its collector."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient

from artimon.model.ack_state import AckState, PartitionState, Position, SentBatch
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.zookeeper_client import read_children
from pipeline.collector import zookeeper_mirrors
from pipeline.collector.collector import Collector
from pipeline.collector.collector_handler import CollectorHandler
from pipeline.collector.notice_board import HOLD_S, NoticeBoard
from pipeline.collector.zookeeper_mirrors import CHECK_PERIOD_S, CollectorMirror
from pipeline.control.ack_watcher import AckWatcher
from pipeline.control.agent_commands import Command
from pipeline.control.collector_notices import CollectorNotices
from pipeline.control.control_tree import ControlTree
from pipeline.link.collector_choice import COLLECTORS_PATH, CollectorEndpoint, encode_collectors, parse_collectors
from pipeline.link.collector_client import CollectorCallError, CollectorClient
from pipeline.link.config_changes import MAX_CHANGES, ConfigChanges
from pipeline.link.idl import collector_idl
from tests.pipeline.link.service import client_of, serving
from tests.sources.helpers import registry
from tests.waiting import eventually
from tests.zookeepers import own_tree

TOPIC = "artimon.samples"
SCOPES = ["group/default", "agent/a", "commands/a"]


def state(until: int, topic_id: str = "T") -> bytes:
    return AckState("c", TOPIC, topic_id, 0, {0: PartitionState(until, 0, 100)}).to_json()


def place(port: int) -> bytes:
    return json.dumps({"host": "127.0.0.1", "port": port}).encode()


class Sent:
    """Sender with one batch at offset 7."""

    def __init__(self) -> None:
        self.batches: list[Any] = [SentBatch("batch", Position("c", "T", 0, 7))]
        self.acked: list[Any] = []
        self.collectors: dict[str, CollectorEndpoint] = {}

    def update_collectors(self, found: dict[str, CollectorEndpoint]) -> None:
        self.collectors = found

    def unacked(self) -> list[Any]:
        return self.batches

    def apply_verdict(self, verdict: Any) -> None:
        self.acked += verdict.acked
        if verdict.acked:
            self.batches = []


@pytest.fixture
def zk(zookeeper: str) -> Iterator[KazooClient]:
    with own_tree(zookeeper) as tree, registry(tree) as client:
        yield client


@contextlib.contextmanager
def collector(zk: KazooClient, clock: Any = SYSTEM_CLOCK) -> Iterator[tuple[NoticeBoard, CollectorClient]]:
    """Serve a collector on a real port, with a board on ZooKeeper; yield both."""
    board = NoticeBoard(zk, clock)
    handler = CollectorHandler(Collector(SimpleNamespace()), 8, board)
    board.start()
    try:
        with serving(handler) as server, client_of(server.port) as client:
            zk.ensure_path(COLLECTORS_PATH)
            zk.create(f"{COLLECTORS_PATH}/c", place(server.port))
            eventually(lambda: knows(board), "the first read")
            yield board, client
    finally:
        board.stop()
        handler.stop()


def knows(board: NoticeBoard) -> bool:
    """True if a call is answered at once, since the board knows of a collector."""
    call = board.watch(collector_idl().Known({}, "", 0, [], 0))
    return call.done() and bool(call.result().known)


class Counted:
    """Client that counts the reads of ZooKeeper by path."""

    def __init__(self, client: KazooClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        for name in ("get_async", "get_children_async", "exists_async"):
            monkeypatch.setattr(client, name, self._count(getattr(client, name)))

    def _count(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: str, *rest: Any, **more: Any) -> Any:
            self.paths.append(path)
            return call(path, *rest, **more)

        return counted


@pytest.mark.stack
def test_an_agent_reads_no_ack_state_in_zookeeper(zk: KazooClient, monkeypatch: pytest.MonkeyPatch) -> None:
    zk.create(f"{ACKS_PATH}/T", state(7), makepath=True)
    with collector(zk) as (_, client), registry_of(zk) as own:
        sent, notices = Sent(), CollectorNotices(client, SCOPES, SYSTEM_CLOCK)
        notices.config_read(ConfigChanges())
        watcher = AckWatcher(own, sent, TOPIC, notices)
        counted = Counted(own, monkeypatch)
        woken = threading.Event()
        notices.on_acks = woken.set
        notices.start()
        eventually(lambda: notices.acks and notices.collectors, "the state and the list of the collector")
        watcher.refresh()
        assert sent.acked == []
        woken.clear()
        zk.set(f"{ACKS_PATH}/T", state(8))
        assert woken.wait(60)
        watcher.refresh()
        assert sent.acked == ["batch"]
        zk.delete(f"{ACKS_PATH}/T")
        eventually(lambda: notices.acks == {}, "the topic is gone")
        assert counted.paths == [], "not even the list of collectors"
        assert list(sent.collectors) == ["c"]
        zk.create(f"{COLLECTORS_PATH}/d", place(2))
        eventually(lambda: set(notices.collectors or ()) == {"c", "d"}, "a collector that joins is told")
        notices.stop()


@contextlib.contextmanager
def registry_of(zk: KazooClient) -> Iterator[KazooClient]:
    """Another session on the same tree."""
    hosts = ",".join(f"{host}:{port}" for host, port in zk.hosts)
    with registry(f"{hosts}{zk.chroot}") as client:
        yield client


@pytest.mark.stack
def test_changes_of_the_configuration_are_told_to_whom_they_concern(zk: KazooClient) -> None:
    with collector(zk) as (board, client):
        notices, tree = CollectorNotices(client, SCOPES, SYSTEM_CLOCK), ControlTree(zk)
        told = threading.Event()
        notices.on_config = told.set
        notices.config_read(tree.changes())
        notices.start()
        eventually(lambda: notices.tells_config, "a collector answers")
        eventually(lambda: board.waiting == 1, "it waits for news")
        tree.push("agent/other", {"metrics": {"level": "kafka"}}, now_ms=1, by="test")
        tree.send_command("other", Command("id-1", "pause", {}, 1, 2))
        tree.push("agent/a", {"metrics": {"level": "kafka"}}, now_ms=1, by="test")
        assert told.wait(60)
        assert tree.changes().number == 3
        told.clear()
        eventually(lambda: board.waiting == 1, "it waits for news")
        tree.send_command("a", Command("id-2", "pause", {}, 1, 2))
        assert told.wait(60)
        notices.stop()


@pytest.mark.stack
def test_a_board_without_a_session_tells_nothing_and_agents_ask_again(zk: KazooClient) -> None:
    clock = ManualClock()
    with collector(zk, clock) as (board, _):
        for mirror in board._mirrors:
            mirror.stop(60.0)
            mirror._on_state("SUSPENDED")
        call = board.watch(collector_idl().Known({}, "", 0, [], 0))
        board.publish()
        assert not call.done()
        clock.advance(round(HOLD_S * 1000) + 1)
        board.expire()
        notice = call.result(0.0)
        assert (notice.known, notice.acks.known, notice.digest) == (False, False, 0)
        assert board.waiting == 0


@pytest.mark.stack
@pytest.mark.parametrize("kind", ["older", "none", "cut off"])
def test_zookeeper_is_read_if_no_collector_tells_states(zk: KazooClient, kind: str) -> None:
    """At once if the collector is of the version before, after a while if none answers, which is shorter if no known
    one is left."""
    zk.create(f"{ACKS_PATH}/T", state(8), makepath=True)
    zk.create(f"{COLLECTORS_PATH}/c", place(1), makepath=True)
    clock, sent = ManualClock(), Sent()
    error = CollectorCallError("no collector answers", refused=kind == "older")

    def refuse(*_: object) -> Any:
        raise error

    client = SimpleNamespace(ask=refuse, is_cut_off=kind == "cut off")
    notices = CollectorNotices(client, SCOPES, clock)
    notices.config_read(ConfigChanges())
    watcher = AckWatcher(zk, sent, TOPIC, notices, clock)
    notices.watch_once()
    watcher.refresh()
    if kind != "cut off":  # the manual clock has moved 5 s meanwhile
        assert sent.acked == (["batch"] if kind == "older" else [])
    assert list(sent.collectors) == ["c"]
    clock.advance(7_000)
    assert notices.is_active == (kind == "none")
    clock.advance(60_000)
    assert not notices.is_active
    zk.create(f"{COLLECTORS_PATH}/d", place(2))
    watcher.refresh()
    assert sent.acked == ["batch"]

    def is_read_again() -> bool:
        watcher.refresh()
        return set(sent.collectors) == {"c", "d"}

    eventually(is_read_again, "the list was read once without a watch, and is read again")


@pytest.mark.stack
def test_an_agent_that_starts_finds_all_collectors_by_one_read(
    zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collectors keep the list in the parent of their nodes. After a change that it lacks it does not count."""

    def is_listed() -> bool:
        data, stat = zk.get(COLLECTORS_PATH)
        return set(parse_collectors(data, stat.pzxid)) == set("cdef")

    def found_at_start(client: CollectorClient) -> set[str]:
        sent = Sent()
        AckWatcher(own, sent, TOPIC, CollectorNotices(client, SCOPES, SYSTEM_CLOCK)).refresh()
        return set(sent.collectors)

    with collector(zk) as (board, client), registry_of(zk) as own:
        for port, name in enumerate("def", 2):
            zk.create(f"{COLLECTORS_PATH}/{name}", place(port))
        eventually(is_listed, "the list of all")
        counted = Counted(own, monkeypatch)
        assert found_at_start(client) == set("cdef")
        assert counted.paths == [COLLECTORS_PATH]
        board.stop()
        zk.create(f"{COLLECTORS_PATH}/g", place(9))
        assert found_at_start(client) == set("cdefg")


def test_the_list_counts_if_a_collector_comes_while_the_nodes_are_read(
    zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event follows: the list is written once more."""

    def read_after_a_change(client: KazooClient, *arguments: Any) -> Any:
        if not coming.is_set():
            coming.set()
            zk.create(f"{COLLECTORS_PATH}/d", place(2), makepath=True)
        return read_children(client, *arguments)

    def is_listed() -> bool:
        data, stat = zk.get(COLLECTORS_PATH)
        return set(parse_collectors(data, stat.pzxid)) == {"c", "d"}

    coming = threading.Event()
    monkeypatch.setattr(zookeeper_mirrors, "read_children", read_after_a_change)
    zk.create(f"{COLLECTORS_PATH}/c", place(1), makepath=True)
    mirror = CollectorMirror(zk, "collector mirror")
    mirror.start()
    try:
        eventually(is_listed, "the list of both, before the next check", CHECK_PERIOD_S / 2)
    finally:
        mirror.stop(1.0)


def test_a_list_of_collectors_counts_only_as_of_its_change() -> None:
    found = {"c": CollectorEndpoint("h", 1, "g"), "d": CollectorEndpoint("h", 2)}
    data = encode_collectors(found, 7)
    assert parse_collectors(data, 7) == found
    for other, zxid in ((data, 8), (b"", 7), (b"[]", 7), (b"{}", 7), (data.replace(b": 2", b": 0"), 7)):
        assert parse_collectors(other, zxid) == {}


def test_changes_are_counted_and_old_ones_forgotten() -> None:
    changes = ConfigChanges("L")
    for n in range(MAX_CHANGES + 20):
        changes = changes.with_change(f"agent/{n % 7}")
    assert ConfigChanges.from_json(changes.to_json()) == changes
    assert changes.since("L", changes.number, ["agent/1"]) == []
    assert changes.since("L", changes.number - 7, ["agent/1", "agent/8"]) == ["agent/1"]
    assert changes.since("L", 10, ["agent/8"]) == ["agent/8"], "too long ago to know"
    assert changes.since("M", changes.number, ["agent/8"]) == ["agent/8"], "another node"
    assert changes.since("L", changes.number + 1, ["agent/8"]) == ["agent/8"], "the node was replaced by an older one"
    with pytest.raises(ValueError, match="holds no changes"):
        ConfigChanges.from_json(b'{"lineage": 1}')
