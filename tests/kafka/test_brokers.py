"""Three brokers, three copies of each partition, two of them in sync: what of them may end without a loss."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.model.topic_spec import platform_topics
from artimon.runtime.topic_check import check_topics, describe_topics, open_admin
from artimon.stack.stack import Stack
from artimon.stack.topics import make_topics
from pipeline.spark.spark_settings import SparkConfig
from tests.spark.carried import Carried
from tests.spark.conftest import client, connector, session
from tests.spark.helpers import config_for
from tests.waiting import eventually

__all__ = ["client", "connector", "session"]
BASE_PORT = 28_500
OPTIONS = {"brokers": "3", "kafka_heap_mb": "256"}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("brokers"), ["brokers"], base_port=BASE_PORT, options=OPTIONS) as stack:
        yield stack


@pytest.fixture
def config(tmp_path: Path, brokers: Stack, zookeeper: str, hdfs: str, connector: list[str]) -> SparkConfig:
    name = f"t{uuid.uuid4().hex[:10]}"
    topics = platform_topics(name, 4, 3)
    make_topics(brokers.kafka, topics, brokers=3)
    eventually(lambda: check_topics(brokers.kafka, topics) == [], "all brokers to know the topics")
    made = config_for(tmp_path, zookeeper, brokers.kafka, hdfs, name, connector)
    return replace(made, raw_interval_s=1.0)


def in_sync(brokers: Stack, topic: str) -> list[int]:
    """Number of copies in sync of each partition."""
    admin = open_admin(brokers.kafka)
    try:
        return [len(part["isr_nodes"]) for part in admin.describe_topics([topic])[0]["partitions"]]
    finally:
        admin.close()


@pytest.mark.stack
@pytest.mark.slow
def test_a_broker_is_killed_and_one_loses_its_disk(
    config: SparkConfig, brokers: Stack, session: SparkSession, client: KazooClient
) -> None:
    """Under load: the leader of some partitions is killed -9; then another one begins again with an empty disk."""
    way = Carried(config, session, client)
    with way.running(), way.spark():
        with way.flowing(0.05):
            way.acked(10)
            brokers.kill_part("kafka-2")
            way.acked(20)
            brokers.start_part("kafka-2")
            brokers.wait_healthy(300)
            eventually(lambda: min(in_sync(brokers, config.samples_topic)) == 3, "all copies are in sync")
            brokers.kill_part("kafka-3")
            shutil.rmtree(brokers.data / "kafka-3" / "data")
            brokers.start_part("kafka-3")
            brokers.wait_healthy(300)
            eventually(lambda: min(in_sync(brokers, config.samples_topic)) == 3, "all copies are in sync")
            way.acked(20)
        way.settle()
    admin = open_admin(brokers.kafka)
    found = describe_topics(admin, [config.samples_topic])[config.samples_topic]
    admin.close()
    assert {len(nodes) for nodes in found.replicas.values()} == {3}
