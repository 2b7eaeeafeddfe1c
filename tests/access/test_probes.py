"""Probes as of a scanner: hostile texts in every parameter, paths, methods, hosts and headers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from artimon.access.principal import Level
from artimon.access.route_rules import rule_of
from artimon.model.values import Kind
from tests.access.asgi_client import ACCESS, AsgiClient, asked, opened
from tests.access.conftest import basic
from tests.access.test_guard import routes
from tests.api.serving import minutes, small_app
from tests.query_dsl.plain_store import PlainStore

MARK = "<script>alert(31337)</script>"
VERA = basic("vera")
PARAMETERS = (
    "q",
    "query",
    "selector",
    "label",
    "prefix",
    "match[]",
    "filter",
    "state",
    "host",
    "role",
    "limit",
    "next",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AsgiClient]:
    """An application whose labels, rules and alerts are hostile."""
    store = PlainStore()
    store.add("shop.orders", {"team": MARK, "route": '"><img src=x onerror=alert(1)>'}, minutes([1.0] * 5), Kind.GAUGE)
    rule = {"name": MARK, "expr": MARK, "state": "firing", "error": MARK}
    alert = {"rule": MARK, "labels": {"team": MARK}, "state": "firing", "summary": MARK, "value": 1}
    record = {"name": MARK, "record": MARK, "expr": MARK, "error": MARK}
    lists = {"engines": [], "rules": [rule], "recordings": [record], "alerts": [alert]}
    told = {**lists, "truncated": 0, "problem": MARK}
    with asked(opened(ACCESS, tmp_path_factory.mktemp("hostile")), store, alerts=lambda: told) as found:
        yield found


@pytest.mark.parametrize("path", sorted({path for method, path, _ in routes() if method == "GET"}))
def test_what_comes_back_is_never_html(hostile: AsgiClient, path: str) -> None:
    """Every parameter of every address, with and without a login: a page that runs no code, or no page at all."""
    place = path.replace("{name}", "a%22%3E%3Cscript%3E").replace("{name:path}", "a").replace("{id}", "a")
    for headers in (VERA, {}):
        answers = [hostile.get(place, headers, **{name: MARK}) for name in PARAMETERS]
        answers.append(hostile.get(place, headers, **{"match[]": "shop.orders", "q": "fetch('shop.orders')"}))
        for answer in answers:
            kind = answer.headers.get("content-type", "text/plain")
            assert answer.status < 500, answer.text
            assert answer.headers.get("x-content-type-options") == "nosniff" or not answer.body, path
            if kind.startswith("text/html"):
                assert MARK not in answer.text
                policy = answer.headers["content-security-policy"]
                assert "unsafe" not in policy
                assert "default-src 'none'" in policy or "default-src 'self'" in policy
            assert "\n" not in answer.headers.get("location", "")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/....//app.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "/static/index.html\0.js",
        "/static/vendor/../../app.py",
        "/../../etc/passwd",
        "//evil.example/",
        "/static/__init__.py",
        "/.git/config",
        "/.env",
        "/access.yaml",
        "/tokens.json",
        "/audit.jsonl",
    ],
)
def test_no_path_leads_out_of_the_page(hostile: AsgiClient, path: str) -> None:
    for headers in (VERA, {}):
        answer = hostile.get(path, headers)
        assert answer.status in (401, 404), answer.text
        assert b"import" not in answer.body
        assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "path", ["/login/", "/LOGIN", "/api/query/", "//api/query", "/api//query", "/api/query;a", "/API/query"]
)
def test_other_spellings_of_an_address_open_nothing(hostile: AsgiClient, path: str) -> None:
    assert hostile.get(path, q="fetch('shop.orders')").status == 401
    assert hostile.get(path, VERA, q="fetch('shop.orders')").status == 404


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "PATCH", "PUT", "OPTIONS", "GET\r\nX: y"])
def test_other_methods_do_nothing(hostile: AsgiClient, method: str) -> None:
    assert hostile.send(method, "/api/query").status in (401, 405)
    assert hostile.send(method, "/api/query", headers=VERA).status == 405


@pytest.mark.parametrize(
    "headers",
    [
        {"x-http-method-override": "DELETE"},
        {"x-original-url": "/api/health"},
        {"x-rewrite-url": "/api/health"},
        {"x-forwarded-user": "ada", "x-forwarded-groups": "dev"},
        {"x-forwarded-for": "10.0.0.1", "x-forwarded-user": "ada", "x-forwarded-groups": "dev"},
        {"x-real-ip": "10.0.0.1", "x-forwarded-user": "ada"},
        {"x-webauth-user": "ada"},
        {"x-artimon-author": "ada"},
        {"cookie": "artimon-session=; artimon-session=x; __Host-artimon-session=y"},
        {"cookie": "artimon-session=" + "x" * 10_000},
        {"cookie": '"' * 100},
        {"authorization": "Basic YWRhOg=="},
        {"x-artimon-token": "artimon_"},
    ],
)
def test_headers_that_others_trust_open_nothing(hostile: AsgiClient, headers: dict[str, str]) -> None:
    assert hostile.get("/api/names", headers).status == 401


def test_an_unknown_host_is_refused_before_everything(hostile: AsgiClient) -> None:
    """A page of another site whose name points to this machine."""
    assert hostile.get("/api/names", {**VERA, "host": "evil.example"}).status == 400
    assert hostile.post("/login", {"host": "evil.example"}, user="vera", password="x").status == 400


def test_no_answer_allows_other_origins(hostile: AsgiClient) -> None:
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}):
        answer = hostile.get("/api/names", {**VERA, **headers})
        assert not any(name.startswith("access-control-") for name in answer.headers)


def test_answers_are_not_kept_and_pages_are_not_framed(hostile: AsgiClient) -> None:
    for path in ("/api/names", "/api/v1/labels", "/login", "/api/nothing"):
        answer = hostile.get(path, VERA)
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_long_and_strange_logins_cost_little(hostile: AsgiClient) -> None:
    own = {"origin": "http://127.0.0.1"}
    assert hostile.post("/login", own, user="u" * 60_000, password="p").status == 401
    assert hostile.post("/login", own, user="u", password="p" * 70_000).status == 413
    assert hostile.post("/login", own, **{f"f{at}": "x" for at in range(50)}).status == 400
    kind = {"content-type": "application/x-www-form-urlencoded", **own}
    assert hostile.send("POST", "/login", b"user=%ff&password=\xff", kind).status == 400
    assert hostile.send("POST", "/login", b"", {**kind, "content-encoding": "gzip"}).status == 415


def test_no_route_of_a_change_answers_get() -> None:
    changing = {path for _, path, handler in routes() if (rule := rule_of(handler)) and rule.changes}
    assert changing == {
        "/api/queries/{id}",
        "/api/alerts/replay",
        "/api/alerts/silences",
        "/api/alerts/silences/{id}",
        "/api/alerts/acknowledgements",
        "/api/dashboards/{name}",
        "/api/dashboards/{name}/panels",
        "/api/dashboards/{name}/restore",
    }
    rules = {(method, path): rule_of(handler) for method, path, handler in routes()}
    assert not any(rule.changes for (method, _), rule in rules.items() if rule and method == "GET")
    assert Level.VIEWER < Level.EDITOR < Level.ADMIN
    assert small_app().state.authenticator is None
