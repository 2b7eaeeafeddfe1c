"""Compaction changes files, never answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from artimon.model.values import Value
from query_dsl.stores.history.engine import Engine, History
from tests.compaction.test_compactor import turn
from tests.history.test_reading import told
from tests.history.world import HOUR_MS, START_MS, HistoryWorld
from tests.series.world import block

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_the_answer_is_the_same_after_compaction(
    hdfs: str, session: SparkSession, tmp_path: Path, engine: Engine
) -> None:
    history_world = HistoryWorld(f"{hdfs}/k{engine}")
    texts = [f'v{{n="{n}"}}' for n in range(3)]
    history_world.announce([block(f"s{n}", 0, 1, [text]) for n, text in enumerate(texts)])
    values: list[Value | None] = [2**53 + 1, 0.5, True, "naïve ☃", None]
    for n in range(12):
        at = START_MS + n * HOUR_MS // 4
        history_world.append(at, [(f"s{k}", text, at + k, values[(n + k) % 5]) for k, text in enumerate(texts)])
    question = "v", START_MS - 1, START_MS + 3 * HOUR_MS
    with History(history_world.hdfs, spark=session) as history:
        before = history.read(*question, engine=engine)
        history_world.builder.settle(START_MS + 5 * HOUR_MS)
        turn(history_world.builder, tmp_path)
        after = history.read(*question, engine=engine)
    assert after.touched.of_files < before.touched.of_files
    assert told(after) == told(before) == history_world.expected(texts, *question[1:])
