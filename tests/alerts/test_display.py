"""Display of alerts: bounded, valid JSON, the most important first; read back and merged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from alerts.state.publication import ALERTS_PATH, MAX_BYTES, encode_display, read_alerts
from artimon.runtime.zookeeper_client import EphemeralNode, zookeeper_client
from tests.alerts.worlds import MINUTE, World, rule_text
from tests.waiting import eventually


def test_the_display_holds_what_was_agreed(world: World) -> None:
    world.write(rule_text("1m"))
    world.tick({"a": 0, "b": float("nan")})
    world.tick({"a": 0, "b": 0})
    shown = json.loads(world.engine.display({"pending": 1, "sent": 0, "problem": ""}))
    assert (shown["id"], shown["time_ms"], shown["truncated"]) == ("test", world.time, 0)
    assert shown["mail"]["pending"] == 1
    (rule,) = shown["rules"]
    assert {**rule, "duration_ms": 0} == {
        "name": "down", "file": "rules.yaml", "line": 3, "expr": "fetch('up')", "threshold": "< 1", "for_ms": 60_000,
        "keep_firing_for_ms": 0, "state": "firing", "error": "", "duration_ms": 0, "receivers": [], "lang": "artimon",
        "labels": {"severity": "page"},
    }  # fmt: skip
    first, second = shown["alerts"]
    assert (first["state"], second["state"], second["labels"]["host"]) == ("firing", "pending", "b")
    assert first["summary"] == "a is 0"
    assert first["link"] == "http://127.0.0.1:8780/?q=fetch%28%27up%27%29"
    assert {"rule", "labels", "state", "since_ms", "fired_ms", "resolved_ms", "value", "summary", "link"} <= set(first)


def test_nan_is_shown_as_text(world: World) -> None:
    world.write(rule_text().replace('"< 1"', '"!= 1"'))
    world.tick({"a": float("nan")})
    shown = json.loads(world.engine.display({}))
    assert shown["alerts"][0]["value"] == "NaN"


def test_recording_rules_and_annotations_are_shown(world: World, tmp_path: Path) -> None:
    """A recording rule with its last evaluation; the templates of annotations as they were written."""
    world.recordings = tmp_path
    world.write(rule_text(), "own.yaml")
    world.write(PROMETHEUS_RULES)
    world.tick({"a": 1, "b": 2})
    shown = json.loads(world.engine.display({}))
    good, wrong, rare = shown["recordings"]
    assert good.pop("duration_ms") > 0
    assert good == {
        "name": "rules.yaml/g/up:sum", "record": "up:sum", "file": "rules.yaml", "line": 5, "expr": "sum(up)",
        "error": "", "time_ms": world.time, "group": "g", "labels": {"site": "paris"},
    }  # fmt: skip
    assert ("same labelset" in wrong["error"], wrong["time_ms"]) == (True, world.time)
    assert (rare["error"], rare["time_ms"], rare["interval_ms"]) == ("", world.time, 180_000)
    assert dict(shown["annotations"]) == {
        "down": {"summary": "{host} is {value}"},
        "rules.yaml/g/Bad": {"summary": "{{ $value }} of {{ $labels.host }}", "runbook": "https://example.org"},
        "rules.yaml/g/Bare": {"summary": "{rule}: {value}"},
    }
    world.tick({"a": 1, "b": 2})
    last = {one["record"]: one["time_ms"] for one in json.loads(world.engine.display({}))["recordings"]}
    assert last == {"up:sum": world.time, "up:odd": world.time, "up:rare": world.time - MINUTE}


def test_recording_rules_that_cannot_be_stored_say_why(world: World) -> None:
    world.write(PROMETHEUS_RULES)
    world.tick({"a": 1})
    first = json.loads(world.engine.display({}))["recordings"][0]
    assert (first["time_ms"], "give --recordings" in first["error"]) == (0, True)


def test_annotations_leave_room_for_rules_and_alerts() -> None:
    one, long = {"name": "x" * 100}, ["a", {"summary": "y" * 1_000}]
    ones = [one] * 9_000

    def shown(rules: int, alerts: int, annotations: int) -> dict[str, Any]:
        data = encode_display({}, ones[:rules], ones[:alerts], recordings=ones, annotations=[long] * annotations)
        assert len(data) <= MAX_BYTES
        found: dict[str, Any] = json.loads(data)
        return found

    many = shown(9_000, 9_000, 9_000)
    assert (many, many["annotations"]) == (shown(9_000, 9_000, 0), [])
    assert many["truncated"] == 27_000 - len(many["rules"]) - len(many["alerts"])
    few = shown(1, 1, 9_000)
    assert (len(few["rules"]), len(few["alerts"]), len(few["annotations"]) > 400) == (1, 1, True)
    assert few["truncated"] == 9_000 - len(few["recordings"]) > 0


@pytest.mark.parametrize(("rules", "alerts"), [(10_000, 10_000), (10_000, 1), (1, 10_000)])
def test_the_display_is_bounded_and_counts_what_it_leaves_out(rules: int, alerts: int) -> None:
    one = {"name": "é" * 50, "text": "x" * 100}
    data = encode_display({"id": "a"}, [one] * rules, [one] * alerts)
    shown = json.loads(data)
    assert len(data) <= MAX_BYTES
    assert shown["truncated"] == rules + alerts - len(shown["rules"]) - len(shown["alerts"])
    assert min(len(shown["rules"]), len(shown["alerts"])) >= 1


PROMETHEUS_RULES = """groups:
- name: g
  labels: {site: paris}
  rules:
  - {record: "up:sum", expr: sum(up)}
  - {record: "up:odd", expr: up, labels: {host: x}}
  - alert: Bad
    expr: up > 5
    annotations: {summary: "{{ $value }} of {{ $labels.host }}", runbook: "https://example.org"}
  - {alert: Bare, expr: up > 5}
- name: slow
  interval: 3m
  rules:
  - {record: "up:rare", expr: sum(up)}
"""


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    """A client of a folder of its own."""
    root = zookeeper_client(zookeeper)
    root.start(timeout=60)
    root.ensure_path("/h6.display")
    made = zookeeper_client(f"{zookeeper}/h6.display")
    made.start(timeout=60)
    yield made
    root.delete("/h6.display", recursive=True)
    for one in (made, root):
        one.stop()
        one.close()


@pytest.mark.stack
def test_engines_are_read_back_and_merged(client: KazooClient, world: World) -> None:
    assert "no alert engine runs" in read_alerts(client)["problem"]
    world.write(rule_text())
    world.tick({"a": 0})
    registration = EphemeralNode(client, f"{ALERTS_PATH}/one", world.engine.display({"pending": 1}))
    registration.start()
    eventually(lambda: registration.registered)
    found = read_alerts(client)
    assert [found["problem"], found["truncated"], len(found["rules"]), len(found["alerts"])] == ["", 0, 1, 1]
    assert (found["rules"][0]["annotations"], found["recordings"]) == ({"summary": "{host} is {value}"}, [])
    assert found["engines"] == [
        {"id": "test", "time_ms": world.time, "mail": {"pending": 1}, "problems": [], "api": "", "pair": {}}
    ]
    world.tick({"a": 1})
    registration.update(world.engine.display({"pending": 2}))
    eventually(lambda: read_alerts(client)["engines"][0]["mail"]["pending"] == 2)
    client.create(f"{ALERTS_PATH}/two", b'{"id": 5', ephemeral=True)
    assert "engine two cannot be read" in read_alerts(client)["problem"]
    assert len(read_alerts(client)["alerts"]) == 1
    registration.stop()
    assert read_alerts(client)["engines"] == []


def test_without_zookeeper_there_is_a_reason() -> None:
    client = zookeeper_client("127.0.0.1:1")
    found = read_alerts(client)
    assert "cannot list the alert engines" in found["problem"]
    client.close()
