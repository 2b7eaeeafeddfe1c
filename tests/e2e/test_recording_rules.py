"""Results of recording rules through the whole stack: agent, Kafka, raw table and shards, asked in memory and on
history; and with the engines of a pair killed between."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint, unsigned
from artimon.model.grid import Grid
from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher, SelectError, SelectRequest
from artimon.runtime.health import read_health
from artimon.runtime.settings import child_environment
from artimon.stack.stack import Stack
from query_dsl.promql import query_store
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.e2e.ledger import comparable
from tests.e2e.stores import raw_samples
from tests.e2e.whole import ROOT
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1_500)]

MINUTE = 60_000
MINUTES = 2
KILLS = 3
LABELS = {"by": "rule", "text": 'a"b,c\\d'}
RULES = """
groups:
- name: g
  labels: {by: rule, text: 'a"b,c\\d'}
  rules:
  - {record: "NAME:time", expr: vector(time())}
  - {record: "NAME:cpus", expr: 'count by (cpu) ({"host.cpu.ms",mode="idle"})'}
"""
Held = dict[int, float]
"""Time in ms -> value."""


def rules(name: str) -> str:
    return RULES.replace("NAME", name)


def of_memory(store: VarstoreClient, name: str, end_ms: int, minutes: int = 50) -> Held:
    """Samples of a recorded series in memory: each bucket holds one."""
    request = SelectRequest((Matcher(NAME, "=", name),), Grid(end_ms, MINUTE, minutes), ("last", "last_time", "count"))
    try:
        found = store.select(request)
    except SelectError:
        return {}
    if not found.series:
        return {}
    (series,) = found.series
    assert series.labels == LABELS
    counts, times = found.statistics["count"][0], found.statistics["last_time"][0]
    assert set(counts.tolist()) <= {0, 1}
    last = found.statistics["last"].view("float64")[0]
    return {int(time): float(value) for time, value, count in zip(times, last, counts, strict=True) if count}


def of_table(hdfs: str, name: str) -> list[tuple[int, str]]:
    """Rows of a recorded series in the raw table, also those that are there twice."""
    wanted = unsigned(fingerprint(canonical(name, LABELS)))
    return sorted((one.time_ms, one.value) for one in raw_samples(hdfs, [wanted]).elements() if one.type != "ended")


def answered(stack: Stack, query: str, start_ms: int, end_ms: int) -> list[Any]:
    """Series of a range query of the API, by minutes."""
    asked = {"query": query, "start": start_ms / 1000, "end": end_ms / 1000, "step": 60}
    address = f"{stack.addresses()['ARTIMON_API']}/api/v1/query_range?{urlencode(asked)}"
    with urllib.request.urlopen(address, timeout=30) as answer:
        return list(json.load(answer)["data"]["result"])


def on_history(hdfs: str, query: str, start_ms: int, end_ms: int) -> Held:
    """The same, of one series, by the history alone."""
    with History(hdfs) as history:
        past = HistoryStore(history, engine="local")
        found = query_store(query, past, SYSTEM_CLOCK.now_ms(), start_ms=start_ms, end_ms=end_ms, step_ms=MINUTE)
    ((labels, points),) = found.series()
    assert labels == {NAME: query, **LABELS}
    return dict(points)


def test_recorded_series_are_in_memory_in_the_table_and_in_answers(whole_stack: Stack, store: VarstoreClient) -> None:
    file = whole_stack.data / "alerts" / "rules" / "recorded.yaml"
    file.write_text(rules("e2e"))
    try:
        began_ms = SYSTEM_CLOCK.now_ms()

        def held() -> Held:
            now_ms = SYSTEM_CLOCK.now_ms() // MINUTE * MINUTE
            found = of_memory(store, "e2e:time", now_ms)
            return found if len(found) >= MINUTES else {}

        found = eventually(held, seconds=120 + 60 * MINUTES, pause=1)
        times = sorted(found)[:MINUTES]
        start_ms, end_ms = times[0], times[-1]
        assert start_ms >= began_ms
        assert times == list(range(start_ms, end_ms + 1, MINUTE))
        expected = {time_ms: time_ms / 1000 for time_ms in times}
        assert {time_ms: found[time_ms] for time_ms in times} == expected
        rows = eventually(
            lambda: [row for row in of_table(whole_stack.hdfs, "e2e:time") if row[0] <= end_ms][MINUTES - 1 :] and
            [row for row in of_table(whole_stack.hdfs, "e2e:time") if row[0] <= end_ms],
            pause=2,
        )  # fmt: skip
        assert rows == [(time_ms, comparable(value)[1]) for time_ms, value in expected.items()]
        (series,) = answered(whole_stack, "e2e:time", start_ms, end_ms)
        assert series["metric"] == {NAME: "e2e:time", **LABELS}
        assert [(1000 * time, float(value)) for time, value in series["values"]] == list(expected.items())
        assert on_history(whole_stack.hdfs, "e2e:time", start_ms, end_ms) == expected
        idle = answered(whole_stack, 'count by (cpu) ({"host.cpu.ms",mode="idle"})', start_ms, end_ms)
        recorded = answered(whole_stack, "sum by (cpu) (e2e:cpus)", start_ms, end_ms)
        assert recorded == idle
        assert idle
    finally:
        file.unlink()


class Engine:
    """One engine of a pair, whose results the agent of the stack carries."""

    def __init__(self, stack: Stack, folder: Path, id: str) -> None:
        self._stack, self._folder, self.id = stack, folder, id
        self._health = folder / f"{id}.json"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        stack, folder = self._stack, self._folder
        command = [
            *(sys.executable, "-m", "artimon.cli", "alerts", "--pair", "e2e", "--id", self.id, "--lease", "4s"),
            *("--zookeeper", stack.zookeeper, "--kafka", stack.kafka, "--data", str(folder / self.id)),
            *("--rules", str(folder / "rules"), "--recordings", str(stack.data / "dropin")),
            *("--health", str(self._health)),
        ]
        with (folder / f"{self.id}.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=child_environment({}), cwd=ROOT, stdout=log, stderr=log)

    @property
    def leads(self) -> bool:
        found = read_health(self._health) if self._health.exists() else None
        alive = self._process is not None and self._process.poll() is None
        return alive and found is not None and bool(found.figures.get("pair", {}).get("leads"))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._health.unlink(missing_ok=True)


@contextmanager
def pair(stack: Stack, folder: Path) -> Iterator[list[Engine]]:
    (folder / "rules").mkdir()
    (folder / "rules" / "recorded.yaml").write_text(rules("pair"))
    engines = [Engine(stack, folder, id) for id in ("a", "b")]
    try:
        for one in engines:
            one.start()
        yield engines
    finally:
        for one in engines:
            one.kill()


def test_no_minute_is_missing_or_twice_while_engines_are_killed(
    whole_stack: Stack, store: VarstoreClient, tmp_path: Path
) -> None:
    """The leader is killed at the time at which it evaluates, and starts again as the one that follows."""
    with pair(whole_stack, tmp_path) as engines:
        first_ms = eventually(
            lambda: min(of_memory(store, "pair:time", SYSTEM_CLOCK.now_ms() // MINUTE * MINUTE), default=0),
            seconds=240, pause=1,
        )  # fmt: skip
        for turn in range(KILLS):
            leader = eventually(lambda: next((one for one in engines if one.leads), None), seconds=60)
            now_ms = SYSTEM_CLOCK.now_ms()
            time.sleep(((now_ms // MINUTE + 1) * MINUTE + 150 * turn - now_ms) / 1000)
            leader.kill()
            leader.start()
        last_ms = (SYSTEM_CLOCK.now_ms() // MINUTE + 1) * MINUTE
        found = eventually(
            lambda: (held := of_memory(store, "pair:time", last_ms)) and last_ms in held and held, seconds=240, pause=1
        )
    expected = {time_ms: time_ms / 1000 for time_ms in range(first_ms, last_ms + 1, MINUTE)}
    assert {time_ms: value for time_ms, value in found.items() if time_ms <= last_ms} == expected

    def rows() -> list[tuple[int, str]]:
        held = [row for row in of_table(whole_stack.hdfs, "pair:time") if row[0] <= last_ms]
        return held if held and held[-1][0] == last_ms else []

    assert eventually(rows, pause=2) == [(time_ms, comparable(value)[1]) for time_ms, value in expected.items()]
