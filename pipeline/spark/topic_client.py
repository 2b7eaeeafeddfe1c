"""Requests of the driver to Kafka: identity of a topic, bounds of its log, leader epochs, single messages for the dead
letters."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError, for_code
from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.consumer import OffsetSpec

from artimon.model.topic_spec import MAX_GENERATIONS, generation_number, generations
from artimon.rawtable.table_state import MAX_EPOCHS, Epochs, Span, append_epoch
from artimon.runtime.kafka_access import open_client
from artimon.runtime.leader_epochs import epoch_end_offsets, printed_id, send_to_broker
from pipeline.collector.kafka_quota import LogSizes, sizes_of

TIMEOUT_MS = 15_000


class TopicError(RuntimeError):
    """Kafka does not answer, or a topic or offset is missing. The text names it."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """Ids as Kafka prints them."""

    cluster: str
    topic: str
    topic_id: str
    partitions: int
    epochs: Mapping[int, int] = field(default_factory=dict)
    """Leader epoch of each partition."""
    leaders: Mapping[int, int] = field(default_factory=dict)

    def limited(self, partitions: int) -> TopicInfo:
        """Return the same with only the first `partitions`."""
        if partitions >= self.partitions:
            return self
        epochs = {p: epoch for p, epoch in self.epochs.items() if p < partitions}
        leaders = {p: leader for p, leader in self.leaders.items() if p < partitions}
        return replace(self, partitions=partitions, epochs=epochs, leaders=leaders)


class LeaderChangedError(TopicError):
    """A partition has another leader, or the same one after a restart: the end of its log must be checked again."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that is not a batch: its place and the reason."""

    partition: int
    offset: int
    reason: str


class TopicClient:
    """Client for one topic with its own connections; thread-safe.

    Locks: `_lock` is held for the whole of a request; every request has a deadline."""

    def __init__(self, bootstrap: str, topic: str, base: str = "") -> None:
        """`base`: the topic of which this is a generation (artimon/model/topic_spec.py); `topic` by default."""
        self.bootstrap, self.topic, self._base = bootstrap, topic, base or topic
        self._lock = threading.Lock()
        self._admin: Any = None
        self._consumer: Any = None
        self._newest = MAX_GENERATIONS
        """Number of the newest generation seen; only its successor can be new."""

    def describe(self) -> TopicInfo:
        """Return cluster, topic id, partitions and leaders. Raises TopicError."""
        found = next(iter(self._describe([self.topic])), {"error_code": "none", "partitions": []})
        if found["error_code"] or not found["partitions"]:
            raise TopicError(
                f"Kafka at {self.bootstrap} has no topic {self.topic} (error {found['error_code']}): create it"
            )
        return _info(found)

    def generations(self) -> list[TopicInfo]:
        """Return all generations of the topic that exist, oldest first. Raises TopicError if there is none."""
        names = generations(self._base)[: self._newest + 1]
        found = {one["name"]: one for one in self._describe(names) if not one["error_code"] and one["partitions"]}
        if not found:
            raise TopicError(
                f"Kafka at {self.bootstrap} has no topic {self._base}: create it with `artimon topics create`"
            )
        self._newest = max(generation_number(self._base, name) for name in found)
        return [_info(found[name]) for name in names if name in found]

    def switched_to(self, name: str) -> TopicClient:
        """Return the client for another generation and close this one; itself if `name` is the same."""
        if name == self.topic:
            return self
        self.close()
        return TopicClient(self.bootstrap, name, self._base)

    def sibling(self, name: str) -> TopicClient:
        """Return a client for another generation, with its own connections."""
        return TopicClient(self.bootstrap, name, self._base)

    @contextmanager
    def _request(self, what: str) -> Iterator[None]:
        """Hold the lock for a request; if it fails, close the connections. Raises TopicError."""
        with self._lock:
            try:
                yield
            except (KafkaError, OSError) as error:
                self._close()
                raise TopicError(f"Kafka at {self.bootstrap}, {what}: {error!r}") from error

    def _describe(self, names: list[str]) -> list[Any]:
        with self._request(f"topic {names[0]}"):
            admin = self._admin_client()
            # one request: `describe_topics` drops the id of the cluster
            found = admin._manager.run(admin._get_cluster_metadata, names)
            return [{**one, "cluster": found["cluster_id"]} for one in found["topics"]]

    def epochs(self, info: TopicInfo, known: Mapping[int, Epochs]) -> dict[int, Epochs]:
        """Return each partition's leader epochs with offsets, continuing `known`. Raises TopicError,
        LeaderChangedError."""
        same = {p: info.epochs[p] for p in range(info.partitions) if known.get(p) and known[p][-1][0] == info.epochs[p]}
        self._epoch_ends(info, same)  # raises if one of them has changed
        return {p: known[p] if p in same else self._epochs(info, p, known.get(p, ())) for p in range(info.partitions)}

    def _epochs(self, info: TopicInfo, partition: int, known: Epochs) -> Epochs:
        now = info.epochs[partition]
        if known and known[-1][0] > now:
            return ((now, 0),)  # the whole cluster went back in time: its log is unknown
        first = max(0, now - MAX_EPOCHS) if not known else known[-1][0]
        found = known or ((first, 0),)
        for epoch in (first, *range(max(first + 1, now - MAX_EPOCHS), now)):
            if epoch < now:
                found = append_epoch(found, epoch + 1, self._epoch_end(info, partition, epoch))
        return found if found[-1][0] == now else append_epoch(found, now, found[-1][1])

    def check_leaders(self, info: TopicInfo) -> None:
        """Check that each partition is still led under its epoch in `info`. Raises LeaderChangedError, TopicError."""
        self._epoch_ends(info, info.epochs)

    def _epoch_end(self, info: TopicInfo, partition: int, epoch: int) -> int:
        return self._epoch_ends(info, {partition: epoch})[partition]

    def _epoch_ends(self, info: TopicInfo, epochs: Mapping[int, int]) -> dict[int, int]:
        """Return, by partition, the end offset of messages written under its epoch or before. A leader refuses if it
        changed."""
        if not epochs:
            return {}
        with self._request(f"epochs of {self.topic}"):
            admin = self._admin_client()
            found = epoch_end_offsets(admin, self.topic, info.leaders, info.epochs, epochs, TIMEOUT_MS)
        for partition, (error, _) in found.items():
            if error:
                raise LeaderChangedError(
                    f"{self.topic}, partition {partition}: no longer led under epoch {info.epochs[partition]}"
                    f" ({for_code(error).__name__})"
                )
        return {partition: end for partition, (_, end) in found.items()}

    def sizes(self, partitions: int) -> LogSizes:
        """Return the size of each partition on the disks of the brokers. Raises TopicError."""
        wanted = DescribeLogDirsRequest.DescribableLogDirTopic(topic=self.topic, partitions=list(range(partitions)))
        request = DescribeLogDirsRequest(topics=[wanted])
        with self._request(f"size of {self.topic}"):
            admin = self._admin_client()
            nodes = [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]]
            found = sizes_of([send_to_broker(admin, request, node, TIMEOUT_MS) for node in nodes], self.topic)
        if len(found.partitions) < partitions:
            raise TopicError(f"Kafka at {self.bootstrap} does not say how large {self.topic} is")
        return found

    def settings(self) -> dict[str, str]:
        """Return the settings of the topic, with its broker's values where it has none. Raises TopicError."""
        resource = ConfigResource(ConfigResourceType.TOPIC, self.topic)
        with self._request(f"settings of {self.topic}"):
            found = self._admin_client().describe_configs([resource], config_filter="all")
        values = found["topic"][self.topic]
        return {name: str(one["value"]) for name, one in values.items()}

    def log_bounds(self, partitions: int) -> dict[int, Span]:
        """Return [log start, log end) of each partition. Raises TopicError."""
        wanted = [TopicPartition(self.topic, p) for p in range(partitions)]
        with self._request(f"offsets of {self.topic}"):
            consumer = self._reader()
            starts = consumer.beginning_offsets(wanted, timeout_ms=TIMEOUT_MS)
            ends = consumer.end_offsets(wanted, timeout_ms=TIMEOUT_MS)
        return {tp.partition: (starts[tp], ends[tp]) for tp in wanted}

    def offsets_at(self, partitions: int, time_ms: int) -> dict[int, int]:
        """Return, by partition, the first offset appended at or after `time_ms`, if any. Raises TopicError."""
        wanted = {TopicPartition(self.topic, p): time_ms for p in range(partitions)}
        with self._request(f"times of {self.topic}"):
            found = self._reader().offsets_for_times(wanted, timeout_ms=TIMEOUT_MS)
            none = [tp for tp in wanted if found.get(tp) is None]
            young = self._young_starts(none, time_ms) if none else {}
        return {**young, **{tp.partition: at.offset for tp, at in found.items() if at is not None}}

    def _young_starts(self, partitions: list[TopicPartition], time_ms: int) -> dict[int, int]:
        """Return the log starts of partitions whose messages are all younger: Kafka finds no offset for a time in a
        segment of which every message was deleted."""
        newest = self._admin_client().list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.MAX_TIMESTAMP))
        young = [tp for tp in partitions if newest[tp].timestamp >= time_ms]
        starts = self._reader().beginning_offsets(young, timeout_ms=TIMEOUT_MS) if young else {}
        return {tp.partition: starts[tp] for tp in young}

    def delete_below(self, cuts: Mapping[int, int]) -> None:
        """Delete messages below these offsets. Kafka refuses an offset beyond the log end. Raises TopicError."""
        wanted = {TopicPartition(self.topic, p): cut for p, cut in cuts.items()}
        with self._request(f"trimming {self.topic}"):
            self._admin_client().delete_records(wanted, timeout_ms=TIMEOUT_MS)

    def copy_to(self, letters: Sequence[DeadLetter], graveyard: str) -> None:
        """Copy each message with its reason to the topic `graveyard`; on return all are acknowledged. Raises
        TopicError."""
        try:
            producer = open_client(KafkaProducer, bootstrap_servers=self.bootstrap, acks="all", max_block_ms=TIMEOUT_MS)
        except (KafkaError, OSError) as error:
            raise TopicError(f"Kafka at {self.bootstrap}: {error!r}") from error
        try:
            for letter in letters:
                value = self._message(letter.partition, letter.offset)
                key = f"{self.topic}/{letter.partition}/{letter.offset}".encode()
                sent = producer.send(graveyard, value=value, key=key, headers=_headers(self.topic, letter))
                sent.get(timeout=TIMEOUT_MS / 1000)
        except (KafkaError, OSError) as error:
            raise TopicError(f"dead letters to {graveyard}: {error!r}") from error
        finally:
            producer.close(timeout=5)

    def _message(self, partition: int, offset: int) -> bytes | None:
        """Return the value of one message. Raises TopicError if the log no longer has it."""
        where = TopicPartition(self.topic, partition)
        with self._lock:
            consumer = self._reader()
            consumer.assign([where])
            consumer.seek(where, offset)
            for _ in range(5):
                polled: Mapping[Any, list[Any]] = consumer.poll(timeout_ms=TIMEOUT_MS // 5, max_records=1)
                for record in polled.get(where, []):
                    if record.offset != offset:
                        raise TopicError(f"offset {offset} of {where} is gone: the log continues at {record.offset}")
                    return None if record.value is None else bytes(record.value)
        raise TopicError(f"offset {offset} of {where} cannot be read")

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        for client in (self._admin, self._consumer):
            if client is not None:
                try:
                    client.close()
                except (KafkaError, OSError, RuntimeError):
                    pass
        self._admin = self._consumer = None

    def _admin_client(self) -> Any:
        if self._admin is None:
            self._admin = open_client(KafkaAdminClient, bootstrap_servers=self.bootstrap, request_timeout_ms=TIMEOUT_MS)
        return self._admin

    def _reader(self) -> Any:
        if self._consumer is None:
            self._consumer = open_client(
                KafkaConsumer,
                bootstrap_servers=self.bootstrap,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_bytes=4 * 1024 * 1024,
                max_partition_fetch_bytes=2 * 1024 * 1024,
            )
        return self._consumer


def _info(found: Mapping[str, Any]) -> TopicInfo:
    parts = found["partitions"]
    epochs = {p["partition_index"]: p["leader_epoch"] for p in parts}
    leaders = {p["partition_index"]: p["leader_id"] for p in parts}
    return TopicInfo(found["cluster"], found["name"], printed_id(found["topic_id"]), len(parts), epochs, leaders)


def _headers(topic: str, letter: DeadLetter) -> list[tuple[str, bytes]]:
    return [
        ("reason", letter.reason.encode()),
        ("topic", topic.encode()),
        ("partition", str(letter.partition).encode()),
        ("offset", str(letter.offset).encode()),
    ]
