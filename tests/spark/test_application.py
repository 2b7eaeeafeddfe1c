"""The application as a process: missing servers are reported and retried, and one path never waits for the other."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from artimon.runtime.health import Health, read_health
from pipeline.spark.spark_settings import SparkConfig
from tests.spark.helpers import Sender
from tests.spark.recorder import RecordingShard
from tests.spark.test_crash import NEVER, application
from tests.waiting import eventually

pytestmark = pytest.mark.stack


def health(config: SparkConfig) -> Health | None:
    return read_health(config.health) if config.health else None


@pytest.mark.slow
def test_buckets_flow_while_hdfs_cannot_be_reached(config: SparkConfig, client: KazooClient) -> None:
    blind = replace(config, hdfs="hdfs://127.0.0.1:1/x")
    sender = Sender(config.kafka, config.samples_topic)
    shard = RecordingShard("0", ["0"])
    shard.start(client)
    with application(blind, "never", NEVER) as process:
        sender.numbers("a/h/0", 7)
        eventually(lambda: sum(shard.rows.values()) == 7, "the first samples in the shard")
        sender.numbers("a/h/0", 7, 50)
        eventually(lambda: sum(shard.rows.values()) == 14, "samples after the failure of the other path")
        eventually(lambda: "raw: OSError: the NameNode at" in problem(blind), "the problem in the health file")
        assert process.poll() is None
        process.terminate()
        began = time.monotonic()
        assert process.wait(60) == 0
        assert time.monotonic() - began < 10
    assert "the NameNode at hdfs://127.0.0.1:1 is not reachable" in (config.data / "driver.log").read_text()
    shard.stop(client)
    sender.close()


def problem(config: SparkConfig) -> str:
    said = health(config)
    return said.problem if said else ""
