"""Rules in PromQL: each series of the answer is an alert."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.evaluation.promql_answer import promql_options
from alerts.state.alert import AlertChange
from tests.alerts.test_rulefile import problems
from tests.alerts.worlds import START, World
from tests.query_dsl.plain_store import PlainStore, Sample

RULE = """
rules:
  - name: down
    promql: up{job!="x"} < 1
    for: 1m
    labels: {team: core}
    summary: "{host} of {team} is {value}"
    annotations: {runbook: "see {{ rule }} of {{ labels.host | upper }}{{ labels.team }}"}
"""
SEVERE = """
rules:
  - name: slow
    promql: avg by (host) (up)
    missing: keep
    for: 1m
    severities:
      warning: {threshold: "> 5", for: 0s}
      critical: {threshold: "> 10", resolve: "< 8"}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_every_series_of_the_answer_is_an_alert(world: World) -> None:
    world.write(RULE)
    world.tick({"a": 0, "b": 1})
    assert world.states() == {"a": "pending"}
    world.tick({"a": 0, "b": 0})
    (fired,) = world.changes()
    assert (fired.kind, fired.labels_with_name) == (
        AlertChange.FIRING,
        {"alertname": "down", "host": "a", "team": "core"},
    )
    assert fired.shown_annotations == {
        "summary": "a of core is 0",
        "value": "0",
        "reason": "",
        "runbook": "see down of A",
    }
    world.tick({"a": 1, "b": 0})
    assert world.told() == ["firing b", "resolved a"]


@pytest.mark.parametrize("similar", [False, True])
def test_settings_of_promql_hold_for_rules(world: World, monkeypatch: pytest.MonkeyPatch, similar: bool) -> None:
    monkeypatch.setenv("ARTIMON_PROMQL_SIMILAR_NAMES", str(int(similar)))
    promql_options.cache_clear()
    try:
        samples = [(START + i * 60_000 - 1, 5.0) for i in range(10)]
        world.store.add("http.errors", {"host": "a"}, samples)
        world.write("rules:\n- name: errors\n  promql: http_errors > 1\n  for: 10m\n")
        world.tick({"a": 1})
        assert world.states() == ({"a": "pending"} if similar else {})
    finally:
        promql_options.cache_clear()


def test_severities_have_thresholds_of_their_own(world: World) -> None:
    world.write(SEVERE)
    world.tick({"a": 20})
    (fired,) = world.changes()
    assert fired.labels_with_name == {"alertname": "slow", "host": "a", "severity": "warning"}
    world.tick({"a": 9})  # the hold of critical has not passed
    world.tick({"a": 20})
    world.tick({"a": 20})
    assert [one.labels_with_name["severity"] for one in world.changes()] == ["critical"]
    world.tick({"a": 9})  # above the recovery threshold of critical
    assert world.changes() == []
    world.tick({"a": 7})
    assert [(one.kind.value, one.labels_with_name["severity"]) for one in world.changes()] == [("resolved", "critical")]


def test_a_recovery_query_decides_about_the_end(world: World) -> None:
    text = "rules:\n- name: hot\n  promql: up > 10\n  labels: {team: core}\n"
    world.write(text + "  resolve_promql: up < 5\n")
    for value, told in (
        (20, ["firing a"]),
        (7, []),
        (20, []),
        (7, []),
        (4, ["resolved a"]),
        (7, []),
        (11, ["firing a"]),
    ):
        world.tick({"a": value})
        assert world.told() == told, value
    assert problems(text + "  threshold: '> 3'\n  missing: keep\n  resolve_promql: up < 5\n")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        pytest.param("vector(1)", {"": "firing"}, id="no_labels"),
        pytest.param("1 > bool 0", {"": "firing"}, id="scalar"),
        pytest.param("up * NaN", {"a": "firing"}, id="nan_is_a_value"),
        pytest.param("absent(up)", {}, id="nothing"),
        pytest.param("nowhere", {}, id="no_match"),
    ],
)
def test_values(world: World, query: str, told: dict[str, str]) -> None:
    world.write(f"rules:\n- name: down\n  promql: {query}\n")
    world.tick({"a": 3})
    assert world.error() == ""
    assert world.states() == told


def test_windows_beyond_memory_are_errors_without_a_history(world: World) -> None:
    world.write("rules:\n- name: down\n  promql: changes(up[2h]) > 0\n")
    world.tick({"a": 3})
    assert "truncated" in world.error()


class _Past(PlainStore):
    def history(self) -> _Past:
        return self


def test_windows_beyond_memory_are_read_from_the_history(world: World) -> None:
    past = _Past()
    past.add("up", {"host": "a"}, [(START - minute * 60_000, minute) for minute in range(100, 0, -1)])
    world.past = past
    world.write("rules:\n- name: down\n  promql: count_over_time(up[90m]) > 80\n")
    world.tick({"a": 3})
    assert world.error() == ""
    assert world.states() == {"a": "firing"}


def test_a_range_below_two_minutes_of_series_polled_more_often_needs_the_history(world: World) -> None:
    """Memory holds one sample of such a range; a rate of it would never have a value."""
    rule = "rules:\n- name: down\n  promql: rate(up[1m]) > 0\n"
    world.write(rule)
    world.tick({"a": 1})
    polled = [(START + at * 15_000 + 1_000, at) for at in range(20)]
    world.series("a").samples += [Sample(*one) for one in polled]
    world.tick({"a": 100})
    assert "too few for a range below two minutes" in world.error()
    world.write(rule.replace("[1m]", "[2m]"))
    world.tick({"a": 200})
    assert world.error() == ""
    past = _Past()
    past.add("up", {"host": "a"}, polled)
    world.close()
    world.past = past
    world.write(rule)
    world.start()
    world.tick({"a": 300})
    assert world.error() == ""
    assert world.states() == {"a": "firing"}


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        pytest.param("  promql: up >\n", "3:11", "promql:", id="syntax"),
        pytest.param("  promql: up[5m]\n", "3:11", "instant vector, not a matrix", id="range"),
        pytest.param("  promql: '\"x\"'\n", "3:12", "instant vector, not a string", id="text"),
        pytest.param("  promql: up\n  expr: fetch('x')\n", "2:3", "only one", id="both"),
        pytest.param("  promql: up\n  missing: keep\n", "4:3", "needs a threshold", id="missing"),
        pytest.param("  promql: up\n  resolve: '< 3'\n", "4:3", "resolve_promql", id="resolve"),
        pytest.param("  promql: up\n  threshold: '< 3'\n", "2:3", "policy for missing", id="no_policy"),
        pytest.param("  promql: up\n  missing: keep\n  severities: {a: {}}\n", "5:19", "threshold", id="severity"),
        pytest.param("  promql: up\n  annotations: {a: '{{ host }}'}\n", "4:21", "unknown name", id="annotation"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, place: str, told: str) -> None:
    found = problems(f"rules:\n- name: a\n{text}")
    assert any(one.startswith(f"f.yaml:{place}") and told in one for one in found), found
