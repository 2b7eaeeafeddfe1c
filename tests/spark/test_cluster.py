"""The application on a real standalone cluster, started by spark-submit and by `artimon spark --master`: every sample
is stored once, even if a worker is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import artimon
from artimon.runtime.health import read_health
from artimon.stack.jars import spark_jars
from pipeline.spark.spark_settings import SparkConfig
from tests.spark.cluster import Cluster, cluster_of, running_driver
from tests.spark.helpers import Sender, table_rows
from tests.spark.recorder import RecordingShard
from tests.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200)]
SOURCES = 40
DEADLINE_S = 300.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(tmp_path_factory.mktemp("cluster"), 2) as made:
        yield made


def properties(config: SparkConfig, master: str) -> Path:
    """Write the settings of this cluster to one file for both ways to start."""
    settings = {
        "spark.master": master,
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.pyspark.python": sys.executable,
        "spark.jars": ",".join(config.jars),
    }
    path = config.data / "cluster.properties"
    path.write_text("# of this cluster\n" + "".join(f"{key} {value}\n" for key, value in settings.items()))
    return path


def options(config: SparkConfig) -> list[str]:
    return [
        *("--zookeeper", config.zookeeper, "--kafka", config.kafka, "--hdfs", config.hdfs),
        *("--data", str(config.data / "driver"), "--health", str(config.health)),
        *("--topic-prefix", config.topic_prefix, "--raw-interval", "1s"),
    ]


def submitted(config: SparkConfig, master: str) -> list[str]:
    submit = [str(spark_jars().parent / "bin" / "spark-submit"), "--properties-file", str(properties(config, master))]
    return [*submit, str(Path(artimon.__file__).with_name("submit.py")), *options(config)]


def started_by_artimon(config: SparkConfig, master: str) -> list[str]:
    command = [sys.executable, "-P", "-m", "artimon.cli", "spark", *options(config)]
    return [*command, "--properties", str(properties(config, master))]


def raw_figures(config: SparkConfig) -> dict[str, Any]:
    health = read_health(config.health) if config.health else None
    return dict(health.figures.get("raw", {})) if health else {}


def batches_of(config: SparkConfig, driver: subprocess.Popen[bytes]) -> int:
    """Return the batches in the table; fails at once if the driver is gone."""
    assert driver.poll() is None, (config.data / "driver.log").read_text()[-2000:]
    return int(raw_figures(config).get("batches", 0))


def keep_sending(sender: Sender, stop: threading.Event) -> None:
    n = 0
    while not stop.wait(0.02):
        sender.numbers(f"s{n % SOURCES}/h/0", 50, n, copies=1 + (n % 10 == 0))
        n += 1


def without_sources(sender: Sender) -> Counter[tuple[int, int, int, str]]:
    rows: Counter[tuple[int, int, int, str]] = Counter()
    for (_, *row), count in sender.ledger.items():
        rows[tuple(row)] += count  # type: ignore[index]
    return rows


def test_a_submitted_application_survives_the_death_of_a_worker(
    cluster: Cluster, config: SparkConfig, client: KazooClient
) -> None:
    sender, shard, stop = Sender(config.kafka, config.samples_topic), RecordingShard("0", ["0"]), threading.Event()
    shard.start(client)
    feeding = threading.Thread(target=keep_sending, args=(sender, stop))
    with running_driver(submitted(config, cluster.master), config.data / "driver.log", {}) as driver:
        feeding.start()
        try:
            eventually(lambda: batches_of(config, driver) > 100, "the first appends", DEADLINE_S)
            assert len(cluster.executors()) >= 2  # a busy machine may lose one, which Spark replaces
            cluster.kill_worker(0)
            at_death = batches_of(config, driver)
            eventually(lambda: batches_of(config, driver) > at_death + 500, "appends after that", DEADLINE_S)
        finally:
            stop.set()
            feeding.join(30)
        batches = sender.sequence
        eventually(lambda: batches_of(config, driver) == batches, "everything in the table", DEADLINE_S)
        eventually(lambda: shard.rows.total() == sender.ledger.total(), "everything in the shard", DEADLINE_S)
        assert driver.poll() is None
        assert raw_figures(config)["dead_letters"] == 0
    assert table_rows(config) == sender.ledger
    assert shard.rows == without_sources(sender)
    assert shard.gaps == 0
    shard.stop(client)
    sender.close()


def test_artimon_spark_accepts_the_same_file_of_settings(cluster: Cluster, config: SparkConfig) -> None:
    """The driver has a folder that executors do not see, and the settings name the executors' interpreter."""
    sender = Sender(config.kafka, config.samples_topic)
    before = len(cluster.executors())
    for n in range(20):
        sender.numbers(f"s{n}/h/0", 5, n)
    wrong = {"PYSPARK_PYTHON": "/no/python/here"}
    with running_driver(started_by_artimon(config, cluster.master), config.data / "driver.log", wrong) as driver:
        eventually(lambda: batches_of(config, driver) == 20, "everything in the table", DEADLINE_S)
        assert len(cluster.executors()) > before
    assert driver.returncode == 0
    assert table_rows(config) == sender.ledger
    assert os.listdir(config.data / "driver" / "checkpoints") == []
    sender.close()
