"""Replay of rules over the history: the firings and messages of the engine that evaluates minute by minute."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest

from alerts.dispatch.routes import Integration, Routing
from alerts.evaluation.rule_replay import Replay, replay_rules
from alerts.rules.rule_file import DEFAULT_RECEIVER, parse_rules
from alerts.state.alert import AlertChange
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import canonical
from artimon.model.values import Kind, Value, ValueType
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.alerts.worlds import MINUTE, START, World
from tests.history.world import HistoryWorld
from tests.series.world import block
from tests.spark.local_files import local_files

MINUTES = 240
SOURCE = "plc/a/0"
Timeline = Mapping[tuple[str, str], list[Value | None]]
"""(name, host) -> value of each minute, None: no sample."""

RULES = """rules:
- {name: keep, expr: "fetch('up')", threshold: "< 1", for: 2m, missing: keep}
- {name: fire, expr: "fetch('up')", threshold: "< 1", for: 3m, missing: fire}
- {name: resolve, expr: "fetch('temp')", threshold: "> 30", resolve: "< 25", missing: resolve}
- {name: window, expr: "fetch('temp').map('mean', '5m')", threshold: "> 28", keep_firing_for: 4m, missing: keep}
- {name: coarse_level, expr: "fetch('temp').map('max', '2h')", threshold: "> 45", missing: resolve}
- {name: reduced, expr: "fetch('up').sum(by=[])", threshold: "< 2", missing: keep, labels: {team: x}}
- {name: joined, expr: "fetch('temp') * fetch('up')", threshold: "> 30", missing: resolve}
- {name: absent, expr: "absent('up{host=\\"c\\"}')", threshold: "== true", for: 1m, missing: resolve}
- {name: flapping, expr: "fetch('temp')", threshold: "> 24", missing: resolve, flapping: {ends: 2, within: 20m}}
- {name: severities, expr: "fetch('temp')", missing: keep,
   severities: {warning: {threshold: "> 25"}, page: {threshold: "> 35", for: 2m}}}
- {name: each_time, expr: "fetch('temp').filter('last', '>', 20)", threshold: "> 25", missing: resolve}
- {name: same_labels, expr: "fetch('{host=~\\".+\\"}')", threshold: "< 1", missing: resolve}
- {name: promql, promql: "up < 1", for: 2m}
- {name: promql_window, promql: "avg_over_time(temp[10m]) > 26", keep_firing_for: 3m}
- {name: promql_absent, promql: 'absent(up{host="c"})', for: 2m}
- {name: promql_recovery, promql: "temp > 30", resolve_promql: "temp < 22"}
- {name: promql_threshold, promql: "max by (host) (temp)", threshold: "> 30", missing: keep}
- {name: promql_templates, promql: "temp > 30", labels: {level: "{{ 'high' if value > 40 else 'low' }}"}}
- {name: greatest, expr: "fetch('temp').topk(1, by=[])", threshold: "> 25", missing: resolve}
- {name: coarse_buckets, expr: "fetch('temp').bucketize('mean', '5m').at('now')", threshold: "> 25", missing: resolve}
"""


def rising(seed: int = 1) -> Timeline:
    """Values of three hosts with outages, gaps and a series that is gone for an hour."""
    chance = random.Random(seed)
    found: dict[tuple[str, str], list[Value | None]] = {}
    for host in ("a", "b", "c"):
        up, temp, level = [], [], 20.0
        down = 0
        for minute in range(MINUTES):
            down = max(0, down - 1) or (chance.randint(1, 20) if chance.random() < 0.03 else 0)
            level = min(50.0, max(10.0, level + chance.uniform(-3, 3)))
            gone = (host == "c" and 120 <= minute < 180) or chance.random() < 0.05
            up.append(None if gone else float(down == 0))
            temp.append(None if gone else round(level, 3))
        found["up", host], found["temp", host] = up, temp
    return found


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HistoryStore]:
    """History of `rising` on a local folder."""
    with local_files(SYSTEM_CLOCK):
        made = HistoryWorld(f"file://{tmp_path_factory.mktemp('history')}")
        timeline = rising()
        texts = [canonical(name, {"host": host}) for name, host in timeline]
        made.announce([block(SOURCE, 0, 1, texts, type=ValueType.DOUBLE, kind=Kind.GAUGE)])
        for hour in range(0, MINUTES, 60):
            rows = [
                (SOURCE, canonical(name, {"host": host}), START + (minute + 1) * MINUTE - 10_000, value)
                for (name, host), values in timeline.items()
                for minute, value in enumerate(values[hour : hour + 60], hour)
                if value is not None
            ]
            made.append(START + (hour + 60) * MINUTE, rows)
        with History(made.hdfs) as history:
            yield HistoryStore(history, engine="local")


Change = tuple[AlertChange, str, tuple[tuple[str, str], ...], int, int]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Engine that has evaluated the rules minute by minute."""
    world = World(tmp_path_factory.mktemp("live"))
    world.write(RULES)
    timeline = rising()
    for minute in range(MINUTES):
        world.time += MINUTE
        world.clock.advance(MINUTE)
        for (name, host), values in timeline.items():
            if (value := values[minute]) is not None:
                world.put({host: value}, name)
        assert world.engine.evaluate_due()
    yield world
    world.close()


def replayed(store: HistoryStore, rules: str, minutes: int = MINUTES) -> Replay:
    parsed = parse_rules(rules, "rules.yaml")
    routing = Routing(DEFAULT_RECEIVER, {DEFAULT_RECEIVER: (Integration("mail:ops@example.org"),)})
    return replay_rules({one.name: one for one in parsed.rules}, store, START, START + minutes * MINUTE, routing)


def changes_told(world: World) -> set[Change]:
    return {(one.kind, one.rule, one.labels, one.fired_ms, one.resolved_ms) for one in world.changes()}


def changes_of(found: Replay) -> set[Change]:
    changes: set[Change] = set()
    for report in found.rules:
        for one in report.firings:
            changes.add((AlertChange.FIRING, report.rule.name, one.labels, one.fired_ms, 0))
            if one.resolved_ms:
                changes.add((AlertChange.RESOLVED, report.rule.name, one.labels, one.fired_ms, one.resolved_ms))
    return changes


def test_a_replay_tells_what_the_engine_told(past: HistoryStore, live: World) -> None:
    letters, told = live.engine.letters_made, changes_told(live)
    found = replayed(past, RULES)
    changes = changes_of(found)
    for report in found.rules:
        name = report.rule.name
        own = {one for one in told if one[1] == name}
        assert {one for one in changes if one[1] == name} == own, name
        assert own or name == "same_labels", name
        assert bool(report.errors) == bool(live.error(name)), name
        assert report.evaluations == MINUTES
    assert found.pages == letters
