"""The list of running queries, and their cancellation; soft and hard limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from artimon.api.api_limits import HARD_FACTORS, ApiConfig, ApiLimits, LimitError
from tests.api.serving import EDGE, Answer, Client, served, small_store
from tests.api.test_limits import HeldStore

SELECTOR = '{"http.requests"}'


@contextmanager
def held(path: str, **limits: float) -> Iterator[tuple[Client, HeldStore, Future[Answer]]]:
    """Serve a store that answers no select, and send it one request."""
    store = HeldStore()
    with served(store, limits=replace(ApiLimits(), **limits)) as client, ThreadPoolExecutor(1) as pool:  # type: ignore[arg-type]
        try:
            sent = pool.submit(client.get, path)
            assert store.entered.acquire(timeout=20)
            yield client, store, sent
        finally:
            store.release.set()


@pytest.mark.parametrize(
    ("path", "language"),
    [(f"/api/v1/query?query={quote(SELECTOR)}", "promql"), ("/api/query?q=fetch('http.requests')", "artimon")],
)
def test_a_running_query_is_listed_and_cancelled(path: str, language: str) -> None:
    with held(path) as (client, _, sent):
        (one,) = client.get("/api/queries").json["queries"]
        assert (one["language"], one["client"], "http.requests" in one["query"]) == (language, "127.0.0.1", True)
        assert (one["limits"], one["timeout_ms"]) == ("soft", 20_000)
        assert client.send("DELETE", f"/api/queries/{one['id']}").json == {"cancelled": one["id"]}
        answer = sent.result(20)
        assert answer.status == 503
        assert b"cancelled" in answer.body
        if language == "promql":
            assert answer.json["errorType"] == "canceled"
        assert client.get("/api/queries").json["queries"] == []
        assert client.send("DELETE", f"/api/queries/{one['id']}").status == 404


def test_queries_are_not_cancelled_by_get_or_post(client: Client) -> None:
    assert client.get("/api/queries/x").status == 405
    assert client.send("POST", "/api/queries/x").status == 405
    assert client.send("DELETE", "/api/queries/" + "x" * 50).status == 400


def test_a_timeout_has_the_form_of_prometheus() -> None:
    with held(f"/api/v1/query?query={quote(SELECTOR)}&timeout=50ms") as (_, _, sent):
        answer = sent.result(20)
        assert (answer.status, answer.json["errorType"]) == (503, "timeout")


def test_a_timeout_may_be_longer_than_the_soft_limit() -> None:
    with held(f"/api/v1/query?query={quote(SELECTOR)}&timeout=1h", query_s=0.5) as (_, _, sent):
        answer = sent.result(20)
        assert "query_s = 3 s" in answer.json["error"]


def test_hard_limits_are_asked_for() -> None:
    limits = replace(ApiLimits(), series=1, found=1)
    with served(small_store(), limits=limits) as client:
        soft = client.get("/api/v1/query", query=SELECTOR, time=EDGE / 1000)
        assert (soft.status, soft.json["errorType"]) == (422, "execution")
        assert "1 (series)" in soft.json["error"]
        assert "limits=hard allows more" in soft.json["error"]
        found = client.get("/api/v1/query", query=SELECTOR, time=EDGE / 1000, limits="hard")
        assert len(found.json["data"]["result"]) == 2
        assert client.get("/api/query", q="fetch('http.requests')", limits="hard").status == 200
        assert client.get("/api/query", q="fetch('http.requests')").status == 413
        assert client.get("/api/v1/query", query="x", limits="none").status == 400
        series = {"match[]": SELECTOR}
        assert len(client.get("/api/v1/series", **series).json["data"]) == 1
        assert len(client.get("/api/v1/series", limit=4, **series).json["data"]) == 2


def test_hard_limits_are_settings() -> None:
    given = ApiConfig("", Path(), limits=replace(ApiLimits(), found=70), hard_limits=("series=30000", "found=9"))
    assert (given.hard.series, given.hard.found) == (30_000, 70)
    assert given.hard.query_s == HARD_FACTORS["query_s"] * given.limits.query_s
    with pytest.raises(LimitError):
        ApiLimits().changed(["no=1"])


def test_many_queries_wait_and_are_all_listed() -> None:
    store = HeldStore()
    with served(store, limits=replace(ApiLimits(), running=1, query_s=60)) as client, ThreadPoolExecutor(4) as pool:
        try:
            path = f"/api/v1/query?query={quote(SELECTOR)}"
            sent = [pool.submit(client.get, path) for _ in range(4)]
            listed = threading.Event()
            for _ in range(400):
                states = [one["state"] for one in client.get("/api/queries").json["queries"]]
                if states == ["running", "waiting", "waiting", "waiting"]:
                    listed.set()
                    break
            assert listed.is_set(), states
        finally:
            store.release.set()
        assert {one.result(20).status for one in sent} == {200}
