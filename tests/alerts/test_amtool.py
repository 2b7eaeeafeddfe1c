"""Alertmanager's own client amtool works with the API of an engine: every command that talks to a server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from tests.alerts.api_client import ApiClient, api_of, time_text
from tests.alerts.worlds import MINUTE, World, rule_text
from tests.programs import require

pytestmark = [pytest.mark.programs]
ROUTING = """
route:
  receiver: ops
  group_by: [alertname]
  group_wait: 0s
  routes:
    - matchers: [severity="page"]
      receiver: night
receivers:
  - name: ops
    webhook_configs: [{url: "http://127.0.0.1:1/hook/secret-path"}]
  - name: night
    webhook_configs: [{url: "http://127.0.0.1:1/night"}]
"""


class Amtool:
    """Command line of amtool for an API."""

    def __init__(self, client: ApiClient, team: World, folder: Path) -> None:
        self._program, self._client, self._team, self._folder = require("amtool"), client, team, folder

    def __call__(self, *arguments: str, code: int = 0) -> str:
        url = f"--alertmanager.url=http://{self._client.address}"
        command = [str(self._program.path), url, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, cwd=self._folder, env={"HOME": str(self._folder)}
        )
        clock = self._team.clock  # amtool has the clock of the system, and that of the world stands still
        clock.advance(SYSTEM_CLOCK.now_ms() - clock.now_ms())
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout + (done.stderr if code else "")


@pytest.fixture
def team(world: World) -> World:
    """Two alerts fire, at the time of the system: amtool sends its own."""
    world.routing = world.folder / "am.yml"
    world.routing.write_text(ROUTING)
    world.write(rule_text())
    world.clock.advance(SYSTEM_CLOCK.now_ms() - world.clock.now_ms())
    world.time = (world.clock.now_ms() - 15_000) // MINUTE * MINUTE - MINUTE
    world.clock.advance(-MINUTE)
    world.tick({"a": 0, "b": 0})
    return world


@pytest.fixture
def amtool(team: World, tmp_path: Path) -> Iterator[Amtool]:
    with api_of(team) as client:
        yield Amtool(client, team, tmp_path)


def test_alerts_are_listed(amtool: Amtool) -> None:
    shown = json.loads(amtool("alert", "query", "-o", "json"))
    assert sorted(one["labels"]["host"] for one in shown) == ["a", "b"]
    assert {one["receivers"][0]["name"] for one in shown} == {"night"}
    assert "down" in amtool("alert", "query")
    (one,) = json.loads(amtool("alert", "query", 'host="b"', "-o", "json"))
    assert one["annotations"]["summary"] == "b is 0"
    assert json.loads(amtool("alert", "query", "host=~x.*", "-o", "json")) == []
    assert json.loads(amtool("alert", "query", "--receiver", "ops", "-o", "json")) == []


def test_a_silence_is_added_changed_and_expired(team: World, amtool: Amtool) -> None:
    id = amtool("silence", "add", "host=a", "--comment", "disk is replaced", "--author", "ana", "-d", "2h").strip()
    (shown,) = json.loads(amtool("silence", "query", "-o", "json"))
    assert (shown["id"], shown["createdBy"], shown["comment"]) == (id, "ana", "disk is replaced")
    (hidden,) = json.loads(amtool("alert", "query", "--silenced", "-o", "json"))
    assert (hidden["labels"]["host"], hidden["status"]) == (
        "a",
        {"inhibitedBy": [], "silencedBy": [id], "state": "suppressed"},
    )
    changed = json.loads(amtool("silence", "update", "--duration", "4h", "--comment", "longer", id, "-o", "json"))
    assert [(one["id"], one["comment"]) for one in changed] == [(id, "longer")]
    assert json.loads(amtool("silence", "query", "host=b", "-o", "json")) == []
    assert amtool("silence", "query", "-q").split() == [id]
    amtool("silence", "expire", id)
    assert json.loads(amtool("silence", "query", "-o", "json")) == []
    assert [one["id"] for one in json.loads(amtool("silence", "query", "--expired", "-o", "json"))] == [id]
    assert [one.action for one in team.database.audit(10)] == ["silence expired", "silence changed", "silence created"]
    assert [one.author for one in team.database.audit(10)] == ["127.0.0.1", "ana", "ana"]


def test_silences_are_imported(team: World, amtool: Amtool, tmp_path: Path) -> None:
    ids = [amtool("silence", "add", f"host={host}", "--comment", "x", "--author", "ana").strip() for host in ("a", "b")]
    file = tmp_path / "silences.json"
    file.write_text(amtool("silence", "query", "-o", "json"))
    amtool("silence", "import", str(file))
    assert sorted(team.engine.silences.silences) == sorted(ids)
    amtool("silence", "import", "--force", str(file))
    assert len(team.engine.silences.silences) == 4
    unknown = [{**json.loads(file.read_text())[0], "id": "11111111-2222-3333-4444-555555555555"}]
    file.write_text(json.dumps(unknown))
    amtool("silence", "import", str(file))
    assert len(team.engine.silences.silences) == 5


def test_a_silence_for_everything_is_refused(team: World, amtool: Amtool) -> None:
    told = amtool("silence", "add", "alertname=~.+", "--comment", "x", "--author", "ana", code=1)
    assert "hides every alert" in told or "409" in told
    assert not team.engine.silences.silences


def test_the_configuration_is_shown_and_routes_are_tested(amtool: Amtool, tmp_path: Path) -> None:
    shown = amtool("config", "show")
    assert "http://127.0.0.1:1/masked" in shown
    assert "secret-path" not in shown
    assert amtool("config", "routes", "test", "severity=page").strip() == "night"
    assert amtool("config", "routes", "test", "--verify.receivers=ops", "severity=low").strip() == "ops"
    assert 'severity="page"' in amtool("config", "routes", "show")
    file = tmp_path / "shown.yml"
    file.write_text(ROUTING)
    assert "SUCCESS" in amtool("check-config", str(file))


def test_an_alert_is_added(team: World, amtool: Amtool) -> None:
    amtool("alert", "add", "disk", "host=c", "--annotation=summary=disk of c is full")
    assert team.engine.flush_due()
    shown = json.loads(amtool("alert", "query", "alertname=disk", "-o", "json"))
    assert [(one["labels"], one["annotations"]) for one in shown] == [
        ({"alertname": "disk", "host": "c"}, {"summary": "disk of c is full"})
    ]
    (letter,) = [one for one in team.letters() if one.message.alerts[0].rule == "disk"]
    assert letter.message.receiver == "ops"
    ended = time_text(SYSTEM_CLOCK.now_ms() - 1_000)
    amtool("alert", "add", "disk", "host=c", f"--end={ended}", f"--start={time_text(SYSTEM_CLOCK.now_ms() - 60_000)}")
    team.engine.flush_due()
    assert json.loads(amtool("alert", "query", "alertname=disk", "-o", "json")) == []


def test_the_cluster_of_one_is_shown(amtool: Amtool) -> None:
    assert "disabled" in amtool("cluster", "show")
