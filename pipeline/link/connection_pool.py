"""Connections to collectors and to agents with the same service: opened on demand, kept for the next call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from thriftpy2.thrift import TException

from artimon.runtime.settings import security
from bookkeeper.rpc.framed_server import FramedClient, FramedError
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.link.idl import collector_idl

CALL_FAILURES = (FramedError, TException, OSError)
"""Errors of a failed call."""


class ConnectionPool:
    """Pool of idle connections by endpoint. A call borrows one, so that calls to one endpoint may run in parallel.

    Locks: `_lock` guards the idle ones; no I/O under it."""

    def __init__(self, known: Callable[[], Collection[CollectorEndpoint]]) -> None:
        """`known`: endpoints that may still be called."""
        self._known = known
        self._lock = threading.Lock()
        self._idle: dict[CollectorEndpoint, list[FramedClient]] = {}
        self._closed = False

    @contextmanager
    def borrow(self, endpoint: CollectorEndpoint) -> Iterator[FramedClient]:
        """Lend a connection for one call. Opening a new one closes idle ones to endpoints that have gone: a restarted
        collector listens elsewhere."""
        client = self._take(endpoint)
        try:
            yield client
        finally:
            self._return(endpoint, client)

    def close(self) -> None:
        """Close the idle ones; borrowed ones are closed when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        _close_all(idle)

    def _take(self, endpoint: CollectorEndpoint) -> FramedClient:
        with self._lock:
            if idle := self._idle.get(endpoint):
                return idle.pop()
        known = self._known()
        with self._lock:
            gone = {one: self._idle.pop(one) for one in list(self._idle) if one not in known}
        _close_all(gone)
        return FramedClient(collector_idl().Collector, endpoint.host, endpoint.port, security=security())

    def _return(self, endpoint: CollectorEndpoint, client: FramedClient) -> None:
        with self._lock:
            if not self._closed:
                self._idle.setdefault(endpoint, []).append(client)
                return
        client.close()


def _close_all(clients: dict[CollectorEndpoint, list[FramedClient]]) -> None:
    for some in clients.values():
        for client in some:
            client.close()
