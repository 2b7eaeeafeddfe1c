"""Any sequence of appends, compactions, crashes, expiries and sweeps leaves exactly what a plain reference holds."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from artimon.rawtable.commit import RawTable
from artimon.rawtable.schema import DAY_MS
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.merge import MergeLimits
from pipeline.compaction.plan import DAY_FILES, HOUR_FILES, ClassRetention
from tests.compaction.builder import HOUR_MS, START_MS, Builder, Ledger, Row, expected, held
from tests.spark.local_files import local_files

HOURS = 50
POINTS = ("planned", "window", "file", "written", "verified", "committed", "delete", "expire", "expired")


class Crash(Exception):
    """Stands for kill -9; tests/compaction/test_kills.py does it with real signals."""


VALUE = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=4)
)
ROW = st.tuples(st.integers(1, 3), st.integers(-3, 3), st.integers(START_MS, START_MS + 5), VALUE)
PART = st.tuples(st.integers(0, HOURS), st.sampled_from(["default", "debug"]), st.lists(ROW, min_size=1, max_size=4))
STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(PART, min_size=1, max_size=6)),
    st.tuples(st.just("settle"), st.integers(0, HOURS + 24)),
    st.tuples(st.just("turn"), st.none() | st.tuples(st.sampled_from(POINTS), st.integers(1, 3))),
    st.tuples(st.just("days"), st.integers(1, 9)),
)


class Model:
    """The table, and what it must hold: `ledger`, of which only what expired may be missing."""

    def __init__(self, hdfs: str, folder: Path) -> None:
        self.builder = Builder(f"{hdfs}/m{uuid.uuid4().hex[:10]}")
        self.clock = ManualClock(START_MS + HOURS * HOUR_MS)
        self._folder, self._settled = folder, 0
        self.ends: dict[tuple[str, str], list[int]] = {}

    def append(self, parts: list[tuple[int, str, list[Row]]]) -> None:
        self.builder.append([(START_MS + hour * HOUR_MS + 1, keep, rows) for hour, keep, rows in parts])

    def settle(self, hour: int) -> None:
        self._settled = max(self._settled, hour)
        self.builder.settle(START_MS + self._settled * HOUR_MS)

    def days(self, number: int) -> None:
        self.clock.advance(number * DAY_MS)

    def turn(self, crash: tuple[str, int] | None) -> None:
        met = 0

        def probe(here: str) -> None:
            nonlocal met
            met += crash is not None and here == crash[0]
            if crash is not None and met == crash[1]:
                raise Crash(here)

        config = CompactorConfig(
            "",
            self.builder.hdfs,
            self._folder,
            keeping=ClassRetention({"debug": 7}),
            limits=MergeLimits(4, fan_in=2),
            sweep_s=0.0,
        )
        made = Compactor(config, None, self.clock, probe)
        try:
            made.run_due(threading.Event())
        except Crash:
            return
        live = made.figures()["live"]
        assert live["closed_hour"] <= HOUR_FILES
        assert live["day"] <= DAY_FILES

    def check(self) -> None:
        found = held(self.builder.table.uri)
        assert found <= expected(self.builder.ledger)
        assert found >= expected(self._young())
        assert RawTable(self.builder.hdfs).head()[1].key == self.builder.state.key

    def _young(self) -> Ledger:
        """Return the rows that cannot have expired."""
        limit = self.clock.now_ms() - 7 * DAY_MS
        return Ledger({k: n for k, n in self.builder.ledger.items() if k[0] != "debug" or _append_ms(k[1]) >= limit})


def _append_ms(text: str) -> int:
    return int(text[1:].split(",")[0]) * HOUR_MS


def _play(hdfs: str, folder: Path, steps: list[tuple[str, Any]]) -> None:
    model = Model(hdfs, folder)
    for name, argument in steps:
        getattr(model, name)(argument)
        model.check()
    model.settle(HOURS + 24)
    model.turn(None)
    model.check()


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=3, max_size=8))
def test_the_table_holds_what_was_appended(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    with local_files(SYSTEM_CLOCK):
        _play(f"file://{tmp_path_factory.mktemp('files')}", tmp_path_factory.mktemp("runs"), steps)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=5, max_size=30))
def test_the_same_at_length(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]) -> None:
    with local_files(SYSTEM_CLOCK):
        _play(f"file://{tmp_path_factory.mktemp('files')}", tmp_path_factory.mktemp("runs"), steps)


@pytest.mark.slow
@pytest.mark.stack
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=3, max_size=8))
def test_the_same_on_hdfs(hdfs: str, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]) -> None:
    _play(hdfs, tmp_path_factory.mktemp("runs"), steps)
