"""Read-only history shared by all tests of this folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from artimon.model.values import Kind, ValueType
from query_dsl.stores.history.engine import History
from tests.history.world import HOUR_MS, START_MS, Given, HistoryWorld
from tests.series.world import block
from tests.spark.conftest import connector, session

__all__ = ["connector", "session"]  # a process has one JVM, and its class path is that of its first session

MANY = 40
EXTREME = 'odd{k="naïve ☃ \\"quoted\\", {braces}=",rack="r1"}'
LATE = 'rack.temp{host="h1",rack="r1"}'


@pytest.fixture(scope="session")
def history_world(hdfs: str) -> HistoryWorld:
    """Six hours of a rack: integers, doubles, booleans and strings; late samples; series that two sources report."""
    made = HistoryWorld(f"{hdfs}/h{uuid.uuid4().hex[:10]}")
    temps = [f'rack.temp{{host="h{n}",rack="r{n % 4}"}}' for n in range(MANY)]
    doors = [f'rack.door{{rack="r{n}"}}' for n in range(4)]
    made.announce(
        [
            block("plc/a/0", 0, 1, temps[:20], type=ValueType.DOUBLE, kind=Kind.GAUGE, unit="°C", help="warm"),
            block("plc/b/0", 0, 1, [*temps[20:], LATE]),
            block("doors/a/0", 0, 1, doors, type=ValueType.BOOLEAN),
            block("odd/a/0", 0, 1, [EXTREME, "other.thing{}"], type=ValueType.STRING),
        ]
    )
    for hour in range(6):
        begin = START_MS + hour * HOUR_MS
        rows: list[Given] = []
        for minute in range(0, 60, 5):
            at = begin + minute * 60_000
            rows += [("plc/a/0", text, at, n + minute / 7) for n, text in enumerate(temps[:20])]
            rows += [("plc/b/0", text, at, 2**53 + n + minute) for n, text in enumerate(temps[20:])]
            rows += [("doors/a/0", text, at, minute % 2 == 0) for text in doors]
        made.append(begin + HOUR_MS - 1, rows)
    odd: list[Given] = [
        ("odd/a/0", EXTREME, START_MS + n, value)
        for n, value in enumerate(
            [2**63 - 1, -(2**63), 2**53 + 1, float("nan"), float("inf"), -0.0, True, "", "naïve ☃ 𝄞", None]
        )
    ]
    made.append(START_MS + HOUR_MS, odd, keep="short")
    made.append(START_MS + 5 * HOUR_MS, [("plc/b/0", LATE, START_MS + 7, 21.5)])  # hours late, of another source
    made.append(START_MS + 5 * HOUR_MS, [("plc/b/0", "never.announced{}", START_MS + 9, 1)])
    return made


@pytest.fixture
def history(history_world: HistoryWorld, session: SparkSession) -> Iterator[History]:
    with History(history_world.hdfs, spark=session) as made:
        yield made
