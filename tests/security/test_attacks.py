"""Peers that mean no good, against open, token and certificate servers: whoever behaves is served all the time."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bookkeeper.rpc.framed_server import FramedServer
from bookkeeper.rpc.security import Security
from bookkeeper.rpc.thrift_messages import HEADER
from tests.security.certificates import Authority, Pair
from tests.security.serving import caller, certificates, raw, serving, tokens
from tests.waiting import eventually

SLOW_S = 10.0
"""Longer no call of the good client may take on a busy machine."""


@pytest.fixture(params=["open", "token", "certificates"])
def sides(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority, server_pair: Pair, agent_pair: Pair
) -> tuple[Security | None, Security | None]:
    if request.param == "token":
        path = tmp_path / "tokens"
        return tokens(path, "a token for the attacks"), tokens(path, "a token for the attacks")
    if request.param == "certificates":
        return certificates(authority, server_pair), certificates(authority, agent_pair)
    return None, None


@contextmanager
def good_client(server: FramedServer, security: Security | None) -> Iterator[list[float]]:
    """Calls all the time; how long each call took, in seconds. Fails if one fails."""
    times: list[float] = []
    errors: list[BaseException] = []
    stop = threading.Event()

    def call() -> None:
        try:
            with caller(server, security) as calls:
                while not stop.is_set():
                    began = perf_counter()
                    assert calls.blob(1000) == b"x" * 1000
                    times.append(perf_counter() - began)
                    stop.wait(0.005)
        except BaseException as error:  # told to the test
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        eventually(lambda: times or errors, "the good client is served")
        yield times
        before = len(times)
        eventually(lambda: len(times) > before + 3 or errors, "the good client is still served")
    finally:
        stop.set()
        thread.join(20)
    assert not errors
    assert max(times) < SLOW_S
    assert server.accepted - server.refused >= 1


def test_a_thousand_idle_connections(sides: tuple[Any, Any]) -> None:
    """They take each other's places, never that of a client that has shown itself."""
    server_side, client_side = sides
    count = 1000 if server_side is not None and server_side.tls is not None else 300
    with serving(server_side, max_connections=64, handshake_timeout=30.0) as server:
        opened: list[socket.socket] = []
        with good_client(server, client_side):
            accepted = server.accepted
            opened.extend(raw(server) for _ in range(count))
            eventually(lambda: server.accepted >= accepted + count, "all were seen")
            assert len(server._connections) <= 64
        for sock in opened:
            sock.close()
        assert server.refused >= count - 100


def test_a_new_client_gets_in_while_a_thousand_are_idle(sides: tuple[Any, Any]) -> None:
    server_side, client_side = sides
    with serving(server_side, max_connections=32, handshake_timeout=30.0) as server:
        opened = [raw(server) for _ in range(200)]
        with caller(server, client_side) as calls:
            calls.nothing()
        for sock in opened:
            sock.close()


HALVES = {
    "length_only": HEADER.pack(100),
    "half_a_length": b"\0\0",
    "half_a_frame": HEADER.pack(300) + b"\x80\x01\x00\x01\0\0\0\x04blob",
    "giant": HEADER.pack(0x7FFFFFFF),
    "garbage": bytes(range(256)) * 40,
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls_alert": bytes.fromhex("15030300020228"),
    "client_hello_cut": bytes.fromhex("16030100c8010000c40303") + b"x" * 20,
}


@pytest.mark.parametrize("piece", HALVES)
def test_half_frames_giants_and_garbage(sides: tuple[Any, Any], piece: str) -> None:
    server_side, client_side = sides
    options = {"max_frame": 100_000, "request_timeout": 0.3, "handshake_timeout": 0.3, "idle_timeout": 5.0}
    with serving(server_side, **options) as server, good_client(server, client_side):
        bad = [raw(server) for _ in range(10)]
        for sock in bad:
            with suppress(OSError):
                sock.sendall(HALVES[piece])
        for sock in bad:
            with suppress(ConnectionResetError):
                while sock.recv(65536):
                    pass
            sock.close()
        eventually(lambda: len(server._connections) <= 1, "they are gone")


def test_random_bytes_through_an_open_handshake(authority: Authority, server_pair: Pair, agent_pair: Pair) -> None:
    """A peer that is let in and then sends what it likes."""
    import ssl

    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(agent_pair.certificate, agent_pair.key)
    server_side, client_side = certificates(authority, server_pair), certificates(authority, agent_pair)
    with serving(server_side, request_timeout=0.3) as server, good_client(server, client_side):
        for _ in range(6):
            with (
                raw(server) as sock,
                context.wrap_socket(sock, server_hostname="127.0.0.1") as wrapped,
                suppress(OSError),
            ):
                wrapped.sendall(os.urandom(5000))
                wrapped.recv(1)
        eventually(lambda: len(server._connections) <= 1, "they are gone")


def test_a_reader_that_never_reads(sides: tuple[Any, Any]) -> None:
    """Asks for much and takes nothing: it costs one thread until the deadline."""
    server_side, client_side = sides
    with (
        serving(server_side, request_timeout=0.5) as server,
        good_client(server, client_side),
        caller(server, client_side) as calls,
    ):
        sent = calls.begin_call("blob", 30_000_000)
        eventually(lambda: len(server._connections) <= 1, "it is closed")
        sent.abandon()
