"""The whole application in its own process, killed with SIGKILL at critical points: table and acks stay exact."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from artimon.runtime.health import read_health
from artimon.runtime.partition_counts import ACKS_PATH as PATH
from pipeline.spark.spark_settings import SparkConfig
from tests.spark.helpers import Sender, table_rows
from tests.waiting import eventually

pytestmark = pytest.mark.stack
NEVER = 1_000_000


@contextmanager
def application(config: SparkConfig, point: str, nth: int) -> Iterator[subprocess.Popen[bytes]]:
    path = config.data / "config.json"
    plain = {**asdict(config), "data": str(config.data), "health": str(config.health), "driver_memory": "512m"}
    path.write_text(json.dumps(plain))
    log = (config.data / "driver.log").open("ab")
    command = [sys.executable, "-m", "tests.spark.crashing_driver", str(path), point, str(nth)]
    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parents[2])
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def raw_figures(config: SparkConfig) -> dict[str, Any]:
    health = read_health(config.health) if config.health else None
    return dict(health.figures.get("raw", {})) if health else {}


def acked(client: KazooClient, partition: int) -> int:
    """Return the offset in the ack of the only topic."""
    names = client.get_children(PATH) if client.exists(PATH) else []
    for name in names:
        document = json.loads(client.get(f"{PATH}/{name}")[0])
        return int(document["partitions"][str(partition)]["until"])
    return 0


@pytest.mark.slow
def test_table_and_acks_are_exact_after_kills_around_the_commit(config: SparkConfig, client: KazooClient) -> None:
    """Killed after writing files, after the commit, and then not at all: every row is stored once, and acked."""
    sender = Sender(config.kafka, config.samples_topic)
    for round_, point in enumerate(["written", "committed"]):
        for n in range(3):
            sender.numbers(f"s{n}/h/0", 5, round_ * 100 + n, copies=2)
        before = acked(client, sender.partition)
        with application(config, point, 1) as process:
            eventually(lambda p=process: p.poll() is not None, f"killed at {point}")  # type: ignore[misc]
            assert process.returncode == -signal.SIGKILL
        # the thread that watches the table may publish the commit before the kill
        assert acked(client, sender.partition) in ({before} if point == "written" else {before, 12})
    with application(config, "never", NEVER) as process:
        eventually(lambda: acked(client, sender.partition) == 12, "the ack of everything")
        assert process.poll() is None
    assert table_rows(config) == sender.ledger
    assert process.returncode == 0
    sender.close()
