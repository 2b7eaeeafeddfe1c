"""`artimon size`: its constants are measured and stand on the page, and its figures follow from its input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from artimon.cli.commands import size as sheet
from artimon.cli.program import app
from artimon.model.grid import DEFAULT_LEVELS
from artimon.runtime.machine_memory import MEMORY_SHARE
from benchmarks import fleet_sessions
from benchmarks.suite.results import failed, read
from varstore.index.shard_limits import settle_capacity

ROOT = Path(__file__).resolve().parents[2]
SCALING = (ROOT / "docs" / "scaling.md").read_text()
TUNING = (ROOT / "docs" / "tuning.md").read_text()
LINES = {line["name"]: line for line in read(ROOT / "docs" / "benchmarks.jsonl") if not failed(line)}
MACHINES, DATA = 2.0, 1.25
"""Greatest factor between a constant and its line: of two machines, and of two runs with the same data."""


def line(name: str) -> float:
    """Figure of a line of docs/benchmarks.jsonl."""
    assert name in LINES, f"{name}: the run of docs/benchmarks.jsonl has no figure, so its constant has no source"
    return float(LINES[name]["value"])


def in_unit(name: str, pattern: str) -> float:
    """Number in the unit of a line."""
    line(name)
    found = re.search(pattern, LINES[name]["unit"])
    assert found, LINES[name]
    return float(found[1].replace(",", ""))


def amounts(series: float = 8e6, hosts: int = 3_000, replicas: int = 2, processes: int = 7) -> dict[str, float]:
    lines = sheet.size_cluster(series, hosts, processes, 60.0, 400.0, 24.0, replicas)
    return {line.what: line.amount for line in lines}


@pytest.mark.parametrize(
    ("constant", "measured", "within"),
    [
        (sheet.SAMPLE_KAFKA_BYTES, lambda: in_unit("transport.mixed", r"([\d.]+) bytes a sample"), DATA),
        (sheet.SAMPLE_TABLE_BYTES, lambda: line("storage.mixed"), DATA),
        (sheet.SAMPLE_OPEN_BYTES, lambda: line("storage.walk@append"), DATA),
        (sheet.TRANSPORT_CORES, lambda: 2 / line("transport.mixed"), MACHINES),
        (sheet.SPARK_CORES, lambda: line("pipeline.cpu") * 1e-6, MACHINES),
        (sheet.PARTITION_SAMPLES, lambda: 2e6 / line("pipeline.cpu"), MACHINES),
        (sheet.SNAPSHOT_BYTES, lambda: line("varstore.restart@bytes"), DATA),
        (2 * sheet.COLLECTOR_AGENTS, lambda: line("fleet.collector.agents"), DATA),
        (2 * sheet.COLLECTOR_BATCHES, lambda: in_unit("fleet.collector.agents", r"([\d,]+) calls/s"), DATA),
        (sheet.LANE_BYTES, lambda: line("fleet.append.state") / 12_000, DATA),
    ],
)
def test_its_constants_are_measured(constant: float, measured: Callable[[], float], within: float) -> None:
    assert measured() / within <= constant <= measured() * within


def test_its_memory_of_a_series_is_measured() -> None:
    """docs/tuning.md has the figure as long as the run of docs/benchmarks.jsonl is older than cells on disk."""
    assert f" -> {sheet.SERIES_A_GIB:,}. " in TUNING
    if "varstore.density@disk" in LINES:
        assert line("varstore.density") == pytest.approx(sheet.SERIES_A_GIB, rel=DATA - 1)
        assert line("varstore.density@disk") == pytest.approx(sheet.CELL_DISK_BYTES, rel=DATA - 1)


@pytest.mark.parametrize("series", [8e6, 64e6])
def test_a_shard_accepts_the_series_of_its_memory(series: float) -> None:
    """A machine with the memory of one shard reserves room for the series of one shard."""
    found = amounts(series=series)
    memory = found["shard memory"] / found["shards"] * 2**30 * MEMORY_SHARE
    assert settle_capacity(0, DEFAULT_LEVELS, int(memory), on_disk=True) >= 2 * series / found["shards"]


def test_its_sessions_are_measured() -> None:
    assert fleet_sessions.SESSIONS == sheet.ENSEMBLE_SESSIONS
    assert fleet_sessions.SERVERS == sheet.ENSEMBLE_SERVERS


@pytest.mark.parametrize(
    "written",
    [
        f"{sheet.SAMPLE_KAFKA_BYTES} B",
        f"{sheet.TRANSPORT_CORES * 1e6:.2f} core-µs",
        f"{sheet.SPARK_CORES * 1e6:.2f} core-µs",
        f"2 x {sheet.COMPACTION_CORES * 1e6 / 2:.1f} core-µs",
        f"{sheet.SAMPLE_OPEN_BYTES} / ",
        f"1 GiB for {sheet.SERIES_A_GIB:,} series",
        f"{sheet.CELL_DISK_BYTES + sheet.SNAPSHOT_BYTES:,} B a series",
        f"{sheet.ENSEMBLE_SESSIONS:,} sessions on an ensemble",
        f"Plan {sheet.COLLECTOR_AGENTS:,} agents or {sheet.COLLECTOR_BATCHES} batches a second",
        f"{sheet.LANE_BYTES} B a lane",
    ],
)
def test_its_figures_are_those_of_the_page(written: str) -> None:
    assert written in SCALING


def test_eight_million_series_on_three_thousand_hosts() -> None:
    found = amounts()
    assert found["samples a second"] == pytest.approx(133_333, rel=1e-4)
    assert (found["Kafka brokers"], found["partitions"], found["Spark executors"]) == (3, 8, 2)
    assert found["shards"] * sheet.SHARD_SERIES >= 16e6
    assert found["shard memory"] == pytest.approx(16e6 / 810_700 + 2 * found["shards"])
    assert found["shard disk"] == pytest.approx(16 * 11.7)
    assert found["HDFS disk"] == pytest.approx(20.8, rel=0.01)


@given(st.floats(1, 1e11), st.integers(1, 1_000_000), st.integers(1, 3))
def test_more_never_needs_less(series: float, hosts: int, replicas: int) -> None:
    less, more = amounts(series, hosts, replicas), amounts(2 * series, 2 * hosts, replicas + 1)
    of_a_cell = "state of an append"
    assert all(more[what] >= amount for what, amount in less.items() if what != of_a_cell)
    assert less["Kafka brokers"] >= 3 * less["cells"]


@pytest.mark.parametrize("processes", [0, 3, 7, 10, 20])
def test_a_fleet_is_split_into_sites_by_its_sessions(processes: int) -> None:
    hosts = 30_000 // (1 + processes)
    (head,) = re.findall(r"^\| processes a host with a session \|(.*)\|$", SCALING, re.M)
    (row,) = re.findall(r"^\| \*\*beyond this number of hosts\*\* \|(.*)\|$", SCALING, re.M)
    told = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert {int(n): cell.strip() for n, cell in told.items()}[processes] == f"{hosts:,}"
    assert [amounts(1e6, n, 2, processes)["sites"] for n in (hosts, hosts + 1)] == [1, 2]
    assert amounts(1e6, hosts + 1, 2, processes)["ZooKeeper servers"] == 6


@given(st.floats(1, 1e11), st.integers(1, 1_000_000), st.integers(0, 30))
def test_the_others_serve_the_agents_of_a_collector_that_dies(series: float, hosts: int, processes: int) -> None:
    """In each cell, with no more agents and batches than half of what is measured."""
    found = amounts(series, hosts, 2, processes)
    left = found["collectors"] - found["cells"]
    batches = max(found["ZooKeeper sessions"] / 60, found["samples a second"] / 1_500)
    assert left * 2_500 >= hosts
    assert left * 333 >= batches * (1 - 1e-9)


@given(st.floats(1, 1e11), st.integers(1, 1_000_000))
def test_a_compactor_is_at_most_half_used(series: float, hosts: int) -> None:
    found = amounts(series, hosts)
    assert found["samples a second"] * sheet.COMPACTION_CORES <= found["cells"] / 2 * (1 + 1e-9)
    assert found["cells"] >= found["sites"]


def test_every_line_says_why() -> None:
    done = CliRunner().invoke(app, ["size", "--series", "8e6", "--hosts", "3000", "--json"])
    lines = json.loads(done.stdout)
    assert done.exit_code == 0
    assert all(line["why"] for line in lines)
    printed = CliRunner().invoke(app, ["size", "--series", "8e6", "--hosts", "3000"]).stdout.splitlines()
    assert [line.partition("  ")[0].strip() for line in printed] == [line["what"] for line in lines]


def test_the_page_shows_what_it_prints() -> None:
    small = sheet.size_cluster(8.01e6, 3_000, 7, 60.0, 400.0, 24.0, 2)
    large = sheet.size_cluster(267e6, 100_000, 7, 60.0, 400.0, 24.0, 2)
    for one, other in zip(small, large, strict=True):
        assert f"| {one.what} | {one.text} | {other.text} | {one.unit} |" in SCALING
