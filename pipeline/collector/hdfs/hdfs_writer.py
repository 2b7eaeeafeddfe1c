"""Replacement of Kafka in a collector: batches go to the stream, announcements to files of their own. It implements the
protocol of pipeline/collector/kafka_writer.py, so one collector serves both."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient

from artimon.model.ack_state import Position
from artimon.model.batch import BatchHeader
from artimon.model.batch_codec import parse_header
from artimon.model.clock import Clock
from artimon.runtime.zookeeper_client import EphemeralNode
from pipeline.collector.hdfs.ack_publisher import AckPublisher
from pipeline.collector.hdfs.announcement_writer import AnnouncementWriter
from pipeline.collector.hdfs.stream import Stream
from pipeline.collector.kafka_writer import WRITE_DEADLINE_S, KafkaMessage, KafkaWriteError, TopicDescription
from pipeline.rolling_files.file_store import FileStore

OWNERS_PATH = "/artimon/direct"


@dataclass(frozen=True, slots=True)
class ActiveStream:
    """A stream, its publisher, and the node that shows that its owner is alive."""

    stream: Stream
    publisher: AckPublisher
    owner: EphemeralNode
    announcements: AnnouncementWriter


class HdfsWriter:
    """The current stream, replaced by a new one when it is worn or was taken over. Thread-safe.

    Locks: `_lock` guards `_running`."""

    def __init__(
        self,
        store: FileStore,
        topic_prefix: str,
        zookeeper: KazooClient,
        begin: Callable[[Callable[[], None]], Stream],
        clock: Clock,
    ) -> None:
        """`begin(changed)` makes a new stream."""
        self._store, self._zookeeper, self._begin, self._clock = store, zookeeper, begin, clock
        self._series_topic = f"{topic_prefix}.series"
        self._lock = threading.Lock()
        self._running = self._start()

    def describe_topic(self, name: str) -> TopicDescription:
        """Describe one partition, whose leader is this process. Raises KafkaWriteError until positions may be given
        out."""
        running = self._running
        if not running.publisher.published.is_set():
            raise KafkaWriteError(f"stream {running.stream.name} waits for ZooKeeper: {running.publisher.problem}")
        return TopicDescription(self._store.uri, name, uuid.UUID(int=0), {0: 0}, self._clock.monotonic())

    def write(self, messages: Sequence[KafkaMessage], deadline_s: float = WRITE_DEADLINE_S) -> list[Position | str]:
        """Like `KafkaWriter.write`, but a position only names the future place of a batch, which is durable once the
        published state says so."""
        running = self._running
        results: list[Position | str] = ["store: not tried"] * len(messages)
        series = [n for n, message in enumerate(messages) if message.topic == self._series_topic]
        batches: list[tuple[BatchHeader, bytes]] = []
        places = []
        for n, message in enumerate(messages):
            if message.topic != self._series_topic:
                batches.append((parse_header(message.value), message.value))
                places.append(n)
        for n, result in zip(places, running.stream.append(batches), strict=True):
            results[n] = result
        if series:
            answers = running.announcements.write([messages[n].value for n in series], deadline_s)
            for n, answer in zip(series, answers, strict=True):
                results[n] = answer
        return results

    def replace_exhausted(self) -> None:
        """Begin a new stream if this one is worn."""
        if not self._running.stream.is_exhausted:
            return
        with self._lock:
            old, self._running = self._running, self._start()
        self._end(old, 1.0)

    @property
    def starting(self) -> bool:
        """True while no position may be given out."""
        return not self._running.publisher.published.is_set()

    @property
    def stream(self) -> Stream:
        return self._running.stream

    @property
    def problem(self) -> str:
        """Problem to show to operators, "" if there is none."""
        return self._running.stream.problem or self._running.publisher.problem

    def figures(self) -> dict[str, Any]:
        return self._running.stream.figures()

    def close(self, timeout_s: float = 10.0) -> None:
        """Finish the file if that takes no longer than `timeout_s`, and publish the final state."""
        self._end(self._running, timeout_s)

    def _start(self) -> ActiveStream:
        holder: list[AckPublisher] = []

        def changed() -> None:
            for publisher in holder:
                publisher.wake()

        stream = self._begin(changed)
        publisher = AckPublisher(
            self._zookeeper, stream.state, stream.name, lambda: stream.fence("taken over"), self._clock
        )
        holder.append(publisher)
        owner = EphemeralNode(self._zookeeper, f"{OWNERS_PATH}/{stream.name}", self._store.uri.encode())
        owner.start()
        stream.start()
        publisher.start()
        return ActiveStream(stream, publisher, owner, AnnouncementWriter(self._store, stream.name, self._clock))

    @staticmethod
    def _end(running: ActiveStream, timeout_s: float) -> None:
        running.stream.stop(timeout_s)
        running.publisher.stop(2.0)
        running.owner.stop(1.0)
