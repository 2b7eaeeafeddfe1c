"""Alerts of the page: calls that the API passes on to a real engine, with the user of the request as the author."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from alerts.api.engine_server import EngineServer
from alerts.api.handlers import AlertHandlers
from alerts.rules.rule_file import parse_rules
from artimon.api.alert_routes import read_engine_token
from artimon.runtime.settings import SettingsError
from tests.access.asgi_client import ACCESS, AsgiClient, asked, opened
from tests.access.conftest import basic
from tests.alerts.test_silences import routed  # noqa: F401
from tests.alerts.worlds import World
from tests.api.serving import small_store

VERA, EDDIE, SAM = basic("vera"), basic("eddie"), basic("sam")
TOKEN = "a token of sixteen and more characters"
HOSTILE = "<img src=x onerror=alert(1)>"


def told_of(address: str, **more: Any) -> dict[str, Any]:
    engine = {"id": "alerts", "time_ms": 0, "mail": {}, "problems": [], "api": address, "pair": {}}
    return {"engines": [engine], "rules": [], "recordings": [], "alerts": [], "truncated": 0, "problem": "", **more}


class Page:
    """What a browser sends."""

    def __init__(self, client: AsgiClient) -> None:
        self.client = client

    def get(self, path: str, user: Mapping[str, str] = VERA, **query: str) -> Any:
        answer = self.client.get(f"/api/alerts/{path}", user, **query)
        return answer.json if answer.status == 200 else (answer.status, answer.text)

    def send(self, method: str, path: str, user: Mapping[str, str], **body: Any) -> Any:
        answer = self.client.send(method, f"/api/alerts/{path}", json.dumps(body).encode(), user)
        return answer.json if answer.status == 200 else (answer.status, answer.text)


@pytest.fixture
def page(routed: World, tmp_path: Path) -> Iterator[Page]:  # noqa: F811
    """`sam` sees host="a" only; two hosts fire, and a third one is silent."""
    for minute in range(10):
        routed.tick({"a": 1, "b": 1, **({"gone": 1} if minute < 5 else {})})
    routed.tick({"a": 0, "b": 0})
    routed.engine.flush_due()
    token = tmp_path / "engine-token"
    token.write_text(TOKEN)
    handlers = AlertHandlers(routed.engine, routed.database, routed.clock, routed.page)
    server = EngineServer(handlers, "127.0.0.1", token=token)
    server.start()
    access = opened(ACCESS.replace('route="/a"', 'host="a"'), tmp_path)
    try:
        rule = {"name": "down", "error": "", "completeness": "host gone silent"}
        alert = {"rule": "down", "labels": {"host": "a"}}
        told = lambda: told_of(server.address, rules=[rule], alerts=[alert])  # noqa: E731
        with asked(access, small_store(), routed.clock, told, routed.store, TOKEN) as client:
            yield Page(client)
    finally:
        server.stop()


def test_groups_are_those_of_the_engine_and_a_role_sees_its_alerts(page: Page) -> None:
    groups = page.get("groups")["groups"]
    assert sorted(one["labels"]["host"] for group in groups for one in group["alerts"]) == ["a", "b"]
    (seen,) = [one for group in page.get("groups", SAM)["groups"] for one in group["alerts"]]
    assert seen["labels"]["host"] == "a"
    (found,) = [one for group in page.get("groups", filter='host="b"')["groups"] for one in group["alerts"]]
    assert found["labels"]["host"] == "b"


def test_completeness_is_told_to_those_who_see_all(page: Page) -> None:
    """It names hosts."""
    for path in ("groups", "matching"):
        assert "host gone silent since" in json.dumps(page.get(path, filter='host="a"'))
        assert "gone" not in json.dumps(page.get(path, SAM, filter='host="a"'))
    for user, is_told in ((VERA, True), (SAM, False)):
        assert ("host gone silent" in page.client.get("/api/alerts", user).text) is is_told


def test_a_silence_is_previewed_made_and_ended_in_the_name_of_the_user(page: Page) -> None:
    assert [one["labels"]["host"] for one in page.get("matching", filter='host=~"a|c"')["alerts"]] == ["a"]
    forged = {"matchers": 'host="a"', "duration": "2h", "comment": HOSTILE, "author": "ada", "createdBy": "ada"}
    id_ = page.send("POST", "silences", EDDIE, **forged)["silenceID"]
    (made,) = page.get("silences")["silences"]
    assert (made["createdBy"], made["comment"], made["status"]["state"]) == ("eddie", HOSTILE, "active")
    (hidden,) = [one for group in page.get("groups", filter='host="a"')["groups"] for one in group["alerts"]]
    assert hidden["status"]["silencedBy"] == [id_]
    assert page.send("DELETE", f"silences/{id_}", EDDIE) == {"expired": id_}
    (ended,) = page.get("silences")["silences"]
    assert ended["status"]["state"] == "expired"


def test_a_silence_for_everything_needs_to_be_confirmed(page: Page) -> None:
    wanted = {"matchers": 'host=~".*"', "duration": "1h", "comment": "all"}
    status, text = page.send("POST", "silences", EDDIE, **wanted)
    assert 400 <= status < 500, text
    assert "force" in text
    assert page.get("silences")["silences"] == []
    assert page.send("POST", "silences", EDDIE, force=True, **wanted)["silenceID"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"matchers": "host", "duration": "1h"}, "matchers: "),
        ({"matchers": 'host="a"', "duration": "soon"}, "duration: "),
        ({"matchers": 'host="a"', "duration": "900d"}, "duration: "),
        ({"matchers": "", "duration": "1h"}, "matchers"),
    ],
)
def test_a_bad_silence_is_an_error_that_says_where(page: Page, body: dict[str, str], told: str) -> None:
    status, text = page.send("POST", "silences", EDDIE, comment="x", **body)
    assert status == 400
    assert told in text


def test_an_alert_is_acknowledged_and_the_history_tells_who(page: Page) -> None:
    (alert,) = [one for group in page.get("groups", filter='host="a"')["groups"] for one in group["alerts"]]
    name = alert["fingerprint"]
    assert len(page.send("POST", "acknowledgements", EDDIE, alerts=[name], comment="looking")["acknowledged"]) == 1
    (known,) = [one for group in page.get("groups", filter='host="a"')["groups"] for one in group["alerts"]]
    assert (known["acknowledged"]["author"], known["acknowledged"]["comment"]) == ("eddie", "looking")
    (begun,) = page.get("history", fingerprint=name)["history"]
    assert page.get("history", fingerprint=name, until_ms=str(begun["time_ms"]))["history"] == [begun]
    assert page.get("history", fingerprint=name, until_ms=str(begun["time_ms"] - 1))["history"] == []
    page.send("DELETE", "acknowledgements", EDDIE, alerts=[name])
    (free,) = [one for group in page.get("groups", filter='host="a"')["groups"] for one in group["alerts"]]
    assert free["acknowledged"] is None


def test_viewers_and_restricted_roles_change_nothing(page: Page) -> None:
    for user in (VERA, SAM):
        for method, path in (
            ("POST", "silences"),
            ("DELETE", "silences/x"),
            ("POST", "acknowledgements"),
            ("DELETE", "acknowledgements"),
        ):
            assert page.send(method, path, user)[0] == 403, path
    assert page.get("silences", SAM)[0] == 403
    assert page.get("history", SAM)[0] == 403


def test_without_an_engine_or_its_token_the_page_is_told_what_to_do(
    routed: World,  # noqa: F811
    tmp_path: Path,
) -> None:
    token = tmp_path / "engine-token"
    token.write_text(TOKEN)
    handlers = AlertHandlers(routed.engine, routed.database, routed.clock, routed.page)
    server = EngineServer(handlers, "127.0.0.1", token=token)
    server.start()
    nobody = {**told_of(""), "engines": [], "problem": "no alert engine runs"}
    for told, status, text in (
        (nobody, 404, "no alert engine runs"),
        (told_of(server.address), 502, "--alerts-token"),
        (told_of("127.0.0.1:1"), 503, "does not answer"),
    ):
        with asked(opened(ACCESS, tmp_path), small_store(), alerts=lambda told=told: told) as client:
            answer = Page(client).get("groups")
            assert answer[0] == status
            assert text in answer[1]
    server.stop()


def test_a_token_file_that_cannot_be_read_is_an_error_of_the_settings(tmp_path: Path) -> None:
    assert read_engine_token(None) == ""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert read_engine_token(tmp_path / "token") == TOKEN
    with pytest.raises(SettingsError, match=r"--alerts-token: .*none cannot be read"):
        read_engine_token(tmp_path / "none")


@pytest.mark.parametrize("user", [VERA, SAM])
def test_a_rule_is_written_and_checked_but_not_saved(page: Page, user: Mapping[str, str]) -> None:
    asked = {
        "q": "fetch('up{host=\"a\"}')",
        "name": "host down/a",
        "threshold": "< 1",
        "for": "10m",
        "summary": HOSTILE,
    }
    status, told = page.send("POST", "draft", user, **asked)
    assert (status, "cannot be a name" in told) == (400, True)
    found = page.send("POST", "draft", user, **{**asked, "name": "host.down/a"})
    assert found["file"] == "host-down-a.yaml"
    (rule,) = parse_rules(found["text"], found["file"]).rules
    assert (rule.name, rule.expr, rule.threshold_text, rule.hold_ms) == ("host.down/a", asked["q"], "< 1", 600_000)
    assert rule.summary == HOSTILE
    (rule,) = parse_rules(page.send("POST", "draft", user, q="up == 0", lang="promql", name="down")["text"], "f").rules
    assert (rule.is_promql, rule.threshold) == (True, None)
    for wrong in ({"q": "fetch("}, {"threshold": "5"}, {"for": "soon"}, {"missing": "perhaps"}, {"name": ""}):
        status, told = page.send("POST", "draft", user, **{**asked, "name": "x", **wrong})
        assert (status, "error" in told) == (400, True)
