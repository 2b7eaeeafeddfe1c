"""One connection carries many calls, from and to processes of this version and of the one before."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.rpc.framed_server import FramedClient, FramedError, FramedServer
from bookkeeper.rpc.security import Security
from bookkeeper.rpc.thrift_messages import encode_call
from pipeline.collector.server_connection import ConnectionLimits, LongCall
from pipeline.link.idl import collector_idl
from tests.pipeline.link.service import Handler, OldHandler, client_of, endpoint, secured, serving
from tests.security.certificates import Authority
from tests.security.serving import certificates, tokens
from tests.waiting import eventually

SECRET = "agent-1 0123456789abcdef0123456789abcdef"


def service() -> Any:
    return collector_idl().Collector


def test_calls_share_a_connection_and_end_in_any_order() -> None:
    handler = Handler()
    with serving(handler) as server, client_of(server.port) as client:
        slow = [client.begin_call(endpoint(server.port), "send", [b"wait %d" % n], 60.0) for n in range(4)]
        eventually(lambda: len(handler.waiting) == 4, "all have arrived")
        assert client.call(endpoint(server.port), "send", [b"quick"], 60.0).value[0].position.offset == 5
        for n in (2, 0, 3, 1):
            handler.let_go(b"wait %d" % n)
            assert client.result(slow[n], 1).value[0].position is not None
        assert (server.accepted, handler.opened) == (1, 1)


def test_more_calls_than_a_connection_carries_wait_for_their_turn() -> None:
    handler = Handler()
    with serving(handler, limits=ConnectionLimits(calls=8)) as server, client_of(server.port) as client:
        calls = [client.begin_call(endpoint(server.port), "send", [b"wait %d" % n], 60.0) for n in range(12)]
        eventually(lambda: len(handler.waiting) == 8, "as many as fit")
        for n in range(12):
            eventually(lambda n=n: b"wait %d" % n in handler.waiting, "its turn")  # type: ignore[misc]
            handler.let_go(b"wait %d" % n)
        assert [client.result(call, 1).failure for call in calls] == [""] * 12
        assert server.accepted == 1


def test_an_agent_of_this_version_calls_a_collector_of_the_version_before() -> None:
    """A connection for each call in progress, as that version had."""
    handler = OldHandler()
    server = FramedServer(service(), handler)
    server.start()
    try:
        with client_of(server.port) as client:
            waiting = [client.begin_call(endpoint(server.port), "send", [b"wait"], 60.0) for _ in range(2)]
            assert handler.entered.acquire(timeout=60)
            assert handler.entered.acquire(timeout=60)
            assert client.call(endpoint(server.port), "send", [b"x"], 60.0).value[0].position is not None
            assert server.accepted == 3
            assert client.call(endpoint(server.port), "watch", collector_idl().Known(), 60.0).refused
            handler.gate.set()
            assert [client.result(call, 1).failure for call in waiting] == ["", ""]
    finally:
        handler.gate.set()
        server.stop()


def test_an_agent_of_the_version_before_calls_a_collector_of_this_version() -> None:
    """Its calls are answered one after another, though a second one may already be in the socket."""
    handler = Handler()
    with serving(handler) as server:
        with FramedClient(service(), "127.0.0.1", server.port, 60.0) as old:
            assert old.call("send", [b"x"])[0].ok
        with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
            sock.sendall(encode_call(service(), "send", [[b"wait"]], 1) + encode_call(service(), "send", [[b"y"]], 2))
            eventually(lambda: b"wait" in handler.waiting, "the first")
            assert b"y" not in handler.handled
            handler.let_go(b"wait")
            eventually(lambda: b"y" in handler.handled, "the second after it")


def test_a_late_reply_is_dropped_and_the_connection_stays() -> None:
    handler = Handler()
    with serving(handler) as server, client_of(server.port) as client:
        late = client.begin_call(endpoint(server.port), "send", [b"wait"], 1.0)
        eventually(lambda: b"wait" in handler.waiting, "it has arrived")
        while not late.future.done():
            assert not client.call(endpoint(server.port), "send", [b"x"], 60.0).failure
        assert client.result(late, 1).timed_out
        handler.let_go(b"wait")
        assert not client.call(endpoint(server.port), "send", [b"x"], 60.0).failure
        assert server.accepted == 1


def test_a_silent_server_costs_its_connection() -> None:
    handler = Handler()
    with serving(handler) as server, client_of(server.port) as client:
        assert client.call(endpoint(server.port), "send", [b"wait"], 0.3).timed_out
        assert not client.call(endpoint(server.port), "send", [b"x"], 60.0).failure
        assert server.accepted == 2


def test_a_call_ends_with_its_connection() -> None:
    handler = Handler()
    with client_of(1) as client:
        assert not client.call(endpoint(1), "send", [b"x"], 60.0).reached
    with serving(handler) as server, client_of(server.port) as client:
        call = client.begin_call(endpoint(server.port), "send", [b"wait"], 60.0)
        eventually(lambda: b"wait" in handler.waiting, "it has arrived")
        client.close()
        heard = client.result(call, 1)
        assert heard.failure
        assert heard.reached


def test_calls_for_news_end_with_the_server_and_with_their_connection() -> None:
    calls: list[LongCall] = []

    class Watched(Handler):
        def watch(self, _known: Any) -> LongCall:
            calls.append(LongCall())
            return calls[-1]

    with serving(Watched()) as server, client_of(server.port) as client:
        first = client.begin_call(endpoint(server.port), "watch", collector_idl().Known(), 60.0)
        eventually(lambda: len(calls) == 1, "it waits")
        with client_of(server.port) as other:
            other.begin_call(endpoint(server.port), "watch", collector_idl().Known(), 60.0)
            eventually(lambda: len(calls) == 2, "it waits")
        eventually(lambda: calls[1].cancelled(), "its connection has ended")
        server.stop(30.0)
        assert client.result(first).failure
        assert calls[0].cancelled()


# --- credentials


@pytest.mark.parametrize("mode", ["require", "prefer"])
@pytest.mark.parametrize("kind", ["certificate", "token"])
def test_both_sides_authenticate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority, kind: str, mode: str
) -> None:
    ours: Callable[[], Security] = (
        (lambda: certificates(authority, authority.sign("link", "IP:127.0.0.1"), mode))
        if kind == "certificate"
        else (lambda: tokens(tmp_path / "tokens", SECRET, mode=mode))
    )
    with serving(Handler(), security=ours(), limits=ConnectionLimits(handshake_s=60.0)) as server:
        secured(monkeypatch, ours())
        with client_of(server.port) as client:
            assert not client.call(endpoint(server.port), "send", [b"x" * 100_000], 60.0).failure
        with FramedClient(service(), "127.0.0.1", server.port, 60.0, security=ours()) as old:
            assert old.call("send", [b"x" * 100_000])[0].ok
        secured(monkeypatch, None)
        with client_of(server.port) as client:
            heard = client.call(endpoint(server.port), "send", [b"x"], 60.0)
            assert bool(heard.failure) == (mode == "require")
        # the server counts after it has closed the connection
        eventually(lambda: server.unauthorized == (mode == "require"), "the refusal is counted")


def test_a_wrong_token_and_an_unknown_certificate_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    other = Authority(tmp_path / "other")
    for right, wrong in (
        (tokens(tmp_path / "a", SECRET), tokens(tmp_path / "b", SECRET[::-1])),
        (
            certificates(authority, authority.sign("link", "IP:127.0.0.1")),
            certificates(other, other.sign("link", "IP:127.0.0.1")),
        ),
    ):
        with serving(Handler(), security=right, limits=ConnectionLimits(handshake_s=60.0)) as server:
            secured(monkeypatch, wrong)
            with client_of(server.port) as client:
                assert "Unauthorized" in client.call(endpoint(server.port), "send", [b"x"], 60.0).failure


def test_a_peer_that_does_not_authenticate_is_closed(tmp_path: Path) -> None:
    security = tokens(tmp_path / "tokens", SECRET)
    with (
        serving(Handler(), security=security, limits=ConnectionLimits(handshake_s=0.3)) as server,
        socket.create_connection(("127.0.0.1", server.port), 60) as sock,
    ):
        assert sock.recv(1) == b""
        eventually(lambda: server.unauthorized == 1, "it is counted")


# --- limits


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack(">I", 0x7FFFFFFF), id="a giant frame"),
        pytest.param(struct.pack(">I", 30) + b"x" * 30, id="garbage"),
        pytest.param(
            encode_call(collector_idl().Collector, "send", [[b"abc"]], 1)[:-1] + b"\x0b", id="a broken struct"
        ),
        pytest.param(struct.pack(">I", 50_000) + b"x", id="half a frame"),
        pytest.param(b"\0", id="half a length"),
    ],
)
def test_malformed_bytes_cost_one_connection(sent: bytes) -> None:
    limits = ConnectionLimits(request_s=0.5, max_frame=100_000)
    with serving(Handler(), limits=limits) as server, client_of(server.port) as client:
        with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
            sock.sendall(sent)
            assert sock.recv(1) == b""
        assert not client.call(endpoint(server.port), "send", [b"x"], 60.0).failure


def test_large_calls_wait_for_memory_and_small_ones_do_not() -> None:
    handler = Handler()
    limits = ConnectionLimits(budget_s=60.0)
    with serving(handler, budget=300_000, limits=limits) as server, client_of(server.port) as client:
        large = b"wait" + b"x" * 200_000
        first = client.begin_call(endpoint(server.port), "send", [large], 60.0)
        eventually(lambda: large in handler.waiting, "it holds memory")
        with client_of(server.port) as other:
            second = other.begin_call(endpoint(server.port), "send", [b"y" * 200_000], 60.0)
            eventually(lambda: server.budget.waiting == 1, "it waits in its socket")
            with client_of(server.port) as third:
                assert not third.call(endpoint(server.port), "send", [b"small"], 60.0).failure
            handler.let_go(large)
            assert not other.result(second, 1).failure
        assert not client.result(first, 1).failure
        eventually(lambda: server.budget.used == 0, "all is given back")


def test_memory_is_given_back_by_connections_that_end() -> None:
    handler = Handler()
    with serving(handler, budget=300_000) as server:
        frames = [encode_call(service(), "send", [[b"z" * 200_000]], 1) for _ in range(2)]
        peers = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in frames]
        for peer, frame in zip(peers, frames, strict=True):
            peer.sendall(frame[:1_000])
        eventually(lambda: server.budget.waiting == 1 and server.budget.used > 0, "one has memory, one waits")
        for peer in peers:
            peer.close()
        eventually(lambda: (server.budget.used, server.budget.waiting) == (0, 0), "nothing is held")


def test_a_connection_beyond_the_limit_is_told_so() -> None:
    """Those that never made a valid request go first."""
    handler = Handler()
    with serving(handler, max_connections=2) as server, client_of(server.port) as client:
        idle = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(2)]
        eventually(lambda: len(server.connections) == 2, "both are connected")
        assert not client.call(endpoint(server.port), "send", [b"x"], 60.0).failure
        with client_of(server.port) as second, client_of(server.port) as third:
            assert not second.call(endpoint(server.port), "send", [b"x"], 60.0).failure
            failure = third.call(endpoint(server.port), "send", [b"x"], 60.0).failure
            assert "serves 2 connections, its limit" in failure
            assert not client.call(endpoint(server.port), "send", [b"x"], 60.0).failure
            assert server.refused >= 3
        for one in idle:
            one.close()


def test_a_thousand_connections_need_no_threads() -> None:
    with serving(Handler(), limits=ConnectionLimits(handshake_s=60.0)) as server:
        before = threading.active_count()
        call = encode_call(service(), "send", [[b"x"]], 1)
        peers = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(1_000)]
        for peer in peers:
            peer.sendall(call)
        for peer in peers:
            assert peer.recv(1_000)
        assert threading.active_count() - before <= 4
        for peer in peers:
            peer.close()


def test_an_error_of_the_handler_leaves_the_connection_alive() -> None:
    with serving(Handler()) as server, FramedClient(service(), "127.0.0.1", server.port, 60.0) as old:
        with pytest.raises(Exception, match="delivered"):
            old.call("delivered", ["x"])
        assert old.call("send", [b"x"])[0].ok
        assert not isinstance(old, FramedError)


def test_event_loops_of_several_threads_share_no_buffer() -> None:
    """Large and small replies to many clients, each with an event loop of its own."""

    class Large(Handler):
        def delivered(self, ids: list[str]) -> list[bool]:
            return [True] * len(ids)

    failures: list[str] = []

    def call(port: int) -> None:
        with client_of(port) as client:
            for n in range(30):
                heard = client.call(endpoint(port), "delivered", ["x" * 20] * (500 * (n % 3) + 1), 60.0)
                if heard.failure or len(heard.value) != 500 * (n % 3) + 1:
                    failures.append(heard.failure)

    with serving(Large()) as server:
        threads = [threading.Thread(target=call, args=(server.port,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert failures == []
