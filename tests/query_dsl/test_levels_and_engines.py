"""No answer depends on the level or the engine that served it: random queries over random series, asked at every level
of memory, history, both (auto) and lists. Answers that say of themselves that they are whole are equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from artimon.model.select import Store
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.engine_store import EngineStore, ForwardingStore, as_engine_store
from query_dsl.stores.levels import FINEST_SPARE_ROWS, SETTLE_MS, SPARE_ROWS
from query_dsl.stores.query_limits import QueryBudget
from tests.query_dsl.answer_columns import Reply, ask_store, raw_table, recent
from tests.query_dsl.asking import agree
from tests.query_dsl.level_questions import MINUTE, T, question, some_series
from tests.query_dsl.plainly import World
from tests.query_dsl.plainly.things import Cell
from tests.query_dsl.test_plain_evaluator import SHARD_LEVELS
from tests.query_dsl.worlds import offline_store, shards
from tests.seeds import fixed_and_drawn

NOW = T + SETTLE_MS
NAMES = ("1m", "5m", "15m", "1h")


@dataclass(frozen=True, slots=True)
class OneLevel(ForwardingStore):
    """A store of which only one level is known, so that every query reads this level."""

    store: EngineStore
    level: tuple[int, int]

    def levels(self) -> tuple[tuple[int, int], ...]:
        """The only level counts as the finest one, which has more spare rows than the others."""
        step, count = self.level
        return ((step, count if step == MINUTE else count + SPARE_ROWS - FINEST_SPARE_ROWS),)

    def watching(self, watch: QueryBudget) -> OneLevel:
        return replace(self, store=self.store.watching(watch))


@contextmanager
def open_stores(world: World, folder: Path) -> Iterator[Mapping[str, Store]]:
    """Every engine with all levels, and with each of them alone."""
    with raw_table(world, folder) as past:
        memory = as_engine_store(shards(recent(world, NOW), 2))
        found: dict[str, Store] = {"memory": memory, "history": past, "auto": both(memory, past)}
        for name, level in zip(NAMES, world.levels, strict=True):
            near, far = OneLevel(memory, level), OneLevel(past, level)
            found |= {f"memory {name}": near, f"history {name}": far, f"auto {name}": both(near, far)}
            found[f"offline {name}"] = offline_store(replace(world, levels=(level,)))
        yield found


def both(memory: EngineStore, past: EngineStore) -> AutoStore:
    return AutoStore(memory, lambda: past, ManualClock(NOW))


def differences(replies: Mapping[str, Reply]) -> list[Any]:
    """(store, store, series, time, values) where two whole answers differ at a time that both have."""
    whole = {name: reply for name, reply in replies.items() if reply.whole and not reply.error}
    return [
        (a, b, *found)
        for (a, x), (b, y) in combinations(whole.items(), 2)
        for found in _between(_points(x), _points(y))
    ]


def _points(reply: Reply) -> dict[int, dict[str, Cell]]:
    """Values by time and series, without those that are missing."""
    return {
        time: {name: row[i] for name, row in reply.rows.items() if row[i] is not None}
        for i, time in enumerate(reply.times)
    }


def _between(a: dict[int, dict[str, Cell]], b: dict[int, dict[str, Cell]]) -> list[Any]:
    return [
        (series, time - T, a[time].get(series), b[time].get(series))
        for time in a.keys() & b.keys()
        for series in a[time].keys() | b[time].keys()
        if not agree(a[time].get(series), b[time].get(series))
    ]


def check(seed: int, questions: int, folder: Path) -> None:
    random = Random(seed)
    world = World(some_series(random), SHARD_LEVELS)
    compared = 0
    with open_stores(world, folder) as stores:
        for text in (question(random) for _ in range(questions)):
            replies = {name: ask_store(store, NOW, text) for name, store in stores.items()}
            found = differences(replies)
            assert not found, (text, len(found), found[:5])
            compared += sum(reply.whole and not reply.error for reply in replies.values())
    assert compared > questions  # most questions of some seeds are errors everywhere


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "levels and engines"))
def test_no_answer_depends_on_the_level_or_engine_that_served_it(seed: int, tmp_path: Path) -> None:
    check(seed, 14, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", fixed_and_drawn([2, 3, 4], "levels and engines at length", 10))
def test_no_answer_depends_on_the_level_or_engine_at_length(seed: int, tmp_path: Path) -> None:
    check(seed, 60, tmp_path)
