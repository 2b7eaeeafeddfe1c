"""Gaps on real servers, under load: each is named, its batches are sent again, and the table holds everything once."""

from __future__ import annotations

import pytest
from kafka import KafkaProducer
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.rawtable.commit import RawTable
from artimon.rawtable.table_state import LogGap, RawState, close_gaps, from_json, to_json
from pipeline.spark import gap_report as gaps
from pipeline.spark.raw_query import RawQuery
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.streaming_query import range_frame
from pipeline.spark.topic_client import TopicClient
from tests.spark.carried import Carried, delete_records, delete_topics
from tests.spark.helpers import make_topics, now_ms
from tests.waiting import eventually


def kinds(query: RawQuery) -> set[str]:
    return {gap["kind"] for gap in query.figures()["gaps"]}


@pytest.mark.slow
@pytest.mark.stack
def test_a_topic_recreated_under_load_loses_nothing(
    config: SparkConfig, session: SparkSession, client: KazooClient
) -> None:
    delivery = Carried(config, session, client)
    with delivery.running(), delivery.spark() as query:
        with delivery.flowing():
            delivery.acked(20)
            delete_topics(config)
            delivery.accept(20)
            make_topics(config.kafka, config.topic_prefix)
            delivery.acked(40)
        delivery.settle()
        assert kinds(query) == {"topic"}
        assert query.figures()["since_start"]["gaps"]["topic"] > 0
        assert any(text.startswith("gap (topic) named by append") for text in query.problems())
    _, state = RawTable(config.hdfs).head()
    assert state.recent_gaps, "the table keeps the gap over restarts"
    assert gaps.problem_texts(state, now_ms()) != []
    assert gaps.problem_texts(state, now_ms() + gaps.REPORTED_MS) == []


@pytest.mark.stack
def test_prefetched_messages_of_a_deleted_topic_are_not_used(config: SparkConfig, session: SparkSession) -> None:
    """Spark caches consumers and prefetched messages; the same offsets of a recreated topic hold other messages."""

    def read(word: bytes) -> set[bytes]:
        with KafkaProducer(bootstrap_servers=config.kafka, acks="all") as producer:
            for _ in range(40):
                producer.send(config.samples_topic, word, partition=0)
        topic = TopicClient(config.kafka, config.samples_topic)
        info = topic.describe()
        topic.close()
        rest = dict.fromkeys(range(1, info.partitions), 0)
        found = set[bytes]()
        for start in (0, 10) if word == b"old" else (10, 20):
            frame = range_frame(session, config, info, {0: start, **rest}, {0: start + 10, **rest})
            found |= {bytes(row.value) for row in frame.collect()}
        return found

    assert read(b"old") == {b"old"}
    delete_topics(config)
    make_topics(config.kafka, config.topic_prefix)
    assert read(b"new") == {b"new"}


@pytest.mark.stack
def test_records_deleted_unread_are_sent_again(config: SparkConfig, session: SparkSession, client: KazooClient) -> None:
    """Kafka took the batches, so the agent waits for acks; the table never read them, names them lost, and gets them
    again."""
    delivery = Carried(config, session, client)
    with delivery.running():
        with delivery.spark():
            delivery.accept(20)
            eventually(lambda: delivery.figures()["pending_batches"] == 0, "the first batches are in the table")
        delivery.accept(60)
        eventually(lambda: delivery.figures()["unsent_batches"] == 0, "Kafka has them")
        topic = TopicClient(config.kafka, config.samples_topic)
        info = topic.describe()
        _, state = RawTable(config.hdfs).head()
        for partition, (_, end) in topic.log_bounds(info.partitions).items():
            if end > state.until()[partition]:
                delete_records(config, partition, max(state.until()[partition] + 1, end - 3))
        topic.close()
        with delivery.spark() as query, delivery.flowing(0.1):
            delivery.acked(60)
            assert kinds(query) == {"lost"}
            assert delivery.figures()["resent_batches"] > 0
        with delivery.spark():
            delivery.settle()


def test_gaps_survive_a_restart_and_the_list_is_bounded() -> None:
    state = close_gaps(RawState(), "w", "c", "t", "one", 2, [], None, 1_000)
    for n in range(200):
        state = from_json(
            to_json(close_gaps(state, "w", "c", "t", "one", 2, [LogGap("cut", 1, n, n + 1)], None, n), state)
        )
    assert len(state.recent_gaps) == 64
    assert [named.gap.start for named in state.recent_gaps] == list(range(136, 200))
    assert {named.topic_id for named in state.recent_gaps} == {"one"}
    again = close_gaps(state, "w", "c", "t", "two", 2, [LogGap("topic", 0, 5, 9), LogGap("lost", 1, 0, 3)], None, 999)
    assert [(n.gap.kind, n.topic_id, n.append) for n in again.recent_gaps[-2:]] == [
        ("topic", "one", 202),
        ("lost", "two", 202),
    ]
    (sentence, *_) = gaps.problem_texts(again, 1_000)
    assert "append 202" in sentence
    assert "1970-01-01 00:00:00 UTC" in sentence
