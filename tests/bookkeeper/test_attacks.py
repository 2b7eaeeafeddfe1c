"""Hostile clients at the port of an application cost it little and do not lock out the poller."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from bookkeeper import Bookkeeper
from bookkeeper.process.process_endpoint import MAX_CONNECTIONS
from bookkeeper.rpc.framed_server import FramedClient, FramedError, FramedServer, _AcceptRateLimit
from bookkeeper.rpc.poll_service import idl
from tests.bookkeeper.polling import application, connect, hear, say
from tests.waiting import eventually

APPLICATION = """
import bookkeeper, sys, time
handle = bookkeeper.integer("requests", {})
handle.add(1)
while not (bookkeeper.default().endpoint.server and bookkeeper.default().endpoint.server.port): time.sleep(0.01)
print(bookkeeper.default().endpoint.server.port, flush=True)
for line in sys.stdin:
    took, end = [], time.perf_counter() + float(line)
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(100): handle.add(1)
        sum(range(2000))
        took.append(time.perf_counter() - began)
        time.sleep(0.001)
    took.sort()
    print(took[len(took) // 2], took[len(took) * 95 // 100], flush=True)
"""
"""Says how long a request takes: the median and the 95th of 100."""

ATTACKER = """
import socket, struct, sys, time
port, kind = int(sys.argv[1]), sys.argv[2]
held, begun = [], False
while True:
    try:
        sock = socket.create_connection(("127.0.0.1", port), 1)
        sock.settimeout(1)
        if kind == "garbage": sock.sendall(bytes(range(256)) * 20)
        if kind == "half": sock.sendall(struct.pack(">I", 1000) + b"\\x80\\x01\\x00\\x01")
        if kind == "giant": sock.sendall(b"\\x7f\\xff\\xff\\xff" + bytes(60_000))
        if kind == "large": sock.sendall(struct.pack(">I", 200_000) + bytes(150_000))
        if kind in ("idle", "half", "large"): held.append(sock)
        else: sock.close()
    except OSError:
        time.sleep(0.01)
    if len(held) > 1000: held.pop(0).close()
    if not begun:
        print("begun", flush=True)
        begun = True
    time.sleep(0.0005)
"""
KINDS = ("idle", "garbage", "half", "giant", "large")
MEASURED_S = 0.3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """An application and its port."""
    process = application(APPLICATION, tmp_path_factory.mktemp("app"), ARTIMON_ZOOKEEPER="127.0.0.1:1")
    yield process, int(hear(process))
    process.kill()
    process.communicate(timeout=60)


@contextlib.contextmanager
def attacked(port: int, kind: str, folder: Path) -> Iterator[None]:
    """Repeat the attack as fast as possible inside the block."""
    (folder / "attack.py").write_text(ATTACKER)
    command = ["nice", "-n", "5", sys.executable, str(folder / "attack.py"), str(port), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
        try:
            hear(attacker)
            yield
        finally:
            attacker.kill()


def measured(process: subprocess.Popen[str]) -> tuple[float, float]:
    say(process, str(MEASURED_S))
    median, late = map(float, hear(process).split())
    return median, late


@pytest.mark.parametrize("kind", KINDS)
def test_requests_take_no_longer(served: tuple[subprocess.Popen[str], int], kind: str, tmp_path: Path) -> None:
    """And the poller, which has a connection, is answered all the while; afterwards a new one is let in."""
    process, port = served
    before = measured(process)
    with connect(port) as poller:
        poller.getVars()
        with attacked(port, kind, tmp_path):
            during = measured(process)
            assert poller.getVars().variables
        assert poller.getVars().variables
    eventually(lambda: answers(port))
    assert during[0] < 10 * before[0] + 0.001, (before, during)
    assert during[1] < 10 * before[1] + 0.030, (before, during)


def answers(port: int) -> bool:
    """Return True if a new client gets an answer within the timeout of a poll."""
    try:
        with FramedClient(idl().Bookkeeper, "127.0.0.1", port, 5.0) as calls:
            return bool(calls.getVars().variables)
    except (OSError, FramedError):
        return False


def test_halves_of_requests_do_not_take_the_pollers_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle connections up to the limit and beyond displace each other, not the proven connection."""
    monkeypatch.setenv("ARTIMON_RUN", str(tmp_path))
    book = Bookkeeper(context="test", zookeeper="127.0.0.1:1")
    book.add_to_integer_var("n", {}, 1)
    endpoint: Any = book.endpoint
    server = eventually(lambda: endpoint.server if endpoint.server and endpoint.server.port else None)
    with connect(server.port) as poller, contextlib.ExitStack() as stack:
        poller.getVars()
        own = poller._sock
        for i in range(2 * MAX_CONNECTIONS):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 5))
            sock.sendall(struct.pack(">I", 1000) + b"\x80")
            eventually(partial(has_read, server, i + 2))
        assert poller.getVars().variables
        assert poller._sock is own, "on the connection that it had"
    book.close()


def has_read(server: FramedServer, accepted: int) -> bool:
    """The newest connection is there, and everybody but the poller has sent a part of a request."""
    connections = list(server._connections)
    return server.accepted == accepted and all(one.receiving or one.answered for one in connections)


def test_a_storm_of_connections_is_taken_at_a_steady_pace() -> None:
    """A first burst at once, then so many a second; a quiet while earns another burst, not a greater one."""
    pace, now = _AcceptRateLimit(10.0), monotonic()
    assert [pace.pause(now) for _ in range(_AcceptRateLimit.BURST)] == [0.0] * _AcceptRateLimit.BURST
    assert pace.pause(now) == pytest.approx(0.1)
    assert pace.pause(now + 0.1) == pytest.approx(0.1, abs=0.01)
    assert pace.pause(now + 3_600) == 0.0
    assert sum(pace.pause(now + 3_600) > 0 for _ in range(100)) == 101 - _AcceptRateLimit.BURST
