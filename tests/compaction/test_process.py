"""`artimon compactor` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from artimon import cli
from artimon.runtime.health import Health, read_health
from tests.compaction.builder import HOUR_MS, START_MS, Builder, expected, held
from tests.compaction.test_compactor import fill
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


@pytest.mark.stack
def test_the_process_compacts_and_says_so(on_hdfs: Builder, zookeeper: str, tmp_path: Path) -> None:
    """At the lowest priority, until SIGTERM; the idle partition is known from the acks in ZooKeeper."""
    builder = on_hdfs
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    health = tmp_path / "health.json"
    arguments = ["--zookeeper", f"{zookeeper}/p{uuid.uuid4().hex[:8]}", "--hdfs", builder.hdfs, "--keep", "*=99999"]
    command = [sys.executable, "-m", "artimon.cli", "compactor", *arguments, "--data", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*command, "--interval", "1s", "--health", str(health)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        eventually(lambda: _jobs(read_health(health)) == 1, "the hour is compacted")
        eventually(lambda: _closed(read_health(health)) == 1, "it has looked at what came of it")
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
        found = read_health(health)
        assert found is not None
        assert (found.state, found.problem) == ("ok", "")
        assert found.figures["last_problem"] == ""
        assert 0 < found.figures["peak_bytes"] < 2**30
        json.dumps(found.figures)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert held(builder.table.uri) == expected(builder.ledger)


def test_a_wrong_class_is_said_at_once() -> None:
    done = CliRunner().invoke(cli.app, ["compactor", "--keep", "debug=x"])
    assert done.exit_code == 2
    assert "debug=x" in done.output


def _jobs(health: Health | None) -> int:
    return int(health.figures.get("jobs", 0)) if health else 0


def _closed(health: Health | None) -> int:
    return int(health.figures["live"]["closed_hour"]) if health else 0
