"""Model test of exactly-once: after random events on log, drivers and table, the table holds exactly the rows that a
plain reading of the log gives, and claims no more offsets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from artimon.model import sample_columns
from artimon.model.batch import BatchHeader
from artimon.model.clock import ManualClock
from artimon.rawtable.schema import sources_uri
from artimon.rawtable.sources import read_sources
from pipeline.spark import message_checks as messages
from pipeline.spark import raw_query
from pipeline.spark.raw_task import RawPlan, run_raw
from tests.spark.local_files import local_files
from tests.spark.world import START_MS, World, play

USUAL = ["send", "send", "send", "step", "step", "release", "make", "repeat", "time", "hear", "compact"]
RARE = [
    *("garbage", "epoch", "restart", "fail", "unwritable", "unburied", "kill", "race", "oversleep"),
    *("recreate", "trim", "cut", "elect", "hide", "mend", "replay"),
]
NUMBER = st.integers(0, 419)
EVENT = st.tuples(st.sampled_from(USUAL) | st.sampled_from(RARE), NUMBER, NUMBER, NUMBER)


@contextmanager
def make_world() -> Iterator[World]:
    clock = ManualClock(START_MS)
    decode = sample_columns.decode_columns
    with (
        tempfile.TemporaryDirectory(prefix="artimon-model-") as folder,
        local_files(clock) as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        world = World(Path(folder), clock, client)

        def decode_with_defect(header: BatchHeader, value: bytes) -> object:
            world.refuse_buggy(header)
            return decode(header, value)

        patch.setattr(messages, "decode_columns", decode_with_defect)
        yield world


def run(events: list[tuple[str, int, int, int]]) -> None:
    with make_world() as world:
        play(world, events)


SENDS = [("send", 0, 0, 1)] * 4
CUT_AND_GROWN = [*SENDS, ("step", 0, 4, 0), ("cut", 0, 2, 4), ("cut", 1, 2, 4), ("cut", 2, 2, 4)]
"""The log lost its end and is longer than before: the offsets alone do not show it."""

CUT_UNREAD = [("send", 0, 0, 0)] * 34 + [("step", 0, 0, 0), ("cut", 0, 0, 0)]
"""The lost end of the log was known but not read yet; agents must still be informed."""

AFTER_90_DAYS = [("time", 18, 0, 0), ("time", 15, 0, 0), ("time", 24, 0, 0)]
FROM_THE_FUTURE = [("send", 0, 0, 4), ("step", 0, 4, 0), *AFTER_90_DAYS, ("send", 1, 0, 1), ("step", 0, 4, 0)]
"""An agent whose clock is two days ahead, and whose lane is silent for more than 90 days."""


@pytest.mark.timeout(900)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(EVENT, min_size=3, max_size=30))
@example(CUT_AND_GROWN)
@example([*CUT_AND_GROWN, ("elect", 0, 0, 0), ("recreate", 0, 0, 0)])
@example(CUT_UNREAD)
@example([*SENDS, ("oversleep", 0, 0, 0)])
@example([("send", 0, 2, 3), *SENDS, ("step", 0, 4, 0), ("replay", 0, 1, 1), ("replay", 0, 1, 1)])
@example([*FROM_THE_FUTURE, ("repeat", 0, 0, 0), ("step", 0, 4, 0)])
def test_the_table_is_exact_after_random_events(events: list[tuple[str, int, int, int]]) -> None:
    run(events)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(EVENT, min_size=10, max_size=60))
def test_the_table_is_exact_after_long_histories(events: list[tuple[str, int, int, int]]) -> None:
    run(events)


def test_a_new_source_in_an_append_runs_its_tasks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    appends: list[int] = []

    def counted(plan: RawPlan, batches: Iterable[Any]) -> Iterator[Any]:
        appends.append(plan.append)
        return run_raw(plan, batches)

    monkeypatch.setattr(raw_query, "run_raw", counted)
    with make_world() as world:
        for number in (0, 4, 9):  # each of another source
            world.send(0, number, 3)
            world.drivers[0].step(10, 1)
        world.check_rows()
        assert set(read_sources(sources_uri(world.uri)).values()) == {"s/0", "s/1", "s/2"}
    assert len(appends) == len(set(appends)) == 3, appends
