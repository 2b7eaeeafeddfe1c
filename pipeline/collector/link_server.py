"""Server of a collector: one event loop serves the connections of thousands of agents, a few threads do what blocks.

Every wait has a deadline and every size a limit, as in bookkeeper/rpc/framed_server.py: half a frame, a giant one,
garbage or an idle peer costs one connection and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

from bookkeeper.rpc.security import Peer, Security, UnauthorizedError
from bookkeeper.rpc.service_dispatcher import ServiceDispatcher
from pipeline.collector.server_connection import ConnectionLimits, FrameBudget, ServerConnection

log = logging.getLogger(__name__)

MAX_REPLY_BYTES = 64 * 1024 * 1024
ACCEPTS_A_TURN = 64
"""Connections accepted before the connections that exist are served again."""
MAX_REFUSALS = 64
"""Connections beyond the limit that are told so at a time; further ones are closed at once."""
MIN_IDLE_S = 60.0
"""Seconds of silence after which a connection of an agent may be closed for a new one."""
MAX_SWEEP_S = 1.0
WORKERS = 4


class LinkServer:
    """Serves `handler` (an object with the methods of `service`, which may return a Future) on one port.

    `max_connections`: beyond it the oldest connection without a valid request is closed, then the longest silent one,
    and if there is none, a new one is told so and closed. `budget`: bytes of requests in progress, from the first byte
    to the reply; what does not fit waits in the peer's socket. `limits`: those of each connection.

    Threads: the event loop alone touches connections and sockets; `workers` threads decode calls and run the handler.
    Futures may be completed by any thread."""

    def __init__(
        self,
        service: Any,
        handler: object,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_connections: int = 1_024,
        budget: int = 64 * 1024 * 1024,
        limits: ConnectionLimits | None = None,
        security: Security | None = None,
        name: str = "link",
        workers: int = WORKERS,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.host, self.port, self.name = host, port, name
        self.max_connections, self.security = max_connections, security
        self.limits = limits or ConnectionLimits()
        self.dispatcher = ServiceDispatcher(service, handler, MAX_REPLY_BYTES, name)
        self.accepted = self.refused = self.broken = self.unauthorized = 0
        self.budget = FrameBudget(budget)
        self.connections: set[ServerConnection] = set()
        self._refusing: set[ServerConnection] = set()
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=f"{name}-call")
        self._thread = threading.Thread(target=self._run, name=f"{name}-loop", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_stop = on_stop
        self.stopping = False

    def start(self) -> int:
        """Listen and return the port. Raises OSError if the address cannot be bound."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
            listener.listen(1_024)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._listener, self.port = listener, listener.getsockname()[1]
        self._thread.start()
        return self.port

    def stop(self, timeout: float = 5.0) -> None:
        """Close the port and idle connections at once; calls in progress get `timeout` seconds to finish."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(timeout), self._loop)
            self._thread.join(timeout + 1.0)
        elif not self._loop.is_closed():
            self._loop.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._on_stop()

    @property
    def figures(self) -> dict[str, int]:
        """Counts for the health file."""
        return {"connections": len(self.connections), "refused_connections": self.refused}

    # --- for connections, in the loop

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` in one of the threads."""
        self._pool.submit(work)

    def soon(self, act: Callable[..., None], *arguments: object) -> None:
        """Schedule a call in the loop, from any thread; no effect once the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(act, *arguments)
        except RuntimeError:
            log.debug("%s: a late answer is dropped: the server has stopped", self.name)

    def forget(self, connection: ServerConnection) -> None:
        """Remove a connection that ended."""
        self.connections.discard(connection)
        self._refusing.discard(connection)

    # --- the loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(_log_error)
        listener = self._listener
        if listener is not None:
            self._loop.add_reader(listener, self._accept, listener)
        self._spawn(self._sweep_forever())
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _stop(self, timeout: float) -> None:
        self.stopping = True
        self._close_listener()
        until = monotonic() + timeout
        for connection in list(self.connections | self._refusing):
            connection.close_if_idle()
        while any(not one.is_quiet for one in self.connections) and monotonic() < until:
            await asyncio.sleep(0.02)
        for connection in list(self.connections | self._refusing):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)
        self._loop.stop()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # out of descriptors: connections wait until one ends
                log.warning("%s: accept: %s", self.name, error)
                self._loop.remove_reader(listener)
                self._loop.call_later(MAX_SWEEP_S, self._accept_again, listener)
                return
            sock.setblocking(False)
            self._spawn(self._admit(sock))

    def _accept_again(self, listener: socket.socket) -> None:
        if not self.stopping:
            self._loop.add_reader(listener, self._accept, listener)

    async def _admit(self, sock: socket.socket) -> None:
        """Make room for a connection, and authenticate its peer."""
        refusal = self._refusal()
        if refusal and len(self._refusing) >= MAX_REFUSALS:
            sock.close()
            return
        connection = ServerConnection(self, refusal)
        (self._refusing if refusal else self.connections).add(connection)
        self.accepted += 1
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self.limits.handshake_s):
                await self._connect(sock, connection)
        except (UnauthorizedError, OSError) as error:
            self.unauthorized += self.security is not None
            log.info("%s: closed a connection: %s", self.name, error)
            self._drop(sock, connection)
        except BaseException:
            self._drop(sock, connection)
            raise

    def _drop(self, sock: socket.socket, connection: ServerConnection) -> None:
        self.forget(connection)
        connection.abort()
        sock.close()

    async def _connect(self, sock: socket.socket, connection: ServerConnection) -> None:
        security, context, peer = self.security, None, Peer()
        if security is not None:
            peer = Peer(security.trust_versions())
            if await self._uses_tls(sock, security) and security.tls is not None:
                context = security.tls.server_context()
        await self._loop.connect_accepted_socket(lambda: connection, sock, ssl=context)
        if security is not None and security.tls is not None and context is not None:
            certificate = connection.transport.get_extra_info("peercert")
            peer = Peer(peer.trust_versions, security.tls.check_client(certificate))
        connection.admit(peer)

    async def _uses_tls(self, sock: socket.socket, security: Security) -> bool:
        """Return True if the peer speaks TLS. If peers with and without TLS are admitted, its first byte decides."""
        if security.tls is None or security.is_required:
            return security.tls is not None
        readable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(sock, _set, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(sock)
        return security.starts_tls(sock.recv(1, socket.MSG_PEEK))

    def _refusal(self) -> str:
        """Make room for one more connection; return the reason if there is none."""
        if len(self.connections) < self.max_connections:
            return ""
        self.refused += 1
        now = monotonic()
        silent = [one for one in self.connections if one.is_evictable(now - MIN_IDLE_S)]
        if not silent:
            return (
                f"full: {self.name} serves {self.max_connections} connections, its limit: start another collector, or "
                "raise the limit of open files (ulimit -n)"
            )
        oldest = min(silent, key=lambda one: (one.proven, one.silent_since))
        self.forget(oldest)
        oldest.abort()
        return ""

    async def _sweep_forever(self) -> None:
        """Close connections that keep the server waiting."""
        every_s = min(MAX_SWEEP_S, *(seconds / 4 for seconds in self.limits.seconds()))
        while not self.stopping:
            await asyncio.sleep(every_s)
            now = monotonic()
            for connection in list(self.connections | self._refusing):
                if reason := connection.overdue(now):
                    log.info("%s: closed a connection: %s", self.name, reason)
                    connection.abort()


def _set(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


def _log_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.debug("%s: %r", context.get("message"), context.get("exception"))
