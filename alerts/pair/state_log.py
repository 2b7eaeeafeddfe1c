"""Journal of a pair of engines: a compacted topic of one partition with every row of the leader's database.

A transaction of the database is a transaction of Kafka: its rows, then one message that completes it. All engines of a
pair write under one transactional id. Who opens a writer fences all writers before, and aborts what they did not
commit: from then on nothing of a former leader reaches the topic. So an engine that has opened a writer and then read
the topic to its end has the state that everybody will read, as long as its own transactions are committed.

Threads: `append`, `confirm` and `invalidate` are called within the lock of the database, everything else by the thread
of the engine, which changes the writer only while nothing is appended.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from alerts.state.alert_database import SCHEMA_VERSION
from alerts.state.row_changes import NotLeadingError, RowChange
from artimon.model.clock import Clock
from artimon.runtime.deadline import DeadlineExceededError, call_with_timeout
from artimon.runtime.kafka_access import open_client

log = logging.getLogger(__name__)
T = TypeVar("T")

CALL_S = 10.0
"""Timeout of a call to Kafka, in seconds."""
ROWS_A_SECOND = 1_000
"""Rows that a transaction writes at least in a second, for its timeout."""
TRANSACTION_MS = 60_000
"""Time after which the broker aborts a transaction whose writer was killed, unless the next writer does it before."""
REQUEST_BYTES = 64 * 1024 * 1024
"""Maximum size of a row before compression. The topic limits the compressed size."""
BATCH_BYTES = 512 * 1024
EPOCH = "epoch"
"""Header of each message: number of the leadership that wrote it, growing."""
COMMIT_KEY = b'["commit"]'
"""Key of the message that completes a transaction; of no table."""
ERRORS = (KafkaError, DeadlineExceededError, OSError, RuntimeError, AssertionError, ValueError)


class StateLogError(RuntimeError):
    """Kafka does not answer, or the topic is missing. The text says which and why."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Transaction of a leader. `offset`: position behind it; `version`: schema of the rows."""

    changes: list[RowChange]
    engine: str
    epoch: int
    version: int
    offset: int


class StateLog:
    """Reader and writer of the topic `topic` for the engine `id`.

    `position`: offset behind the last entry that the database of this engine holds. `epoch`: greatest number of a
    leadership that was read; messages with smaller ones are ignored."""

    def __init__(self, bootstrap: str, topic: str, pair: str, id: str, clock: Clock) -> None:
        self._bootstrap, self._topic, self._clock = bootstrap, topic, clock
        self._writer_id, self._id = f"{topic}.{pair}", id
        self._part = TopicPartition(topic, 0)
        self._consumer: Any = None
        self._producer: Any = None
        self._buffer: list[RowChange] = []
        self._appended = 0
        self._accepts = False
        self.position = 0
        self.epoch = 0
        self.stale = 0
        """Messages of former leaders that were ignored."""
        self.broken = ""
        """Reason why this writer may not be used any more; "": it may."""

    # ---- reading

    def read(self, wait_s: float) -> list[LogEntry]:
        """Return the next entries, at most those of one poll. Raises StateLogError."""
        consumer = self._reader()
        try:
            polled = self._call("reading", lambda: consumer.poll(timeout_ms=max(1, round(wait_s * 1000))), wait_s)
        except StateLogError:
            self._close_reader()
            raise
        return [entry for record in polled.get(self._part, ()) if (entry := self._taken(record)) is not None]

    def read_to_end(self) -> list[LogEntry]:
        """Return all entries up to the present end. Raises StateLogError."""
        consumer = self._reader()
        try:
            end = int(self._call("finding the end", lambda: consumer.end_offsets([self._part]))[self._part])
        except StateLogError:
            self._close_reader()
            raise
        found: list[LogEntry] = []
        quiet_since = self._clock.monotonic()
        while self._call("the position", lambda: consumer.position(self._part)) < end:
            new = self.read(0.2)
            found += new
            if new or self._buffer:
                quiet_since = self._clock.monotonic()
            elif self._clock.monotonic() - quiet_since > 2 * CALL_S:
                raise StateLogError(f"{self._where()}: the end {end} is not reached: a transaction is open")
        return found

    def rewind(self) -> None:
        """Read everything again."""
        self.position = self.epoch = 0
        self._close_reader()

    def _taken(self, record: Any) -> LogEntry | None:
        epoch = _epoch_of(record)
        if epoch < self.epoch:
            self.stale += 1
            return None
        self.epoch = epoch
        if bytes(record.key) != COMMIT_KEY:
            self._buffer.append(_change_of(record))
            return None
        changes, self._buffer = self._buffer, []
        data = json.loads(record.value)
        return LogEntry(changes, str(data["engine"]), epoch, int(data["version"]), int(record.offset) + 1)

    def _reader(self) -> Any:
        if self._consumer is None:
            consumer = self._call(
                "connecting",
                lambda: open_client(
                    KafkaConsumer,
                    bootstrap_servers=self._bootstrap,
                    group_id=None,
                    enable_auto_commit=False,
                    isolation_level="read_committed",
                    auto_offset_reset="earliest",
                    allow_auto_create_topics=False,
                    fetch_max_wait_ms=200,
                    max_poll_records=5_000,
                    max_partition_fetch_bytes=16 * 1024 * 1024,
                ),
            )
            try:
                if not self._call("the topic", lambda: consumer.partitions_for_topic(self._topic)):
                    raise StateLogError(f"{self._where()}: the topic does not exist: artimon topics create")
                consumer.assign([self._part])
                consumer.seek(self._part, self.position)
            except BaseException:
                self._close("reader", consumer)
                raise
            self._consumer, self._buffer = consumer, []
        return self._consumer

    # ---- writing

    def open_writer(self) -> None:
        """Fence every writer before, and become the writer. Raises StateLogError."""
        self.close_writer()
        producer = self._call(
            "connecting",
            lambda: open_client(
                KafkaProducer,
                bootstrap_servers=self._bootstrap,
                transactional_id=self._writer_id,
                acks="all",
                compression_type="gzip",
                batch_size=BATCH_BYTES,
                max_request_size=REQUEST_BYTES,
                max_block_ms=round(CALL_S * 1000),
                transaction_timeout_ms=TRANSACTION_MS,
                retry_backoff_ms=20,
                request_timeout_ms=5_000,
                delivery_timeout_ms=TRANSACTION_MS,
            ),
        )
        try:
            self._call("opening the writer", producer.init_transactions, CALL_S)
        except BaseException:
            self._close("writer", producer)
            raise
        self._producer = producer

    def begin_epoch(self, changes: list[RowChange]) -> None:
        """Write a first transaction, and accept others from then on. The topic has been read to its end: the number of
        this leadership is greater than every one before. Raises NotLeadingError."""
        self.epoch += 1
        self.broken = ""
        self._append(changes)
        self.confirm()
        self._accepts = True

    def append(self, changes: list[RowChange]) -> None:
        """Write one transaction and return once it is committed. Raises NotLeadingError; afterwards nothing can be
        written until a writer is opened again, because the outcome may be unknown."""
        if not self._accepts or self.broken:
            raise NotLeadingError(f"this engine does not lead: {self.broken or 'another one does, or none'}")
        self._append(changes)

    def _append(self, changes: list[RowChange]) -> None:
        try:
            more_s = len(changes) / ROWS_A_SECOND
            self._appended = self._call("writing", lambda: self._write(changes), more_s)
        except BaseException as error:
            self.broken = str(error) or type(error).__name__
            log.warning("the journal of alerts: %s", self.broken)
            raise NotLeadingError(f"the journal does not take changes: {self.broken}") from error

    def confirm(self) -> None:
        """Note that the database holds the last entry, too."""
        self.position = self._appended

    def invalidate(self, reason: str) -> None:
        """Refuse further writes."""
        self.broken = self.broken or reason

    def _write(self, changes: Sequence[RowChange]) -> int:
        """Return the offset behind the transaction."""
        producer, headers = self._producer, [(EPOCH, str(self.epoch).encode())]
        producer.begin_transaction()
        sent = [
            producer.send(self._topic, key=_key_bytes(one), value=_value_bytes(one), headers=headers, partition=0)
            for one in changes
        ]
        done = json.dumps({"engine": self._id, "version": SCHEMA_VERSION, "time_ms": self._clock.now_ms()}).encode()
        sent.append(producer.send(self._topic, key=COMMIT_KEY, value=done, headers=headers, partition=0))
        producer.commit_transaction()
        return int(sent[-1].get(timeout=CALL_S).offset) + 1

    # ---- connections

    def continue_reading(self) -> None:
        """Read on behind the last entry of the database, which this engine may have written itself."""
        self._close_reader()

    def close_writer(self) -> None:
        """Stop writing. An open transaction is aborted by the next writer."""
        self._accepts = False
        producer, self._producer = self._producer, None
        if producer is not None:
            self._close("writer", producer)

    def close(self) -> None:
        """Close the connections."""
        self.close_writer()
        self._close_reader()

    def _close_reader(self) -> None:
        consumer, self._consumer, self._buffer = self._consumer, None, []
        if consumer is not None:
            self._close("reader", consumer)

    def _close(self, what: str, client: Any) -> None:
        call: Callable[[], Any] = (
            (lambda: client.close(autocommit=False)) if what == "reader" else (lambda: client.close(timeout=1))
        )
        with suppress(*ERRORS):
            call_with_timeout(3.0, f"closing the {what}", call)

    def _call(self, what: str, call: Callable[[], T], more_s: float = 0.0) -> T:
        try:
            return call_with_timeout(CALL_S + more_s, what, call)
        except StateLogError:
            raise
        except ERRORS as error:
            raise StateLogError(f"{self._where()}, {what}: {type(error).__name__}: {error}") from error

    def _where(self) -> str:
        return f"topic {self._topic} of Kafka at {self._bootstrap}"


def _key_bytes(change: RowChange) -> bytes:
    return json.dumps([change.table, *change.key], separators=(",", ":")).encode()


def _value_bytes(change: RowChange) -> bytes | None:
    return None if change.row is None else json.dumps(change.row, separators=(",", ":")).encode()


def _change_of(record: Any) -> RowChange:
    table, *key = json.loads(record.key)
    return RowChange(str(table), tuple(key), None if record.value is None else json.loads(record.value))


def _epoch_of(record: Any) -> int:
    return next((int(value) for name, value in record.headers or () if name == EPOCH), 0)
