"""API of an engine: who may ask, wrong requests, groups, inhibition, and alerts from outside."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from alerts.api.engine_server import LIMITS
from alerts.api.handlers import NO_FILE, shown_config
from artimon.runtime.exposure import UnprotectedError
from artimon.runtime.settings import SettingsError
from tests.alerts.api_client import ApiClient, api_of, silence, time_text
from tests.alerts.test_silences import routed  # noqa: F401
from tests.alerts.worlds import MINUTE, World, rule_text

INHIBITING = """
route: {receiver: ops, group_by: [rack], group_wait: 0s, group_interval: 1m}
receivers: [{name: ops, webhook_configs: [{url: "http://127.0.0.1:1/"}]}]
inhibit_rules: [{source_matchers: [alertname="site"], target_matchers: [alertname="down"]}]
"""


def raw(api: ApiClient, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(api.address, timeout=10)
    try:
        connection.request(method, path, body or None, {name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


# ---- who may ask


def test_only_with_the_token(routed: World, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "token"
    file.write_text("a token of sixteen and more characters\n")
    with api_of(routed, token=file) as api:
        assert api.ask("/api/v2/alerts")[0] == 401
        api.headers["Authorization"] = "Bearer a token of sixteen and more characters"
        assert api.ask("/api/v2/alerts") == []
        api.headers["Authorization"] = "Bearer another token of sixteen characters"
        assert api.ask("/api/v2/silences", silence(routed, host="a"))[0] == 401
    file.write_text("short")
    with pytest.raises(SettingsError, match=r"--api-token.*16"), api_of(routed, token=file):
        pass


def test_not_beyond_loopback_without_a_token(routed: World) -> None:  # noqa: F811
    with pytest.raises(UnprotectedError, match="--api-token"), api_of(routed, host="0.0.0.0"):
        pass


def test_a_page_of_another_site_cannot_act(routed: World) -> None:  # noqa: F811
    """Its browser sends forms without asking, and may reach loopback under a name of that site."""
    body = json.dumps(silence(routed, host="a")).encode()
    with api_of(routed) as api:
        assert raw(api, "POST", "/api/v2/silences", body, Content_Type="text/plain")[0] == 415
        assert raw(api, "POST", "/api/v2/silences", body)[0] == 415
        assert raw(api, "GET", "/api/v2/alerts", Host="evil.test")[0] == 400
        assert raw(api, "GET", "/api/v2/alerts", Host="localhost:1")[0] == 200
    assert not routed.engine.silences.silences


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/nowhere", None, 404, "/api/v2/"),
        ("PUT", "/api/v2/alerts", b"[]", 405, "GET or POST"),
        ("GET", "/api/v2/alerts?filter=a", None, 400, "not a matcher"),
        ("GET", "/api/v2/alerts?active=x", None, 400, "true or false"),
        ("GET", "/api/v2/alerts?receiver=(", None, 400, "RE2"),
        ("GET", "/api/alerts/audit?limit=0", None, 400, "limit"),
        ("GET", "/api/v2/silence/x", None, 404, "not known"),
        ("DELETE", "/api/v2/silence/x", None, 404, "not known"),
        ("POST", "/api/v2/silences", b"{", 400, "not valid JSON"),
        ("POST", "/api/v2/silences", b"[" * 100_000, 400, "not valid JSON"),
        ("POST", "/api/v2/silences", b"[]", 400, "not an object"),
        ("POST", "/api/v2/silences", b"{}", 400, "matchers"),
        ("POST", "/api/v2/silences", b'{"matchers": [1], "startsAt": "x"}', 400, "no time"),
        ("POST", "/api/v2/alerts", b"{}", 400, "not a list"),
        ("POST", "/api/v2/alerts", b"[{}]", 400, "at least one"),
        ("POST", "/api/v2/alerts", b'[{"labels": {"a-b": "x"}}]', 400, "no name"),
        ("POST", "/api/v2/alerts", b'[{"labels": {"a": 1}}]', 400, "no text"),
        ("POST", "/api/v2/alerts", b'[{"labels": {"a": "' + b"x" * 1_000_000 + b'"}}]', 400, "at most 4,096"),
        ("POST", "/api/v2/alerts", b'[{"labels": {"a": "x"}, "startsAt": "2026-01-01T00:00:00"}]', 400, "no time"),
        ("POST", "/api/v2/alerts", b"x" * (LIMITS.body_bytes + 1), 413, "body_bytes"),
    ],
)
def test_wrong_requests_are_named(
    routed: World,  # noqa: F811
    method: str,
    path: str,
    body: bytes | None,
    status: int,
    text: str,
) -> None:
    with api_of(routed) as api:
        found, said = raw(api, method, path, body or b"", Content_Type="application/json")
    assert (found, text in str(said)) == (status, True), said


# ---- groups, inhibition, silences


def test_groups_and_inhibition(world: World) -> None:
    world.routing = world.folder / "am.yml"
    world.routing.write_text(INHIBITING)
    world.write(rule_text())
    world.tick({"a": 0, "b": 0})
    with api_of(world) as api:
        api.ask("/api/v2/alerts", [{"labels": {"alertname": "site", "rack": "1"}}])
        world.engine.flush_due()
        groups = api.ask("/api/v2/alerts/groups")
        assert [(one["labels"], len(one["alerts"]), one["receiver"]["name"]) for one in groups] == [
            ({}, 2, "ops"), ({"rack": "1"}, 1, "ops"),
        ]  # fmt: skip
        (site,) = groups[1]["alerts"]
        assert {one["status"]["state"] for one in groups[0]["alerts"]} == {"suppressed"}
        assert {one["status"]["inhibitedBy"][0] for one in groups[0]["alerts"]} == {site["fingerprint"]}
        assert len(api.ask("/api/v2/alerts?inhibited=false")) == 1
        assert api.ask("/api/v2/alerts/groups?filter=host%3D%22a%22")[0]["alerts"][0]["labels"]["host"] == "a"
        assert api.ask("/api/v2/alerts/groups?receiver=nobody") == []
        assert {"name": "ops"} in api.ask("/api/v2/receivers")


def test_a_preview_shows_what_a_silence_would_hide(routed: World) -> None:  # noqa: F811
    routed.tick({"a": 0, "b": 0})
    with api_of(routed) as api:
        shown = api.ask("/api/v2/alerts?filter=host%3D~%22a.*%22")
        assert [one["labels"]["host"] for one in shown] == ["a"]
        made = api.ask("/api/v2/silences", silence(routed, host="~a.*"))
        (hidden,) = api.ask("/api/v2/alerts?active=false")
        assert (hidden["labels"]["host"], hidden["status"]["silencedBy"]) == ("a", [made["silenceID"]])
        assert api.ask("/api/v2/silences", silence(routed, alertname="~.+"))[0] == 409
        assert api.ask("/api/v2/silences?force=true", silence(routed, alertname="~.+"))["silenceID"]
        assert len(api.ask("/api/v2/alerts?silenced=true&active=false")) == 2


# ---- alerts from outside


def test_alerts_from_outside_are_dispatched_as_our_own(routed: World) -> None:  # noqa: F811
    routed.tick({"a": 1})
    now_ms = routed.clock.now_ms()
    alert = {
        "labels": {"alertname": "Disk", "host": "c", "empty": ""},
        "annotations": {"summary": "c is full", "runbook": "http://x/y"},
        "generatorURL": "http://prometheus.test/graph",
        "startsAt": time_text(now_ms - MINUTE),
        "endsAt": time_text(now_ms + 4 * MINUTE),
    }
    with api_of(routed) as api:
        api.ask("/api/v2/alerts", [alert])
        routed.tick({"a": 1})
        assert routed.told() == ["firing c"]
        (shown,) = api.ask("/api/v2/alerts")
        assert shown["labels"] == {"alertname": "Disk", "host": "c"}
        assert (shown["annotations"], shown["generatorURL"]) == (alert["annotations"], alert["generatorURL"])
        routed.start()
    with api_of(routed) as api:
        routed.tick({"a": 1}, minutes=20)
        routed.tick({"a": 1}, minutes=1)
        assert routed.told() == ["resolved c"], "it was not sent again"
        assert [one["change"] for one in api.ask("/api/alerts/history")] == ["resolved", "firing"]


def test_after_a_restart_they_have_time_to_be_sent_again(routed: World) -> None:  # noqa: F811
    with api_of(routed) as api:
        api.ask("/api/v2/alerts", [{"labels": {"alertname": "Disk", "host": "c"}}])
        routed.tick({"a": 1})
    assert routed.told() == ["firing c"]
    routed.close()
    routed.clock.advance(20 * MINUTE)
    routed.time += 20 * MINUTE
    routed.start()
    routed.tick({"a": 1})
    (repeat,) = routed.database.due_letters(2**60)
    assert repeat.letter.message.status == "firing"
    routed.database.sent(repeat.seq)
    routed.tick({"a": 1}, minutes=6)
    routed.tick({"a": 1})
    assert routed.told() == ["resolved c"]


def test_they_do_not_change_alerts_of_the_engine(routed: World) -> None:  # noqa: F811
    routed.tick({"a": 0})
    assert routed.told() == ["firing a"]
    ended = time_text(routed.clock.now_ms() - 1)
    with api_of(routed) as api:
        labels = {"alertname": "down", "host": "a", "severity": "page"}
        api.ask("/api/v2/alerts", [{"labels": labels, "startsAt": ended, "endsAt": ended}])
        routed.tick({"a": 0})
    assert routed.told() == []
    assert routed.states() == {"a": "firing"}


def test_a_bad_alert_does_not_stop_the_good_ones(routed: World) -> None:  # noqa: F811
    with api_of(routed) as api:
        given = [{"labels": {}}, {"labels": {"alertname": "Disk", "host": "c"}, "generatorURL": "javascript:x"}]
        assert api.ask("/api/v2/alerts", given)[0] == 400
        routed.tick({"a": 1})
        (shown,) = api.ask("/api/v2/alerts")
        assert (shown["labels"]["host"], shown["generatorURL"]) == ("c", "")


# ---- configuration


def test_the_shown_configuration_has_no_secrets() -> None:
    text = """
global: {smtp_auth_password: "hidden1", slack_api_url: https://hooks.test/hidden2}
receivers:
  - name: a
    webhook_configs: [{url: 'https://u:hidden3@x.test:8443/hidden4', http_config: {bearer_token: hidden5}}]
    pagerduty_configs: [{routing_key: hidden6, service_key_file: /etc/key}]
    email_configs: [{to: a@x.test, auth_secret: |
      hidden7
      }]
""".replace(": |\n      hidden7\n      }", ": hidden7}")
    shown = shown_config(text)
    assert "hidden" not in shown
    assert "https://x.test:8443/masked" in shown
    assert all(one in shown for one in ("/etc/key", "a@x.test", "<secret>"))
    assert shown_config("") == NO_FILE


def test_the_shown_configuration_leaves_out_keys_that_alertmanager_refuses() -> None:
    shown = shown_config("route:\n  receiver: a\n  escalation: [{after: 5m, receiver: a}]\nreceivers: [{name: a}]\n")
    assert "escalation" not in shown
    assert "receivers: [{name: a}]" in shown
