"""The examples agree with a plain loop over the same samples."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

from query_dsl.tree.times import format_time
from tests.history.world import HOUR_MS, START_MS, HistoryWorld

pytestmark = pytest.mark.stack
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
START, END = START_MS + HOUR_MS // 2, START_MS + 3 * HOUR_MS


def run(name: str, *words: str) -> list[dict[str, str]]:
    """The rows of CSV that an example prints."""
    root = str(EXAMPLES.parent)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": root},
        cwd=root,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return list(csv.DictReader(done.stdout.splitlines()))


def by_hour_and_rack(history_world: HistoryWorld) -> dict[tuple[int, str], list[float]]:
    found: dict[tuple[int, str], list[float]] = defaultdict(list)
    for one in history_world.samples:
        if one.series.startswith("rack.temp{") and START < one.time_ms <= END and one.value is not None:
            rack = one.series.split('rack="')[1].split('"')[0]
            found[one.time_ms // HOUR_MS * HOUR_MS, rack].append(float(one.value))
    return found


def test_without_spark(history_world: HistoryWorld) -> None:
    if find_spec("duckdb") is None:  # not imported here: only the example's process needs it
        pytest.skip("duckdb is not installed")
    words = ["--hdfs", history_world.hdfs, "--name", "rack.temp", "--by", "rack", "--hours", "2.5"]
    rows = run("read_raw_without_spark.py", *words, "--end", format_time(END))
    plain = by_hour_and_rack(history_world)
    assert len(rows) == len(plain) > 8
    rows += run("read_raw_without_spark.py", *words, "--end", format_time(END).removesuffix("Z"))
    assert len(rows) == 2 * len(plain)
    for row in rows:
        values = plain[hour_ms(row["hour"]), row["part"]]
        assert (int(row["samples"]), float(row["least"]), float(row["greatest"])) == (
            len(values),
            min(values),
            max(values),
        )
        assert float(row["mean"]) == pytest.approx(sum(values) / len(values))


def test_neither_spark_nor_artimon_is_imported_by_it() -> None:
    text = (EXAMPLES / "read_raw_without_spark.py").read_text()
    imported = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert not [line for line in imported if any(part in line for part in ("artimon", "pyspark", "pipeline", "query"))]


@pytest.mark.slow
def test_map_and_reduce(history_world: HistoryWorld) -> None:
    words = ["rack.temp", "--by", "rack", "--hdfs", history_world.hdfs]
    rows = run("history_mapreduce.py", *words, "--from", format_time(START), "--to", format_time(END))
    plain = by_hour_and_rack(history_world)
    told = {(hour_ms(row["hour"]), row["part"]): (float(row["value"]), int(row["samples"])) for row in rows}
    assert told == {key: (max(values), len(values)) for key, values in plain.items()}


def hour_ms(text: str) -> int:
    """Of 2026-11-18T01:00Z and of 2026-11-18 01:00:00."""
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
