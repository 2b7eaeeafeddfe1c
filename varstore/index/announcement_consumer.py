"""Consumer of the `series` topic: reads every partition from the beginning and then follows it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from artimon.model.batch import BatchError, BatchHeader, SeriesBlock
from artimon.model.batch_codec import decode_series, parse_header, verify
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.kafka_access import open_client
from artimon.runtime.supervision import RetryLoop

log = logging.getLogger(__name__)

_POLL_MS = 500
_FETCH_WAIT_MS = 5_000
"""Longest wait of the broker for a fetch of the idle topic; a message ends it at once."""
_POLL_RECORDS = 200
_REQUEST_TIMEOUT_MS = 10_000
_BOOTSTRAP_TIMEOUT_MS = 4_000
FIRST_BACKOFF_S = 0.5


class TopicMissing(RuntimeError):
    """Raised while the topic does not exist yet."""


class AnnouncementConsumer:
    """Reads announcements in a background thread and passes each block to `announce`.

    Blocks are idempotent and versioned, so it starts again from the beginning after any error. It does the same when
    the shard takes over virtual shards, whose announcements it skipped until then (`again`)."""

    def __init__(
        self,
        kafka: str,
        topic: str,
        announce: Callable[[SeriesBlock, int], bool],
        clock: Clock = SYSTEM_CLOCK,
        wanted: Callable[[BatchHeader], bool] = lambda _header: True,
    ) -> None:
        """announce: called with a block and its append time. wanted: decides by the header alone whether to decode a
        block."""
        self._kafka, self._topic, self._clock = kafka, topic, clock
        self._announce, self._wanted = announce, wanted
        self._stop = threading.Event()
        self._retry = RetryLoop(f"announcements of topic {topic} at {kafka}", clock, FIRST_BACKOFF_S)
        self._thread = threading.Thread(target=self._run, name="announcements", daemon=True)
        self.requested_pass = 1
        """Number of readings from the beginning that were requested."""
        self.required_pass = 1
        """Number of the reading that covers all that is wanted now."""
        self.completed_pass = 0
        """Number of the last reading that reached the end that the topic had when the reading began."""
        self.refused = 0

    @property
    def problem(self) -> str:
        """Error that keeps announcements from being read; "" if there is none."""
        return f"{self._retry.name}: {self._retry.problem}" if self._retry.problem else ""

    @property
    def caught_up(self) -> bool:
        """True if the first reading reached the end that the topic had at its start."""
        return self.completed_pass > 0

    def start(self) -> None:
        """Start the thread and return at once."""
        self._thread.start()

    @contextmanager
    def reread(self) -> Iterator[None]:
        """Context in which the shard begins to want more blocks. At its end the topic is read again. Used by one
        thread."""
        self.required_pass = self.requested_pass + 1
        try:
            yield
        finally:
            self.requested_pass = self.required_pass

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        self._retry.run(self._follow, self._stop)

    def _follow(self) -> None:
        while not self._stop.is_set():
            with closing(self._open_consumer()) as consumer:  # a new one: a request waits behind the fetch of the last
                self._read_topic(consumer)

    def _open_consumer(self) -> Any:
        return open_client(
            KafkaConsumer,
            bootstrap_servers=self._kafka,
            group_id=None,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            fetch_max_bytes=16 * 1024 * 1024,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS * 2,
            bootstrap_timeout_ms=_BOOTSTRAP_TIMEOUT_MS,
        )

    def _read_topic(self, consumer: Any) -> None:
        """Read from the beginning, then follow the topic until another reading is requested."""
        reading = self.requested_pass
        ends = self._ends(consumer, self._topic)
        partitions = [TopicPartition(self._topic, p) for p in ends]
        consumer.assign(partitions)
        # by offset, so that the positions below are those of this reading from here on
        for partition, start in consumer.beginning_offsets(partitions, timeout_ms=_REQUEST_TIMEOUT_MS).items():
            consumer.seek(partition, start)
        self._retry.healthy()
        while not self._stop.is_set() and self.requested_pass == reading:
            for records in consumer.poll(timeout_ms=_POLL_MS, max_records=_POLL_RECORDS).values():
                self._handle(records)
            if self.completed_pass < reading and all(consumer.position(tp) >= ends[tp.partition] for tp in partitions):
                self.completed_pass = reading

    @staticmethod
    def _ends(consumer: Any, topic: str) -> dict[int, int]:
        partitions = consumer.partitions_for_topic(topic)
        if not partitions:
            raise TopicMissing(f"topic {topic} does not exist")
        ends = consumer.end_offsets(
            [TopicPartition(topic, p) for p in sorted(partitions)], timeout_ms=_REQUEST_TIMEOUT_MS
        )
        return {tp.partition: int(end) for tp, end in ends.items()}

    def _handle(self, records: Sequence[Any]) -> None:
        for record in records:
            if record.value is None:  # a tombstone, only needed for compaction
                continue
            try:
                header = parse_header(record.value)
                if self._wanted(header):
                    self._announce(decode_series(verify(record.value), record.value), record.timestamp)
            except BatchError as error:
                self.refused += 1
                log.error("announcement at %s/%d/%d: %s", record.topic, record.partition, record.offset, error)
