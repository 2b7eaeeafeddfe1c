"""Deletes from Kafka what the table holds and no shard needs any more. What was not read is never deleted."""

from __future__ import annotations

import logging
import threading

from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.spark.config import SparkConfig
from pipeline.spark.table import HeadReader
from pipeline.spark.topic import Topic

log = logging.getLogger(__name__)


class Retention:
    """Trims the topic of samples every `config.trim_interval_s`. The table's own state says what it holds."""

    def __init__(self, config: SparkConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config, self._clock = config, clock
        self._topic = Topic(config.kafka, config.samples_topic)
        self._head = HeadReader(config.hdfs)

    def run(self, stop: threading.Event) -> None:
        """Until `stop`. A failure is logged and tried again at the next turn."""
        while not self._clock.wait(stop, self._config.trim_interval_s):
            try:
                self.trim()
            except (OSError, RuntimeError, ValueError) as error:
                log.warning("Kafka is not trimmed: %s", error)
        self._topic.close()

    def trim(self) -> dict[int, int]:
        """Once; the first offset that each partition still holds. Nothing where the table reads another topic."""
        _, state = self._head.head()
        if state.current is None or state.current.topic_id != self._topic.describe().topic_id:
            return {}
        before_ms = self._clock.now_ms() - int(self._config.kafka_keep_s * 1000)
        return self._topic.trim(state.current.until, before_ms)
