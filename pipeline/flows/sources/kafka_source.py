"""Kafka topic as a source. Its offsets are in the agent's journal and not in Kafka, so that each message comes exactly
once after any crash."""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import Any, Literal

import xxhash
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from pydantic import Field

from artimon.model.batch import BatchError
from artimon.model.batch_codec import verify_limits
from artimon.model.event import EventError, split_events
from artimon.runtime.deadline import DeadlineExceededError, call_with_timeout
from artimon.runtime.kafka_access import open_client
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, Outside
from pipeline.flows.sources.source_journal import PieceIntent, SourceJournal
from pipeline.flows.spi import ChannelFailed, Figures, Put

log = logging.getLogger(__name__)

_PARTITION_CHECK_S = 30.0
"""Seconds between checks for new partitions of the topic."""


class KafkaSourceOptions(Options):
    """`start`: position in a partition that was never read. `batches`: messages are batches of this platform, which
    keep identity and bytes; otherwise each message is an event, its key in the header `key`."""

    bootstrap: str = Field(min_length=3)
    topic: str = Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")
    start: Literal["beginning", "end"] = "beginning"
    batches: bool = False
    messages: int = Field(default=500, ge=1, le=10_000)
    call_s: float = Field(default=20.0, gt=0, le=300)


class KafkaSource:
    """Pollable. Reads all partitions itself: give a topic to one agent only."""

    def __init__(self, options: KafkaSourceOptions, context: Context) -> None:
        self._options, self._context, self._clock = options, context, context.clock
        self._journal: SourceJournal | None = None
        self._consumer: Any = None
        self._pending_event_batches: deque[tuple[Any, list[Any]]] = deque()
        """Messages fetched and not put, by partition."""
        self._piece: tuple[PieceIntent, list[EventBatch], int] | None = None
        """The pending piece, its event batches, and the number of their messages."""
        self._checked_at = 0.0
        self._moved = False
        """True if the consumer's position differs from the journal's."""
        self.counts: Counter[str] = Counter()
        self.problem = ""

    def start(self) -> None:
        name = f"kafka/{self._context.agent}/{self._context.flow}"
        self._journal = SourceJournal(self._context.folder / "kafka.json", self._context.agent, name)

    def poll(self, put: Put) -> bool:
        """Raises ChannelFailed while Kafka does not answer."""
        journal = self._journal
        if journal is None:
            raise RuntimeError("the source was not started")
        try:
            return self._put_next(journal, put)
        except (KafkaError, DeadlineExceededError, OSError) as error:
            self.problem = f"Kafka {self._options.bootstrap}: {type(error).__name__}: {error}"
            self._close()
            raise ChannelFailed(self.problem) from error

    def stop(self, deadline_s: float) -> None:
        del deadline_s
        self._close()
        if self._journal is not None and self._journal.next:
            self._journal.close()

    def figures(self) -> Figures:
        return {**self.counts, "problems": [self.problem] if self.problem else []}

    def _put_next(self, journal: SourceJournal, put: Put) -> bool:
        self._open(journal)
        if journal.pending is not None:
            self._repeat(journal, put)
            return True
        if not self._pending_event_batches:
            found = self._call(lambda: self._consumer.poll(timeout_ms=500, max_records=self._options.messages))
            self._pending_event_batches.extend(found.items())
        if not self._pending_event_batches:
            self._check_partitions()
            return False
        part, records = self._pending_event_batches.popleft()
        at = {**journal.state.get("offsets", {}), str(part.partition): records[-1].offset + 1}
        what = {"partition": part.partition, "from": records[0].offset, "until": records[-1].offset + 1}
        what["count"], what["digest"] = len(records), _digest(records)
        intent = journal.begin(self._clock.now_ms(), what, {"offsets": at})
        self._piece = intent, self._event_batches(journal, intent, records), len(records)
        self._repeat(journal, put)
        return True

    def _repeat(self, journal: SourceJournal, put: Put) -> None:
        intent = journal.pending
        if intent is None:
            return
        if self._piece is None:
            records = self._reread(intent)
            if _digest(records) != intent.piece["digest"]:  # Kafka has deleted some: one identity, one content
                self.counts["unknown"] += int(intent.piece["count"])
                log.error(
                    "kafka: messages %s are gone from topic %s and may not have been delivered",
                    intent.piece,
                    self._options.topic,
                )
                journal.drop()
                self._assign()
                return
            self._piece = intent, self._event_batches(journal, intent, records), len(records)
        for event_batch in self._piece[1]:
            put([event_batch])
        journal.commit()
        self.problem = ""
        self.counts["messages"] += self._piece[2]
        self._piece = None
        if self._moved:
            self._assign()

    def _event_batches(self, journal: SourceJournal, intent: PieceIntent, records: list[Any]) -> list[EventBatch]:
        """Return the event batches of messages, always the same: batches keep their identity, events get the
        piece's."""
        if self._options.batches:
            return [event_batch for record in records if (event_batch := self._batch(record)) is not None]
        events = [event for record in records if (event := self._event(record)) is not None]
        portions = list(split_events(events))
        return [journal.make_batch(intent, portion, part) for part, portion in enumerate(portions)]

    def _batch(self, record: Any) -> EventBatch | None:
        try:
            return EventBatch((), verify_limits(record.value).id, record.value)
        except (BatchError, TypeError) as error:
            self._count_bad(record, error)
            return None

    def _event(self, record: Any) -> Event | None:
        headers = {str(k): bytes(v).decode(errors="replace") for k, v in record.headers or () if v is not None}
        if record.key is not None:
            headers["key"] = bytes(record.key).decode(errors="replace")
        event = Event(headers, bytes(record.value or b""))
        try:
            list(split_events([event]))
        except EventError as error:
            self._count_bad(record, error)
            return None
        return event

    def _count_bad(self, record: Any, error: Exception) -> None:
        self.counts["bad"] += 1
        log.error("%s/%d offset %d is left out: %s", record.topic, record.partition, record.offset, error)

    def _reread(self, intent: PieceIntent) -> list[Any]:
        """Read the messages of a piece of the previous process again; fewer if Kafka has deleted some."""
        part = TopicPartition(self._options.topic, int(intent.piece["partition"]))
        until, records = int(intent.piece["until"]), list[Any]()
        self._consumer.assign([part])
        self._moved = True
        ends = self._call(lambda: (self._consumer.beginning_offsets([part]), self._consumer.end_offsets([part])))
        if int(intent.piece["from"]) < ends[0].get(part, 0) or until > ends[1].get(part, 0):
            return []  # deleted, or the topic was re-created
        self._consumer.seek(part, int(intent.piece["from"]))
        deadline = self._clock.monotonic() + self._options.call_s
        while self._call(lambda: self._consumer.position(part)) < until:
            found = self._call(lambda: self._consumer.poll(timeout_ms=500))
            records += [record for record in found.get(part, ()) if record.offset < until]
            if self._clock.monotonic() > deadline:
                raise DeadlineExceededError(f"reading {self._options.topic} again")
        return records

    def _open(self, journal: SourceJournal) -> None:
        if self._consumer is not None:
            return
        reset = "earliest" if self._options.start == "beginning" else "latest"
        self._consumer = self._call(
            lambda: open_client(
                KafkaConsumer,
                bootstrap_servers=self._options.bootstrap,
                group_id=None,
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset=reset,
                allow_auto_create_topics=False,
            )
        )
        self._pending_event_batches.clear()
        self._assign()
        self._moved = journal.pending is not None  # it is positioned before that piece, which is put first

    def _assign(self) -> None:
        """Assign all partitions, each at the journal's offset, or at its beginning or end."""
        journal, self._moved = self._journal, False
        numbers = self._call(lambda: self._consumer.partitions_for_topic(self._options.topic))
        if not numbers:
            raise OSError(f"topic {self._options.topic} does not exist")
        parts = [TopicPartition(self._options.topic, number) for number in sorted(numbers)]
        self._consumer.assign(parts)
        self._checked_at = self._clock.monotonic()
        offsets = journal.state.get("offsets") if journal is not None else None
        if journal is not None and offsets is None and journal.pending is None and self._options.start == "end":
            ends = self._call(lambda: self._consumer.end_offsets(parts))
            offsets = {str(part.partition): int(ends[part]) for part in parts}
            journal.save_state({"offsets": offsets})  # messages that arrive while the agent is down come after this
        for part in parts:
            if offsets is not None and str(part.partition) in offsets:
                self._consumer.seek(part, int(offsets[str(part.partition)]))
            else:
                self._consumer.seek_to_beginning(part)

    def _check_partitions(self) -> None:
        """Look for new partitions. Precondition: nothing is fetched or pending."""
        if self._clock.monotonic() - self._checked_at < _PARTITION_CHECK_S:
            return
        self._checked_at = self._clock.monotonic()
        numbers = self._call(lambda: self._consumer.partitions_for_topic(self._options.topic))
        if numbers and {part.partition for part in self._consumer.assignment()} != set(numbers):
            self._assign()

    def _call(self, call: Any) -> Any:
        return call_with_timeout(self._options.call_s, f"asking Kafka for {self._options.topic}", call)

    def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                call_with_timeout(2.0, "closing the consumer", lambda: consumer.close(autocommit=False))
            except (KafkaError, DeadlineExceededError, OSError) as error:
                log.warning("kafka source: %s", error)


def _digest(records: list[Any]) -> str:
    """Return the digest of all that the event batches of these messages contain."""
    digest = xxhash.xxh3_128()
    for record in records:
        digest.update(repr((record.offset, record.key, record.headers)).encode())
        digest.update(bytes(record.value or b""))
    return digest.hexdigest()


KAFKA = Component("kafka", KafkaSourceOptions, KafkaSource, outside={"bootstrap": Outside.HOST, "topic": Outside.HOST})
