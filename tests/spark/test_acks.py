"""Acks in ZooKeeper: agents always read the newest state of the table, and never an older one after a newer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kazoo.client import KazooClient

from artimon.rawtable.commit import RawTable
from artimon.rawtable.table_state import Increment, LogGap, RawState, TableTotals, advance, close_gaps
from artimon.runtime.partition_counts import ACKS_PATH as PATH
from pipeline.spark.acks_publisher import AcksPublisher
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import TopicClient
from tests.spark.helpers import PARTITIONS, Sender

pytestmark = pytest.mark.stack


def begin(config: SparkConfig, table: RawTable, gaps: list[LogGap]) -> RawState:
    info = TopicClient(config.kafka, config.samples_topic).describe()
    state = close_gaps(RawState(), "w", info.cluster, info.topic, info.topic_id, info.partitions, gaps)
    table.append([], RawState(), state)
    return state


def append(table: RawTable, state: RawState, until: int) -> RawState:
    after = advance(state, "w", Increment({0: until}, {}, {}, TableTotals(), 0))
    table.append([], state, after)
    return after


def published(client: KazooClient) -> dict[str, Any]:
    (name,) = client.get_children(PATH)
    document: dict[str, Any] = json.loads(client.get(f"{PATH}/{name}")[0])
    assert document["topic_id"] == name
    return document


def test_nothing_is_published_before_there_is_a_table(config: SparkConfig, client: KazooClient) -> None:
    with pytest.raises(FileNotFoundError):
        AcksPublisher(config, client).publish()
    assert not client.exists(PATH)


def test_acks_have_offsets_log_bounds_and_lost_ranges(config: SparkConfig, client: KazooClient) -> None:
    sender = Sender(config.kafka, config.samples_topic)
    for n in range(5):
        sender.numbers("a/h/0", 1, n)
    sender.close()
    table = RawTable(config.hdfs)
    state = append(table, begin(config, table, [LogGap("lost", 1, 0, 7)]), 3)
    AcksPublisher(config, client).publish()
    document = published(client)
    assert document["topic"] == config.samples_topic
    assert document["cluster"] == state.cluster != ""
    assert set(document["partitions"]) == {str(p) for p in range(PARTITIONS)}
    assert {p: at["until"] for p, at in document["partitions"].items()} == {"0": 3, "1": 7, "2": 0, "3": 0}
    assert document["partitions"]["1"]["lost"] == [[0, 7]]
    mine = document["partitions"][str(sender.partition)]
    assert (mine["log_start"], mine["log_end"]) == (0, 5)


def test_a_suspended_publisher_never_moves_acks_backwards(config: SparkConfig, client: KazooClient) -> None:
    """It read the table and was suspended; another driver appended and published meanwhile."""
    table = RawTable(config.hdfs)
    state = append(table, begin(config, table, []), 3)
    sleeper, awake = AcksPublisher(config, client), AcksPublisher(config, client)
    sleeper.publish()
    describe = sleeper._topic.describe

    def slow() -> Any:
        append(table, state, 9)
        awake.publish()
        return describe()

    sleeper._topic.describe = slow  # type: ignore[method-assign]
    sleeper.publish()
    assert published(client)["partitions"]["0"]["until"] == 9
