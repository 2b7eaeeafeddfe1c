"""What is too much, too slow or unanswerable is refused, and the server goes on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from artimon.api.limits import Limits
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.select import Buckets, SelectRequest
from tests.api.serving import NOW, Client, everything, served, small_store
from tests.query_dsl.plain_store import MINUTE, PlainStore
from varstore.client import StoreUnavailable

FETCH = "fetch('http.requests')"
LIMITS = Limits()


class HeldStore(PlainStore):
    """Answers no select before `release` is set."""

    def __init__(self) -> None:
        super().__init__(small_store().series)
        self.entered, self.release = threading.Semaphore(0), threading.Event()
        self.finished = threading.Semaphore(0)

    def select(self, request: SelectRequest) -> Buckets:
        self.entered.release()
        self.release.wait(20)
        self.finished.release()
        return super().select(request)


class FailingStore(PlainStore):
    """Fails as told."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(small_store().series)
        self.failure = failure

    def select(self, request: SelectRequest) -> Buckets:
        raise self.failure


def alive(client: Client) -> bool:
    return client.get("/api/health").status == 200


def test_a_long_text_is_refused_by_its_bytes(client: Client) -> None:
    answer = client.ask("fetch('" + "é" * 8200 + "')")
    assert answer.status == 413
    assert "16384" in answer.error
    assert client.send("GET", "/api/query?q=" + "a" * 100_000).status == 431


def test_a_declared_body_that_is_too_large_is_refused_unread(client: Client) -> None:
    head = b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000000\r\n\r\n"
    answer = everything(client.raw(head))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"65536" in answer


def test_a_chunked_body_is_counted_as_it_comes(client: Client) -> None:
    head = b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = everything(client.raw(head + b"10001\r\n" + b"x" * 0x10001))  # no end: it must not be waited for
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nq=", b"HTTP/1.1 408"),
        (b"GET /api/hea", b""),
        (b"", b""),
    ],
    ids=["body", "header", "silent"],
)
def test_who_sends_slowly_is_closed(sent: bytes, told: bytes) -> None:
    with served(limits=replace(LIMITS, body_s=0.3, header_s=0.3)) as client:
        began = SYSTEM_CLOCK.monotonic()
        assert everything(client.raw(sent))[: len(told) or None] == told
        assert 0.2 < SYSTEM_CLOCK.monotonic() - began < 5
        assert alive(client)


def test_header_bytes_that_drip_do_not_move_the_deadline() -> None:
    with served(limits=replace(LIMITS, header_s=0.5)) as client:
        connection = client.raw(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n")
        connection.settimeout(0.1)
        began = SYSTEM_CLOCK.monotonic()
        closed = False
        while not closed and SYSTEM_CLOCK.monotonic() - began < 10:
            try:
                connection.sendall(b"X: y\r\n")
                closed = connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
        connection.close()
        assert closed


def test_a_second_request_on_a_connection_has_a_deadline_too() -> None:
    with served(limits=replace(LIMITS, header_s=0.3)) as client:
        connection = client.raw(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /api/hea")
        assert b"HTTP/1.1" not in everything(connection)


def test_a_query_that_takes_too_long_ends_and_gives_its_turn_back() -> None:
    store = HeldStore()
    with served(store, replace(LIMITS, query_s=0.3, running=1, wait_s=0.2)) as client:
        late = client.ask(FETCH)
        assert late.status == 504
        assert "0.3 s" in late.error
        busy = client.ask(FETCH)  # its thread is not free yet
        assert busy.status == 503
        assert busy.headers["retry-after"]
        assert alive(client)
        assert client.get("/api/status").status == 200
        store.release.set()
        assert store.finished.acquire(timeout=10)
        assert client.ask(FETCH).status == 200


def test_so_many_wait_and_no_more() -> None:
    store = HeldStore()
    with served(store, replace(LIMITS, running=2, waiting=1)) as client, ThreadPoolExecutor(8) as threads:
        running = [threads.submit(client.ask, FETCH) for _ in range(2)]
        assert all(store.entered.acquire(timeout=10) for _ in running)
        others = [threads.submit(client.ask, FETCH) for _ in range(4)]
        refused = [other for other in others if _settles(other)]
        store.release.set()
        answers = [future.result() for future in running + others]
    assert len(refused) == 3
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 503, 503, 503]


def _settles(future: Any) -> bool:
    try:
        future.result(timeout=1)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    ("limits", "text", "told"),
    [
        ({"series": 1}, FETCH, "limit of 1"),
        ({"cells_read": 10}, FETCH + ".range('20m')", "20 buckets"),
        ({"cells_read": 35}, FETCH + ".range('20m')", "limit of 35"),
        ({}, FETCH + ".map(max, '20000d')", "buckets"),
        ({"cells_answered": 39}, FETCH + ".range('20m')", "40 cells"),
    ],
)
def test_too_much_is_told_with_the_limit(limits: Mapping[str, int], text: str, told: str) -> None:
    with served(limits=replace(LIMITS, **limits)) as client:
        answer = client.ask(text)
        assert answer.status == 413, answer.body
        assert told in answer.error


@pytest.mark.parametrize(
    ("failure", "status", "told"),
    [
        (StoreUnavailable("no shard answered"), 503, "no shard answered"),
        (RuntimeError("secret path"), 500, "internal error"),
        (MemoryError(), 413, "memory"),
    ],
)
def test_failures_of_the_store_have_their_status(failure: Exception, status: int, told: str) -> None:
    with served(FailingStore(failure)) as client:
        answer = client.ask(FETCH)
        assert answer.status == status
        assert told in answer.error
        assert b"secret" not in answer.body
        assert b"Traceback" not in answer.body
        assert alive(client)


def test_who_does_not_read_the_answer_is_closed() -> None:
    store = PlainStore()
    for i in range(10_000):  # more than the system buffers for a connection
        store.add("wide", {"host": f"{i}-{'x' * 900}"}, [(NOW - MINUTE, i)])
    with served(store, replace(LIMITS, write_s=0.5, idle_s=60, header_s=60, connections=2)) as client:
        connection = client.raw(b"GET /api/query?q=fetch('wide').range('2m') HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        deadline = SYSTEM_CLOCK.monotonic() + 20
        while not alive(client):  # with the stuck one there are too many connections
            assert SYSTEM_CLOCK.monotonic() < deadline
            threading.Event().wait(0.05)
        assert 0 < len(everything(connection)) < 9_000_000


def test_connections_over_the_limit_are_refused() -> None:
    with served(limits=replace(LIMITS, connections=3, header_s=30)) as client:
        held = [client.raw(b"GET /") for _ in range(4)]
        assert client.get("/api/health").status == 503
        for connection in held:
            connection.close()
