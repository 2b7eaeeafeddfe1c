"""What is deleted from Kafka: only what the table holds, and only when it is old."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.spark.config import SparkConfig
from pipeline.spark.retention import Retention
from pipeline.spark.state import RawState, Step, Totals, advance, close_gaps
from pipeline.spark.table import RawTable
from pipeline.spark.topic import Topic
from tests.spark.helpers import Sender

pytestmark = pytest.mark.stack


def table_until(config: SparkConfig, until: dict[int, int]) -> None:
    """A table whose newest append says `until`."""
    table = RawTable(config.hdfs)
    info = Topic(config.kafka, config.samples_topic).describe()
    first = close_gaps(RawState(), "w", info.cluster, info.topic, info.topic_id, info.partitions, [])
    table.append([], RawState(), first)
    table.append([], first, advance(first, "w", Step(until, {}, {}, Totals(), 0)))


def send(config: SparkConfig, count: int) -> None:
    sender = Sender(config.kafka, config.samples_topic)
    for n in range(count):
        sender.numbers("a/h/0", 1, n)
    sender.close()


def starts(config: SparkConfig) -> list[int]:
    topic = Topic(config.kafka, config.samples_topic)
    info = topic.describe()
    found = topic.bounds(info.partitions)
    topic.close()
    return [found[p][0] for p in range(info.partitions)]


def ends(config: SparkConfig) -> list[int]:
    topic = Topic(config.kafka, config.samples_topic)
    info = topic.describe()
    found = topic.bounds(info.partitions)
    topic.close()
    return [found[p][1] for p in range(info.partitions)]


def test_young_messages_stay(config: SparkConfig) -> None:
    send(config, 5)
    table_until(config, dict(enumerate(ends(config))))
    Retention(config).trim()
    assert starts(config) == [0] * len(starts(config))


def test_old_messages_go_as_far_as_the_table_has_come(config: SparkConfig) -> None:
    send(config, 5)
    partition = next(p for p, end in enumerate(ends(config)) if end == 5)
    table_until(config, {partition: 3})
    Retention(replace(config, kafka_keep_s=-60.0)).trim()  # every message is old
    assert starts(config)[partition] == 3
