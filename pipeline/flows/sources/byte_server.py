"""Bounded servers: of bytes over TCP in any framing, with a thread for each connection; of framed Thrift.
Exposure rule for sources that listen."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from artimon.model.clock import Clock
from artimon.runtime.exposure import REQUIRE_PROOF, UnprotectedError, family_of, require_protection
from artimon.runtime.settings import security
from bookkeeper.rpc.framed_server import FramedServer
from pipeline.collector.collector_service import naming_address
from pipeline.flows.context import INSECURE, Context
from pipeline.flows.options import FramedOptions, ServerOptions
from pipeline.flows.spi import FlowError

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
NO_LOGIN_WARNING = "this kind of source has no login: listen on 127.0.0.1"
_ACCEPT_TIMEOUT_S = 0.5

Consume = Callable[[bytes, bool], tuple[int, bytes]]
"""Called with the unused bytes, and True if more may come; returns (bytes used, answer). Waits for room as long as
necessary, and is called again until it uses nothing. Raises ValueError for bytes that make the connection useless,
ConnectionAbortedError when it stops."""


class ByteServer:
    """TCP server on one port. Beyond `connections` of the options a new connection is closed at once. A connection that
    is silent for `idle_s`, or holds more than `most_bytes` that `take` does not use, is closed.

    Locks: `_lock` guards the connections and the counts."""

    def __init__(self, options: ServerOptions, take: Consume, clock: Clock, most_bytes: int) -> None:
        self._options, self._consume, self._clock, self._most_bytes = options, take, clock, most_bytes
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._stop = threading.Event()
        self._listener: socket.socket | None = None
        self._port = 0
        self._accepting: threading.Thread | None = None
        self.counts: Counter[str] = Counter()

    @property
    def port(self) -> int:
        """Listening port, 0 while stopped."""
        return self._port

    def start(self) -> None:
        """Raises OSError, which names the address."""
        options = self._options
        with naming_address("source", options.host, options.port):
            self._listener = socket.create_server(
                (options.host, options.port), family=family_of(options.host), backlog=min(options.connections, 128)
            )
        self._port = int(self._listener.getsockname()[1])
        self._listener.settimeout(_ACCEPT_TIMEOUT_S)
        self._accepting = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._accepting.start()

    def stop(self, deadline_s: float) -> None:
        """Accept no connections; close the open ones and wait for their threads."""
        until = self._clock.monotonic() + deadline_s
        self._stop.set()
        if self._accepting is not None:
            self._accepting.join(deadline_s)
        if self._listener is not None:
            self._listener.close()
            self._listener, self._port = None, 0
        with self._lock:
            threads, sockets = list(self._threads), list(self._open)
        for sock in sockets:
            _shut(sock)
        for thread in threads:
            thread.join(max(0.0, until - self._clock.monotonic()))

    def figures(self) -> dict[str, int]:
        with self._lock:
            return {"port": self.port, "connections": len(self._open), **self.counts}

    def _accept(self) -> None:
        listener = self._listener
        while listener is not None and not self._stop.is_set():
            try:
                sock, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                if not self._stop.is_set():
                    self._clock.wait(self._stop, 0.1)  # no descriptors left until other connections close
                continue
            self._accept_connection(sock)

    def _accept_connection(self, sock: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(sock,), name="connection", daemon=True)
        with self._lock:
            if len(self._open) >= self._options.connections:
                self.counts["connections_refused"] += 1
                sock.close()
                return
            self._open.add(sock)
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # no threads left until others end
            log.warning("connection refused: %s", error)
            sock.close()
            with self._lock:
                self.counts["connections_refused"] += 1
                self._open.discard(sock)
                self._threads.discard(thread)

    def _serve(self, sock: socket.socket) -> None:
        try:
            self._read(sock)
        except ValueError as error:
            self._count("bad_connections")
            log.warning("connection closed: %s", error)
        except OSError:
            self._count("broken_connections")
        finally:
            sock.close()
            with self._lock:
                self._open.discard(sock)
                self._threads.discard(threading.current_thread())

    def _read(self, sock: socket.socket) -> None:
        held = b""
        while not self._stop.is_set():
            data = self._receive(sock)
            if data is None:
                self._count("idle_connections")
                return
            held += data
            while held:
                used, answer = self._consume(held, bool(data))
                held = held[used:]
                if answer:
                    sock.sendall(answer)
                if not used:
                    break
            if not data:
                return
            if len(held) > self._most_bytes:
                raise ValueError(f"{len(held)} bytes without a complete message: at most {self._most_bytes}")

    def _receive(self, sock: socket.socket) -> bytes | None:
        """Return the next bytes, b"" at the end, None after the idle timeout."""
        until = self._clock.monotonic() + self._options.idle_s
        sock.settimeout(self._options.idle_s)
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_READ)
            while not self._stop.is_set():
                if selector.select(_ACCEPT_TIMEOUT_S):
                    return sock.recv(READ_BYTES)
                if self._clock.monotonic() > until:
                    return None
        raise ConnectionAbortedError

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def start_framed_server(
    kind: str, service: Any, handler: object, options: FramedOptions, frame_bytes: int, name: str
) -> FramedServer:
    """Return a started server of a source `kind`, secured as this process is. Raises OSError with the address."""
    server = FramedServer(
        service,
        handler,
        options.host,
        options.port,
        max_frame=frame_bytes,
        max_connections=options.connections,
        idle_timeout=options.idle_s,
        request_timeout=options.request_s,
        budget=options.held_bytes,
        name=name,
        security=security(),
    )
    with naming_address(f"source {kind}", options.host, options.port):
        server.start()
    return server


def check_exposure(options: Any, context: Context) -> list[str]:
    """Check the address of a source before it is built. Only the agent's command line can set `--insecure`, since a
    flow may come from ZooKeeper. Returns warnings. Raises FlowError."""
    if not isinstance(options, ServerOptions):
        return []
    framed = isinstance(options, FramedOptions)
    asks, remedy = (security(), REQUIRE_PROOF) if framed else (None, NO_LOGIN_WARNING)
    insecure = bool(context.shared.get(INSECURE))
    try:
        return require_protection(
            f"the source of flow {context.flow}", options.host, asks, insecure=insecure, remedy=remedy
        )
    except UnprotectedError as problem:
        raise FlowError(str(problem)) from None
