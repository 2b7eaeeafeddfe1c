"""Requests of Grafana's Alertmanager data source, replayed: its health check, and those of its pages for groups,
silences and contact points. Grafana's server passes them on with the paths of the implementation "prometheus"."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from tests.alerts.api_client import ApiClient, api_of
from tests.alerts.test_amtool import ROUTING
from tests.alerts.worlds import World, rule_text

HEADERS = {
    "User-Agent": "Grafana/12.0.0", "Accept-Encoding": "gzip", "X-Forwarded-For": "10.1.2.3", "X-Grafana-User": "ana",
    "X-Grafana-Referer": "http://grafana:3000/alerting/silences?alertmanager=artimon",
}  # fmt: skip
ALERT = {
    "annotations": dict, "endsAt": str, "fingerprint": str, "receivers": list, "startsAt": str, "status": dict,
    "updatedAt": str, "generatorURL": str, "labels": dict,
}  # fmt: skip
SILENCE = {
    "id": str, "status": dict, "updatedAt": str, "comment": str, "createdBy": str, "startsAt": str, "endsAt": str,
    "matchers": list,
}  # fmt: skip


class Grafana:
    """The proxy of Grafana's server in front of an API."""

    def __init__(self, api: ApiClient) -> None:
        self._address = api.address

    def __call__(self, method: str, path: str, body: Any = None, **asked: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._address, timeout=10)
        headers = HEADERS | ({} if body is None else {"Content-Type": "application/json"})
        try:
            target = f"{path}?{urlencode(asked)}" if asked else path
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()


@pytest.fixture
def grafana(world: World) -> Iterator[Grafana]:
    """Two alerts fire."""
    world.routing = world.folder / "am.yml"
    world.routing.write_text(ROUTING)
    world.write(rule_text())
    world.tick({"a": 0, "b": 0})
    with api_of(world) as api:
        yield Grafana(api)


def has_form(found: Mapping[str, Any], form: Mapping[str, type]) -> None:
    """Check the fields that Grafana decodes, and that each time is one of RFC 3339."""
    assert {name: type(found[name]) for name in form} == form
    for name in form:
        if name.endswith("At"):
            assert datetime.fromisoformat(found[name]).tzinfo is not None


def test_the_health_check(grafana: Grafana) -> None:
    """A data source of another implementation asks other paths, which must not be there."""
    assert grafana("GET", "/api/v1/status/buildinfo")[0] == 404
    assert grafana("GET", "/alertmanager/api/v2/status")[0] == 404
    assert grafana("GET", "/api/v2/status")[0] == 200


def test_the_status_has_the_configuration_that_contact_points_are_read_from(grafana: Grafana) -> None:
    status, told = grafana("GET", "/api/v2/status")
    assert status == 200
    assert told["cluster"].keys() >= {"status", "peers"}
    assert told["versionInfo"].keys() >= {"version", "branch", "buildDate", "buildUser", "goVersion", "revision"}
    assert datetime.fromisoformat(told["uptime"])
    config = yaml.safe_load(told["config"]["original"])
    assert config["route"]["receiver"] == "ops"
    assert [one["name"] for one in config["receivers"]] == ["ops", "night"]


def test_groups_and_alerts(grafana: Grafana) -> None:
    (group,) = grafana("GET", "/api/v2/alerts/groups")[1]
    assert group["receiver"] == {"name": "night"}
    assert group["labels"] == {"alertname": "down"}
    for alert in group["alerts"]:
        has_form(alert, ALERT)
        assert alert["status"] == {"inhibitedBy": [], "silencedBy": [], "state": "active"}
    chosen = {
        "filter": 'host=~"a|x"',
        "active": "true",
        "silenced": "false",
        "inhibited": "false",
        "unprocessed": "true",
    }
    (group,) = grafana("GET", "/api/v2/alerts/groups", **chosen)[1]
    assert [alert["labels"]["host"] for alert in group["alerts"]] == ["a"]
    assert len(grafana("GET", "/api/v2/alerts")[1]) == 2
    assert grafana("GET", "/api/v2/alerts", filter='alertname="other"')[1] == []


def test_a_silence_is_created_edited_and_expired(world: World, grafana: Grafana) -> None:
    now = datetime.fromtimestamp(world.clock.now_ms() / 1000, UTC)

    def text(hours: int) -> str:
        """A time as a browser writes it."""
        return now.replace(hour=now.hour + hours).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    matchers = [
        {"name": "alertname", "value": "down", "isRegex": False, "isEqual": True},
        {"name": "host", "value": "b.*", "isRegex": True, "isEqual": True},
    ]
    wanted = {"matchers": matchers, "startsAt": text(0), "endsAt": text(2), "comment": "disk", "createdBy": "ana"}
    status, told = grafana("POST", "/api/v2/silences", {**wanted, "id": ""})
    assert status == 200
    id = told["silenceID"]
    (shown,) = grafana("GET", "/api/v2/silences")[1]
    has_form(shown, SILENCE)
    assert (shown["matchers"], shown["status"], shown["createdBy"]) == (matchers, {"state": "active"}, "ana")
    assert grafana("GET", f"/api/v2/silence/{id}")[1] == shown
    hidden = {"silenced": "true", "active": "false", "inhibited": "false"}
    (alert,) = grafana("GET", "/api/v2/alerts", **hidden)[1]
    assert alert["status"] == {"inhibitedBy": [], "silencedBy": [id], "state": "suppressed"}
    status, told = grafana("POST", "/api/v2/silences", {**wanted, "id": id, "endsAt": text(4)})
    assert (status, told["silenceID"]) == (200, id)
    assert grafana("DELETE", f"/api/v2/silence/{id}")[0] == 200
    (shown,) = grafana("GET", "/api/v2/silences")[1]
    assert shown["status"] == {"state": "expired"}
    assert grafana("GET", "/api/v2/alerts", **hidden)[1] == []


def test_errors_have_a_text(grafana: Grafana) -> None:
    status, told = grafana("POST", "/api/v2/silences", {"matchers": []})
    assert status == 400
    assert str(told)
    assert grafana("DELETE", "/api/v2/silence/unknown")[0] == 404
