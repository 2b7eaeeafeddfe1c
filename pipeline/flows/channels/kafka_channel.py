"""Channel in a Kafka topic: a put is one Kafka transaction, and the offsets of a take are committed with the take.
Every error reaches the caller."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from pydantic import Field

from artimon.model.batch import BatchError, BatchId
from artimon.model.batch_codec import verify_limits
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.hash_routing import partition_of
from artimon.runtime.deadline import DeadlineExceededError, call_with_timeout
from artimon.runtime.kafka_access import open_client
from pipeline.delivery.batch_numbers import LaneNumbers
from pipeline.flows.accepted_ids import AcceptedIds
from pipeline.flows.context import Context
from pipeline.flows.event import EventBatch, with_identity_and_bytes
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, Outside
from pipeline.flows.spi import ChannelFailed, ChannelFull, Figures, Take

log = logging.getLogger(__name__)

T = TypeVar("T")
_DAY_MS = 24 * 3_600_000


class KafkaOptions(Options):
    """`topic` exists. `group`: consumers that share the topic; default: agent and flow. `behind`: most waiting
    messages, as last seen by this process; beyond it `put` refuses."""

    bootstrap: str
    topic: str = Field(min_length=1)
    group: str = ""
    behind: int = Field(default=1_000_000, ge=1)
    call_s: float = Field(default=20.0, gt=0, le=300)


class KafkaChannel:
    """One take at a time. Order holds within a partition; a lane has one partition.

    Locks: `_put` serialises transactions, `_take` the use of the consumer, which is not thread-safe; `_state` guards
    the accepted identities."""

    def __init__(self, options: KafkaOptions, agent: str, source: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options, self._clock = options, clock
        self._name = f"{agent}.{source}"
        self._numbers, self._source = LaneNumbers(agent), source
        self._put, self._take, self._state = threading.Lock(), threading.RLock(), threading.Lock()
        self._producer: Any = None
        self._consumer: Any = None
        self._open = False
        self._accepted = AcceptedIds()
        self._taken: dict[Any, int] = {}
        """First offset taken and not committed, by partition."""
        self.waiting = 0
        """Messages behind those taken, as of the last take."""
        self.repeats = self.damaged = self.taken = 0
        self.problem = ""

    def start(self) -> None:
        """Raises ChannelFailed if Kafka cannot be reached or another process has the same agent and flow."""
        self._consumer = self._call_with_timeout("opening the consumer", self._new_consumer)
        self._producer = self._call_with_timeout("opening the producer", self._new_producer)
        self._open = True

    def put(self, event_batches: Sequence[EventBatch], deadline_s: float) -> None:
        if not self._open:
            raise ChannelFailed("the channel is closed")
        if self.waiting + len(event_batches) > self._options.behind:
            raise ChannelFull(f"{self.waiting} messages wait in {self._options.topic}, at most {self._options.behind}")
        if not self._put.acquire(timeout=deadline_s):
            raise ChannelFull(f"another put has waited for Kafka for {deadline_s:g} s")
        try:
            sealed = self._without_repeats(event_batches)
            if sealed:
                self._transact(sealed)
        finally:
            self._put.release()
        with self._state:
            for event_batch in sealed:
                if event_batch.id is not None:
                    self._accepted.add(event_batch.id, self._clock.now_ms())
            self._accepted.limit_size(self._clock.now_ms())

    def take(self, most: int, wait_s: float) -> Take:
        """Raises ChannelFailed, also while another take is open."""
        with self._take:
            if not self._open:
                raise ChannelFailed("the channel is closed")
            if self._taken:
                raise ChannelFailed("the last take is neither committed nor rolled back")
            found = self._poll(most, wait_s)
            records = [record for part in found.values() for record in part]
            until = {TopicPartition(r.topic, r.partition): r.offset + 1 for r in records}
            for record in records:
                self._taken.setdefault(TopicPartition(record.topic, record.partition), record.offset)
            event_batches = [
                event_batch for record in records if (event_batch := self._event_batch(record)) is not None
            ]
            self.taken += len(event_batches)
        if records and not event_batches:  # no message is readable: count them and go on
            self._commit(until)
        return Take(event_batches, lambda: self._commit(until), self._rollback)

    def stop(self, deadline_s: float) -> None:
        self._open = False
        for what, client in (("producer", self._producer), ("consumer", self._consumer)):
            if client is not None:
                self._close(what, client, deadline_s / 2)
        self._producer = self._consumer = None

    def figures(self) -> Figures:
        return {
            "waiting": self.waiting,
            "taken": self.taken,
            "repeats": self.repeats,
            "damaged": self.damaged,
            "problems": [self.problem] if self.problem else [],
        }

    def done(self, id: BatchId) -> bool:
        """Always False: this process does not see the commits of other consumers."""
        del id
        return False

    def _without_repeats(self, event_batches: Sequence[EventBatch]) -> list[EventBatch]:
        with self._state:
            fresh = [
                event_batch
                for event_batch in event_batches
                if event_batch.id is None or not self._accepted.has(event_batch.id)
            ]
            self.repeats += len(event_batches) - len(fresh)
        return [
            with_identity_and_bytes(event_batch, self._numbers, self._source, self._clock.now_ms())
            for event_batch in fresh
        ]

    def _transact(self, event_batches: list[EventBatch]) -> None:
        """Write all in one transaction. On ChannelFailed the next put opens a new producer, which fences this one."""
        try:
            if self._producer is None:
                self._producer = self._call_with_timeout("opening the producer", self._new_producer)
            producer = self._producer
            self._call_with_timeout("a transaction", lambda: self._send(producer, event_batches))
            self.problem = ""
        except ChannelFailed:
            broken, self._producer = self._producer, None
            if broken is not None:
                self._close("producer", broken, 1.0)
            raise

    def _send(self, producer: Any, event_batches: list[EventBatch]) -> None:
        producer.begin_transaction()
        try:
            partitions = len(producer.partitions_for(self._options.topic) or {0})
            sent = [self._send_one(producer, event_batch, partitions) for event_batch in event_batches]
            producer.flush(timeout=self._options.call_s)
            for future in sent:
                future.get(timeout=self._options.call_s)
        except BaseException:
            producer.abort_transaction()
            raise
        producer.commit_transaction()

    def _send_one(self, producer: Any, event_batch: EventBatch, partitions: int) -> Any:
        lane = event_batch.id.lane_id if event_batch.id else ("", 0, 0)
        return producer.send(self._options.topic, event_batch.data, partition=partition_of(*lane, partitions))

    def _event_batch(self, record: Any) -> EventBatch | None:
        """Return the event batch of a message; None, counted, for bytes that are not a batch."""
        try:
            return EventBatch((), verify_limits(record.value).id, record.value)
        except (BatchError, TypeError) as error:
            self.damaged += 1
            log.error("%s/%d offset %d: %s", record.topic, record.partition, record.offset, error)
            return None

    def _commit(self, until: dict[Any, int]) -> None:
        offsets = {part: OffsetAndMetadata(offset, "", -1) for part, offset in until.items()}
        if offsets:
            with self._take:
                timeout_ms = round(self._options.call_s * 1000)
                self._call_with_timeout("commit", lambda: self._consumer.commit(offsets, timeout_ms=timeout_ms))
                self._taken.clear()

    def _rollback(self) -> None:
        with self._take:
            out, self._taken = self._taken, {}
            for part, offset in out.items():
                if self._consumer is not None and part in self._consumer.assignment():
                    self._consumer.seek(part, offset)

    def _poll(self, most: int, wait_s: float) -> dict[Any, list[Any]]:
        """Poll the consumer; return messages by partition. After any error the position of the consumer is unknown, and
        a hanging call may still return messages. So the next take opens a new consumer at the committed offsets."""
        try:
            if self._consumer is None:
                self._consumer = self._call_with_timeout("opening the consumer", self._new_consumer)
            consumer, wait_ms = self._consumer, max(1, round(wait_s * 1000))
            found: dict[Any, list[Any]] = self._call_with_timeout(
                "poll", lambda: consumer.poll(timeout_ms=wait_ms, max_records=most), wait_s
            )
            self.waiting = self._call_with_timeout("looking at the ends", lambda: _count_behind(consumer))
            return found
        except ChannelFailed:
            broken, self._consumer = self._consumer, None
            if broken is not None:
                self._close("consumer", broken, 1.0)
            raise

    def _call_with_timeout(self, what: str, call: Callable[[], T], more_s: float = 0.0) -> T:
        """Call with a timeout. Raises ChannelFailed for any error."""
        try:
            return call_with_timeout(self._options.call_s + more_s, f"{what} ({self._options.topic})", call)
        except (KafkaError, DeadlineExceededError, OSError, AssertionError, RuntimeError) as error:
            self.problem = f"Kafka {self._options.bootstrap}, {what}: {type(error).__name__}: {error}"
            raise ChannelFailed(self.problem) from error

    def _close(self, what: str, client: Any, deadline_s: float) -> None:
        try:
            call_with_timeout(deadline_s + 0.5, f"closing the {what}", lambda: _is_closed(client, deadline_s))
        except (KafkaError, DeadlineExceededError, OSError, RuntimeError) as error:
            log.warning("%s: %s", self._name, error)

    def _new_producer(self) -> Any:
        producer = open_client(
            KafkaProducer,
            bootstrap_servers=self._options.bootstrap,
            transactional_id=self._name,
            acks="all",
            max_request_size=1024 * 1024,
            max_block_ms=round(self._options.call_s * 1000),
        )
        try:
            producer.init_transactions()
        except BaseException:
            producer.close(timeout=1)
            raise
        return producer

    def _new_consumer(self) -> Any:
        consumer = open_client(
            KafkaConsumer,
            bootstrap_servers=self._options.bootstrap,
            group_id=self._options.group or self._name,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            max_poll_interval_ms=_DAY_MS,  # a sink that is down for hours must keep its partitions
            allow_auto_create_topics=False,
        )
        consumer.subscribe([self._options.topic])
        return consumer


def _count_behind(consumer: Any) -> int:
    return sum(max(0, (consumer.highwater(part) or 0) - consumer.position(part)) for part in consumer.assignment())


def _is_closed(client: Any, deadline_s: float) -> None:
    if isinstance(client, KafkaConsumer):
        client.close(autocommit=False, timeout_ms=round(deadline_s * 1000))
    else:
        client.close(timeout=deadline_s)


def _build(options: KafkaOptions, context: Context) -> KafkaChannel:
    return KafkaChannel(options, context.agent, context.flow, context.clock)


KAFKA = Component(
    "kafka", KafkaOptions, _build, branches=False, outside={"bootstrap": Outside.HOST, "topic": Outside.HOST}
)
