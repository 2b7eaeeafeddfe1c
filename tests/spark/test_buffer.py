"""Kafka as a buffer, on a separate broker: full, wiped, and rolled back under load, without loss or duplicates."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.rawtable.commit import RawTable
from artimon.runtime.settings import load as load_settings
from artimon.stack.stack import Stack
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import TopicClient
from tests.conftest import TEST_PORTS
from tests.spark.carried import Carried
from tests.spark.helpers import PARTITIONS, make_topics
from tests.spark.test_gaps import kinds
from tests.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(900)]

QUOTA = 30_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A broker with a small quota and the topics of the stack."""
    settings = replace(load_settings(), kafka_quota_bytes=QUOTA)
    folder = tmp_path_factory.mktemp("broker")
    with Stack(folder, ["kafka"], base_port=TEST_PORTS, settings=settings) as stack:
        yield stack


@pytest.fixture
def own(config: SparkConfig, broker: Stack) -> SparkConfig:
    """The configuration of the test, on that broker."""
    make_topics(broker.kafka, config.topic_prefix)
    return replace(config, kafka=broker.kafka, kafka_quota_bytes=QUOTA, trim_interval_s=2.0)


def test_a_full_kafka_keeps_the_unread_and_drains_once_it_is_read(
    own: SparkConfig, session: SparkSession, client: KazooClient
) -> None:
    """Without Spark, Kafka fills to its quota and the agent's log grows. Once Spark runs, both are drained."""
    delivery = Carried(own, session, client, QUOTA)
    topic = TopicClient(own.kafka, own.samples_topic)
    with delivery.running():
        delivery.accept_large(200)
        eventually(lambda: bool(delivery.figures()["buffer_full"]), "buffer full")
        assert delivery.figures()["log_bytes"] > QUOTA
        assert delivery.figures()["unsent_batches"] > 50
        assert 0.7 * QUOTA < topic.sizes(PARTITIONS).total <= QUOTA
        carried = delivery.figures()["carried_bytes"]
        delivery.accept_large(20)
        assert delivery.figures()["carried_bytes"] - carried < 10 * 400_000
        with delivery.spark():
            delivery.settle()
            assert delivery.figures()["buffer_full"] == ""
            eventually(
                lambda: topic.sizes(PARTITIONS).total <= QUOTA // 2,
                "messages that were read are deleted down to half of the quota",
            )
            assert delivery.refused == 0
            accepted = delivery.figures()["accepted_bytes"]
            assert delivery.figures()["carried_bytes"] < 1.25 * accepted + 24 * 2**20
    topic.close()


def test_a_wiped_kafka_loses_nothing(
    own: SparkConfig, broker: Stack, session: SparkSession, client: KazooClient
) -> None:
    """Another cluster has other topics under the same name and address; the stack creates them."""
    delivery = Carried(replace(own, topic_prefix="artimon"), session, client)
    with delivery.running(), delivery.spark() as query:
        with delivery.flowing():
            delivery.acked(40)
            broker.kill_part("kafka")
            delivery.accept(40)
            shutil.rmtree(broker.data / "kafka" / "data")
            broker.start_part("kafka")
            broker.wait_healthy()
            delivery.acked(100)
        delivery.settle()
        assert "topic" in kinds(query)
        assert query.problems() != []


def partitions(broker: Stack, config: SparkConfig) -> list[Path]:
    found = sorted((broker.data / "kafka" / "data").glob(f"{config.samples_topic}-*"))
    assert len(found) == PARTITIONS
    return found


def test_a_log_that_lost_its_end_and_grew_again_loses_nothing(
    own: SparkConfig, broker: Stack, tmp_path: Path, session: SparkSession, client: KazooClient
) -> None:
    """Everything that the broker wrote since some moment is lost, as after a power failure, and polls continue: the
    same offsets soon hold other batches, read and unread."""
    delivery = Carried(own, session, client)
    with delivery.running(), delivery.spark() as query:
        with delivery.flowing(0.01):
            delivery.acked(40)
            for folder in partitions(broker, own):
                shutil.copytree(folder, tmp_path / folder.name)
            accepted = delivery.figures()["accepted_batches"]
            eventually(lambda: delivery.figures()["acked_batches"] > accepted + 50, "the table is ahead of the copy")
            _, before = RawTable(own.hdfs).head()
            read = before.until()
            broker.kill_part("kafka")
            for folder in partitions(broker, own):
                shutil.rmtree(folder)
                shutil.copytree(tmp_path / folder.name, folder)
            delivery.accept(500)
            broker.start_part("kafka")
            broker.wait_healthy()
            delivery.acked(600)
        delivery.settle()
        _, state = RawTable(own.hdfs).head()
        assert kinds(query) == {"cut"}
        assert any(named.gap.start < read[named.gap.partition] for named in state.recent_gaps), (
            "below the offsets that were read"
        )
        assert delivery.figures()["resent_batches"] > 0
