"""Replay of rules over the history: the firings and messages of the engine that evaluates minute by minute."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alerts.evaluation import replay_answers, rule_replay
from alerts.evaluation.dispatch_state import routing_of
from alerts.evaluation.replay_answers import ChunkStore
from alerts.evaluation.replay_report import comparison_json
from alerts.evaluation.rule_replay import Replay, replay_rules
from alerts.rules.rule_file import parse_rules
from alerts.rules.rule_folder import ActiveRules
from alerts.state.alert import AlertChange
from artimon.cli.program import app
from artimon.cli.replay_output import ReplayOptions, run_replay
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import canonical
from artimon.model.values import Kind, Value, ValueType
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from query_dsl.stores.query_limits import Limits
from query_dsl.tree.times import format_time
from tests.alerts.worlds import MINUTE, START, World
from tests.history.world import HistoryWorld
from tests.series.world import block
from tests.spark.local_files import local_files

MINUTES = 120
SOURCE = "plc/a/0"
Timeline = Mapping[tuple[str, str], list[Value | None]]
"""(name, host) -> value of each minute, None: no sample."""

RULES = """rules:
- {name: keep, expr: "fetch('up')", threshold: "< 1", for: 2m, missing: keep}
- {name: fire, expr: "fetch('up')", threshold: "< 1", for: 3m, missing: fire}
- {name: resolve, expr: "fetch('temp')", threshold: "> 30", resolve: "< 25", missing: resolve}
- {name: window, expr: "fetch('temp').map('mean', '5m')", threshold: "> 28", keep_firing_for: 4m, missing: keep}
- {name: coarse_level, expr: "fetch('temp').map('max', '90m')", threshold: "> 22", missing: resolve}
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

GROUPS = """groups:
- name: slow
  interval: 5m
  query_offset: 1m
  rules:
  - {alert: Down, expr: up < 1, for: 5m, labels: {severity: page}}
  - {alert: Hot, expr: temp > 28, keep_firing_for: 10m}
"""


def rising(seed: int = 1) -> Timeline:
    """Values of three hosts with outages, gaps and a series that is gone for an hour."""
    chance = random.Random(seed)
    found: dict[tuple[str, str], list[Value | None]] = {}
    for host in ("a", "b", "c"):
        up: list[Value | None] = []
        temp: list[Value | None] = []
        level = 20.0
        down = 0
        for minute in range(MINUTES):
            down = max(0, down - 1) or (chance.randint(1, 20) if chance.random() < 0.06 else 0)
            level = min(50.0, max(10.0, level + chance.uniform(-6, 6)))
            gone = (host == "c" and 50 <= minute < 80) or chance.random() < 0.05
            up.append(None if gone else float(down == 0))
            temp.append(None if gone else round(level, 3))
        found["up", host], found["temp", host] = up, temp
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Folder with a history of `rising`."""
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
        yield made.hdfs


@pytest.fixture(scope="module")
def past(place: str) -> Iterator[HistoryStore]:
    with History(place) as history:
        yield HistoryStore(history, engine="local")


Change = tuple[AlertChange, str, tuple[tuple[str, str], ...], int, int]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Engine that has evaluated the rules minute by minute."""
    world = World(tmp_path_factory.mktemp("live"))
    world.write(RULES)
    world.write(GROUPS, "groups.yaml")
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


def replayed(store: HistoryStore, *texts: str, minutes: int = MINUTES) -> Replay:
    parsed = [parse_rules(text, name) for text, name in zip(texts, ("rules.yaml", "groups.yaml"), strict=False)]
    rules = {rule.name: rule for file in parsed for rule in file.rules}
    routing = routing_of(ActiveRules(rules, {"default": ("mail:ops@example.org",)}))
    return replay_rules(rules, store, START, START + minutes * MINUTE, routing)


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


@pytest.fixture(scope="module")
def whole(past: HistoryStore) -> Replay:
    return replayed(past, RULES, GROUPS)


def test_a_replay_tells_what_the_engine_told(whole: Replay, live: World) -> None:
    letters, told = live.engine.letters_made, changes_told(live)
    changes = changes_of(whole)
    for report in whole.rules:
        name = report.rule.name
        own = {one for one in told if one[1] == name}
        assert {one for one in changes if one[1] == name} == own, name
        assert own or name == "same_labels", name
        assert bool(report.errors) == bool(live.error(name)), name
        assert report.evaluations == MINUTES // (report.rule.interval_ms // MINUTE)
    assert whole.pages == letters


def test_an_alert_lives_through_the_borders_of_chunks(
    whole: Replay, past: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_replay, "DAY_MS", 41 * MINUTE)
    found = replayed(past, RULES, GROUPS)
    for one, expected in zip(found.rules, whole.rules, strict=True):
        assert (one.firings, one.evaluations) == (expected.firings, expected.evaluations)
        assert bool(one.errors) == bool(expected.errors)
    assert found.pages == whole.pages


def test_a_range_beyond_the_limits_is_halved(
    whole: Replay, past: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The samples of all hosts in the whole range are more than the limit, those of a third are not."""
    monkeypatch.setattr(replay_answers, "REPLAY_LIMITS", Limits(samples=100))
    rules = "rules:\n" + "".join(
        f"{line}\n" for line in RULES.splitlines() if "name: keep" in line or "name: promql," in line
    )
    assert "samples" in str(replayed(past, rules).rules[0].error_lines()[0])
    monkeypatch.setattr(rule_replay, "MIN_PIECE_MS", MINUTE)
    found = replayed(past, rules)
    assert [one.errors for one in found.rules] == [{}, {}]
    of = {one.rule.name: one.firings for one in whole.rules}
    assert {one.rule.name: one.firings for one in found.rules} == {name: of[name] for name in ("keep", "promql")}


def test_a_rule_that_cannot_be_answered_is_named_with_its_place(past: HistoryStore) -> None:
    rules = "rules:\n- {name: r, promql: \"up + on(host) group_left() {host!=''}\"}\n"
    found = replayed(past, rules)
    (line,) = found.rules[0].error_lines()
    assert line.startswith(
        f"rules.yaml:2: rule r: {MINUTES} of {MINUTES} evaluations failed, first at 2027-01-15T08:01"
    )
    assert found.rules[0].failed == MINUTES
    assert found.pages == 0


def test_two_versions_of_a_file_are_compared(past: HistoryStore) -> None:
    rule = "- {{name: {}, expr: \"fetch('up')\", threshold: '< 1', for: {}, missing: keep}}\n"
    before = replayed(past, "rules:\n" + rule.format("down", "0s") + rule.format("old", "0s"))
    after = replayed(past, "rules:\n" + rule.format("down", "4m") + rule.format("new", "0s"))
    found = comparison_json(before, after)
    assert (found["rules_only_before"], found["rules_only_after"]) == (["old"], ["new"])
    (down,) = found["rules"]
    assert down["before"]["fired"] - down["after"]["fired"] == len(down["firings_only_before"]) > 0
    assert down["firings_only_after"] == []
    assert all(one["duration_ms"] <= 4 * MINUTE for one in down["firings_only_before"])
    assert down["before"]["total_ms"] > down["after"]["total_ms"] > 0


def test_the_command_prints_a_table_json_and_differences(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other = tmp_path / "rules.yaml", tmp_path / "other.yaml"
    same = next(line for line in RULES.splitlines() if "same_labels" in line)
    file.write_text(f"rules:\n{same}\n")
    other.write_text(GROUPS)
    end = format_time(START + 24 * 60 * MINUTE)
    options = ReplayOptions([other], [], format_time(START), end, None, place, None)
    assert run_replay(replace(options, files=[file])) == 1
    told = capsys.readouterr()
    assert "the replay ends at 2027-01-15T09:59:00Z" in told.err
    assert f"{file}:2: rule same_labels: " in told.err
    assert "same_labels" in told.out
    assert run_replay(options, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(one["fired"] for one in found["rules"]) > 0
    assert run_replay(options) == 0
    assert f"{found['pages']} pages" in capsys.readouterr().out
    run_replay(replace(options, compare=[file]))
    told = capsys.readouterr()
    assert "/slow/Down" in told.out
    assert "+ rule same_labels" in told.out


def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    wrong = CliRunner().invoke(app, ["rules", "replay", str(tmp_path / "none.yaml"), "--data", str(tmp_path)])
    assert (wrong.exit_code, "none.yaml" in wrong.stderr) == (1, True)


def test_ctrl_c_ends_a_replay(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    monkeypatch.setattr(ChunkStore, "__init__", pressed)
    options = ReplayOptions([file], [], format_time(START), format_time(START + 60 * MINUTE), None, place, None)
    assert run_replay(options) == 130
