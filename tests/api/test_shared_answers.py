"""Answers that equal requests share: one evaluation, renewed while it is used, never across what roles see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from fastapi import Request

from artimon.access.principal import LOCAL, Principal, acting_as, current_principal
from artimon.api.api_limits import ApiLimits
from artimon.api.buffered_answer import BufferedAnswer, ByteBudget, buffer_answer
from artimon.api.shared_answers import Gone, SharedAnswers, accepted_age_s
from artimon.model.clock import ManualClock
from artimon.model.select import Matcher, SelectRequest
from tests.api.serving import NOW, Answer, Client, served, small_store
from tests.api.test_limits import HeldStore
from tests.query_dsl.plain_store import MINUTE
from tests.waiting import eventually

SHARED = {"cache-control": "max-age=120"}
PATH = "/api/query?q=fetch('http.requests')"


@contextmanager
def counted(limits: ApiLimits | None = None) -> Iterator[tuple[Client, list[SelectRequest], ManualClock]]:
    """Serve a store; yield what is selected."""
    store, clock = small_store(), ManualClock(NOW)
    with served(store, limits, clock=clock) as client:
        yield client, store.requests, clock


def ask(client: Client, path: str = PATH, headers: Mapping[str, str] = SHARED) -> Answer:
    """Send a request and require its answer."""
    answer = client.send("GET", path, headers=headers)
    assert answer.status == 200, answer.body
    return answer


@pytest.mark.parametrize(
    "path",
    [PATH, "/api/v1/query_range?query={%22http.requests%22}&start=1700000000&end=1700000060&step=60"],
    ids=["artimon", "promql"],
)
def test_equal_requests_have_one_evaluation(path: str) -> None:
    with counted() as (client, selected, clock):
        first = ask(client, path)
        evaluated = len(selected)
        clock.advance(3_000)
        second = ask(client, path)
        assert len(selected) == evaluated > 0
        assert (first.body, first.headers["content-type"]) == (second.body, second.headers["content-type"])
        assert (first.headers["age"], second.headers["age"]) == ("0", "3")
        assert second.headers["cache-control"] == "no-store"


def test_a_request_without_an_age_gets_a_new_answer() -> None:
    with counted() as (client, selected, _):
        ask(client)
        answer = ask(client, headers={})
        assert len(selected) == 2
        assert "age" not in answer.headers


def test_other_encodings_and_parameters_are_other_requests() -> None:
    with counted() as (client, selected, _):
        for path, headers in ((PATH, {}), (PATH, {"accept": "text/csv"}), (f"{PATH}&engine=memory", {})):
            ask(client, path, {**SHARED, **headers})
        assert len(selected) == 3


def test_an_answer_is_renewed_once_a_bucket_has_settled() -> None:
    """The request that finds it gets the answer before; the next one has the new bucket."""
    with counted() as (client, selected, clock):
        before = ask(client).json["grid"]["end_ms"]
        clock.advance(59_000)
        assert ask(client).json["grid"]["end_ms"] == before
        eventually(lambda: len(selected) == 2)
        eventually(lambda: ask(client).json["grid"]["end_ms"] == before + MINUTE)
        assert len(selected) == 2


def test_an_answer_older_than_accepted_is_not_used() -> None:
    with counted() as (client, selected, clock):
        before = ask(client).json["grid"]["end_ms"]
        clock.advance(121_000)
        assert ask(client).json["grid"]["end_ms"] == before + 2 * MINUTE
        assert len(selected) == 2


def test_requests_wait_for_the_evaluation_that_runs() -> None:
    store = HeldStore()
    with served(store) as client, ThreadPoolExecutor(3) as pool:
        sent = [pool.submit(ask, client) for _ in range(3)]
        try:
            assert store.entered.acquire(timeout=20)
            assert not store.entered.acquire(timeout=0.3)
            assert len(client.get("/api/queries").json["queries"]) == 1
        finally:
            store.release.set()
        assert len({one.result(20).body for one in sent}) == 1


def test_who_leaves_ends_the_evaluation_only_if_nobody_else_waits() -> None:
    store = HeldStore()
    request = b"GET %s HTTP/1.1\r\nHost: localhost\r\nCache-Control: max-age=9\r\n\r\n" % PATH.encode()
    with served(store) as client, ThreadPoolExecutor(1) as pool:
        try:
            first = client.raw(request)
            assert store.entered.acquire(timeout=20)
            second = pool.submit(ask, client)
            eventually(lambda: client.desk is not None and client.desk.shared.waiting == 2)
            first.close()
            eventually(lambda: client.desk is not None and client.desk.shared.waiting == 1)
            assert len(client.get("/api/queries").json["queries"]) == 1
        finally:
            store.release.set()
        assert second.result(20).json["series"]
    store = HeldStore()
    with served(store) as client:
        try:
            only = client.raw(request)
            assert store.entered.acquire(timeout=20)
            only.close()
            eventually(lambda: client.get("/api/queries").json["queries"] == [])
        finally:
            store.release.set()


def test_an_error_is_not_kept() -> None:
    with counted() as (client, _, _):
        for _ in range(2):
            refused = client.send("GET", "/api/query?q=fetch('none')", headers=SHARED)
            assert refused.status == 400
        assert client.desk is not None
        assert client.desk.shared.size == 0


def test_the_memory_of_all_answers_has_a_bound() -> None:
    with counted(replace(ApiLimits(), shared_bytes=100_000)) as (client, _, _):
        for minutes in range(2, 28):
            for text in ("http.requests", "heat"):
                ask(client, f"/api/query?q=fetch('{text}').range('{minutes}m')")
        assert client.desk is not None
        assert 50_000 < client.desk.shared.size <= 100_000


def test_a_role_that_sees_less_has_answers_of_its_own() -> None:
    asyncio.run(_ask_as_two_roles())


async def _ask_as_two_roles() -> None:
    budget, asked = ByteBudget(1_000_000), list[Principal | None]()
    shared = SharedAnswers(ManualClock(NOW), budget, 1_000_000)
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "query_string": b""}
    scope["headers"] = [(b"cache-control", b"max-age=9")]
    matchers = (Matcher("team", "=", "shop"),)
    restricted = replace(LOCAL, role=replace(LOCAL.role, sees=matchers))

    async def evaluate(_: Gone | None) -> tuple[BufferedAnswer, Mapping[str, str]]:
        asked.append(current_principal())
        return buffer_answer([b"x"], budget, most=100, gzip=False), {}

    async def receive() -> dict[str, str]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    for principal in (LOCAL, restricted, LOCAL, restricted):
        with acting_as(principal):
            await shared.respond(Request(scope, receive), evaluate)
    assert asked == [LOCAL, restricted]


@pytest.mark.parametrize(
    ("method", "header", "age_s"),
    [
        ("GET", "max-age=5", 5),
        ("GET", "no-transform, max-age=900", 120),
        ("GET", "no-cache", 0),
        ("GET", "max-age=0", 0),
        ("GET", "s-max-age=5", 0),
        ("GET", "max-age=-5", 0),
        ("POST", "max-age=5", 0),
    ],
)
def test_the_age_that_a_request_accepts(method: str, header: str, age_s: int) -> None:
    scope = {"type": "http", "method": method, "headers": [(b"cache-control", header.encode())]}
    assert accepted_age_s(Request(scope)) == age_s
