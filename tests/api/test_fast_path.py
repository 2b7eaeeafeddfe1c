"""The short way of a question and the long one say the same; a kept connection does not wait for acknowledgements."""

from __future__ import annotations

import http.client
import socket
from urllib.parse import quote

import pytest

from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from artimon.api.fast_path import parse_plain_query
from artimon.api.query_parameters import TIME_MAX_MS, QueryParameters
from artimon.model.clock import ManualClock
from tests.api.serving import NOW, Client, small_store
from tests.waiting import eventually

FETCH = "fetch('http.requests').range('5m')"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"q=x", QueryParameters("x")),
        (b"q=a%20b+c%C3%A9&format=csv", QueryParameters("a b c\u00e9", None, "csv")),
        (b"q=x&engine=memory&time_ms=123", QueryParameters("x", 123, None, "memory")),
        (b"q=x&newest=8", QueryParameters("x", newest=8)),
        (b"q=x&newest=0", None),
        (b"q=x&newest=11001", None),
        (b"q=", QueryParameters("")),
        (b"", None),
        (b"format=json", None),
        (b"q=x&q=y", None),
        (b"q=x&explain=1", None),
        (b"q=x&other=1", None),
        (b"q=x&time_ms=", None),
        (b"q=x&time_ms=-1", None),
        (b"q=x&time_ms=1e3", None),
        (b"q=x&time_ms=\xb2", None),
        (b"q=x&time_ms=%C2%B2", None),
        (b"q=x&time_ms=" + str(TIME_MAX_MS + 1).encode(), None),
        (b"q=x&" + b"&".join([b"a=1"] * 40), None),
    ],
)
def test_what_takes_the_short_way(query: bytes, expected: QueryParameters | None) -> None:
    assert parse_plain_query(query) == expected


@pytest.mark.parametrize(
    "path",
    [
        f"q={quote(FETCH)}",
        f"q={quote(FETCH)}&format=csv",
        f"q={quote(FETCH)}&format=arrow",
        f"q={quote(FETCH)}&format=no",
        f"q={quote(FETCH)}&engine=memory&time_ms={NOW - 120_000}",
        f"q={quote(FETCH)}&engine=no",
        f"q={quote(FETCH)}&engine=history",
        "q=",
        "q=" + quote("fetch('no.such')"),
        "q=" + quote("fetch('http.requests').nothing()"),
        "q=" + quote("fetch('http.requests').sum(by=['route']).range('5m')"),
        "q=%ff",
    ],
)
def test_both_ways_say_the_same(client: Client, path: str) -> None:
    """A parameter that nobody knows takes the long way, and changes nothing."""
    headers = {"accept-encoding": "gzip"}
    short = client.send("GET", f"/api/query?{path}", headers=headers)
    long = client.send("GET", f"/api/query?{path}&unknown=1", headers=headers)
    assert (short.status, short.body) == (long.status, long.body)
    changing = {"date"}
    assert {k: v for k, v in short.headers.items() if k not in changing} == {
        k: v for k, v in long.headers.items() if k not in changing
    }


def test_other_hosts_are_refused_and_every_request_is_counted() -> None:
    app = make_app(small_store(), lambda _: {}, ManualClock(NOW))
    server = ApiServer(app)
    server.start()
    try:
        client = Client(server.port)
        path = f"/api/query?q={quote(FETCH)}"
        assert client.send("GET", path).status == 200
        assert client.send("GET", path, headers={"host": "evil.example"}).status == 400
        assert client.send("GET", "/api/query?q=nonsense").status == 400
        expected = {"/api/query": {"2xx": 1, "4xx": 1}, "other": {"4xx": 1}}  # counted after the answer is written
        eventually(lambda: app.state.counts.figures()["requests"] == expected, "every request is counted")
    finally:
        server.stop()


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    """The head and the body go out by themselves: without it a body waits some 40 ms for the client's kernel."""
    server = ApiServer(make_app(small_store(), lambda _: {}, ManualClock(NOW)))
    server.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", "/api/health")
        assert connection.getresponse().read()
        (held,) = server._server.server_state.connections
        told = held.transport.get_extra_info("socket")
        assert told.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        connection.close()
        server.stop()
