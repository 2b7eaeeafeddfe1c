"""Mirror of one site's Kafka to another site: reads the topics, sends the unchanged bytes to a collector there, and
saves offsets acked by the other site. Batches keep their identities, so repeats are dropped there."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from kafka import KafkaConsumer, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from artimon.model.ack_state import AckDecision, SentBatch
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.znode import parse_json_object
from artimon.runtime.kafka_access import open_client
from artimon.runtime.process_options import Health, Option
from artimon.runtime.supervision import RetryLoop
from artimon.runtime.zookeeper_client import is_trusted, zookeeper_client
from pipeline.collector.kafka_writer import KafkaWriter, TopicDescription
from pipeline.control.ack_watcher import AckWatcher
from pipeline.link.answers import MessageAnswer
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.link.collector_client import CollectorCallError, CollectorClient
from pipeline.link.collector_link import MAX_CALL_MESSAGES, CollectorLink
from pipeline.sites.mirror_progress import MirrorProgress, SourceMessage, merge_offsets

log = logging.getLogger(__name__)

OFFSETS_PATH = "/artimon/handover"
FETCH_BYTES = 4 * 1024 * 1024
POLL_MS, KAFKA_S, CALL_S, ZOOKEEPER_S = 500, 15.0, 30.0, 5.0
NO_COLLECTOR = "no collector of the other site answers"
_RETRY_S, _MAX_RETRY_S = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """Mirror from the Kafka of one site to the collectors registered in `zookeeper`, that of the other site. `name`:
    name of the source, part of the path of the offsets. `level`: acked by the other site's Kafka or by its table."""

    name: str
    kafka: str
    zookeeper: Annotated[str, Option("ZooKeeper of the site whose collectors take them.", "--to")]
    level: Annotated[Literal["kafka", "hdfs"], Option("Handed over once the other site's Kafka, or table, has it.")] = (
        "hdfs"
    )
    topic_prefix: str = "artimon"
    target_prefix: str = "artimon"
    health: Health = None


class OffsetsNode:
    """Offsets of one topic, in the ZooKeeper of the receiving site: they describe its data and share its fate."""

    def __init__(self, client: KazooClient, name: str, topic: str, topic_id: str) -> None:
        self._client = client
        self.path = f"{OFFSETS_PATH}/{name}/{topic}/{topic_id}"

    def load(self) -> dict[int, int]:
        """Return the saved offsets. Raises ZOOKEEPER_ERRORS, ValueError for an invalid node."""
        return self._read()[0]

    def save(self, until: Mapping[int, int]) -> None:
        """Save offsets; never sets one back, even with concurrent mirrors of the topic. Raises
        `artimon.runtime.zookeeper_watcher.ZOOKEEPER_ERRORS`, ValueError for an invalid node."""
        for _ in range(5):
            known, version = self._read()
            merged = merge_offsets(until, known)
            if merged == known:
                return
            data = json.dumps({"offsets": {str(p): at for p, at in sorted(merged.items())}}).encode()
            try:
                if version < 0:
                    self._client.create_async(self.path, data, makepath=True).get(timeout=ZOOKEEPER_S)
                else:
                    self._client.set_async(self.path, data, version).get(timeout=ZOOKEEPER_S)
                return
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue

    def _read(self) -> tuple[dict[int, int], int]:
        try:
            data, stat = self._client.get_async(self.path).get(timeout=ZOOKEEPER_S)
        except NoNodeError:
            return {}, -1
        if not is_trusted(self._client, self.path):
            raise ValueError(f"{self.path}: others may write it: run `artimon config secure` at that site")
        try:
            return {int(p): int(at) for p, at in parse_json_object(data)["offsets"].items()}, stat.version
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.path} in ZooKeeper holds no offsets: {error!r}") from error


class TopicMirror:
    """One topic. `run` in a thread; has the interface of a sender for `AckWatcher`, which brings collectors and acks.

    Locks: `_lock` guards the core; no I/O under it."""

    def __init__(self, config: MirrorConfig, kind: str, zookeeper: KazooClient, clock: Clock, on_answer: bool) -> None:
        """`kind`: samples or series. `on_answer`: the answer counts as ack (announcements; level `kafka`)."""
        self._config, self._clock, self._zookeeper, self._on_answer = config, clock, zookeeper, on_answer
        self.topic = f"{config.topic_prefix}.{kind}"
        self._compacted = kind == "series"
        self._lock = threading.Lock()
        self.progress = MirrorProgress()
        self._client = CollectorClient(CollectorLink.of(f"handover-{config.name}", CALL_S), clock)
        self._seek_back: set[int] = set()
        """Partitions in which the consumer must seek back; its other records of them are ignored until then."""
        self._saved_offsets: dict[int, int] = {}
        self.messages = self.bytes = 0
        self._retry = RetryLoop(f"mirror of {self.topic}", clock, _RETRY_S, _MAX_RETRY_S)
        self._refusal = ""
        """Reason of the last refusal at the other site, "" after an accepted batch."""

    def update_collectors(self, found: dict[str, CollectorEndpoint]) -> None:
        self._client.update(found)

    def unacked(self) -> list[SentBatch[SourceMessage]]:
        with self._lock:
            return self.progress.unacked()

    def apply_verdict(self, verdict: AckDecision[SourceMessage]) -> None:
        for key, evidence in verdict.resend:
            log.warning("%s: message %s is mirrored again: %s", self.topic, key, evidence)
        with self._lock:
            self._seek_back |= self.progress.apply_verdict(verdict)

    @property
    def problem(self) -> str:
        """Reason why nothing is mirrored, "" while it is."""
        return self._retry.problem or self._refusal

    def figures(self) -> dict[str, Any]:
        with self._lock:
            return {
                "messages": self.messages,
                "bytes": self.bytes,
                "flying": self.progress.in_flight,
                "lost": self.progress.lost,
                "skipped": self.progress.skipped,
                "until": {str(p): at for p, at in sorted(self.progress.handed_until.items())},
                "problem": self.problem,
            }

    def run(self, stop: threading.Event) -> None:
        """Run until `stop`. Failures are retried; only acked messages are saved as mirrored."""
        self._retry.run(lambda: self._run(stop), stop)
        self._client.close()

    def _run(self, stop: threading.Event) -> None:
        """Mirror each generation of the topic to its end; stay in the newest one. A recreated topic has its own
        offsets."""
        broker = KafkaWriter(self._config.kafka, self._clock)
        try:
            for info in broker.generations(self.topic):
                self._follow(broker, info, stop)
        finally:
            broker.close()

    def _follow(self, broker: KafkaWriter, info: TopicDescription, stop: threading.Event) -> None:
        """Mirror one generation."""
        consumer = None
        try:
            node = OffsetsNode(self._zookeeper, f"{self._config.name}-{info.cluster}", self.topic, info.topic_id)
            known = node.load()
            with self._lock:
                self.progress = MirrorProgress(dict(known), compacted=self._compacted)
                self._saved_offsets = dict(known)
            consumer = self._consumer()
            parts = [TopicPartition(info.name, p) for p in sorted(info.leaders)]
            consumer.assign(parts)
            for part in parts:
                consumer.seek(part, self.progress.next_offset(part.partition))
            self._refusal = ""
            self._retry.healthy()
            while not stop.is_set() and not self._is_finished(broker, info, consumer, parts):
                self._poll_once(consumer, node, stop, info.name)
            self._save(node)
        finally:
            if consumer is not None:
                consumer.close()

    def _is_finished(
        self, broker: KafkaWriter, info: TopicDescription, consumer: Any, parts: list[TopicPartition]
    ) -> bool:
        """True once another generation replaced this one and all of this one was mirrored."""
        if broker.describe_topic(self.topic).topic_id == info.topic_id:
            return False
        if not any(one.topic_id == info.topic_id for one in broker.generations(self.topic)):
            return True  # deleted or recreated
        ends = consumer.end_offsets(parts, timeout_ms=int(KAFKA_S * 1000))
        with self._lock:
            return all(self.progress.handed_until.get(part.partition, 0) >= ends[part] for part in parts)

    def _poll_once(self, consumer: Any, node: OffsetsNode, stop: threading.Event, name: str) -> None:
        with self._lock:
            back, self._seek_back, room = self._seek_back, set(), self.progress.free_slots
        for partition in back:
            consumer.seek(TopicPartition(name, partition), self.progress.next_offset(partition))
        if room:
            records = [r for found in consumer.poll(timeout_ms=POLL_MS).values() for r in found]
            self._send_records(records, stop)
        else:
            self._clock.wait(stop, POLL_MS / 1000)
        self._save(node)

    def _send_records(self, records: list[Any], stop: threading.Event) -> None:
        batch: list[tuple[SourceMessage, bytes]] = []
        with self._lock:
            for record in records:
                message = SourceMessage(record.partition, record.offset)
                # until the consumer has sought back in a partition, its records are ignored
                if record.partition not in self._seek_back and self.progress.add(message):
                    batch.append((message, record.value or b""))
        self._send(batch, stop)

    def _send(self, batch: list[tuple[SourceMessage, bytes]], stop: threading.Event) -> None:
        """Send until each message was accepted or is known not to be a batch; in order."""
        while batch and not stop.is_set():
            answers = self._call_collector([data for _, data in batch])
            left = []
            with self._lock:
                if not answers:
                    self._refusal = NO_COLLECTOR
                for (message, data), answer in zip(batch, answers, strict=False):
                    if answer.position is not None:
                        self.progress.mark_placed(message, answer.position, self._on_answer)
                        self.messages, self.bytes = self.messages + 1, self.bytes + len(data)
                    elif answer.is_permanent:
                        self.progress.skip(message)
                    else:
                        left.append((message, data))
                        self._refusal = answer.reason
                if answers and not left:
                    self._refusal = ""
                # messages of partitions with a loss at the other site are read again
                rest = [one for one in batch[len(answers) :] if one[0].partition not in self._seek_back]
            batch = [*left, *rest]
            if left or not answers:
                self._clock.wait(stop, _RETRY_S)

    def _call_collector(self, messages: list[bytes]) -> list[MessageAnswer]:
        """Return the answers to the first of these messages; empty if no collector of the other site answered."""
        try:
            return self._client.send(messages).answers
        except CollectorCallError:
            return []

    def _save(self, node: OffsetsNode) -> None:
        with self._lock:
            until = dict(self.progress.handed_until)
        if until != self._saved_offsets and self._zookeeper.connected:
            node.save(until)
            self._saved_offsets = until

    def _consumer(self) -> Any:
        return open_client(
            KafkaConsumer,
            bootstrap_servers=self._config.kafka,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=FETCH_BYTES // 2,
            max_poll_records=MAX_CALL_MESSAGES,
            request_timeout_ms=int(KAFKA_S * 1000),
            bootstrap_timeout_ms=5_000,
        )


class SiteMirror:
    """Mirror of samples and announcements from one site to another. `start`, `stop`, `figures`."""

    def __init__(self, config: MirrorConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = zookeeper_client(config.zookeeper)
        self.samples = TopicMirror(config, "samples", self._client, clock, config.level == "kafka")
        self.series = TopicMirror(config, "series", self._client, clock, True)
        topics = (self.samples, self.series)
        self._controls = [AckWatcher(self._client, one, f"{config.target_prefix}.samples") for one in topics]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=one.run, args=(self._stop,), name=f"handover {one.topic}", daemon=True)
            for one in topics
        ]

    def start(self) -> None:
        self._client.start_async()
        for control in self._controls:
            control.start()
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop within about `timeout_s`; the next process reads unacked messages again."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s / 2)
        for control in self._controls:
            control.stop(0.5)
        self._client.stop()
        self._client.close()

    def figures(self) -> dict[str, Any]:
        return {"samples": self.samples.figures(), "series": self.series.figures()}
