"""A role that sees a part of the series: every way to data shows that part only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from artimon.access.authenticator import Authenticator
from artimon.access.scoped_store import ScopedStore, visibility
from artimon.model.select import Matcher
from artimon.model.values import Kind
from artimon.runtime.snappy_block import compress_block
from query_dsl.stores.engine_store import EngineStore, ForwardingStore
from tests.access.asgi_client import ACCESS, AsgiClient, asked, opened
from tests.access.conftest import basic
from tests.api.serving import NOW, minutes
from tests.query_dsl.plain_store import PlainStore

HIDDEN = ("vault", "cellar", "31337")
SELECT = "fetch('http.requests')"
"""Two series of the small store."""
SAM = basic("sam")
ALERTS: Mapping[str, Any] = {
    "engines": [],
    "rules": [
        {"name": "slow", "expr": "fetch('shop.orders') > 1", "state": "firing", "error": "vault.gold is wrong"},
        {"name": "hot", "expr": "fetch('vault.gold') > 20", "state": "firing", "error": ""},
    ],
    "recordings": [{"name": "a", "record": "gold:sum", "expr": "sum(vault_gold)"}],
    "alerts": [
        {"rule": "slow", "labels": {"team": "shop"}, "state": "firing", "summary": "a", "value": 1},
        {"rule": "slow", "labels": {"team": "vault"}, "state": "firing", "summary": "b", "value": 1},
        {"rule": "hot", "labels": {}, "state": "firing", "summary": "vault", "value": 21},
    ],
    "truncated": 0,
    "problem": "",
}


ALL = '{__name__!=""}'
START = f"start={NOW // 1000 - 900}"


@pytest.mark.parametrize(
    "path",
    [
        "/api/query?q=fetch('{team!=\"\"}')",
        "/api/query?q=fetch('{team!=\"\"}')&format=csv",
        "/api/query?q=fetch('{team!=\"\"}').max(by=['team'])",
        "/api/query?q=fetch('{team!=\"\"}').map('mean','10m')",
        '/api/find?selector={team!=""}',
        "/api/names",
        "/api/labels",
        "/api/label_values?label=team",
        "/api/label_values?label=__name__",
        "/api/endpoints",
        "/api/alerts",
        f"/api/v1/query?query={ALL}",
        f"/api/v1/query?query=max({ALL})by(team)",
        f"/api/v1/query?query=topk(5,{ALL})",
        f"/api/v1/query?query=max_over_time({ALL}[10m])",
        f"/api/v1/query_range?query={ALL}&{START}&end={NOW // 1000}&step=60",
        f"/api/v1/series?match[]={ALL}",
        f"/api/v1/series?match[]={ALL}&{START}",
        "/api/v1/labels",
        f"/api/v1/labels?match[]={ALL}",
        f"/api/v1/labels?match[]={ALL}&{START}",
        "/api/v1/label/team/values",
        "/api/v1/label/__name__/values",
        f"/api/v1/label/team/values?match[]={ALL}",
        f"/api/v1/label/team/values?match[]={ALL}&{START}",
        "/api/v1/metadata",
        "/api/v1/metadata?metric=vault.gold",
        "/api/v1/metadata?search=",
        "/api/v1/targets",
        "/api/v1/rules",
        "/api/v1/alerts",
        f"/federate?match[]={ALL}",
    ],
)
def test_no_address_shows_what_the_role_does_not_see(restricted: AsgiClient, path: str) -> None:
    shown, all_ = restricted.get(path, SAM), restricted.get(path, basic("vera"))
    assert all_.status == 200, all_.text
    assert any(word in all_.text for word in HIDDEN), "the test shows nothing: nobody sees the hidden series here"
    assert shown.status in (200, 403), shown.text
    assert not any(word in shown.text for word in HIDDEN), shown.text


def store_of_two_teams() -> PlainStore:
    """A series that the role sees, and one that it does not, each with its process."""
    store = PlainStore()
    for name, labels, value in (
        ("shop.orders", {"team": "shop"}, 7.0),
        ("vault.gold", {"team": "vault", "cellar": "c1"}, 31337.0),
        ("artimon.endpoint.up", {"context": "cellar", "instance": "1", "host": "h1", "team": "vault"}, True),
    ):
        store.add(name, labels, minutes([value] * 12), Kind.GAUGE)
    return store


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    text = ACCESS.replace('route="/a"', 'team="shop"')
    with asked(opened(text, tmp_path_factory.mktemp("scope")), store_of_two_teams(), alerts=lambda: ALERTS) as found:
        yield found


def test_the_role_sees_its_part(restricted: AsgiClient) -> None:
    query = "fetch('{team!=\"\"}')"
    names = [one["name"] for one in restricted.get("/api/query", SAM, q=query).json["series"]]
    assert names == ["shop.orders"]
    assert restricted.get("/api/names", SAM).json["names"] == ["shop.orders"]
    assert restricted.get("/api/label_values", SAM, label="team").json["values"] == ["shop"]
    assert len(restricted.get("/api/query", basic("vera"), q=query).json["series"]) == 3


@pytest.mark.parametrize("engine", ["auto", "memory", "history"])
@pytest.mark.parametrize("query", ["fetch('{team!=\"\"}')", "fetch('{team!=\"\"}').range('20m')"])
def test_every_engine_is_restricted(tmp_path: Path, engine: str, query: str) -> None:
    text = ACCESS.replace('route="/a"', 'team="shop"')
    store = store_of_two_teams()
    with asked(opened(text, tmp_path), store, history=store) as client:
        answer, whole = (client.get("/api/query", basic(user), q=query, engine=engine) for user in ("sam", "vera"))
        assert (answer.status, whole.status) == (200, 200), answer.text
        assert [one["name"] for one in answer.json["series"]] == ["shop.orders"]
        assert len(whole.json["series"]) == 3


def test_a_reduction_counts_visible_series_only(restricted: AsgiClient) -> None:
    def count(user: str) -> Any:
        found = restricted.get("/api/v1/query", basic(user), query=f"count({ALL})").json
        return found["data"]["result"][0]["value"][1]

    assert (count("sam"), count("vera")) == ("1", "3")


def test_what_cannot_be_restricted_is_refused(restricted: AsgiClient) -> None:
    for path in ("/api/status", "/api/configuration", "/api/v1/status/tsdb"):
        answer = restricted.get(path, SAM)
        assert answer.status == 403
        assert "sees a part" in answer.text


def test_alerts_follow_their_labels(restricted: AsgiClient) -> None:
    found = restricted.get("/api/alerts", SAM).json
    assert [one["summary"] for one in found["alerts"]] == ["a"]
    assert [(one["name"], one["error"]) for one in found["rules"]] == [("slow", "")]
    assert len(restricted.get("/api/alerts", basic("vera")).json["alerts"]) == 3


def test_remote_read_is_restricted(restricted: AsgiClient) -> None:
    matcher = b"\x08\x01\x12\x08__name__\x1a\x01x"  # __name__ != "x"
    query = b"\x08\x00\x10" + _varint(NOW) + b"\x1a" + bytes([len(matcher)]) + matcher
    body = compress_block(b"\x0a" + bytes([len(query)]) + query)
    kind = {"content-encoding": "snappy", "content-type": "application/x-protobuf"}
    sam = restricted.send("POST", "/api/v1/read", body, {**kind, **SAM})
    vera = restricted.send("POST", "/api/v1/read", body, {**kind, **basic("vera")})
    assert (sam.status, vera.status) == (200, 200), (sam.body, vera.body)
    assert len(sam.body) < len(vera.body)
    assert b"vault" in vera.body
    assert b"vault" not in sam.body
    assert b"shop" in sam.body


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def test_endpoints_are_not_shared_between_roles(restricted: AsgiClient) -> None:
    assert restricted.get("/api/endpoints", basic("vera")).json["found"] == 1
    assert restricted.get("/api/endpoints", SAM).json["found"] == 0


class Recorder(ForwardingStore):
    """A store that notes the matchers of each call and answers nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in ("asked", "store"):
            return object.__getattribute__(self, name)

        def note(*given: Any, **more: Any) -> list[Any]:
            self.asked.append((name, (given, more)))
            return []

        return note


METHODS = sorted(name for name in vars(EngineStore) if not name.startswith("_"))
SAFE = {"appended_ms", "can_aggregate", "checks_budget", "has_history", "levels", "reach"}
"""Members that tell nothing of series."""


def test_the_wrapper_restricts_every_method_of_a_store() -> None:
    assert set(METHODS) > SAFE
    left = {name for name in METHODS if name not in SAFE and name not in vars(ScopedStore)}
    assert left == set(), f"{left}: add the matchers in ScopedStore, or name them safe"


def test_lists_of_the_wrapper_ask_with_its_matchers() -> None:
    sees, store = (Matcher("team", "=", "a"),), Recorder()
    wrapped = ScopedStore(store, sees)
    (
        wrapped.names(),
        wrapped.label_values("x"),
        wrapped.find(()),
        wrapped.matching_values(None, ()),
        wrapped.newest((), 1),
    )
    assert all(str(sees[0]) in str(given) for _, given in store.asked)
    assert len(store.asked) == 5


def test_visibility_judges_absent_labels_as_empty() -> None:
    is_visible = visibility((Matcher("team", "!=", "a"), Matcher("dc", "=~", "j.")))
    assert is_visible({"dc": "jb"})
    assert not is_visible({"dc": "jb", "team": "a"})
    assert not is_visible({})


def test_a_role_has_its_own_limits(tmp_path: Path) -> None:
    text = ACCESS.replace("  level: viewer\n", "  level: viewer\n  limits: {series: 1}\n  hard_limits: {found: 1}\n")
    text = text.replace("""  sees: '{route="/a"}'\n""", "")
    with asked(opened(text, tmp_path)) as client:
        answer = client.get("/api/query", SAM, q=SELECT)
        assert answer.status == 413
        assert "the limit of 1 (series)" in answer.json["error"]["message"]
        assert client.get("/api/query", SAM, q=SELECT, limits="hard").status == 200
        assert client.get("/api/names", SAM, limit="2").status == 413
        assert client.get("/api/query", basic("vera"), q=SELECT).status == 200
        lines = (tmp_path / "audit.jsonl").read_text().splitlines()
        assert [json.loads(line)["query"] for line in lines] == [SELECT]


def test_a_request_without_a_principal_reads_nothing(access: Authenticator) -> None:
    import asyncio

    with asked(access) as client:
        desk = client.app.state.desk
        running = asyncio.run_coroutine_threadsafe(desk.run(lambda store: store.names()), client.loop)
        with pytest.raises(Exception, match="has no principal"):
            running.result(10)
