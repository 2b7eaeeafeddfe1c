"""Requests that are too large, too slow or unanswerable are refused, and the server continues."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from artimon.api.api_errors import QueryCancelledError
from artimon.api.api_limits import ApiLimits, LimitError
from artimon.api.limited_store import LimitedStore
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.select import Buckets, SelectRequest
from query_dsl import evaluate, parse
from tests.api.serving import NOW, Client, everything, served, small_store
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.waiting import eventually
from varstore.cluster.varstore_client import StoreUnavailable

FETCH = "fetch('http.requests')"
LIMITS = ApiLimits()


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


@pytest.mark.parametrize("more", [b"", b"Expect: 100-continue\r\n"], ids=["plain", "expect"])
def test_a_declared_body_that_is_too_large_is_refused_without_it(client: Client, more: bytes) -> None:
    head = b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000000\r\n" + more + b"\r\n"
    answer = everything(client.raw(head))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"65536" in answer


@pytest.mark.parametrize("path", ["/api/v1/read", "/api/query"])
def test_who_sends_a_large_body_whole_sees_the_refusal(client: Client, path: str) -> None:
    """The rest of the body is read and dropped: a connection that is closed before its end is reset."""
    answer = client.send("POST", path, b"x" * (4 << 20), {"content-encoding": "snappy"})
    assert answer.status == 413
    assert alive(client)


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
        assert 0.2 < SYSTEM_CLOCK.monotonic() - began < 20
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
    """Its turn is free again although the store still holds its question."""
    store = HeldStore()
    with served(store, replace(LIMITS, query_s=0.3, running=1, wait_s=2)) as client:
        late = client.ask(FETCH)
        assert late.status == 504
        assert "query_s = 0.3 s" in late.error
        assert client.get("/api/names").status == 200
        assert client.get("/api/status").status == 200
        assert not store.finished.acquire(blocking=False)
        store.release.set()
        assert store.finished.acquire(timeout=60)
        assert client.ask(FETCH).status == 200


def test_a_busy_server_says_when_to_come_again() -> None:
    store = HeldStore()
    with served(store, replace(LIMITS, running=1, wait_s=0.2)) as client, ThreadPoolExecutor(1) as threads:
        held = threads.submit(client.ask, FETCH)
        assert store.entered.acquire(timeout=60)
        busy = client.ask(FETCH)
        assert busy.status == 503
        assert "wait_s = 0.2 s" in busy.error
        assert busy.headers["retry-after"]
        store.release.set()
        assert held.result(20).status == 200


def test_a_long_computation_ends_between_its_steps() -> None:
    """A question of many steps that nobody waits for does not run to its end."""
    store, stop, steps = small_store(), threading.Event(), 0

    def check() -> None:
        nonlocal steps
        steps += 1
        if steps == 5:
            stop.set()
        guarded.check()

    guarded = LimitedStore(store, LIMITS, stop)
    with pytest.raises(QueryCancelledError):
        evaluate(parse(" + ".join(["fetch('heat')"] * 100)), guarded, NOW, check)
    assert steps == 5
    assert len(store.requests) <= 2  # the buckets, and the counts that tell the period of a series with gaps


def test_a_client_that_leaves_frees_its_turn() -> None:
    store = HeldStore()
    with served(store, replace(LIMITS, running=1, wait_s=10)) as client:
        leaving = client.raw(b"GET /api/query?q=fetch(%27heat%27) HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert store.entered.acquire(timeout=60)
        leaving.close()
        assert client.get("/api/names").status == 200
        store.release.set()


def test_so_many_wait_and_no_more() -> None:
    store = HeldStore()
    with served(store, replace(LIMITS, running=2, waiting=1)) as client, ThreadPoolExecutor(8) as threads:
        running = [threads.submit(client.ask, FETCH) for _ in range(2)]
        assert all(store.entered.acquire(timeout=60) for _ in running)
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
        ({"cells_read": 100_000}, FETCH + ".map(max, '20000d')", "buckets"),
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


def wide_store() -> PlainStore:
    """An answer of 9 MB: more than the system buffers for a connection."""
    store = small_store()
    for i in range(10_000):
        store.add("wide", {"host": f"{i}-{'x' * 900}"}, [(NOW - MINUTE - 1, i)])
    return store


def stuck(client: Client, form: str = "json", encoding: str = "identity") -> socket.socket:
    """A connection that asked for all of it and reads nothing but the first bytes."""
    head = f"Host: localhost\r\nAccept-Encoding: {encoding}\r\n\r\n"
    connection = client.raw(f"GET /api/query?q=fetch('wide').range('2m')&format={form} HTTP/1.1\r\n{head}".encode())
    assert connection.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
    return connection


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
def test_who_does_not_read_the_answer_is_closed(form: str) -> None:
    with served(wide_store(), replace(LIMITS, write_s=1.5, idle_s=60, header_s=60)) as client:
        assert client.desk is not None
        purse = client.desk.budget
        connection = stuck(client, form)
        assert client.ask("fetch('http.requests')").status == 200  # others are served meanwhile
        assert purse.used > 1_000_000
        eventually(lambda: purse.used == 0)  # and what it took is given back
        assert 0 < len(everything(connection)) < 9_000_000
        assert alive(client)


def test_a_stuck_connection_no_longer_counts() -> None:
    with served(wide_store(), replace(LIMITS, write_s=0.5, idle_s=60, header_s=60, connections=2)) as client:
        connection = stuck(client)
        eventually(lambda: alive(client))  # with the stuck one there are too many connections
        connection.close()


def test_who_reads_drop_by_drop_is_closed_too() -> None:
    with served(wide_store(), replace(LIMITS, write_s=60, answer_s=0.7)) as client:
        assert client.desk is not None
        connection = stuck(client)
        began, taken = SYSTEM_CLOCK.monotonic(), 0
        try:
            while more := connection.recv(100_000):
                taken += len(more)
                threading.Event().wait(0.02)
        except ConnectionResetError:
            pass
        connection.close()
        assert taken < 9_000_000
        assert SYSTEM_CLOCK.monotonic() - began < 20
        assert client.desk.budget.used == 0


def test_answers_that_nobody_reads_have_one_bound_together() -> None:
    with served(wide_store(), replace(LIMITS, write_s=30, unsent_bytes=12_000_000)) as client:
        assert client.desk is not None
        connection = stuck(client)
        refused = client.ask("fetch('wide').range('2m')")
        assert refused.status == 503
        assert "unsent_bytes" in refused.error
        assert refused.headers["retry-after"]
        connection.close()
        eventually(lambda: client.desk is not None and client.desk.budget.used == 0)
        assert client.ask("fetch('wide').range('2m')").status == 200


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (("serie=5",), "serie"),
        (("series=many",), "NUMBER"),
        (("series=0",), "more than 0"),
        (("series",), "NUMBER"),
        (("query_s=nan",), "more than 0"),
        (("series=1e3",), "NUMBER"),
    ],
)
def test_limits_that_cannot_be(changes: tuple[str, ...], told: str) -> None:
    with pytest.raises(LimitError, match=told):
        LIMITS.changed(changes)


def test_limits_are_set_by_name() -> None:
    found = LIMITS.changed(("series=5", "query_s=0.5"))
    assert (found.series, found.query_s, found.cells_read) == (5, 0.5, LIMITS.cells_read)


def test_connections_over_the_limit_are_refused() -> None:
    with served(limits=replace(LIMITS, connections=3, header_s=30)) as client:
        held = [client.raw(b"GET /") for _ in range(4)]
        assert client.get("/api/health").status == 503
        for connection in held:
            connection.close()


def test_limits_follow_from_the_memory_of_the_machine() -> None:
    """Never less than the defaults; `--limit` changes one of them."""
    assert ApiLimits.of_machine(1 << 30) == ApiLimits()
    large = ApiLimits.of_machine(1 << 38)
    assert (large.cells_reduced, large.samples_read) == ((1 << 35) // 32, (1 << 35) // 24)
    assert large.changed(["samples_read=7"]).samples_read == 7
    assert (large.series, large.cells_read) == ((1 << 35) // 8_192, (1 << 35) // 128)
    assert (large.cells_answered, large.endpoints) == ((1 << 35) // 1_024, (1 << 35) // 2_048)
    assert (large.answer_bytes, large.unsent_bytes) == ((1 << 35) // 10, (1 << 36) // 10)
    assert ApiLimits.of_machine().samples_read >= ApiLimits().samples_read


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"GET /" + b"a" * 60_000, b"a" * 60_000),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X-More: 1\r\n" * 1_000),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ", b"x" * 10_000),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: 1\r\n" * 1_000),
    ],
)
def test_headers_without_end_are_refused_at_the_limit(client: Client, head: bytes, more: bytes) -> None:
    connection = client.raw(head)
    sent = 0
    with contextlib.suppress(OSError):
        while sent < 64 << 20:
            connection.sendall(more)
            sent += len(more)
    assert sent < 8 << 20  # the buffers of both sides, not the 64 MiB
    with contextlib.suppress(OSError):  # a reset may overtake the answer
        assert everything(connection)[:12] in (b"", b"HTTP/1.1 431")


def test_an_answer_to_headers_that_are_too_long_says_so(client: Client) -> None:
    answer = everything(client.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 70_000))
    assert answer.startswith(b"HTTP/1.1 431")
    assert b"header_bytes = 65536" in answer
