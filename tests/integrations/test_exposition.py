"""The HTTP side: opt-in, on loopback, bounded, one of its own for each forked child; and a real Prometheus reads it."""

from __future__ import annotations

import gzip
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bookkeeper import Bookkeeper, exposition
from bookkeeper.export import metrics_server
from bookkeeper.export.openmetrics import OPENMETRICS
from tests.bookkeeper.polling import application, end, hear, say
from tests.integrations.reading import read_openmetrics
from tests.sockets import to_end
from tests.waiting import eventually

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def book() -> Bookkeeper:
    return Bookkeeper(online=False)


@pytest.fixture
def server(book: Bookkeeper) -> Iterator[exposition.MetricsServer]:
    book.add_to_integer_var("http.requests", {"route": "/ü"}, 3)
    made = exposition.serve(book=book)
    yield made
    made.stop()


def get(port: int, path: str = "/metrics", **headers: str) -> tuple[str, bytes]:
    """Content type and body."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read()


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.settimeout(20)
        with suppress(OSError):
            sock.sendall(data)
        return to_end(sock)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("9464", ("127.0.0.1", 9464, 9464)),
        ("0.0.0.0:9464-9479", ("0.0.0.0", 9464, 9479)),
        ("[::1]:0", ("::1", 0, 0)),
    ],
)
def test_addresses(text: str, where: tuple[str, int, int]) -> None:
    assert metrics_server.parse_listen_address(text) == where


@pytest.mark.parametrize(
    "text", ["", "x", ":9464", "host", "1-", "9-8", "70000", "1-60000", "-1", "a:b", "9464-x", "\u0663"]
)
def test_bad_addresses_say_what_is_wanted(text: str) -> None:
    with pytest.raises(ValueError, match=r"\[host:\]port"):
        metrics_server.parse_listen_address(text)


def test_both_formats_and_compression(server: exposition.MetricsServer, book: Bookkeeper) -> None:
    assert server.host == "127.0.0.1"
    kind, body = get(server.port, Accept="application/openmetrics-text; version=1.0.0")
    assert kind == OPENMETRICS
    (family,) = read_openmetrics(body.decode())
    assert (family.samples[0].labels, family.samples[0].value) == ({"route": "/ü"}, 3)
    kind, body = get(server.port)
    assert kind.startswith("text/plain; version=0.0.4")
    for i in range(100):
        book.set_integer_var("many", {"i": str(i)}, i)
    packed = get(server.port, **{"Accept-Encoding": "gzip"})[1]
    assert gzip.decompress(packed) == get(server.port)[1]
    assert len(packed) < 1000


def test_what_it_does_not_serve(server: exposition.MetricsServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server.port, "/else")
    assert b"/metrics" in get(server.port, "/")[1]
    assert raw(server.port, b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")
    assert raw(server.port, b"\x16\x03\x01 garbage\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    head, _, body = raw(server.port, b"HEAD /metrics HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b""


def test_a_request_that_is_too_long_or_half_is_dropped(
    server: exposition.MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert raw(server.port, b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 5000) == b""
    monkeypatch.setattr(metrics_server, "REQUEST_TIMEOUT_S", 0.2)
    assert raw(server.port, b"GET /metr") == b""
    assert get(server.port)[1]


def test_idle_connections_beyond_the_limit_are_turned_away_and_the_rest_ends(
    server: exposition.MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_TIMEOUT_S", 1.0)
    idle = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(40)]
    eventually(lambda: server.refused >= 40 - metrics_server.MAX_CONNECTIONS)
    for sock in idle:
        sock.close()

    def served() -> bool:
        with suppress(OSError, urllib.error.URLError):
            return bool(get(server.port)[1])
        return False

    eventually(served)


def test_a_range_gives_every_process_a_port_of_its_own(book: Bookkeeper) -> None:
    first = exposition.serve(book=book)
    second = exposition.serve(f"{first.port}-{min(first.port + 50, 65535)}", Bookkeeper(online=False))
    assert second.port > first.port
    with pytest.raises(OSError, match="no free port"):
        exposition.serve(str(first.port), book)
    for one in (first, second):
        one.stop()
    with pytest.raises(OSError, match="refused"):
        get(first.port)


FORKING = """
import bookkeeper, json, os, sys
shown = lambda: bookkeeper.default()._metrics_server and bookkeeper.default()._metrics_server.port
bookkeeper.add_to_integer_var("n", {}, 5)
parent = shown()
r, w = os.pipe()
go_r, go_w = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(go_w)
    assert not shown()
    bookkeeper.add_to_integer_var("n", {}, 1)
    os.write(w, (json.dumps([parent, shown()]) + "\\n").encode())
    os.read(go_r, 1)
    os._exit(0)
print(os.fdopen(r).readline().strip(), flush=True)
input()
os.write(go_w, b"x")
os.waitpid(pid, 0)
bookkeeper.configure(openmetrics="also bad")
print(json.dumps([shown(), bookkeeper.refusals()]), flush=True)
input()
"""


def test_a_setting_shows_every_process_and_a_bad_one_is_only_counted(tmp_path: Path) -> None:
    """The forked child has a port and values of its own; nothing listens where nothing is asked for."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = application(
        FORKING, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE, ARTIMON_OPENMETRICS=f"{port}-{min(port + 100, 65535)}"
    )
    parent, child = json.loads(hear(process))
    assert parent != child
    assert b"n_total 5\n" in get(parent)[1]
    assert b"n_total 1\n" in get(child)[1]
    say(process, "")
    assert json.loads(hear(process)) == [None, {"settings": 1}]
    say(process, "")
    end(process)


def test_off_unless_asked_for(tmp_path: Path) -> None:
    script = "import bookkeeper\nbookkeeper.add_to_integer_var('n', {})\nprint(bookkeeper.default()._metrics_server)\n"
    process = application(script, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE)
    assert hear(process) == "None"
    end(process)
