"""Lag of batches in the memory store: the time at which every shard has passed a batch's offset, less its poll time."""

from __future__ import annotations

import sys
import threading
from collections import deque

from kafka import KafkaConsumer, TopicPartition
from kazoo.client import KazooClient

from artimon.model.batch_codec import parse_header
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.stack.topics import TOPICS
from pipeline.control.shard_directory import ShardDirectory, read_groups
from pipeline.spark.topic_client import TopicClient

LOOK_S = 0.1
SAMPLES = TOPICS[0].name


class Visible:
    """Thread that reads the headers of all batches and the offsets of the shards, ten times a second.

    `lags` (poll time and lag of each batch, ms) is complete once `stop` has returned."""

    def __init__(self, zookeeper: str, kafka: str) -> None:
        self._kafka = kafka
        self._zookeeper: KazooClient = zookeeper_client(zookeeper)
        self._ended = threading.Event()
        self._waiting: dict[int, deque[tuple[int, int]]] = {}
        self._directory = ShardDirectory(self._zookeeper)
        self._topic_id = ""
        self._thread = threading.Thread(target=self._run, name="visible", daemon=True)
        self.lags: list[tuple[int, int]] = []

    def start(self) -> None:
        self._zookeeper.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; batches that are not shown yet get no lag."""
        self._ended.set()
        self._thread.join(10)
        self._zookeeper.stop()
        self._zookeeper.close()

    def _run(self) -> None:
        topic = TopicClient(self._kafka, SAMPLES)
        self._topic_id = topic.describe().topic_id
        topic.close()
        consumer = KafkaConsumer(bootstrap_servers=self._kafka, group_id=None, enable_auto_commit=False)
        try:
            parts = [TopicPartition(SAMPLES, p) for p in sorted(consumer.partitions_for_topic(SAMPLES) or ())]
            consumer.assign(parts)
            consumer.seek_to_beginning(*parts)
            while not self._ended.wait(LOOK_S):
                for records in consumer.poll(timeout_ms=0, max_records=10_000).values():
                    for record in records:
                        poll_ms = parse_header(record.value).poll_ms
                        self._waiting.setdefault(record.partition, deque()).append((record.offset, poll_ms))
                self._note()
        finally:
            consumer.close()

    def _note(self) -> None:
        reached = self._reached()
        now = SYSTEM_CLOCK.now_ms()
        for partition, waiting in self._waiting.items():
            while waiting and waiting[0][0] < reached.get(partition, 0):
                _, poll_ms = waiting.popleft()
                self.lags.append((poll_ms, now - poll_ms))

    def _reached(self) -> dict[int, int]:
        """Return the least next offset of all groups and shards for each partition; {} if a shard does not answer."""
        least: dict[int, int] = {}
        for shard in self._directory.live_shards().values():
            standings = read_groups(shard, self._topic_id)
            if standings is None:
                print(f"# shard {shard.id} does not answer", file=sys.stderr)
                return {}
            for _, at in standings:
                for partition, offset in at.items():
                    least[partition] = min(least.get(partition, offset), offset)
        return least
