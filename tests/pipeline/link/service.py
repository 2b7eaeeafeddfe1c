"""Servers and clients of links for tests, and a handler whose calls end when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK
from bookkeeper.rpc.security import Security
from pipeline.collector.link_server import LinkServer
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.link.collector_client import CollectorClient
from pipeline.link.collector_link import CollectorLink
from pipeline.link.idl import collector_idl


class Handler:
    """`send` of a message that begins with b"wait" ends once `let_go` was called, every other one at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting: dict[bytes, Future[list[Any]]] = {}
        self.handled: list[bytes] = []
        self.opened = 0

    def open(self, _agent: str) -> Any:
        self.opened += 1
        return collector_idl().Welcome(8)

    def send(self, messages: list[bytes]) -> Future[list[Any]]:
        done: Future[list[Any]] = Future()
        with self._lock:
            self.handled += messages
            if messages and messages[0].startswith(b"wait"):
                self.waiting[messages[0]] = done
                return done
        done.set_result(accepted(messages))
        return done

    def let_go(self, message: bytes) -> None:
        with self._lock:
            done = self.waiting.pop(message)
        done.set_result(accepted([message]))


class OldHandler:
    """Handler of the version before, for a FramedServer: one call at a time, no `open` and no `watch`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)

    def send(self, messages: list[bytes]) -> list[Any]:
        self.entered.release()
        if messages[0].startswith(b"wait"):
            self.gate.wait(60)
        return accepted(messages)


def accepted(messages: list[bytes]) -> list[Any]:
    return [collector_idl().Answer(True, "c", "t", 0, len(message), "") for message in messages]


@contextmanager
def serving(handler: object, **options: Any) -> Iterator[LinkServer]:
    server = LinkServer(collector_idl().Collector, handler, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop(1.0)


@contextmanager
def client_of(port: int) -> Iterator[CollectorClient]:
    client = CollectorClient(CollectorLink.of("a"), SYSTEM_CLOCK)
    client.update({"c": CollectorEndpoint("127.0.0.1", port)})
    try:
        yield client
    finally:
        client.close()


def endpoint(port: int) -> CollectorEndpoint:
    return CollectorEndpoint("127.0.0.1", port)


def secured(monkeypatch: Any, security: Security | None) -> None:
    """Give the clients of links these credentials."""
    monkeypatch.setattr("pipeline.link.link_connections.security", lambda: security)
