"""Trimming of Kafka: deletes old messages that the table holds and, above half of the quota, the oldest ones first.
Unread messages are never deleted.

Kafka's own retention must be off: it does not know what was read. Any other setting of a topic is named as a problem.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.rawtable.head import HeadReader
from artimon.rawtable.table_state import TopicState
from artimon.runtime.supervision import LoopGuard
from pipeline.spark.generations import generation_to_read
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import TopicClient, TopicInfo

log = logging.getLogger(__name__)

QUOTA_SHARE = 0.5
SPACIOUS_SHARE, SPACIOUS_TURNS = 0.25, 3
"""Fraction of the quota below which the topic is looked at once in so many intervals."""
SETTINGS_CHECK_S = 60.0
"""Interval between two checks of the topic's settings, in seconds."""
PRESSURE_INTERVAL_S = 20.0
"""Least interval between two cuts for space. Kafka deletes whole segments, and only at its own interval (10 s in our
stack): a second cut before that would be made for the same bytes."""
REQUIRED_SETTINGS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""Settings that a topic must have, or Kafka drops unread messages."""


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """Log of one partition: Kafka holds [start, end), the table [start, until) of it; `size` is bytes on disk."""

    start: int
    end: int
    committed: int
    size: int

    @property
    def deletable(self) -> int:
        """Number of messages that may be deleted."""
        return max(0, min(self.committed, self.end) - self.start)

    @property
    def deletable_bytes(self) -> float:
        """Estimated bytes of these messages, as if all had the same size."""
        return self.size * self.deletable / max(1, self.end - self.start)


def starts_to_free(logs: Mapping[int, PartitionLog], excess: int) -> dict[int, int]:
    """Return new log starts that free about `excess` bytes: the same share of each partition's read messages."""
    deletable = sum(one.deletable_bytes for one in logs.values())
    if excess <= 0 or deletable <= 0:
        return {}
    part = min(1.0, excess / deletable)
    return {p: one.start + round(one.deletable * part) for p, one in logs.items()}


def wrong_settings(found: Mapping[str, str], quota: int, partitions: int) -> list[str]:
    """Return a message for each setting of the topic that drops unread messages or makes the quota meaningless."""
    wrong = [
        f"{name} is {found[name]}, it must be {wanted}: Kafka would drop unread messages; set it with kafka-configs"
        for name, wanted in REQUIRED_SETTINGS.items()
        if name in found and found[name] != wanted
    ]
    segment = int(found.get("segment.bytes", 0))
    if quota and segment * partitions > QUOTA_SHARE * quota:
        fit = int(QUOTA_SHARE / 4 * quota / partitions)
        wrong.append(
            f"segment.bytes is {segment}: {partitions} segments do not fit into half of the quota of {quota} bytes, and"
            f" Kafka deletes whole segments only; set it to {max(fit, 1024 * 1024)} or raise the quota"
        )
    return wrong


class TopicTrimmer:
    """Trims the topic of samples every `config.trim_interval_s`. The table's own state says what it holds.

    `problems` and `figures` may be read from any thread."""

    def __init__(self, config: SparkConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config, self._clock = config, clock
        self._topic = TopicClient(config.kafka, config.samples_topic)
        self._head = HeadReader(config.hdfs)
        self.problems: list[str] = []
        self._figures: dict[str, Any] = {"quota_bytes": config.kafka_quota_bytes}
        self._trimmed_at = self._checked_at = float("-inf")
        self._older_bytes = 0
        """Bytes of replaced generations."""

    def run(self, stop: threading.Event) -> None:
        """Trim until `stop`. A failure is retried at the next turn."""
        turns = LoopGuard("Kafka is not trimmed")
        while not stop.is_set():
            turns.attempt(self._trim_all)
            self._clock.wait(stop, self._config.trim_interval_s * (1 if self._is_tight() else SPACIOUS_TURNS))
        self._topic.close()

    def _is_tight(self) -> bool:
        """Return True if the topic may soon have to be cut for space, or its size is unknown."""
        quota = self._config.kafka_quota_bytes
        return bool(quota) and self._figures.get("bytes", quota) > SPACIOUS_SHARE * quota

    def _trim_all(self) -> None:
        with suppress(FileNotFoundError):  # no table yet
            self.check_settings()
            self.trim()

    def figures(self) -> dict[str, Any]:
        """Return figures for health: bytes of the topic, quota, time of the last deletion."""
        return dict(self._figures)

    def check_settings(self) -> None:
        """Check the settings of the newest topic, once a minute. Raises TopicError."""
        now = self._clock.monotonic()
        if now - self._checked_at < SETTINGS_CHECK_S:
            return
        newest = self._topic.generations()[-1]
        self._topic = self._topic.switched_to(newest.topic)
        partitions = self._topic.describe().partitions
        wrong = wrong_settings(self._topic.settings(), self._config.kafka_quota_bytes, partitions)
        found = [f"topic {newest.topic}: {text}" for text in wrong]
        for text in found:
            if text not in self.problems:
                log.error("%s", text)
        self.problems, self._checked_at = found, now

    def trim(self) -> dict[int, int]:
        """Trim once; return the new first offset of each partition that was cut. Nothing is cut if the table reads
        another topic, nor in a partition whose log may not be the one that the table read."""
        _, state = self._head.head()
        closed = {topic.topic_id: topic for topic in state.topics if topic.closed}
        found = self._topic.generations()
        self._older_bytes = sum(self._trim_closed(one, closed[one.topic_id]) for one in found if one.topic_id in closed)
        self._topic = self._topic.switched_to(generation_to_read(state, found).topic)
        info = self._topic.describe()
        if state.current is None or state.current.topic_id != info.topic_id:
            return {}
        logs = self._read_logs(state.current, info)
        cuts = self._starts_by_age(logs, info)
        for partition, cut in self._starts_by_size(logs).items():
            cuts[partition] = max(cut, cuts.get(partition, 0))
        cuts = {p: cut for p, cut in cuts.items() if cut > logs[p].start}
        if cuts:
            if self._topic.describe() != info:  # right before: still the same topic and log
                return {}
            self._topic.check_leaders(info)
            self._topic.delete_below(cuts)
            self._figures["deleted_ms"] = self._clock.now_ms()
        return cuts

    def _trim_closed(self, info: TopicInfo, state: TopicState) -> int:
        """Trim a replaced generation, which is whole in the table: old messages, or all of them if space is short.
        Return its bytes."""
        topic, known = self._topic.sibling(info.topic), info.limited(len(state.until))
        try:
            size = topic.sizes(known.partitions).total
            bounds = topic.log_bounds(known.partitions)
            logs = {p: PartitionLog(low, high, min(high, state.until[p]), 0) for p, (low, high) in bounds.items()}
            quota = self._config.kafka_quota_bytes
            short = bool(quota) and self._figures.get("bytes", 0) > QUOTA_SHARE * quota
            cuts = {p: one.committed for p, one in logs.items()} if short else self._starts_by_age(logs, known, topic)
            cuts = {p: cut for p, cut in cuts.items() if cut > logs[p].start}
            if cuts:
                topic.delete_below(cuts)
        finally:
            topic.close()
        return size

    def _read_logs(self, current: TopicState, info: TopicInfo) -> dict[int, PartitionLog]:
        sizes = self._topic.sizes(info.partitions)
        self._figures["bytes"] = sizes.total + self._older_bytes
        logs = {}
        for partition, (start, end) in self._topic.log_bounds(info.partitions).items():
            until, epochs = current.until.get(partition, 0), current.epochs.get(partition, ())
            same = bool(epochs) and epochs[-1][0] == info.epochs.get(partition)
            held = until if same and until <= end else start  # else the raw query must check first
            logs[partition] = PartitionLog(start, end, held, sizes.partitions[partition])
        return logs

    def _starts_by_age(
        self, logs: Mapping[int, PartitionLog], info: TopicInfo, topic: TopicClient | None = None
    ) -> dict[int, int]:
        before_ms = self._clock.now_ms() - int(self._config.kafka_keep_s * 1000)
        found = (topic or self._topic).offsets_at(info.partitions, before_ms)
        # absent: all messages are old
        return {p: min(one.committed, found.get(p, one.end)) for p, one in logs.items()}

    def _starts_by_size(self, logs: Mapping[int, PartitionLog]) -> dict[int, int]:
        quota, now = self._config.kafka_quota_bytes, self._clock.monotonic()
        if not quota or now - self._trimmed_at < PRESSURE_INTERVAL_S:
            return {}
        used = sum(one.size for one in logs.values()) + self._older_bytes
        cuts = starts_to_free(logs, used - int(QUOTA_SHARE * quota))
        if cuts:
            self._trimmed_at = now
            log.info("Kafka holds more than half of its quota of %d bytes: deleting the oldest read messages", quota)
        return cuts
