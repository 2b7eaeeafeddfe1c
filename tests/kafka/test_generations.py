"""Another number of partitions: a new topic that takes over while everything runs, and a topic that was altered."""

from __future__ import annotations

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.model.ack_state import AckState, PartitionState, Position, SentBatch, decide_acks
from artimon.model.batch_codec import parse_header
from artimon.model.hash_routing import partition_of
from artimon.model.ranges import LaneId, LaneRanges
from artimon.rawtable.commit import RawTable
from artimon.rawtable.table_state import END_OF_LOG, RawState, TopicState, begin_next_topic
from artimon.runtime.partition_counts import PartitionCounts
from artimon.stack.topics import migrate_samples
from pipeline.collector.kafka_writer import KafkaWriter, message_for
from pipeline.spark.generations import generation_to_read, later_generations
from pipeline.spark.raw_query import RawQuery
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import TopicInfo
from tests.pipeline.kafka_helpers import read_topic
from tests.spark.carried import Carried
from tests.spark.conftest import client, config, connector, session
from tests.spark.helpers import PARTITIONS
from tests.waiting import eventually

__all__ = ["client", "config", "connector", "session"]


def info(name: str, topic_id: str) -> TopicInfo:
    return TopicInfo("c", name, topic_id, 2)


ONE, TWO, THREE = info("t", "one"), info("t.2", "two"), info("t.3", "three")
READING = RawState(topics=(TopicState("one", {0: 5, 1: 7}),))


def test_generations_are_read_in_their_order() -> None:
    assert generation_to_read(RawState(), [ONE, TWO]) == ONE
    assert generation_to_read(READING, [ONE, TWO]) == ONE
    assert later_generations(READING, [ONE, TWO, THREE]) == [TWO, THREE]
    moved = begin_next_topic(READING, "w", "two", 3)
    assert generation_to_read(moved, [ONE, TWO, THREE]) == TWO
    assert later_generations(moved, [ONE, TWO, THREE]) == [THREE]
    assert generation_to_read(moved, [info("t", "made again"), THREE]).topic_id == "made again"


def test_what_comes_late_to_a_replaced_topic_is_lost_and_numbers_stay_seen() -> None:
    lanes = LaneRanges()
    lane = LaneId("a", 1, 2)
    lanes.add(lane, 9)
    moved = begin_next_topic(RawState(topics=READING.topics, lanes={0: lanes}), "w", "two", 3)
    assert moved.topics[0].lost == {0: ((5, END_OF_LOG),), 1: ((7, END_OF_LOG),)}
    assert moved.topics[0].closed
    assert dict(moved.until()) == {0: 0, 1: 0, 2: 0}
    assert moved.lanes[partition_of("a", 1, 2, 3)].contains(lane, 9)
    assert not moved.gaps, "a change that was planned is no gap"


def test_a_batch_in_a_partition_that_was_added_is_sent_again() -> None:
    sent = [SentBatch("b", Position("c", "one", 12, 3), 1)]
    state = AckState("c", "t", "one", 0, {0: PartitionState(5, 0, 5)}, version=2)
    assert decide_acks(sent, {"one": state}, "t").resend == (), "it may be older than the position"
    later = AckState("c", "t", "one", 0, {0: PartitionState(5, 0, 5)}, version=3)
    assert decide_acks(sent, {"one": later}, "t").resend == (("b", "partition 12 of topic one is not read"),)


def test_the_number_of_partitions_stays_what_the_table_began_with() -> None:
    counts = PartitionCounts(lambda topic_id: 8 if topic_id == "known" else None)
    assert counts.count("t", "known", 16) == 8
    assert counts.count("t", "new", 4) == 4
    assert counts.count("t", "new", 6) == 4, "what was said first holds"
    assert "t was altered to 16 partitions: 8 are used" in counts.problem
    assert "artimon topics grow --partitions N" in counts.problem


def partitions_used(config: SparkConfig, topic: str) -> set[int]:
    return {partition for partition, *_ in read_topic(config.kafka, topic)}


def current(config: SparkConfig) -> RawState:
    return RawTable(config.hdfs).head()[1]


@pytest.mark.stack
@pytest.mark.slow
def test_a_topic_grows_under_load(config: SparkConfig, session: SparkSession, client: KazooClient) -> None:
    """Nothing is lost or stored twice, though batches of one lane stand in both topics, some in both."""
    way = Carried(config, session, client)
    with way.running():
        with way.spark() as query, way.flowing():
            way.acked(20)
            migrate_samples(config.kafka, config.topic_prefix, 7)
            eventually(lambda: len(current(config).topics) == 2, "the table goes over to the new topic")
            way.acked(40)
            assert query.figures()["gaps"] == [] or not query.problems()
        with way.spark() as query:  # another driver goes on there
            way.accept(20)
            way.settle()
            assert query.problems() == []
    state = current(config)
    assert [len(topic.until) for topic in state.topics] == [PARTITIONS, 7]
    assert state.topics[0].closed
    assert way.figures()["nacks"].keys() <= {"kafka"}
    assert max(partitions_used(config, f"{config.samples_topic}.2")) < 7


@pytest.mark.stack
@pytest.mark.slow
def test_what_was_sent_again_over_the_change_is_a_repeat(
    config: SparkConfig, session: SparkSession, client: KazooClient
) -> None:
    """Batches wait in the old topic, unknown to the table, and come once more in the new one."""
    way = Carried(config, session, client)
    with way.running():
        with way.spark():
            way.accept(10)
            way.settle()
        way.accept(30)
        eventually(lambda: way.figures()["unsent_batches"] == 0, "Kafka has them")
        migrate_samples(config.kafka, config.topic_prefix, 7)
        repeats = send_again(config)
        with way.spark() as query:
            way.settle()
            eventually(lambda: len(current(config).topics) == 2, "the table goes over to the new topic")
            eventually(lambda: current(config).totals.duplicates >= repeats, "each is found to be a repeat")
            way.settle()
            assert query.problems() == []


def send_again(config: SparkConfig) -> int:
    """All that stands in the old topic comes once more, as an agent sends what it takes for lost."""
    values = [value for *_, value in read_topic(config.kafka, config.samples_topic)]
    broker = KafkaWriter(config.kafka)
    results = broker.write([message_for(broker, config.topic_prefix, parse_header(v), v) for v in values])
    broker.close()
    assert not [result for result in results if isinstance(result, str)]
    return len(values)


@pytest.mark.stack
@pytest.mark.slow
def test_a_topic_that_was_altered_is_refused_and_loses_nothing(
    config: SparkConfig, session: SparkSession, client: KazooClient
) -> None:
    way = Carried(config, session, client)
    with way.running(), way.spark(), way.flowing():
        way.acked(20)
        admin = KafkaAdminClient(bootstrap_servers=config.kafka)
        admin.create_partitions({config.samples_topic: NewPartitions(11)})
        admin.close()
        way.acked(20)
    again = Carried(config, session, client)
    again.ledger, again._number, way = way.ledger, way._number, again
    with way.running(), way.spark() as query:  # a collector and a driver that know only what the table says
        way.accept(30)
        way.settle()
        assert f"{config.samples_topic} was altered to 11 partitions: {PARTITIONS} are used" in problems(query)
        migrate_samples(config.kafka, config.topic_prefix, 6)
        eventually(lambda: len(current(config).topics) == 2, "the table goes over to the new topic")
        way.accept(10)
        way.settle()
        assert problems(query) == ""
    assert max(partitions_used(config, config.samples_topic)) < PARTITIONS


def problems(query: RawQuery) -> str:
    return "; ".join(query.problems())


@pytest.mark.stack
@pytest.mark.slow
def test_a_generation_that_is_not_sealed_is_named(
    config: SparkConfig, session: SparkSession, client: KazooClient
) -> None:
    """`artimon topics grow` was killed in the middle; what is sent waits in the new topic until it runs again."""
    way = Carried(config, session, client)
    with way.running(), way.spark() as query:
        way.accept(10)
        way.settle()
        migrate_samples(config.kafka, config.topic_prefix, 6)
        unseal(config)
        eventually(lambda: "is not sealed: run `artimon topics grow` again" in problems(query), "it says so")
        way.accept(10)
        migrate_samples(config.kafka, config.topic_prefix, 6)
        way.settle()


def unseal(config: SparkConfig) -> None:
    admin = KafkaAdminClient(bootstrap_servers=config.kafka)
    plain = {"max.message.bytes": "1048576"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, config.samples_topic, configs=plain)])
    admin.close()
