"""The guard: every route has a rule, and each level reaches what it may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import Response
from starlette.routing import Route

from artimon.access.access_file import Access
from artimon.access.authenticator import Authenticator
from artimon.access.principal import Level
from artimon.access.route_rules import rule_of
from tests.access.asgi_client import AsgiClient, asked
from tests.access.conftest import basic
from tests.api.serving import small_app

OPEN = {
    "/-/healthy",
    "/-/ready",
    "/api/health",
    "/login",
    "/login/oidc",
    "/login/oidc/callback",
    "/logout",
    "/static/{name:path}",
}
"""Addresses without a login."""


def routes() -> list[tuple[str, str, Any]]:
    """Method, path and handler of every route."""
    found = [route for route in small_app().routes if isinstance(route, Route)]
    return [(method, route.path, route.endpoint) for route in found for method in sorted(route.methods or ())]


def test_every_route_declares_a_rule_and_only_known_ones_are_public() -> None:
    found = routes()
    assert len(found) > 40
    assert [path for _, path, handler in found if rule_of(handler) is None] == []
    assert {path for _, path, handler in found if rule_of(handler).level is None} == OPEN  # type: ignore[union-attr]


@pytest.mark.parametrize(("method", "path"), [(m, p) for m, p, _ in routes()])
def test_nobody_reaches_a_closed_route_without_a_login(shared: AsgiClient, method: str, path: str) -> None:
    answer = shared.send(method, path.replace("{id}", "a").replace("{name}", "a"))
    if path not in OPEN:
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith('Basic realm="artimon"')
        assert b"http.requests" not in answer.body


@pytest.mark.parametrize(("method", "path", "handler"), routes())
@pytest.mark.parametrize("user", ["vera", "sam"])
def test_a_viewer_reaches_no_route_of_a_higher_level(
    shared: AsgiClient, method: str, path: str, handler: Any, user: str
) -> None:
    rule = rule_of(handler)
    assert rule is not None
    answer = shared.send(method, path.replace("{id}", "a").replace("{name}", "a"), headers=basic(user))
    refused = (rule.level is not None and rule.level > Level.VIEWER) or (rule.whole and user == "sam")
    assert (answer.status == 403) == refused, answer.body
    assert answer.status != 401 or path in OPEN


def test_a_route_without_a_rule_is_closed_for_everybody(access: Authenticator) -> None:
    for verifier in (access, None):
        with asked(verifier) as client:

            async def forgotten() -> Response:
                return Response("secret")

            client.app.add_api_route("/api/forgotten", forgotten)
            assert client.get("/api/forgotten").status == 403
            assert client.get("/api/forgotten", basic("ada")).status == 403


def test_unknown_addresses_are_told_to_users_only(client: AsgiClient) -> None:
    assert client.get("/api/nothing").status == 401
    assert client.get("/api/nothing", basic("vera")).status == 404
    assert client.send("PUT", "/api/query", headers=basic("vera")).status == 405


def test_without_an_access_file_everybody_is_the_administrator() -> None:
    with asked(None) as client:
        assert client.get("/api/query", q="fetch('heat')").status == 200
        told = client.get("/api/whoami").json
        assert (told["level"], told["login"]) == ("admin", False)
        assert client.get("/login").status == 404


def test_whoami_tells_user_and_role(client: AsgiClient) -> None:
    told = client.get("/api/whoami", basic("sam")).json
    assert (told["user"], told["role"], told["level"], told["restricted"]) == ("sam", "shop", "viewer", True)


def test_errors_have_the_form_of_their_address(client: AsgiClient) -> None:
    assert client.get("/api/v1/query", query="1").json["status"] == "error"
    assert "Bearer" in client.get("/api/query", q="1").json["error"]["message"]


def test_a_browser_is_sent_to_the_login_and_gets_no_dialog(client: AsgiClient) -> None:
    answer = client.get("/?q=1", {"accept": "text/html,*/*"})
    assert (answer.status, answer.headers["location"]) == (303, "/login?next=%2F%3Fq%3D1")
    assert client.get("/api/query", {"sec-fetch-mode": "cors"}).headers["www-authenticate"] == "Bearer"


def test_changes_and_denials_are_in_the_audit_log(client: AsgiClient, access: Authenticator, tmp_path: Path) -> None:
    client.send("DELETE", "/api/queries/abc", headers=basic("eddie"))
    client.get("/api/status", basic("sam"))
    client.get("/api/query", basic("vera", "wrong password!"))
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(one["action"], one["user"], one["address"]) for one in lines] == [
        ("DELETE /api/queries/abc", "eddie", "192.0.2.1"),
        ("denied", "sam", "192.0.2.1"),
        ("login.failed", "vera", "192.0.2.1"),
    ]
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600
    assert isinstance(access.access, Access)
