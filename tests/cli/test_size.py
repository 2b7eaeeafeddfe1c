"""`artimon size`: its figures are those of the documents, and follow from its input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from artimon.cli.commands import size as sheet
from artimon.cli.program import app

ROOT = Path(__file__).resolve().parents[2]
SCALING = (ROOT / "docs" / "scaling.md").read_text()


def amounts(series: float = 8e6, hosts: int = 3_000, replicas: int = 2) -> dict[str, float]:
    return {line.what: line.amount for line in sheet.size_cluster(series, hosts, 60.0, 400.0, 24.0, replicas)}


@pytest.mark.parametrize(
    "written",
    [
        f"{sheet.SAMPLE_KAFKA_BYTES} B",
        f"{sheet.TRANSPORT_CORES * 1e6:.2f} core-µs",
        f"{sheet.SPARK_CORES * 1e6:.2f} core-µs",
        f"2 x {sheet.COMPACTION_CORES * 1e6 / 2:.1f} core-µs",
        f"{sheet.SAMPLE_OPEN_BYTES} / ",
        f"1 GiB for {sheet.SERIES_A_GIB:,} series",
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
    assert found["shard memory"] == pytest.approx(16e6 / 115_900)
    assert found["HDFS disk"] == pytest.approx(20.8, rel=0.01)


@given(st.floats(1, 1e11), st.integers(1, 1_000_000), st.integers(1, 3))
def test_more_never_needs_less(series: float, hosts: int, replicas: int) -> None:
    less, more = amounts(series, hosts, replicas), amounts(2 * series, 2 * hosts, replicas + 1)
    assert all(more[what] >= amount for what, amount in less.items())
    assert less["Kafka brokers"] >= 3


def test_every_line_says_why() -> None:
    done = CliRunner().invoke(app, ["size", "--series", "8e6", "--hosts", "3000", "--json"])
    lines = json.loads(done.stdout)
    assert done.exit_code == 0
    assert all(line["why"] for line in lines)
    printed = CliRunner().invoke(app, ["size", "--series", "8e6", "--hosts", "3000"]).stdout.splitlines()
    assert [line.partition("  ")[0].strip() for line in printed] == [line["what"] for line in lines]


def test_the_page_shows_what_it_prints() -> None:
    small = sheet.size_cluster(8.01e6, 3_000, 60.0, 400.0, 24.0, 2)
    large = sheet.size_cluster(267e6, 100_000, 60.0, 400.0, 24.0, 2)
    for one, other in zip(small, large, strict=True):
        assert f"| {one.what} | {one.text} | {other.text} | {one.unit} |" in SCALING
