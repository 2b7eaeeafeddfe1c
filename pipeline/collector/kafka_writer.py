"""Kafka client of the collector: writes messages with one produce request a node and round, and returns their offsets.

It uses the level below kafka-python's producer on purpose. The producer addresses topics by name, so a write may reach
a topic that was deleted and created again, and an ack for the old one would lose data. A produce request of version 13
names the topic id, and the broker refuses any other. Also, the producer goes on retrying after its caller gave up.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import xxhash
from kafka.errors import (
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.net.compat import KafkaNetClient
from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from artimon.model.ack_state import Position
from artimon.model.batch import BatchHeader, BatchKind
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.hash_routing import partition_of
from artimon.model.topic_spec import MAX_PARTITIONS, generation, generation_number, generations, generations_until
from artimon.runtime.kafka_access import client_options, describe_access
from artimon.runtime.leader_epochs import printed_id
from artimon.runtime.partition_counts import ConfirmedPartitions, PartitionCounts
from pipeline.collector.kafka_quota import LogSizes, QuotaError, add_generations, sizes_of

log = logging.getLogger(__name__)

PRODUCE_VERSION = 13
RECORD_BATCH_BYTES = 1_000_000
"""Below max.message.bytes (1 MiB) of our topics; Kafka takes one record batch a partition and request."""
WRITE_DEADLINE_S = 10.0
_BOOTSTRAP_TIMEOUT_S = 4.0
_MAX_METADATA_AGE_S = 60.0
_MESSAGE_OVERHEAD = 120
_ALL_REPLICAS = -1


class KafkaMessage(NamedTuple):
    """Message and its target partition."""

    topic: str
    partition: int
    value: bytes
    key: bytes | None = None
    topic_id: str = ""
    """Id of the topic whose partitions were counted for `partition`; "": any topic of that name. In another one the
    lane may belong to another partition."""


class KafkaWriteError(RuntimeError):
    """Kafka is unreachable or lacks the topic. The text names it and the remedy."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster described it."""

    cluster: str
    name: str
    uuid: uuid.UUID
    leaders: dict[int, int]
    """Leader node by partition; -1 where there is none."""
    read_at: float
    nodes: tuple[int, ...] = ()
    """All nodes of the cluster."""
    epochs: Mapping[int, int] = field(default_factory=dict)
    """Leader epoch by partition."""
    counted_partitions: int = 0
    """Partitions that lanes are spread over, if the topic was given more later; 0: all."""

    @property
    def partitions(self) -> int:
        """Modulus for lanes."""
        return self.counted_partitions or len(self.leaders)

    @property
    def topic_id(self) -> str:
        """Topic id in the printed form of Kafka."""
        return printed_id(self.uuid)


class BatchWriter(Protocol):
    """Target of a collector's writes: Kafka, or files of its own (`direct.stream_broker`)."""

    def describe_topic(self, name: str) -> TopicDescription: ...

    def write(self, messages: Sequence[KafkaMessage]) -> list[Position | str]: ...


@dataclass(slots=True)
class _RecordBatch:
    """Record batch in flight and the indices of its messages. `name`: topic name used by the messages."""

    name: str
    info: TopicDescription
    partition: int
    records: Any
    indices: list[int]


class KafkaWriter:
    """Connection to one Kafka cluster. Thread-safe: concurrent callers share it.

    A name stands for the newest generation of the topic (artimon/model/topic_spec.py). Invariant: a process never goes
    back to an older one.

    Locks: `_lock` guards the client and the topics; nothing is sent under it but metadata requests."""

    def __init__(self, bootstrap: str, clock: Clock = SYSTEM_CLOCK, pins: ConfirmedPartitions | None = None) -> None:
        """`pins`: numbers of partitions recorded by the raw table."""
        self._bootstrap, self._clock = bootstrap, clock
        self._lock = threading.Lock()
        self._client: Any = None
        self._topics: dict[str, TopicDescription] = {}
        self._newest: dict[str, int] = {}
        """Number of the newest generation seen, by name."""
        self._counts = PartitionCounts(pins, clock)

    @property
    def problem(self) -> str:
        """Topics whose number of partitions was altered; "" if there are none."""
        return self._counts.problem

    def describe_topic(self, name: str) -> TopicDescription:
        """Return the newest generation of the topic, described at most a minute ago. Raises KafkaWriteError."""
        with self._lock:
            info = self._topics.get(name)
            if info is not None and self._clock.monotonic() - info.read_at < _MAX_METADATA_AGE_S:
                return info
            info = self._topics[name] = self._describe_newest(name)
            return info

    def generations(self, name: str) -> list[TopicDescription]:
        """Return all existing generations of the topic, oldest first. Raises KafkaWriteError."""
        newest = self.describe_topic(name)
        with self._lock:
            answer = self._ask_metadata(generations_until(name, newest.name))
        found = {topic.name: topic for topic in answer.topics if not topic.error_code}
        return [self._info(answer, found[one]) for one in generations_until(name, newest.name) if one in found]

    def write(self, messages: Sequence[KafkaMessage], deadline_s: float = WRITE_DEADLINE_S) -> list[Position | str]:
        """Return one result a message, in order: its position once all in-sync replicas have it, or the reason why it
        may not be stored. Returns within about `deadline_s`."""
        results: list[Position | str] = ["kafka: not tried"] * len(messages)
        until = self._clock.monotonic() + deadline_s
        try:
            chunks = list(self._chunks(messages, results))
            for node, requests in self._requests(chunks, results).items():
                self._send(node, requests, results, until)
            self._confirm(chunks, results)
        except (KafkaWriteError, KafkaError, OSError, RuntimeError) as error:
            self._fail_rest(results, f"kafka: {type(error).__name__} {error}")
        return results

    def log_sizes(self, name: str) -> LogSizes:
        """Return the sizes of the topic and of its older generations, from the brokers that answer within some seconds.
        Raises QuotaError."""
        try:
            info = self.describe_topic(name)
            with self._lock:
                manager = self._connected_manager()
            topics = generations_until(name, info.name)
            request = DescribeLogDirsRequest(topics=[_every_partition(one) for one in topics])
            answers = manager.run(_ask_all, manager, request, info.nodes, _BOOTSTRAP_TIMEOUT_S * 1000)
        except (KafkaWriteError, KafkaError, OSError, RuntimeError) as error:
            raise QuotaError(f"Kafka at {self._bootstrap} does not report its size: {error}") from error
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        good = [answer for answer in answers if not isinstance(answer, BaseException)]
        errors += [for_code(answer.error_code)() for answer in good if getattr(answer, "error_code", 0)]
        sizes = add_generations(sizes_of(good, info.name), [sizes_of(good, one) for one in topics if one != info.name])
        if not sizes.partitions:
            why = errors[0] if errors else "no broker holds any of it"
            raise QuotaError(f"Kafka at {self._bootstrap} does not report the size of {name}: {why!r}")
        return sizes

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            client, self._client = self._client, None
            self._topics.clear()
        if client is not None:
            client.close()
            client._manager._net.stop(timeout_ms=1000)

    def _connected_manager(self) -> Any:
        """Return the manager of the connected client. Under `_lock`."""
        if self._client is None:
            client = KafkaNetClient(
                bootstrap_servers=self._bootstrap,
                client_id="artimon-collector",
                max_in_flight_requests_per_connection=1000,  # the collector bounds bytes itself
                reconnect_backoff_max_ms=2000,
                request_timeout_ms=int(WRITE_DEADLINE_S * 1000),
                receive_message_max_bytes=100_000_000,
                **client_options(),
            )
            client._manager._net.start()
            try:
                client._manager.bootstrap(_BOOTSTRAP_TIMEOUT_S * 1000)
            except (KafkaError, OSError) as error:
                client.close()
                client._manager._net.stop(timeout_ms=1000)
                raise KafkaWriteError(f"Kafka at {self._bootstrap} {describe_access()}: {error}") from error
            self._client = client
        return self._client._manager

    def _describe_newest(self, name: str) -> TopicDescription:
        """Describe the newest generation. Under `_lock`."""
        known = self._newest.get(name, 0)
        names = [generation(name, number) for number in (known, known + 1)] if known else generations(name)
        answer = self._ask_metadata(names)
        described = {topic.name: topic for topic in answer.topics}
        topic = next((described[one] for one in reversed(names) if one in described and _exists(described[one])), None)
        if topic is None:
            error = for_code(described[names[0]].error_code).__name__ if names[0] in described else "not described"
            raise KafkaWriteError(f"topic {names[0]}: {error}: does it exist? See `artimon topics check`")
        if topic.error_code:
            raise KafkaWriteError(f"topic {topic.name}: {for_code(topic.error_code).__name__}")
        self._newest[name] = generation_number(name, topic.name)
        return self._info(answer, topic)

    def _ask_metadata(self, names: Sequence[str]) -> Any:
        """Under `_lock`."""
        manager = self._connected_manager()
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=one) for one in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        try:
            return manager.run(_describe, manager, request, _BOOTSTRAP_TIMEOUT_S * 1000)
        except KafkaError as error:
            raise KafkaWriteError(f"Kafka at {self._bootstrap} does not describe {names[0]}: {error}") from error

    def _info(self, answer: Any, topic: Any) -> TopicDescription:
        leaders = {p.partition_index: p.leader_id for p in topic.partitions}
        epochs = {p.partition_index: p.leader_epoch for p in topic.partitions}
        nodes = tuple(broker.node_id for broker in answer.brokers)
        counted = self._counts.count(topic.name, printed_id(topic.topic_id), len(leaders))
        now = self._clock.monotonic()
        return TopicDescription(answer.cluster_id, topic.name, topic.topic_id, leaders, now, nodes, epochs, counted)

    def _chunks(self, messages: Sequence[KafkaMessage], results: list[Position | str]) -> Iterator[_RecordBatch]:
        """Yield record batches, those of a partition in the order of the messages. A message whose topic was replaced
        meanwhile is not sent: its partition was computed for the old one."""
        open_: dict[tuple[str, int], tuple[MemoryRecordsBuilder, _RecordBatch]] = {}
        now = self._clock.now_ms()
        for index, message in enumerate(messages):
            info = self.describe_topic(message.topic)
            if message.topic_id not in ("", info.topic_id):
                results[index] = f"kafka: topic {message.topic} was replaced by another one, now {info.name}"
                continue
            at = (message.topic, message.partition)
            size = len(message.value) + len(message.key or b"") + _MESSAGE_OVERHEAD
            if at in open_ and open_[at][0].size_in_bytes() + size > RECORD_BATCH_BYTES:
                yield _close_builder(*open_.pop(at))
            if at not in open_:
                builder = MemoryRecordsBuilder(2, 0, 2 * RECORD_BATCH_BYTES)
                open_[at] = (builder, _RecordBatch(message.topic, info, message.partition, None, []))
            builder, chunk = open_[at]
            builder.append(now, message.key, message.value)
            chunk.indices.append(index)
        for builder, chunk in open_.values():
            yield _close_builder(builder, chunk)

    def _requests(
        self, chunks: list[_RecordBatch], results: list[Position | str]
    ) -> dict[int, list[list[_RecordBatch]]]:
        """Group the chunks by node into rounds, with at most one chunk a partition in a round."""
        nodes: dict[int, list[list[_RecordBatch]]] = {}
        for chunk in chunks:
            leader = chunk.info.leaders.get(chunk.partition, -1)
            if leader < 0:
                self._drop_description(chunk)
                _fail(chunk, results, f"kafka: partition {chunk.partition} of {chunk.info.name} has no leader")
                continue
            rounds = nodes.setdefault(leader, [])
            for one in rounds:
                if all((c.info.uuid, c.partition) != (chunk.info.uuid, chunk.partition) for c in one):
                    one.append(chunk)
                    break
            else:
                rounds.append([chunk])
        return nodes

    def _send(self, node: int, rounds: list[list[_RecordBatch]], results: list[Position | str], until: float) -> None:
        left_ms = int((until - self._clock.monotonic()) * 1000)
        if left_ms <= 0:
            return
        with self._lock:
            manager = self._connected_manager()
        requests = [_produce_request(chunks, left_ms) for chunks in rounds]
        answers = manager.run(_produce, manager, node, requests, left_ms)
        for chunks, answer in zip(rounds, answers, strict=True):
            if isinstance(answer, BaseException):
                for chunk in chunks:
                    self._drop_description(chunk)
                    _fail(chunk, results, f"kafka: {type(answer).__name__} {answer}")
            else:
                self._apply_answer(chunks, answer, results)

    def _apply_answer(self, chunks: list[_RecordBatch], answer: Any, results: list[Position | str]) -> None:
        parts = {(t.topic_id, p.index): p for t in answer.responses for p in t.partition_responses}
        for chunk in chunks:
            part = parts.get((chunk.info.uuid, chunk.partition))
            if part is None or part.error_code:
                self._drop_description(chunk)
                why = for_code(part.error_code).__name__ if part is not None else "no answer"
                _fail(chunk, results, f"kafka: {chunk.info.name}/{chunk.partition}: {why}")
                continue
            for place, index in enumerate(chunk.indices):
                results[index] = position_of(chunk.info, chunk.partition, part.base_offset + place)

    def _confirm(self, chunks: list[_RecordBatch], results: list[Position | str]) -> None:
        """Keep a position only if the leader of its partition is the same before and after the write, so that its epoch
        is exact. A position with too low an epoch would count as evidence of loss again and again. Raises
        KafkaWriteError, with no position left."""
        written = [chunk for chunk in chunks if isinstance(results[chunk.indices[0]], Position)]
        try:
            now = {name: self._refresh(name) for name in {chunk.name for chunk in written}}
        except KafkaWriteError:
            for chunk in written:
                _fail(chunk, results, f"kafka: {chunk.info.name} was not described after the write")
            raise
        for chunk in written:
            name, partition = chunk.name, chunk.partition
            if not is_same_leader(chunk.info, now[name], partition):
                _fail(chunk, results, f"kafka: {name}/{partition}: its leader changed during the write")

    def _refresh(self, name: str) -> TopicDescription:
        """Describe the topic anew."""
        with self._lock:
            info = self._topics[name] = self._describe_newest(name)
            return info

    def _drop_description(self, chunk: _RecordBatch) -> None:
        """Drop the cached description, so that the next write fetches it."""
        with self._lock:
            if self._topics.get(chunk.name) is chunk.info:
                del self._topics[chunk.name]

    def _fail_rest(self, results: list[Position | str], reason: str) -> None:
        log.warning("%s", reason)
        for index, result in enumerate(results):
            if result == "kafka: not tried":
                results[index] = reason


def message_for(broker: BatchWriter, prefix: str, header: BatchHeader, data: bytes) -> KafkaMessage:
    """Route batches by their lane, announcements by source and block. Raises KafkaWriteError if the topic is not
    known."""
    if header.kind == BatchKind.SERIES:
        topic, key = f"{prefix}.series", f"{header.block}/{header.source}".encode()
        info = broker.describe_topic(topic)
        return KafkaMessage(topic, xxhash.xxh3_64_intdigest(key) % info.partitions, data, key, info.topic_id)
    topic = f"{prefix}.samples" if header.kind == BatchKind.SAMPLES else f"{prefix}.events"
    info = broker.describe_topic(topic)
    return KafkaMessage(topic, partition_of(*header.id.lane_id, info.partitions), data, None, info.topic_id)


def position_of(info: TopicDescription, partition: int, offset: int) -> Position:
    """Return the position of a message written to a topic that was described before the write."""
    return Position(info.cluster, info.topic_id, partition, offset, info.epochs.get(partition, -1))


def is_same_leader(before: TopicDescription, now: TopicDescription, partition: int) -> bool:
    """Return True if writes between the two descriptions have the leader epoch of the first."""
    return now.topic_id == before.topic_id and now.epochs.get(partition) == before.epochs.get(partition)


def _exists(topic: Any) -> bool:
    """True if the requested name is an existing topic that we may see."""
    return for_code(topic.error_code) not in (UnknownTopicOrPartitionError, TopicAuthorizationFailedError)


def _every_partition(name: str) -> Any:
    return DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=list(range(MAX_PARTITIONS)))


def _close_builder(builder: MemoryRecordsBuilder, chunk: _RecordBatch) -> _RecordBatch:
    builder.close()
    chunk.records = builder.buffer()
    return chunk


def _fail(chunk: _RecordBatch, results: list[Position | str], reason: str) -> None:
    for index in chunk.indices:
        results[index] = reason


def _produce_request(chunks: list[_RecordBatch], timeout_ms: int) -> Any:
    topics: dict[uuid.UUID, Any] = {}
    for chunk in chunks:
        part = ProduceRequest.TopicProduceData.PartitionProduceData(index=chunk.partition, records=chunk.records)
        topics.setdefault(chunk.info.uuid, []).append(part)
    return ProduceRequest(
        transactional_id=None,
        acks=_ALL_REPLICAS,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequest.TopicProduceData(topic_id=id, partition_data=parts) for id, parts in topics.items()],
        min_version=PRODUCE_VERSION,
        max_version=PRODUCE_VERSION,
    )


async def _describe(manager: Any, request: MetadataRequest, timeout_ms: float) -> Any:
    """Ask for metadata, and let the client know their brokers: it asks for itself only every five minutes, perhaps at a
    moment when one of the leaders was away."""
    answer = await manager.wait_for(manager.send(request, request_timeout_ms=timeout_ms), timeout_ms)
    brokers = copy(answer)
    brokers.topics = []  # the client would change the leader epochs of a topic that was made again
    manager.cluster.update_metadata(brokers)
    return answer


async def _ask_all(manager: Any, request: Any, nodes: Sequence[int], timeout_ms: float) -> list[Any]:
    """Return the answer or the error of each node."""
    futures: list[Any] = []
    for node in nodes:
        try:
            futures.append(manager.send(request, node, request_timeout_ms=timeout_ms))
        except KafkaError:  # it has left the cluster since: the others know the sizes of their replicas
            continue
    return await _gather(manager, futures, timeout_ms)


async def _produce(manager: Any, node: int, requests: list[Any], timeout_ms: float) -> list[Any]:
    """Send all at once, in order; return the answer or the error of each."""
    try:
        futures = [manager.send(request, node, request_timeout_ms=timeout_ms) for request in requests]
    except UnknownBrokerIdError as error:  # nothing was sent
        return [error] * len(requests)
    return await _gather(manager, futures, timeout_ms)


async def _gather(manager: Any, futures: Sequence[Any], timeout_ms: float) -> list[Any]:
    answers: list[Any] = []
    for future in futures:
        try:
            answers.append(await manager.wait_for(future, timeout_ms))
        except Exception as error:
            answers.append(error)
    return answers
