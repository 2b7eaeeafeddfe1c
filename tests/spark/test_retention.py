"""Deletion from Kafka: only messages that the table holds and that are old."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from artimon.rawtable.commit import RawTable
from artimon.rawtable.table_state import Increment, RawState, TableTotals, advance, close_gaps
from pipeline.spark.retention import PartitionLog, TopicTrimmer, starts_to_free, wrong_settings
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import TopicClient
from tests.spark.helpers import PARTITIONS, Sender
from tests.waiting import eventually


def table_until(config: SparkConfig, until: dict[int, int], known: bool = True) -> None:
    """Make a table whose newest append claims `until`, of the current log or (not `known`) of one before the leader's
    last restart."""
    table, topic = RawTable(config.hdfs), TopicClient(config.kafka, config.samples_topic)
    info = topic.describe()
    epochs = topic.epochs(info, {})
    topic.close()
    if not known:
        epochs = {p: ((info.epochs[p] - 1, 0),) for p in epochs}
    first = close_gaps(RawState(), "w", info.cluster, info.topic, info.topic_id, info.partitions, [], epochs)
    table.append([], RawState(), first)
    table.append([], first, advance(first, "w", Increment(until, {}, {}, TableTotals(), 0)))


def send(config: SparkConfig, count: int) -> None:
    sender = Sender(config.kafka, config.samples_topic)
    for n in range(count):
        sender.numbers("a/h/0", 1, n)
    sender.close()


def starts(config: SparkConfig) -> list[int]:
    topic = TopicClient(config.kafka, config.samples_topic)
    info = topic.describe()
    found = topic.log_bounds(info.partitions)
    topic.close()
    return [found[p][0] for p in range(info.partitions)]


def ends(config: SparkConfig) -> list[int]:
    topic = TopicClient(config.kafka, config.samples_topic)
    info = topic.describe()
    found = topic.log_bounds(info.partitions)
    topic.close()
    return [found[p][1] for p in range(info.partitions)]


@pytest.mark.stack
def test_young_messages_stay(config: SparkConfig) -> None:
    send(config, 5)
    table_until(config, dict(enumerate(ends(config))))
    TopicTrimmer(config).trim()
    assert starts(config) == [0] * len(starts(config))


@pytest.mark.stack
def test_old_messages_are_deleted_up_to_the_offsets_of_the_table(config: SparkConfig) -> None:
    send(config, 5)
    partition = next(p for p, end in enumerate(ends(config)) if end == 5)
    table_until(config, {partition: 3})
    TopicTrimmer(replace(config, kafka_keep_s=-60.0)).trim()  # every message is old
    assert starts(config)[partition] == 3


@pytest.mark.stack
def test_nothing_is_deleted_from_a_log_that_may_differ_from_the_one_read(config: SparkConfig) -> None:
    """The leader restarted since the table read the log, or the log ends below the offsets of the table."""
    send(config, 5)
    partition = next(p for p, end in enumerate(ends(config)) if end == 5)
    old = replace(config, kafka_keep_s=-60.0)
    table_until(config, {partition: 3}, known=False)
    assert TopicTrimmer(old).trim() == {}
    other = replace(old, hdfs=f"{config.hdfs}/other")
    table_until(other, {partition: 9})
    assert TopicTrimmer(other).trim() == {}
    assert starts(config)[partition] == 0


def test_space_is_freed_in_proportion_and_never_from_unread_messages() -> None:
    logs = {
        0: PartitionLog(100, 200, 200, 1_000),
        1: PartitionLog(0, 1_000, 500, 4_000),
        2: PartitionLog(50, 60, 50, 500),
    }
    assert starts_to_free(logs, 0) == {}
    assert starts_to_free(logs, 1_500) == {0: 150, 1: 250, 2: 50}
    assert starts_to_free(logs, 10**9) == {0: 200, 1: 500, 2: 50}, "all messages that were read, no others"
    assert starts_to_free({2: logs[2]}, 100) == {}
    assert starts_to_free({0: PartitionLog(0, 5, 9, 100)}, 10**9) == {0: 5}


def test_settings_that_would_drop_unread_messages_are_named() -> None:
    good = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete", "segment.bytes": "1048576"}
    assert wrong_settings(good, 30_000_000, 8) == []
    bad = {**good, "retention.ms": "604800000", "retention.bytes": "1", "cleanup.policy": "compact"}
    assert [text.split(" ")[0] for text in wrong_settings(bad, 30_000_000, 8)] == list(good)[:3]
    (segment,) = wrong_settings({**good, "segment.bytes": str(2**30)}, 10 * 2**30, 8)
    assert "segment.bytes is 1073741824" in segment
    assert wrong_settings({**good, "segment.bytes": str(2**30)}, 0, 8) == [], "no requirement without a quota"


def set_topic(config: SparkConfig, **settings: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=config.kafka)
    values = {name.replace("_", "."): value for name, value in settings.items()}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, config.samples_topic, values)])
    admin.close()


@pytest.mark.stack
def test_a_topic_with_its_own_retention_is_a_problem_until_it_is_corrected(config: SparkConfig) -> None:
    set_topic(config, retention_ms="3600000")
    found = TopicTrimmer(config)
    found.check_settings()
    (problem,) = found.problems
    assert problem.startswith(f"topic {config.samples_topic}: retention.ms is 3600000, it must be -1")
    set_topic(config, retention_ms="-1")
    again = TopicTrimmer(config)
    again.check_settings()
    assert again.problems == []


@pytest.mark.stack
def test_the_oldest_read_messages_are_deleted_above_half_of_the_quota(config: SparkConfig) -> None:
    """On a real broker with small segments, young messages that were read are deleted, unread ones stay."""
    quota = 24_000_000
    set_topic(config, segment_bytes="1048576", file_delete_delay_ms="1000", retention_ms="-1")
    producer = KafkaProducer(bootstrap_servers=config.kafka, acks="all")
    for n in range(80):
        producer.send(config.samples_topic, value=os.urandom(200_000), partition=n % 2)
    producer.flush(60)
    producer.close()
    table_until(config, {0: 40, 1: 10})
    retention = TopicTrimmer(replace(config, kafka_quota_bytes=quota))
    cuts = retention.trim()
    assert retention.figures()["bytes"] > 0.6 * quota
    assert 0 < cuts[0] < 40
    assert 0 < cuts[1] <= 10
    assert abs(cuts[0] / 40 - cuts[1] / 10) < 0.1, "the same share of the messages that were read"
    assert retention.trim() == {}, "no second cut before Kafka has deleted segments"
    assert [starts(config)[p] for p in (0, 1)] == [cuts[0], cuts[1]]
    topic = TopicClient(config.kafka, config.samples_topic)
    eventually(lambda: topic.sizes(PARTITIONS).total <= quota / 2 + 2 * 1_048_576, "Kafka deletes the segments")
    topic.close()
