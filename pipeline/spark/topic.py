"""What the driver asks Kafka itself: which topic it is, where its log begins and ends, and single messages for the
dead letters."""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from pipeline.spark.state import Span

TIMEOUT_MS = 15_000


class TopicError(RuntimeError):
    """Kafka cannot be asked, or does not have what is wanted. The text says what and where."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """Ids as Kafka prints them."""

    cluster: str
    topic: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that is no batch: where it stood and why."""

    partition: int
    offset: int
    reason: str


def printed_id(topic_id: uuid.UUID | str) -> str:
    """A topic's UUID as Kafka prints it: URL-safe base64 of its 16 bytes, without padding."""
    plain = topic_id if isinstance(topic_id, uuid.UUID) else uuid.UUID(topic_id)
    return base64.urlsafe_b64encode(plain.bytes).decode().rstrip("=")


class Topic:
    """One topic, asked over connections of its own; safe to share between threads.

    Locks: `_lock` is held for the whole of a request; every request has a deadline."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self._lock = threading.Lock()
        self._admin: Any = None
        self._consumer: Any = None

    def describe(self) -> TopicInfo:
        """Cluster, topic id, number of partitions. Raises TopicError."""
        with self._lock:
            try:
                admin = self._admin_client()
                cluster = admin.describe_cluster()["cluster_id"]
                found = admin.describe_topics([self.topic])[0]
            except (KafkaError, OSError, IndexError) as error:
                self._close()
                raise TopicError(f"Kafka at {self.bootstrap}, topic {self.topic}: {error!r}") from error
        if found["error_code"] or not found["partitions"]:
            raise TopicError(
                f"Kafka at {self.bootstrap} has no topic {self.topic} (error {found['error_code']}): make it"
            )
        return TopicInfo(cluster, self.topic, printed_id(found["topic_id"]), len(found["partitions"]))

    def bounds(self, partitions: int) -> dict[int, Span]:
        """[log start, log end) of each partition. Raises TopicError."""
        wanted = [TopicPartition(self.topic, p) for p in range(partitions)]
        with self._lock:
            try:
                consumer = self._reader()
                starts = consumer.beginning_offsets(wanted, timeout_ms=TIMEOUT_MS)
                ends = consumer.end_offsets(wanted, timeout_ms=TIMEOUT_MS)
            except (KafkaError, OSError) as error:
                self._close()
                raise TopicError(f"Kafka at {self.bootstrap}, offsets of {self.topic}: {error!r}") from error
        return {tp.partition: (starts[tp], ends[tp]) for tp in wanted}

    def trim(self, until: Mapping[int, int], before_ms: int) -> dict[int, int]:
        """Delete messages below `until` that are older than `before_ms`; the new log starts. Raises TopicError."""
        wanted = {TopicPartition(self.topic, p): before_ms for p in until}
        with self._lock:
            try:
                found = self._reader().offsets_for_times(wanted, timeout_ms=TIMEOUT_MS)
                # no message is that young: all of them are old
                ends = self._reader().end_offsets(list(wanted), timeout_ms=TIMEOUT_MS)
                cuts = {tp: min(until[tp.partition], found[tp].offset if found.get(tp) else ends[tp]) for tp in wanted}
                if cuts:
                    self._admin_client().delete_records(cuts, timeout_ms=TIMEOUT_MS)
            except (KafkaError, OSError) as error:
                self._close()
                raise TopicError(f"Kafka at {self.bootstrap}, trimming {self.topic}: {error!r}") from error
        return {tp.partition: cut for tp, cut in cuts.items()}

    def bury(self, letters: Sequence[DeadLetter], graveyard: str) -> None:
        """Copy each message to the topic `graveyard`, with its reason; on return all are acknowledged. Raises
        TopicError."""
        try:
            producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", max_block_ms=TIMEOUT_MS)
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
        """The value of one message. Raises TopicError if the log no longer has it."""
        where = TopicPartition(self.topic, partition)
        with self._lock:
            consumer = self._reader()
            consumer.assign([where])
            consumer.seek(where, offset)
            for _ in range(5):
                polled: Mapping[Any, list[Any]] = consumer.poll(timeout_ms=TIMEOUT_MS // 5, max_records=1)
                for record in polled.get(where, []):
                    if record.offset != offset:
                        raise TopicError(f"offset {offset} of {where} is gone: the log goes on at {record.offset}")
                    return None if record.value is None else bytes(record.value)
        raise TopicError(f"offset {offset} of {where} cannot be read")

    def close(self) -> None:
        """Close the connections; the next request makes new ones."""
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
            self._admin = KafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=TIMEOUT_MS)
        return self._admin

    def _reader(self) -> Any:
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                bootstrap_servers=self.bootstrap,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_bytes=4 * 1024 * 1024,
                max_partition_fetch_bytes=2 * 1024 * 1024,
            )
        return self._consumer


def _headers(topic: str, letter: DeadLetter) -> list[tuple[str, bytes]]:
    return [
        ("reason", letter.reason.encode()),
        ("topic", topic.encode()),
        ("partition", str(letter.partition).encode()),
        ("offset", str(letter.offset).encode()),
    ]
