"""Collector over Thrift, against a real Kafka and ZooKeeper."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from artimon.model.batch import BatchId, SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_samples, encode_series, verify
from artimon.model.hash_routing import partition_of
from artimon.model.values import ValueType
from artimon.runtime.health import read_health
from bookkeeper.rpc.framed_server import FramedClient, FramedError
from pipeline.collector.collector import FRAME_BYTES, MAX_BYTES_IN_FLIGHT, MAX_MESSAGES, Collector
from pipeline.collector.collector_process import CollectorConfig, run_collector
from pipeline.collector.kafka_writer import KafkaWriter
from pipeline.link.collector_choice import COLLECTORS_PATH
from pipeline.link.idl import collector_idl
from tests.model.batches import golden_samples
from tests.pipeline.helpers import samples
from tests.pipeline.kafka_helpers import COLLECTOR, collector, own_topics, read_topic
from tests.pipeline.transit import exchange
from tests.waiting import eventually
from tests.zookeepers import connected

pytestmark = pytest.mark.stack


@dataclass(frozen=True)
class Running:
    """A collector with topics of its own, and a connection to it."""

    prefix: str
    client: FramedClient
    port: int

    def send(self, messages: list[bytes]) -> list[Any]:
        answers: list[Any] = self.client.call("send", messages, timeout=30.0)
        return answers


def registered(zookeeper: KazooClient, id: str) -> dict[str, Any]:
    path = f"{COLLECTORS_PATH}/{id}"
    eventually(lambda: zookeeper.exists(path) is not None, f"{path} is registered")
    found: dict[str, Any] = json.loads(zookeeper.get(path)[0])
    return found


@pytest.fixture
def zk(zookeeper: str) -> Iterator[KazooClient]:
    with connected(zookeeper) as client:
        yield client


@pytest.fixture
def running(zookeeper: str, kafka: str, zk: KazooClient) -> Iterator[Running]:
    prefix = own_topics(kafka)
    with collector(zookeeper, kafka, prefix):
        at = registered(zk, prefix)
        client = FramedClient(collector_idl().Collector, at["host"], at["port"])
        yield Running(prefix, client, at["port"])
        client.close()


def message(lane: int, sequence: int, agent: str = "agent-1") -> bytes:
    id = BatchId(agent, 77, lane, sequence)
    return encode_samples(id, f"source-{lane}", bytes(16), 0, 0, "default", samples(5)).data


def test_messages_are_at_the_answered_offsets(running: Running, kafka: str) -> None:
    sent = [message(lane, number) for number in range(20) for lane in range(4)]
    answers = running.send(sent)
    stored = {(p, o): value for p, o, _, value in read_topic(kafka, f"{running.prefix}.samples")}
    assert len(stored) == len(sent)
    for data, answer in zip(sent, answers, strict=True):
        assert answer.ok, answer.reason
        assert stored[(answer.partition, answer.offset)] == data
        assert answer.partition == partition_of("agent-1", 77, verify(data).id.lane, 3)
        assert answer.topic_id
        assert answer.cluster


def test_invalid_messages_are_nacked_with_a_reason_and_stop_nothing(running: Running, kafka: str) -> None:
    good = message(0, 0)
    flipped = bytearray(good)
    flipped[len(flipped) // 2] ^= 4
    wrong_digest = bytearray(good)
    wrong_digest[75] ^= 1
    poison = [b"", b"garbage", good[:-3], bytes(flipped), bytes(wrong_digest), good + b"x"]
    answers = running.send([good, *poison, message(0, 1)])
    assert [a.ok for a in answers] == [True, *[False] * len(poison), True]
    assert all(a.reason.startswith("damaged:") for a in answers if not a.ok)
    assert len(read_topic(kafka, f"{running.prefix}.samples")) == 2


def test_announcements_go_to_their_own_topic_with_a_key(running: Running, kafka: str) -> None:
    blocks = [
        SeriesBlock(f"s{n}", 3, 17 + v, (SeriesInfo("a{}", ValueType.DOUBLE),)) for n in range(4) for v in range(2)
    ]
    sent = [encode_series("agent-1", block).data for block in blocks]
    assert all(answer.ok for answer in running.send(sent))
    stored = read_topic(kafka, f"{running.prefix}.series")
    partitions: dict[bytes | None, set[int]] = {}
    for partition, _, key, _ in stored:
        partitions.setdefault(key, set()).add(partition)
    assert set(partitions) == {block.key for block in blocks}
    assert all(len(where) == 1 for where in partitions.values()), "compaction needs a key in one partition"
    assert sorted(value for _, _, _, value in stored) == sorted(sent)


def test_events_have_a_topic_of_their_own(running: Running) -> None:
    events = bytearray(golden_samples().data)
    events[5] = 3
    from artimon.model.batch_codec import _FIXED, HEADER_BYTES, _digest

    events[_FIXED.size : HEADER_BYTES] = _digest(bytes(events[: _FIXED.size]), bytes(events[HEADER_BYTES:]))
    answer = running.send([bytes(events)])[0]
    assert not answer.ok
    assert f"{running.prefix}.events" in answer.reason  # absent from this stack


def test_a_call_beyond_the_limits_is_refused(running: Running) -> None:
    answers = running.send([b"x"] * (MAX_MESSAGES + 1))
    assert all(not a.ok and a.reason.startswith("full:") for a in answers)
    with pytest.raises((FramedError, OSError)):
        running.send([bytes(FRAME_BYTES)])
    assert running.send([message(1, 0)])[0].ok, "the next connection works"


def test_truncated_frames_and_garbage_do_not_disturb_other_clients(running: Running) -> None:
    for raw in (b"\x00\x00\x10\x00half", b"\xff\xff\xff\xff", b"GET / HTTP/1.0\r\n\r\n", b"\x00\x00\x00\x05hello"):
        with socket.create_connection(("127.0.0.1", running.port), 5) as peer:
            peer.sendall(raw)
    assert running.send([message(1, 0)])[0].ok


def test_a_call_beyond_the_byte_limit_is_refused_as_full(kafka: str) -> None:
    """Of two calls that together exceed the byte limit, the second is refused while the first is in progress."""
    entered, leave = threading.Event(), threading.Event()

    class Stuck(KafkaWriter):
        def write(self, messages: Any, deadline_s: float = 10.0) -> Any:
            entered.set()
            leave.wait(20)
            return super().write(messages, deadline_s)

    prefix = own_topics(kafka)
    tested = Collector(Stuck(kafka), prefix)
    first: list[Any] = []
    thread = threading.Thread(target=lambda: first.extend(exchange(tested, [message(0, 0)])))
    thread.start()
    assert entered.wait(60)
    refused = exchange(tested, [bytes(MAX_BYTES_IN_FLIGHT)])[0]
    assert refused.reason.startswith("full:")
    leave.set()
    thread.join(20)
    assert first[0].ok
    assert tested.figures()["held_bytes"] == 0
    assert tested.figures()["nacks"] == {"full": 1}


def test_without_kafka_the_collector_waits_reports_it_and_stops(
    tmp_path: Path, zookeeper: str, zk: KazooClient
) -> None:
    stop, health = threading.Event(), tmp_path / "health.json"
    config = CollectorConfig("waiting", zookeeper, "127.0.0.1:1", health=health)
    thread = threading.Thread(target=run_collector, args=(config, stop))
    thread.start()

    def starting() -> bool:
        found = read_health(health)
        return found is not None and found.state == "starting" and "127.0.0.1:1" in found.problem

    eventually(starting, "health says what it waits for")
    assert zk.exists(f"{COLLECTORS_PATH}/waiting") is None, "a collector without Kafka is not registered"
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_port_in_use_is_named_in_the_error(zookeeper: str, kafka: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = CollectorConfig("x", zookeeper, kafka, port=taken.getsockname()[1])
        with pytest.raises(OSError, match=str(taken.getsockname()[1])):
            run_collector(config, threading.Event())


def test_a_collector_registers_again_when_its_node_is_deleted(
    running: Running, zookeeper: str, zk: KazooClient
) -> None:
    path = f"{COLLECTORS_PATH}/{running.prefix}"
    before = zk.get(path)[1].czxid
    zk.delete(path)

    def back() -> bool:
        stat = zk.exists(path)
        return stat is not None and stat.czxid != before

    eventually(back, "the node is there again")


def test_sigkill_and_restart_take_over_the_registration(zookeeper: str, kafka: str, zk: KazooClient) -> None:
    """The successor registers without waiting for the dead session to time out."""
    prefix = own_topics(kafka)
    process = subprocess.Popen([sys.executable, "-c", COLLECTOR, zookeeper, kafka, prefix])
    try:
        assert registered(zk, prefix)["pid"] == process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with collector(zookeeper, kafka, prefix):
        eventually(lambda: registered(zk, prefix)["pid"] != process.pid, "the successor is registered")
