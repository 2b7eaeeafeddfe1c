"""An echo service behind whatever security a test wants, and peers of it."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import thriftpy2

from bookkeeper.rpc.framed_server import FramedClient, FramedServer
from bookkeeper.rpc.security import Security
from bookkeeper.rpc.tls import Tls, TlsFiles
from bookkeeper.rpc.tokens import Tokens
from tests.security.certificates import Authority, Pair

IDL = "service Echo { binary blob(1: i32 size), i32 length(1: binary data), void nothing(), i32 wait(1: i32 ms) }"


@cache
def idl() -> Any:
    with tempfile.NamedTemporaryFile("w", suffix=".thrift") as file:
        file.write(IDL)
        file.flush()
        return thriftpy2.load(file.name, module_name="security_echo_thrift")


class Handler:
    def __init__(self) -> None:
        self.gate = threading.Event()

    def blob(self, size: int) -> bytes:
        return b"x" * size

    def length(self, data: bytes) -> int:
        return len(data)

    def nothing(self) -> None:
        return None

    def wait(self, ms: int) -> int:
        self.gate.wait(ms / 1000)
        return ms


@contextmanager
def serving(security: Security | None, **options: Any) -> Iterator[FramedServer]:
    handler = Handler()
    server = FramedServer(idl().Echo, handler, security=security, **options)
    server.start()
    try:
        yield server
    finally:
        handler.gate.set()
        server.stop()


def caller(server: FramedServer, security: Security | None, timeout: float = 10.0) -> FramedClient:
    return FramedClient(idl().Echo, "127.0.0.1", server.port, timeout, security=security)


def certificates(authority: Authority, pair: Pair, mode: str = "require", **more: Any) -> Security:
    return Security(Tls(TlsFiles(pair.certificate, pair.key, authority.certificate, **more)), mode=mode)


def tokens(path: Path, *lines: str, mode: str = "require") -> Security:
    write_tokens(path, *lines)
    return Security(tokens=Tokens(str(path)), mode=mode)


def write_tokens(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("# of this test", *lines)))
    path.chmod(0o600)


def raw(server: FramedServer) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
