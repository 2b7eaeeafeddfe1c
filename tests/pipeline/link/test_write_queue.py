"""Writes of many calls go together; a node of the cluster that hangs does not hold up the others."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from typing import Any

from artimon.model.ack_state import Position
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from pipeline.collector.kafka_writer import KafkaMessage, TopicDescription
from pipeline.collector.write_queue import MAX_WAIT_S, WRITERS, WRITES_PER_NODE, WriteQueue
from tests.waiting import eventually


class Cluster:
    """Broker with one partition a node; writes to node 0 wait for `gate`, a message b"fail" raises."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.lock = threading.Lock()
        self.begun: list[int] = []

    def describe_topic(self, name: str) -> TopicDescription:
        return TopicDescription("c", name, uuid.UUID(int=1), {n: n for n in range(3)}, 0.0)

    def write(self, messages: Sequence[KafkaMessage]) -> list[Position | str]:
        with self.lock:
            self.begun.append(len(messages))
        if any(one.value == b"fail" for one in messages):
            raise OSError("the network")
        if messages[0].partition == 0:
            self.gate.wait(60)
        return [Position("c", "t", one.partition, len(one.value)) for one in messages]


class Calls:
    """Results by name of the call."""

    def __init__(self, queue: WriteQueue) -> None:
        self.queue, self.results = queue, dict[str, Any]()

    def put(self, name: str, partition: int, *values: bytes) -> None:
        def done(results: Sequence[Position | str] | None) -> None:
            self.results[name] = results

        self.queue.put([KafkaMessage("t", partition, value) for value in values], done)


def test_calls_that_wait_are_written_together_and_get_their_own_results() -> None:
    cluster = Cluster()
    queue = WriteQueue(cluster, SYSTEM_CLOCK)
    calls = Calls(queue)
    for n in range(WRITES_PER_NODE):
        calls.put(f"first {n}", 0, b"x")
        eventually(lambda n=n: len(cluster.begun) == n + 1, "it is begun")  # type: ignore[misc]
    for n in range(20):
        calls.put(str(n), 0, b"y" * n, b"z" * (n + 1))
    assert cluster.begun == [1] * WRITES_PER_NODE
    cluster.gate.set()
    eventually(lambda: len(calls.results) == 20 + WRITES_PER_NODE, "all have results")
    assert sum(cluster.begun) == 40 + WRITES_PER_NODE
    assert len(cluster.begun) < WRITES_PER_NODE + 10
    assert [[one.offset for one in calls.results[str(n)]] for n in range(20)] == [[n, n + 1] for n in range(20)]
    queue.stop()


def test_a_node_that_hangs_leaves_writers_for_the_others() -> None:
    cluster = Cluster()
    queue = WriteQueue(cluster, SYSTEM_CLOCK)
    calls = Calls(queue)
    for n in range(3 * WRITERS):
        calls.put(f"hangs {n}", 0, b"x")
    calls.put("one", 1, b"x")
    calls.put("two", 2, b"x")
    eventually(lambda: set(calls.results) == {"one", "two"}, "the other nodes")
    cluster.gate.set()
    eventually(lambda: len(calls.results) == 3 * WRITERS + 2, "the rest")
    queue.stop()


def test_a_failed_write_ends_its_calls_and_no_others() -> None:
    queue = WriteQueue(Cluster(), SYSTEM_CLOCK)
    calls = Calls(queue)
    calls.put("failed", 1, b"fail")
    eventually(lambda: "failed" in calls.results, "its end")
    calls.put("after", 1, b"x")
    eventually(lambda: "after" in calls.results, "the writer goes on")
    assert calls.results["failed"] is None
    assert calls.results["after"][0].offset == 1
    queue.stop()
    calls.put("stopped", 1, b"x")
    assert calls.results["stopped"] is None


def test_calls_that_waited_too_long_are_refused_unwritten() -> None:
    """Their agents have given up, and send them again."""
    cluster, clock = Cluster(), ManualClock()
    queue = WriteQueue(cluster, clock)
    calls = Calls(queue)
    for n in range(WRITES_PER_NODE):
        calls.put(f"first {n}", 0, b"x")
        eventually(lambda n=n: len(cluster.begun) == n + 1, "it is begun")  # type: ignore[misc]
    calls.put("late", 0, b"x")
    clock.advance(round(MAX_WAIT_S * 1000) + 1)
    cluster.gate.set()
    eventually(lambda: len(calls.results) == WRITES_PER_NODE + 1, "all have results")
    assert calls.results["late"][0].startswith("kafka: not begun within 10 s")
    assert sum(cluster.begun) == WRITES_PER_NODE
    queue.stop(0.0)
