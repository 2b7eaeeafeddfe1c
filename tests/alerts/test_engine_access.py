"""Users at the API of the alert engine: levels, own names, and the alerts that a role sees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from alerts.api.engine_server import EngineServer
from alerts.api.handlers import AlertHandlers
from artimon.access.principal import Level
from artimon.runtime.exposure import UnprotectedError
from tests.access.asgi_client import ACCESS, opened
from tests.access.conftest import basic
from tests.alerts.api_client import ApiClient, silence
from tests.alerts.test_silences import routed  # noqa: F401
from tests.alerts.worlds import World

ENGINE_TOKEN = "a token of sixteen and more characters"


def handlers_of(world: World) -> AlertHandlers:
    return AlertHandlers(world.engine, world.database, world.clock, world.page)


@contextmanager
def served(world: World, folder: Path, token: Path | None = None, host: str = "127.0.0.1") -> Iterator[ApiClient]:
    """The API of the world's engine with users; `sam` sees host="a" only."""
    access = opened(ACCESS.replace('route="/a"', 'host="a"'), folder)
    server = EngineServer(handlers_of(world), host, token=token, access=access)
    server.start()
    try:
        yield ApiClient(server.address)
    finally:
        server.stop()


def as_user(api: ApiClient, user: str) -> ApiClient:
    return ApiClient(api.address, {**basic(user), "X-Artimon-Author": "somebody else"})


def test_every_route_has_a_rule_and_changes_need_an_editor(routed: World) -> None:  # noqa: F811
    for method, path, rule, _ in handlers_of(routed).routes:
        assert rule.level is not None
        assert method == "GET" or (rule.level >= Level.EDITOR and rule.whole), path.pattern


def test_levels_at_every_route(routed: World, tmp_path: Path) -> None:  # noqa: F811
    with served(routed, tmp_path) as api:
        for method, pattern, rule, _ in handlers_of(routed).routes:
            path = pattern.pattern.replace("[^/]+", "x").replace("(?:ready|healthy)", "ready")
            body: dict[str, str] | None = None if method == "GET" else {}
            assert api.ask(path, body, method)[0] == 401, path
            for user, level in (("vera", Level.VIEWER), ("eddie", Level.EDITOR), ("ada", Level.ADMIN)):
                answer = as_user(api, user).ask(path, body, method)
                refused = isinstance(answer, tuple) and answer[0] == 403
                assert refused == (rule.level is not None and rule.level > level), (path, user, answer)


def test_a_silence_has_the_name_of_its_user(routed: World, tmp_path: Path) -> None:  # noqa: F811
    with served(routed, tmp_path) as api:
        forged = silence(routed, host="a", author="ada", comment="<script>alert(1)</script>")
        id = as_user(api, "eddie").ask("/api/v2/silences", forged)["silenceID"]
        (made,) = as_user(api, "vera").ask("/api/v2/silences")
        assert (made["createdBy"], made["comment"]) == ("eddie", forged["comment"])
        as_user(api, "ada").ask(f"/api/v2/silence/{id}", method="DELETE")
        audit = as_user(api, "ada").ask("/api/alerts/audit")
        assert [one["author"] for one in audit] == ["ada", "eddie"]


def test_a_role_sees_its_alerts_only(routed: World, tmp_path: Path) -> None:  # noqa: F811
    routed.tick({"a": 0, "b": 0})
    routed.engine.flush_due()
    with served(routed, tmp_path) as api:
        assert len(as_user(api, "vera").ask("/api/v2/alerts")) == 2
        (alert,) = as_user(api, "sam").ask("/api/v2/alerts")
        assert alert["labels"]["host"] == "a"
        groups = as_user(api, "sam").ask("/api/v2/alerts/groups")
        assert groups
        assert '"b"' not in json.dumps(groups)
        assert as_user(api, "sam").ask("/api/v2/silences")[0] == 403


def test_the_token_of_the_engine_still_works(routed: World, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "token"
    file.write_text(f"{ENGINE_TOKEN}\n")
    with served(routed, tmp_path, file) as api:
        engine = ApiClient(api.address, {"Authorization": f"Bearer {ENGINE_TOKEN}", "X-Artimon-Author": "ana"})
        engine.ask("/api/v2/silences", silence(routed, host="a"))
        assert as_user(api, "vera").ask("/api/v2/silences")[0]["createdBy"] == "ana"
        assert ApiClient(api.address, {"Authorization": "Bearer " + "x" * 40}).ask("/api/v2/alerts")[0] == 401


def test_users_do_not_log_in_over_plain_http_beyond_loopback(routed: World, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(UnprotectedError, match="of a proxy that ends TLS"), served(routed, tmp_path, host="0.0.0.0"):
        pass
