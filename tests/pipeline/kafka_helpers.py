"""Topics of a single test, and readers of their messages."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from kazoo.client import KazooClient

from artimon.model.ack_state import AckState
from artimon.model.batch import BatchId
from artimon.model.batch_codec import verify
from artimon.stack.topics import TopicSpec, make_topics
from pipeline.collector.collector_process import CollectorConfig, run_collector
from tests.waiting import eventually

APPEND_TIME = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(1024 * 1024)}

COLLECTOR = """
import sys, threading
from pipeline.collector.collector_process import CollectorConfig, run_collector
run_collector(CollectorConfig(sys.argv[3], sys.argv[1], sys.argv[2], topic_prefix=sys.argv[3]), threading.Event())
"""
"""A collector as a process: ZooKeeper, Kafka, prefix of the topics (and id)."""


def own_topics(kafka: str, partitions: int = 3) -> str:
    """Fresh prefix with topics `.samples` and `.series`; every partition has a leader that knows of it."""
    prefix = f"t{uuid.uuid4().hex[:12]}"
    names = [f"{prefix}.{name}" for name in ("samples", "series")]
    make_topics(kafka, tuple(TopicSpec(name, partitions, APPEND_TIME) for name in names))
    consumer = KafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False)
    try:  # only the leader answers this, so the client asks until it does
        eventually(lambda: _known(consumer, names, partitions), f"{prefix} has leaders")
    finally:
        consumer.close()
    return prefix


def _known(consumer: KafkaConsumer, names: list[str], partitions: int) -> bool:
    try:
        consumer.end_offsets([TopicPartition(name, p) for name in names for p in range(partitions)])
    except KeyError:  # the client's metadata lacks the topic
        return False
    return True


def _partitions(consumer: KafkaConsumer, topic: str) -> list[int]:
    try:
        return sorted(consumer.partitions_for_topic(topic) or ())
    except KafkaError:  # a broker that has just restarted may be missing from its own metadata
        return []


def read_topic(kafka: str, topic: str) -> list[tuple[int, int, bytes | None, bytes]]:
    """All messages in a topic now: (partition, offset, key, value), by partition and offset."""
    consumer = KafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False, consumer_timeout_ms=15_000)
    try:
        parts = [TopicPartition(topic, p) for p in eventually(lambda: _partitions(consumer, topic), topic)]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        consumer.seek_to_beginning(*parts)
        found = []
        while any(consumer.position(p) < ends[p] for p in parts):
            for records in consumer.poll(timeout_ms=500).values():
                found += [(r.partition, r.offset, r.key, r.value) for r in records]
        return sorted(found, key=lambda r: r[:2])
    finally:
        consumer.close()


def deduplicated(kafka: str, topic: str) -> dict[BatchId, bytes]:
    """Batches by identity, as the stores see them: the first at the lowest offset; fails if an identity stands in two
    partitions or with two contents."""
    found: dict[BatchId, tuple[int, bytes]] = {}
    for partition, _, _, value in read_topic(kafka, topic):
        id = verify(value).id
        first = found.setdefault(id, (partition, value))
        assert first == (partition, value), f"{id} stands in partitions {first[0]} and {partition}, or differs"
    return {id: value for id, (_, value) in found.items()}


@contextmanager
def collector(
    zookeeper: str, kafka: str, prefix: str, id: str = "", port: int = 0, quota_bytes: int = 0
) -> Iterator[threading.Event]:
    """A collector in a thread of this process, registered under `id`; yields its stop event."""
    stop = threading.Event()
    config = CollectorConfig(id or prefix, zookeeper, kafka, port=port, topic_prefix=prefix, quota_bytes=quota_bytes)
    thread = threading.Thread(target=run_collector, args=(config, stop), name=f"collector {config.id}")
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive(), "the collector did not stop in time"


@dataclass
class Publisher:
    """Publishes ack states as the raw query does."""

    client: KazooClient
    made: list[str] = field(default_factory=list)

    def publish(self, state: AckState) -> None:
        path = f"/artimon/acks/{state.topic_id}"
        self.client.ensure_path(path)
        self.client.set(path, state.to_json())
        self.made.append(path)

    def close(self) -> None:
        for path in set(self.made):
            self.client.delete(path)
        self.client.stop()
        self.client.close()


def publisher(zookeeper: str) -> Publisher:
    client = KazooClient(zookeeper)
    client.start(10)
    return Publisher(client)
