"""Expressions of public dashboards and alert rules give the numbers of Prometheus over the same samples."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from artimon.compute.sample_windows import WINDOWED
from benchmarks.peers.process import ask
from benchmarks.peers.prometheus import Prometheus
from query_dsl.promql import PromqlResult, instant_query, range_query
from tests.programs import require
from tests.query_dsl.promql.fleet import COUNT, START_MS, STEP_MS, Fleet, FleetSamples
from tests.seeds import drawn

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]
EXPRESSIONS = [
    line
    for line in (Path(__file__).parent / "dashboards.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
INTERVALS = ("2m", "5m", "10m")
END_MS = (START_MS + COUNT * STEP_MS) // 60_000 * 60_000
RANGE_MS, RANGE_STEP_MS = 3_600_000, 60_000
CLOSE = 1e-9
"""Relative difference that rounding explains."""
CANCELLED = 1e-11
"""Difference that rounding explains where equal terms cancel each other."""
Series = dict[tuple[tuple[str, str], ...], dict[int, float]]


@pytest.fixture(scope="module", params=[pytest.param("fixed", marks=pytest.mark.slow), "drawn"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, FleetSamples]]:
    """Address of a Prometheus, and the same samples for us."""
    series = Fleet(7 if request.param == "fixed" else drawn("promql fleet")).series()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    peer = Prometheus(require("prometheus"), require("promtool"), tmp_path_factory.mktemp("prometheus"), port)
    peer.store(series)
    with peer.serve() as address:
        yield address, FleetSamples(series)


def theirs(address: str, path: str, **parameters: object) -> Series:
    told = json.loads(ask(f"{address}/api/v1/{path}?{urlencode(parameters)}"))["data"]
    if told["resultType"] == "scalar":
        return {(): {round(told["result"][0] * 1000): float(told["result"][1])}}
    return {
        tuple(sorted(one["metric"].items())): {
            round(time * 1000): float(value) for time, value in one.get("values") or [one["value"]]
        }
        for one in told["result"]
    }


def ours(found: PromqlResult) -> Series:
    return {tuple(sorted(labels.items())): dict(points) for labels, points in found.series()}


def close(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= max(CLOSE * max(abs(a), abs(b)), CANCELLED)


def difference(mine: Series, expected: Series) -> Any:
    """Return the first difference, None if there is none."""
    if mine.keys() != expected.keys():
        return sorted(mine.keys() ^ expected.keys())[:3]
    for key, points in expected.items():
        if mine[key].keys() != points.keys():
            return key, sorted(mine[key].keys() ^ points.keys())[:3]
        for time, value in points.items():
            if not close(mine[key][time], value):
                return key, time, mine[key][time], value
    return None


def test_the_expressions_are_many_and_use_most_functions() -> None:
    assert len({one.replace("$i", interval) for one in EXPRESSIONS for interval in INTERVALS}) >= 300
    used = [name for name in WINDOWED if any(f"{name}(" in one for one in EXPRESSIONS)]
    assert len(used) >= 17


def test_dashboards_show_the_numbers_of_prometheus(both: tuple[str, FleetSamples]) -> None:
    address, source = both
    texts = sorted({one.replace("$i", interval) for one in EXPRESSIONS for interval in INTERVALS})
    wrong, empty = {}, 0
    for text in texts:
        instant = theirs(address, "query", query=text, time=END_MS / 1000)
        found = difference(ours(instant_query(text, END_MS, source)), instant)
        start_ms = END_MS - RANGE_MS
        ranged = theirs(
            address, "query_range", query=text, start=start_ms / 1000, end=END_MS / 1000, step=RANGE_STEP_MS / 1000
        )
        found = found or difference(ours(range_query(text, start_ms, END_MS, RANGE_STEP_MS, source)), ranged)
        empty += not ranged
        if found:
            wrong[text] = found
    assert wrong == {}
    assert empty < len(texts) / 8
