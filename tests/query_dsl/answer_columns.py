"""One world asked in five ways: of memory, history, both (auto), offline, and by an alert rule; and of the plain
evaluator. Each way gives a Reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from alerts.evaluation import rule_evaluator
from alerts.evaluation.alert_engine import AlertEngine, EngineConfig
from alerts.evaluation.rule_answer import RULE_LIMITS
from alerts.state.alert_database import open_database
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from artimon.model.select import SelectError, Store
from query_dsl import Matrix, QueryError, evaluate, offline, parse
from query_dsl.evaluation.windows import APPROXIMATE, ROUNDED_UP
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from query_dsl.stores.query_limits import Limits
from tests.history.engine_world import put
from tests.history.world import HistoryWorld
from tests.query_dsl.plainly import Raw, Refused, World, answer
from tests.query_dsl.plainly.things import Cell, series_text
from tests.query_dsl.worlds import shards, told_of
from tests.spark.local_files import local_files

COLUMNS = ("memory", "history", "auto", "offline", "rules")
Rows = dict[str, list[Cell]]


@dataclass(frozen=True)
class Reply:
    """Values of each series, or an error. Of a rule: the newest value of each alert, by its labels alone."""

    rows: Rows = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str = ""
    whole: bool = True
    """True if the answer says of itself neither truncated nor partial, approximate or rounded."""
    times: tuple[int, ...] = ()


Ask = Callable[[str, Limits | None], Reply]


def ask_store(store: Store, now: int, text: str, limits: Limits | None = None) -> Reply:
    """Reply of a store."""
    try:
        query = parse(text)
        assert parse(str(query)).equals(query)
        return reply_of(evaluate(query, store, now, limits=limits))
    except (QueryError, SelectError) as problem:
        return Reply(error=str(problem))


def reply_of(found: Matrix) -> Reply:
    rows = {name: found.tolist(i) for i, name in enumerate(found.series)}
    doubts = [note for note in found.notes if APPROXIMATE in note or ROUNDED_UP in note]
    whole = found.complete and not found.partial and not doubts
    return Reply(rows, found.notes, "", whole, tuple(found.times))


def ask_plainly(text: str, world: World, now: int) -> Reply:
    """Reply of the second evaluator, which has neither notes nor texts of errors."""
    try:
        found = answer(text, world, now)
    except (Refused, QueryError) as problem:
        return Reply(error=f"refused: {problem}")
    return Reply(dict(zip(found.series, found.values, strict=True)), times=tuple(found.times))


def ask_rule(
    text: str, store: Store, now: int, folder: Path, past: Store | None, limits: Limits | None = None
) -> Reply:
    """The state of a rule after one evaluation; its condition holds for every number."""
    rules = folder / "rules"
    rules.mkdir(parents=True)
    told = {"name": "asked", "expr": text, "threshold": "> -1e300", "missing": "keep"}
    (rules / "rules.yaml").write_text(json.dumps({"rules": [told]}))
    database, memory, _ = open_database(folder / "data", now, lambda _step: None)
    with closing(database), pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_evaluator, "RULE_LIMITS", limits or RULE_LIMITS)
        engine = AlertEngine(
            EngineConfig("asked", rules, ("ops@example.org",)), store, database, memory, ManualClock(now), past=past
        )
        assert engine.evaluate_due()
        error = "; ".join(
            [*engine.result.problems, *(one.error for one in engine.view().results.values() if one.error)]
        )
        alerts = engine.view().alerts()
    return Reply({series_text("", one["labels"]): [one["value"]] for one in alerts}, (), error)


def offline_of(series: tuple[Raw, ...], step_ms: int) -> Any:
    """The series as drop-in files tell them: a counter has one start time, and begins anew where it falls."""
    named = {series_text(raw.name, raw.labels): raw for raw in series}
    return offline(
        {name: [(s.time, s.value) for s in raw.samples] for name, raw in named.items()},
        step=f"{step_ms}ms",
        kinds={name: raw.kind.lower() for name, raw in named.items()},
        births={name: raw.samples[0].birth for name, raw in named.items() if raw.samples},
        ended={name: raw.ended for name, raw in named.items() if raw.ended},
    )


@contextmanager
def raw_table(world: World, folder: Path) -> Iterator[HistoryStore]:
    """The world in a raw table and a series table on the local file system, read in this process."""
    with local_files(SYSTEM_CLOCK):
        made = HistoryWorld(f"file://{folder}/files")
        put(made, told_of(world), files=2)
        with History(made.hdfs) as history:
            yield HistoryStore(history, world.levels, engine="local")


def recent(world: World, now: int) -> World:
    """What shards still hold. A series that is announced, but silent for longer, is forgotten."""
    span = max(step * (count + 2) for step, count in world.levels)
    cut = [replace(raw, samples=tuple(s for s in raw.samples if s.time > now - span)) for raw in world.series]
    return replace(world, series=tuple(raw for raw in cut if raw.samples))


@contextmanager
def open_columns(world: World, now: int, folder: Path) -> Iterator[Mapping[str, Ask]]:
    """Every way to ask the world at `now`, by name; "plain" is the second evaluator."""
    with ExitStack() as stack:
        memory = shards(recent(world, now), 2)
        past = stack.enter_context(raw_table(world, folder))
        both = AutoStore(memory, lambda: past, ManualClock(now))
        lists = offline_of(world.series, world.levels[0][0])
        numbers = iter(range(1_000_000))
        stores: dict[str, Store] = {"memory": memory, "history": past, "auto": both, "offline": lists}

        def of_rule(history: Store | None, text: str, limits: Limits | None) -> Reply:
            return ask_rule(text, memory, now, folder / f"rule{next(numbers)}", history, limits)

        yield {
            **{name: partial(ask_store, store, now) for name, store in stores.items()},
            "rules": partial(of_rule, both),
            "rules without history": partial(of_rule, None),
            "plain": lambda text, _limits: ask_plainly(text, world, now),
        }
