"""Questions over HTTP: the same answers as in Python, errors with their place."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest

from query_dsl import evaluate, parse
from query_dsl.evaluation.host_acks import UNACKED
from tests.api.serving import NOW, STATUS, Client, minutes, served, small_store
from tests.query_dsl.plain_store import MINUTE, PlainStore

RATE = "fetch('http.requests').rate('2m').sum(by=['route']).range('10m')"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


def test_a_good_question_is_answered_with_its_matrix(client: Client) -> None:
    answer = client.ask(RATE)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == evaluate(parse(RATE), small_store(), NOW).to_dict()
    assert [series["labels"] for series in answer.json["series"]] == [{"route": "/"}, {"route": "/a"}]
    assert set(answer.json["series"][0]["values"]) == {1.0}
    assert answer.json["notes"] == []


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (FORM, urlencode({"q": RATE, "time_ms": NOW})),
        (JSON, json.dumps({"q": RATE, "time_ms": NOW})),
        ({"Content-Type": "application/json; charset=utf-8"}, json.dumps({"q": RATE})),
    ],
)
def test_a_posted_question_has_the_same_answer(client: Client, headers: dict[str, str], body: str) -> None:
    assert client.send("POST", "/api/query", body.encode(), headers).json == client.ask(RATE).json


def test_time_is_that_of_the_question(client: Client) -> None:
    then = NOW - 5 * MINUTE
    grid = client.ask(RATE, time_ms=then).json["grid"]
    assert grid["end_ms"] == client.ask(RATE).json["grid"]["end_ms"] - 5 * MINUTE
    assert client.ask(RATE, time_ms="soon").status == 400
    assert "time_ms" in client.ask(RATE, time_ms=-1).error


@pytest.mark.parametrize("kind", [FORM, JSON], ids=["form", "json"])
def test_the_newest_buckets_alone(client: Client, kind: dict[str, str]) -> None:
    """In a GET and in a POST."""
    given = {"q": RATE, "newest": 3}
    body = json.dumps(given) if kind is JSON else urlencode(given)
    whole, newest = client.ask(RATE).json, client.ask(RATE, newest=3).json
    assert client.send("POST", "/api/query", body.encode(), kind).json == newest
    assert newest["grid"]["end_ms"] == whole["grid"]["end_ms"]
    assert [one["values"] for one in newest["series"]] == [one["values"][-3:] for one in whole["series"]]


@pytest.mark.parametrize("newest", [0, -1, "x", 11_001])
def test_a_number_of_newest_buckets_that_is_none(client: Client, newest: object) -> None:
    assert "newest" in client.ask(RATE, newest=newest).error
    posted = client.send("POST", "/api/query", json.dumps({"q": RATE, "newest": newest}).encode(), JSON)
    assert (posted.status, "newest" in posted.error) == (400, True)


def test_missing_is_null_and_nan_is_a_text(client: Client) -> None:
    values = client.ask("fetch('heat').map(last, '1m').range('4m')").json["series"][0]["values"]
    assert values.count(None) == 2
    assert values.count("NaN") == 1
    assert values.count(20.5) == 1


@pytest.mark.parametrize(
    ("text", "marked", "told"),
    [
        ("fetch('http.requests').raet()", "raet", "rate"),
        ("fetch('http.requests'", None, ""),
        ("fetch('http.request')", None, "http.requests"),
        ("fetch('http.requests').sum(by=['roote'])", None, "route"),
        ("__import__('os').system('true')", "system", ""),
        ("(" * 200, None, "nest"),
        ("fetch('http.requests{route=~\"(\"}')", None, ""),
    ],
)
def test_a_bad_question_is_told_what_and_where(client: Client, text: str, marked: str | None, told: str) -> None:
    answer = client.ask(text)
    assert answer.status == 400
    error = answer.json["error"]
    assert set(error) == {"message", "position", "length"}
    assert isinstance(error["position"], int)
    assert 0 <= error["position"] <= len(text)
    assert error["length"] >= 1
    assert told in error["message"]
    if marked is not None:
        assert text[error["position"] :].startswith(marked)
    assert b"Traceback" not in answer.body


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (FORM, b"time_ms=5", 400),
        (FORM, b"q=%ff", 400),
        (FORM, b"&".join(b"a%d=1" % i for i in range(40)), 400),
        (FORM, b"q=fetch(%27heat%27)&time_ms=1e9", 400),
        (JSON, b"{", 400),
        (JSON, b"[" * 50_000, 400),
        (JSON, b'{"q": 5}', 400),
        (JSON, b'{"q": "\\ud800"}', 400),
        (JSON, b'{"q": "fetch(\'heat\')", "time_ms": true}', 400),
        (JSON, b'["q"]', 400),
        ({"Content-Type": "text/plain"}, b"fetch('heat')", 415),
        ({**JSON, "Content-Encoding": "gzip"}, b"x", 415),
    ],
)
def test_a_bad_body_is_refused_with_a_text(client: Client, headers: dict[str, str], body: bytes, status: int) -> None:
    answer = client.send("POST", "/api/query", body, headers)
    assert (answer.status, bool(answer.error)) == (status, True)


def test_half_surrogates_in_a_label_are_escaped(client: Client) -> None:
    answer = client.ask("fetch('heat').named('\\ud800')")
    assert answer.status in (200, 400)
    assert answer.json


def test_completeness_counts_what_the_query_reads(client: Client) -> None:
    found = client.get("/api/completeness", q="fetch('http.requests').sum(by=['route']).range('10m')").json
    assert found["series"] == 2
    assert 0 < found["present"] <= found["expected"]
    assert found["share"] == found["present"] / found["expected"]
    assert "% of expected points" in found["text"]
    assert client.get("/api/completeness", q="fetch('http.requests'").status == 400
    assert client.get("/api/completeness").status == 400


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
def test_an_answer_carries_its_completeness_if_it_is_asked_for(client: Client, form: str) -> None:
    query = "fetch('http.requests').sum(by=['route']).range('10m')"
    wanted = client.get("/api/completeness", q=query).json
    answer = client.get("/api/query", q=query, format=form, completeness="1")
    assert json.loads(answer.headers["x-artimon-completeness"]) == wanted
    plain = client.get("/api/query", q=query, format=form)
    assert "x-artimon-completeness" not in plain.headers
    if form == "json":
        assert answer.json == {**plain.json, "completeness": wanted}
    else:
        assert answer.body == plain.body


def test_a_posted_query_carries_its_completeness_too(client: Client) -> None:
    body = json.dumps({"q": "fetch('http.requests').range('10m')", "completeness": True}).encode()
    found = client.send("POST", "/api/query", body, JSON)
    assert found.json["completeness"]["series"] > 0
    wrong = json.dumps({"q": "fetch('http.requests')", "completeness": "much"}).encode()
    assert client.send("POST", "/api/query", wrong, JSON).status == 400


def lacking_store() -> PlainStore:
    """Half an hour of two hosts, of which one fell silent ten minutes ago; the acks of its agent stand still since."""
    store = PlainStore().add("load", {"host": "a"}, minutes([1.0] * 40))
    store.add("load", {"host": "b"}, minutes([1.0] * 30, last=10))
    return store.add(UNACKED, {"host": "b", "instance": "agent-b"}, minutes([5_000] * 30, last=10))


def test_completeness_of_a_query_in_promql() -> None:
    asked: list[Collection[str]] = []

    def agents(names: Collection[str]) -> Mapping[str, Mapping[str, Any]]:
        asked.append(names)
        return {"b": {"time_ms": NOW, "figures": {"oldest_unacked_ms": 10 * MINUTE}}}

    with served(lacking_store(), agents=agents) as client:
        asking = {"q": "sum(load)", "lang": "promql", "range_ms": 20 * MINUTE}
        found = client.get("/api/completeness", **asking).json
        assert (found["expected"], found["missing"], found["silent_hosts"]) == (2 * 24, 9, 1)  # the newest bucket fills
        (silent,) = found["silent"]
        assert (silent["host"], silent["state"], silent["acked_ms"]) == ("b", "late", NOW - 10 * MINUTE)
        assert asked
        asked.clear()
        assert client.get("/api/completeness", time_ms=NOW, **asking).json["silent"][0]["state"] == "agent silent"
        assert asked == [], "the agents that live now tell nothing about another time"
        native = client.get("/api/completeness", q="fetch('load').range('20m')").json
        assert native["silent"][0]["state"] == "late"
        one = client.get("/api/completeness", **asking | {"limit": 1})
        assert (one.status, client.get("/api/completeness", **asking | {"limit": 2}).status) == (413, 200)
        assert client.get("/api/completeness", q="sum(", lang="promql").status == 400
        assert client.get("/api/completeness", q="1", lang="sql").status == 400


def test_find_lists_and_says_when_there_is_more(client: Client) -> None:
    found = client.get("/api/find", selector="http.*").json
    assert [row["series"] for row in found["series"]] == ['http.requests{route="/"}', 'http.requests{route="/a"}']
    assert found["series"][0]["kind"] == "COUNTER"
    assert not found["truncated"]
    first = client.get("/api/find", selector="http.*", limit=1).json
    assert (len(first["series"]), first["truncated"]) == (1, True)
    assert client.get("/api/find", selector="nothing").json == {"series": [], "truncated": False}


def test_find_refuses_too_many_and_bad_selectors(client: Client) -> None:
    assert client.get("/api/find", selector="http.*", limit=10_001).status == 413
    assert client.get("/api/find", selector="http.*", limit=0).status == 400
    assert client.get("/api/find").status == 400
    bad = client.get("/api/find", selector="a{b=")
    assert bad.status == 400
    assert bad.json["error"]["position"] is not None


def test_status_and_health(client: Client) -> None:
    assert client.get("/api/status").json == STATUS
    assert client.get("/api/health").json == {"state": "ok"}


def test_only_what_there_is(client: Client) -> None:
    for path in ("/docs", "/redoc", "/nothing", "/api/", "/api/query/"):
        answer = client.get(path)
        assert (answer.status, bool(answer.error)) == (404, True)
    for method in ("DELETE", "PUT", "PATCH", "OPTIONS"):
        answer = client.send(method, "/api/query", headers={"Origin": "http://evil.example"})
        assert answer.status == 405
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_form_of_another_kind_is_not_taken(client: Client) -> None:
    """A page of another site can send only a form without a preflight request, and cannot read the answer."""
    for kind in ("text/plain", "multipart/form-data; boundary=x", ""):
        assert client.send("POST", "/api/query", b"q=fetch('heat')", {"Content-Type": kind}).status == 415


def test_error_texts_move_no_cursor(client: Client) -> None:
    answer = client.ask("fetch('heat{a=\x1b[2J\"x\"}')")
    assert answer.status == 400
    assert answer.error.isprintable()
    missing = client.send("GET", "/static/%1b%5b2J")
    assert missing.error.isprintable()


def test_a_name_that_another_site_points_here_is_refused(client: Client) -> None:
    assert client.send("GET", "/api/health", headers={"Host": "evil.example"}).status == 400
    assert client.send("GET", "/api/health", headers={"Host": f"localhost:{client.port}"}).status == 200


def test_lint_finds_what_is_wrong_without_an_evaluation(client: Client) -> None:
    (found,) = client.get("/api/lint", q="fetch('http.requests')").json["findings"]
    assert (found["code"], found["position"], found["length"]) == ("raw-counter", 0, len("fetch('http.requests')"))
    (found,) = client.get("/api/lint", q='heat + {"http.requets"}', lang="promql").json["findings"]
    assert (found["code"], found["position"]) == ("no-series", 9)
    assert "http.requests" in found["message"]
    (found,) = client.get("/api/lint", q="fetch('heat'").json["findings"]
    assert found["code"] == "invalid"
    assert client.get("/api/lint", q="fetch('heat')").json == {"findings": []}
    assert client.get("/api/lint").status == 400
    assert client.get("/api/lint", q="heat", lang="sql").status == 400
