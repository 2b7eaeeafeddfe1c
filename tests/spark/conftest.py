"""One Spark session for the whole run, and separate topics, znodes and folders for every test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.runtime.settings import load as load_settings
from artimon.stack import jars
from artimon.stack.java import find_java
from pipeline.spark.spark_session import make_session
from pipeline.spark.spark_settings import SparkConfig
from tests.spark.helpers import config_for, make_topics


@pytest.fixture(scope="session")
def connector() -> list[str]:
    """Return the paths of Spark's Kafka connector."""
    place = load_settings()
    folder = jars.ensure_jars(place, find_java(place), ["spark"]) / "spark"
    return [str(jar) for jar in sorted(folder.glob("*.jar"))]


@pytest.fixture(scope="session")
def session(connector: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    config = SparkConfig("", "", "", tmp_path_factory.mktemp("spark"), None, connector, driver_memory="512m")
    made = make_session(config)
    yield made
    made.stop()


@pytest.fixture
def config(tmp_path: Path, zookeeper: str, kafka: str, hdfs: str, connector: list[str]) -> SparkConfig:
    name = f"t{uuid.uuid4().hex[:10]}"
    make_topics(kafka, name)
    return config_for(tmp_path, zookeeper, kafka, hdfs, name, connector)


@pytest.fixture
def client(config: SparkConfig) -> Iterator[KazooClient]:
    """A ZooKeeper client whose root is the folder of the test."""
    servers, chroot = config.zookeeper.split("/", 1)
    made = KazooClient(servers, timeout=60.0)  # a machine under load must not lose the nodes of a test
    made.start(timeout=20)
    made.ensure_path(f"/{chroot}")
    made.chroot = f"/{chroot}"
    yield made
    made.stop()
    made.close()
