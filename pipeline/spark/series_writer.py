"""Copies announcements from the topic of series into the table of series: a slow loop beside the raw query.

The table itself holds the offsets that were read. A turn that crashes before its commit is read again; its commit
stays. Announcements are repeated daily, so a cut of the log loses none for good.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from artimon.model.batch import BatchError, SeriesBlock
from artimon.model.batch_codec import decode_series, verify
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable
from artimon.runtime.kafka_access import open_client
from artimon.runtime.supervision import RetryLoop
from pipeline.spark.topic_client import TopicClient, TopicError

log = logging.getLogger(__name__)

MAX_TURN_MESSAGES = 100
"""Maximum number of announcements of one commit, 1,000 series each: bounds memory."""
POLL_MS = 1_000
REQUEST_TIMEOUT_MS = 15_000
MAX_LOGGED = 5
"""Maximum number of refused series of a turn that are named in the log; all are counted."""


class SeriesWriter:
    """Runs in one thread; `figures` may be called from any."""

    def __init__(
        self,
        kafka: str,
        topic: str,
        hdfs: str,
        every_s: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
    ) -> None:
        """`probe`: called at the points "read" and "added"."""
        self._kafka, self._every_s, self._clock, self._probe = kafka, every_s, clock, probe
        self.retry = RetryLoop("series", clock)
        self._topic = TopicClient(kafka, topic)
        self._table, self._sources = SeriesTable(hdfs, clock), SourcesTable(hdfs, clock)
        self._announcements = self._series = self._refused = self._merges = 0
        self._clashes: tuple[int, ...] = ()

    def run(self, stop: threading.Event) -> None:
        """Run until `stop`, also before the topic exists."""
        self.retry.run(lambda: self._copy_all(stop), stop)

    def _copy_all(self, stop: threading.Event) -> None:
        """Take turns until `stop`. Raises TopicError, TableError, OSError."""
        consumer = self._consumer()
        try:
            while not stop.is_set():
                more = self.copy_once(consumer, stop)
                self.retry.healthy()
                if not more:
                    self._compact(stop)
                    self._clock.wait(stop, self._every_s)
        except KafkaError as error:
            raise TopicError(f"Kafka at {self._kafka}, topic {self._topic.topic}: {error!r}") from error
        finally:
            consumer.close()
            self._topic.close()

    def figures(self) -> dict[str, Any]:
        """Return the figures that `artimon status` shows, since the start of this process."""
        return {
            "announcements": self._announcements,
            "series": self._series,
            "refused": self._refused,
            "merges": self._merges,
            "clashes": len(self._clashes),
        }

    def copy_once(self, consumer: Any, stop: threading.Event) -> bool:
        """Read at most TURN_MESSAGES new announcements and commit them; return True if there are more."""
        info = self._topic.describe()
        start = self._table.positions(info.topic_id, info.partitions)
        bounds = self._topic.log_bounds(info.partitions)
        # a log that ends below the read offset was cut: its messages are new
        at = {p: max(start[p], low) if start[p] <= high else low for p, (low, high) in bounds.items()}
        blocks, reached = self._read(consumer, at, {p: high for p, (_, high) in bounds.items()}, stop)
        self._probe("read")
        if stop.is_set() or reached == start:
            return False
        rows, refused = rows_of(blocks, self._sources.assign(block.source for block in blocks) if blocks else {})
        for one in refused[:MAX_LOGGED]:
            log.error("series of %s left out: %s", one.source, one.reason)
        if not self._table.add(rows, info.topic_id, start, reached):
            return True  # another driver was first
        self._probe("added")
        self._announcements, self._series = self._announcements + len(blocks), self._series + len(rows)
        self._refused += len(refused)
        return any(reached[p] < high for p, (_, high) in bounds.items())

    def _read(
        self, consumer: Any, at: dict[int, int], ends: dict[int, int], stop: threading.Event
    ) -> tuple[list[SeriesBlock], dict[int, int]]:
        """Return announcements from the offsets `at`, and the offsets behind them."""
        blocks: list[SeriesBlock] = []
        parts = {TopicPartition(self._topic.topic, p): p for p in at if at[p] < ends[p]}
        consumer.assign(list(parts))
        for where, partition in parts.items():
            consumer.seek(where, at[partition])
        reached, count = dict(at), 0
        while parts and count < MAX_TURN_MESSAGES and not stop.is_set():
            polled = consumer.poll(timeout_ms=POLL_MS, max_records=MAX_TURN_MESSAGES - count)
            for records in polled.values():
                count += len(records)
                blocks.extend(self._blocks(records))
            for where, partition in parts.items():
                reached[partition] = max(
                    reached[partition], consumer.position(where, timeout_ms=REQUEST_TIMEOUT_MS) or 0
                )
            if not polled or all(reached[p] >= ends[p] for p in parts.values()):
                break
        return blocks, reached

    def _blocks(self, records: Iterable[Any]) -> Iterable[SeriesBlock]:
        for record in records:
            if record.value is None:  # a tombstone: the table keeps its rows
                continue
            try:
                yield decode_series(verify(record.value), record.value)
            except BatchError as error:
                self._refused += 1
                log.error("announcement at %s/%d/%d: %s", record.topic, record.partition, record.offset, error)

    def _compact(self, stop: threading.Event) -> None:
        self._sources.maintain(lambda: not stop.is_set())
        done = self._table.maintain(lambda: not stop.is_set())
        if done is None:
            return
        self._merges += 1
        log.info("series: %d rows merged into %d, %d bytes", done.rows_before, done.rows, done.size)
        if done.full:
            self._clashes = done.clashes
        for clash in done.clashes[:MAX_LOGGED]:
            log.error("series: fingerprint %016x is announced with two texts: both are hidden", clash % 2**64)

    def _consumer(self) -> Any:
        try:
            return open_client(
                KafkaConsumer,
                bootstrap_servers=self._kafka,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                fetch_max_bytes=4 * 1024 * 1024,
                max_partition_fetch_bytes=1024 * 1024,
                request_timeout_ms=REQUEST_TIMEOUT_MS * 2,
            )
        except KafkaError as error:
            raise TopicError(f"Kafka at {self._kafka}: {error!r}") from error
