"""Replay of a rule for the page: which rule, over which range, by whom; what it answers, and how it ends early."""

from __future__ import annotations

import json
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from alerts.evaluation import rule_replay
from artimon.api import replay_routes
from tests.alerts.test_alert_routes import EDDIE, HOSTILE, SAM, VERA, Page, page  # noqa: F401
from tests.alerts.test_silences import routed  # noqa: F401
from tests.alerts.worlds import World, rule_text
from tests.page.years import years

ONE = f"""rules:
- {{name: low, expr: "fetch('up')", threshold: "< 1", missing: resolve, summary: "{HOSTILE}"}}
"""


@pytest.fixture
def trial(page: Page, routed: World) -> Page:  # noqa: F811
    """Host a is down in minutes 2 and 3 and in minute 6."""
    for value in (1, 0, 0, 1, 1, 0, 1, 1):
        routed.tick({"a": value, "b": 1})
    return page


def replay(page: Page, user: Any = EDDIE, **body: str) -> Any:  # noqa: F811
    return page.send("POST", "replay", user, **{"from": "now-9m", **body})


def test_a_rule_in_force_is_replayed(trial: Page, tmp_path: Path) -> None:
    found = replay(trial, rule="down")
    rule = found["rule"]
    assert (rule["rule"], rule["evaluations"], rule["errors"], rule["truncated"]) == ("down", 9, [], False)
    firings = [one for one in rule["firings"] if one["labels"]["host"] == "a"]
    assert [one["duration_ms"] for one in firings][-2:] == [120_000, 60_000]
    assert firings[-1]["labels"]["severity"] == "page"
    assert rule["fired"] == len(rule["firings"])
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert any(one["action"] == "POST /api/alerts/replay" and one["user"] == "eddie" for one in audit)


def test_a_text_is_replayed_before_it_is_a_rule(trial: Page) -> None:
    assert replay(trial, text=ONE)["rule"]["fired"] >= 2
    assert replay(trial, text=ONE.replace('"< 1"', '"< -1"'))["rule"]["fired"] == 0
    two = ONE + ONE.splitlines()[1].replace("low", "other")
    assert "name one of low, other" in replay(trial, text=two)[1]
    assert replay(trial, text=two, rule="other")["rule"]["rule"] == "other"


@pytest.mark.parametrize("user", [VERA, SAM])
def test_viewers_and_roles_of_a_part_may_not(trial: Page, user: Any) -> None:
    assert replay(trial, user, rule="down")[0] == 403


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({}, 400, "give the name of a rule in force"),
        ({"rule": HOSTILE}, 404, "is in force"),
        ({"text": "rules: 5"}, 400, "rules"),
        ({"text": "#" * 70_000}, 413, "body_bytes"),
        ({"rule": "down", "from": "soon"}, 400, "soon"),
        ({"rule": "down", "from": "now-400d"}, 400, "92 days"),
        ({"rule": "down", "from": "now-1h", "to": "now-2h"}, 400, "a range from a minute"),
    ],
)
def test_bad_requests_say_what_is_wrong(trial: Page, body: dict[str, str], status: int, told: str) -> None:
    found = replay(trial, **body)
    assert found[0] == status
    assert told in found[1]


def test_the_receivers_of_the_file_are_for_administrators_only(trial: Page, routed: World) -> None:  # noqa: F811
    """The API asks with its token; what it answers holds no text of the file."""
    assert rule_text() not in json.dumps(replay(trial, rule="down"))
    assert trial.client.get("/api/alerts/rule", EDDIE, name="down").status == 404


def test_a_replay_is_listed_and_can_be_cancelled(trial: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()

    def endless(_rules: Any, _store: Any, _start: int, _end: int, _routing: Any, progress: Any) -> None:
        while True:
            began.set()
            progress(0.0, "")

    monkeypatch.setattr(replay_routes, "replay_rules", endless)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(replay, trial, rule="down")
        assert began.wait(20)
        (running,) = trial.client.get("/api/queries", EDDIE).json["queries"]
        assert (running["query"], running["user"]) == ("replay of rule down", "eddie")
        assert trial.client.send("DELETE", f"/api/queries/{running['id']}", headers=EDDIE).status == 200
        assert answer.result(20)[0] == 503


def test_too_many_firings_are_an_error(trial: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_replay, "MAX_FIRINGS", 0)
    status, text = replay(trial, rule="down")
    assert status == 413
    assert "shorter range" in text


def test_thirty_days_of_a_real_history_are_replayed(tmp_path: Path) -> None:
    """The load of one host is beyond 28 for some hours of each day."""
    text = "rules:\n- {name: hot, promql: 'avg_over_time({\"host.load\"}[2h]) > 28'}\n"
    with years(tmp_path) as address:
        body = json.dumps({"text": text}).encode()
        asked = urllib.request.Request(f"{address}/api/alerts/replay", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=120) as answer:
            rule = json.load(answer)["rule"]
    assert 29 <= rule["fired"] <= 31
    assert rule["errors"] == []
    assert {one["labels"]["host"] for one in rule["firings"]} == {HOSTILE}
    assert rule["longest_ms"] == 6 * 3_600_000
