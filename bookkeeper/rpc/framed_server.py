"""Bounded server for framed binary Thrift, used by every part of the platform; the client is in framed_client.py.

Every wait has a deadline and every size a limit: half a frame, a giant one, garbage or an idle peer costs one
connection and nothing else.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from bookkeeper.rpc.framed_client import TIMEOUTS, receive_exactly, remaining_s, send_all, shut_down
from bookkeeper.rpc.framed_client import FramedClient as FramedClient
from bookkeeper.rpc.security import Peer, Security, UnauthorizedError
from bookkeeper.rpc.service_dispatcher import ServiceDispatcher
from bookkeeper.rpc.thrift_messages import HEADER, parse_message
from bookkeeper.rpc.thrift_messages import FramedError as FramedError
from bookkeeper.rpc.thrift_messages import FrameError as FrameError
from bookkeeper.rpc.thrift_messages import decode_reply as decode_reply
from bookkeeper.rpc.thrift_messages import encode_call as encode_call
from bookkeeper.rpc.tls import is_wrapped, names_of
from bookkeeper.rpc.tokens import HELLO_METHODS, MAX_FRAME_BYTES

MiB = 1 << 20
log = logging.getLogger("bookkeeper.framed")
_SMALL = 1 << 16  # bytes; requests up to this size need no budget
_serving = threading.local()  # .sock: connection of the request that this thread handles


def is_caller_disconnected() -> bool:
    """True if the peer has closed the connection of the current request. For long-running handlers."""
    sock = getattr(_serving, "sock", None)
    if sock is None:
        return False
    sock.settimeout(0)
    try:
        return not socket.socket.recv(sock, 1, socket.MSG_PEEK)  # below the encryption, if there is any
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


def caller_names() -> list[str]:
    """Names in the verified certificate of the peer of the current request; none without TLS."""
    sock = getattr(_serving, "sock", None)
    return names_of(sock.getpeercert()) if sock is not None and is_wrapped(sock) else []


class FramedServer:
    """Serves `handler` (an object with the methods of `service`) on one port, a daemon thread for each connection.

    Limits: `max_frame` bytes per request, `max_reply` bytes per reply (default: the greater of `max_frame` and 64 MiB),
    `max_connections` (beyond it the longest idle one is closed), `idle_timeout` seconds without a request,
    `request_timeout` seconds to receive a whole request and to send its reply.
    `on_reply(method)` runs after a reply was handed to the kernel.
    `budget`: total bytes of requests in progress, from first byte to reply (None: unlimited). A request beyond it waits
    in the peer's socket for at most `budget_wait` seconds; small ones always pass.
    `security` (security.py): authentication, within `handshake_timeout` seconds and in the connection's own thread.
    Connections without a completed request are the first to be closed.

    Locks: `_lock` guards `_connections`; no I/O under it."""

    def __init__(
        self,
        service: Any,
        handler: object,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_frame: int = 4 * MiB,
        max_reply: int | None = None,
        max_connections: int = 64,
        idle_timeout: float = 300.0,
        request_timeout: float = 30.0,
        name: str = "framed",
        on_reply: Callable[[str], None] | None = None,
        budget: int | None = None,
        budget_wait: float = 10.0,
        security: Security | None = None,
        handshake_timeout: float = 5.0,
        accept_rate: float | None = None,
    ) -> None:
        self.service, self.host, self.port, self.name = service, host, port, name
        self.max_frame, self.max_connections = max_frame, max_connections
        self.dispatcher = ServiceDispatcher(
            service, handler, max(max_frame, 64 * MiB) if max_reply is None else max_reply, name
        )
        self.idle_timeout, self.request_timeout, self.on_reply = idle_timeout, request_timeout, on_reply
        self.budget, self.budget_wait = None if budget is None else ByteBudget(budget), budget_wait
        self.security, self.handshake_timeout = security, handshake_timeout
        self._accept_limit = None if accept_rate is None else _AcceptRateLimit(accept_rate)
        self.accepted = self.refused = self.broken = 0  # connections: accepted, refused, closed for malformed bytes
        self.unauthorized = 0  # connections that failed authentication
        self._lock = threading.Lock()
        self._connections: set[_ServerConnection] = set()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> int:
        """Listens and returns the port. Raises OSError if the address cannot be bound."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
            listener.listen(128)
        except OSError:
            listener.close()
            raise
        self._listener, self.port = listener, listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name=f"{self.name}-accept", daemon=True)
        self._acceptor.start()
        return self.port

    def stop(self, timeout: float = 5.0) -> None:
        """Closes the port and idle connections at once; running requests get `timeout` seconds to finish."""
        self._stopping.set()
        deadline = monotonic() + timeout
        self._close_listener()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close_if_idle()
        for connection in connections:
            # a connection just accepted may have no running thread yet: it ends by itself, `_stopping` is set
            if connection.thread is not threading.current_thread() and connection.thread.ident is not None:
                connection.thread.join(max(0.0, deadline - monotonic()))
            connection.shut()
        if self._acceptor is not None and self._acceptor is not threading.current_thread():
            self._acceptor.join(max(0.1, deadline - monotonic()))

    def abandon(self) -> None:
        """In a forked child: closes the child's copies of the sockets; the parent keeps serving on its own."""
        self._stopping.set()
        self._lock = threading.Lock()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.sock.close()
        self._connections.clear()

    def _close_listener(self) -> None:
        listener = self._listener
        if listener is None:
            return
        try:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept() on Linux
        except OSError:
            _unblock_accept(self.host, self.port)  # wakes it elsewhere
        listener.close()

    def _accept(self) -> None:
        listener = self._listener
        while listener is not None and not self._stopping.is_set():
            try:
                sock, _ = listener.accept()
            except OSError as error:
                if self._stopping.wait(0.05):
                    return
                log.debug("%s: accept: %s", self.name, error)  # out of descriptors, or the peer disconnected
                continue
            self._admit(sock)
            if self._accept_limit is not None:
                self._stopping.wait(self._accept_limit.pause(monotonic()))

    def _admit(self, sock: socket.socket) -> None:
        connection = _ServerConnection(self, sock)
        with self._lock:
            full = len(self._connections) >= self.max_connections
            oldest = (
                min((c for c in self._connections if c.is_evictable), key=lambda c: (c.answered, c.since), default=None)
                if full
                else None
            )
            if oldest is not None:
                self._connections.discard(oldest)
            if not full or oldest is not None:
                self._connections.add(connection)
        if full:
            self.refused += 1
            if oldest is None:
                sock.close()
                return
            oldest.shut()
        self._run(connection)

    def _run(self, connection: _ServerConnection) -> None:
        self.accepted += 1
        try:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.thread.start()
        except (OSError, RuntimeError) as error:
            log.debug("%s: connection refused: %s", self.name, error)
            self.forget(connection)
            connection.sock.close()

    def forget(self, connection: _ServerConnection) -> None:
        """Removes a connection that ended."""
        with self._lock:
            self._connections.discard(connection)


class _ServerConnection:
    """One accepted socket and its thread. `idle`: no byte of a request was received since `since` (monotonic seconds).
    `proven`: it has completed a valid, authenticated request. `coming`: a request is partly received."""

    def __init__(self, server: FramedServer, sock: socket.socket) -> None:
        self.server, self.sock, self.idle, self.since = server, sock, True, monotonic()
        self.answered = self.receiving = False
        self._handshake_deadline = self.since + server.handshake_timeout
        self._peer = Peer()
        self._hello = server.security.server_hello() if server.security is not None else None
        self.thread = threading.Thread(target=self._serve, name=f"{server.name}-connection", daemon=True)

    @property
    def is_evictable(self) -> bool:
        """True if it may be closed for a new one: until a first valid request, half a request counts as idle."""
        return self.idle or (self.receiving and not self.answered)

    def shut(self) -> None:
        """Ends the connection from another thread; its own thread closes the socket."""
        shut_down(self.sock)

    def close_if_idle(self) -> None:
        if self.idle:
            self.shut()

    def _serve(self) -> None:
        try:
            self._handshake()
            while not self.server._stopping.is_set() and self._serve_one():
                pass
        except UnauthorizedError as error:
            self.server.unauthorized += 1
            log.info("%s: closed a connection: %s", self.server.name, error.args[0])
            self._send_replies(error.args[1:])
        except (FrameError, MemoryError, RecursionError) as error:
            self.server.broken += 1
            log.info("%s: closed a connection after an invalid request: %s", self.server.name, error)
        except OSError as error:
            log.debug("%s: connection ended: %s", self.server.name, error)
        finally:
            self.server.forget(self)
            self.sock.close()

    def _handshake(self) -> None:
        """Authenticate the peer. Raises UnauthorizedError, OSError."""
        security, plain = self.server.security, self.sock
        if security is None:
            return
        try:
            self.sock = security.wrap(plain, self._handshake_deadline, _peek)
            self._peer = security.admit(self.sock, self.sock is not plain, self._handshake_deadline)
        except UnauthorizedError:
            raise
        except OSError:
            self.server.unauthorized += 1
            raise

    def _send_replies(self, replies: Sequence[bytes]) -> None:
        """Send final replies, if the peer takes them within 1 s."""
        try:
            for reply in replies:
                send_all(self.sock, reply, monotonic() + 1.0)
        except OSError:
            pass

    @property
    def _must_authenticate(self) -> bool:
        """True if the next frame must belong to a hello."""
        security = self.server.security
        return self._hello is not None and security is not None and security.is_required

    def _serve_one(self) -> bool:
        """Handle one request. False once the peer closed the connection or the idle timeout passed."""
        server = self.server
        self.idle, self.since = True, monotonic()
        try:
            self.sock.settimeout(
                remaining_s(self._handshake_deadline if self._must_authenticate else self.since + server.idle_timeout)
            )
            first = self.sock.recv(HEADER.size)
        except TIMEOUTS:
            return False
        if not first:
            return False
        self.idle, self.receiving = False, True
        deadline = self._handshake_deadline if self._must_authenticate else monotonic() + server.request_timeout
        size = _receive_size(
            self.sock, first, MAX_FRAME_BYTES if self._must_authenticate else server.max_frame, deadline
        )
        budget = server.budget if size > _SMALL else None
        if budget is None:
            return self._answer(receive_exactly(self.sock, size, deadline))
        if not budget.reserve(size, server.budget_wait):
            used = f"{budget.used} of {budget.limit} bytes are in use"
            raise FrameError(f"no memory for a request of {size} bytes within {server.budget_wait} s: {used}")
        try:
            return self._answer(receive_exactly(self.sock, size, monotonic() + server.request_timeout))
        finally:
            budget.release(size)

    def _answer(self, frame: bytes) -> bool:
        server, self.receiving = self.server, False
        if server.security is not None and not server.security.is_valid(self._peer):
            raise UnauthorizedError("its credentials are no longer valid")
        if self._hello is not None and self._authenticate(frame):
            return True
        _serving.sock = self.sock
        only = [frame]
        del frame  # so that `answer` can free it before the handler runs
        method, reply = server.dispatcher.answer(only.pop())
        self.answered = True
        if reply is not None:
            send_all(self.sock, reply, monotonic() + server.request_timeout)
            if server.on_reply is not None:
                server.on_reply(method)
        return True

    def _authenticate(self, frame: bytes) -> bool:
        """Answer a frame of a hello; False if it is the first call of a peer that needs no token."""
        greeting = self._hello
        if greeting is None or (not self._must_authenticate and parse_message(frame).method not in HELLO_METHODS):
            self._hello = None
            return False
        send_all(self.sock, greeting.answer(frame), self._handshake_deadline)
        if greeting.authenticated:
            self._hello = None
        return True


class _AcceptRateLimit:
    """Token bucket for accepting connections: at most `rate` a second, after an initial burst of BURST."""

    BURST = 64

    def __init__(self, rate: float) -> None:
        self._rate, self._left, self._at = rate, float(self.BURST), monotonic()

    def pause(self, now: float) -> float:
        """Count a connection accepted at `now`; return the seconds to wait before the next one."""
        self._left = min(self.BURST, self._left + (now - self._at) * self._rate) - 1
        self._at = now
        return max(0.0, -self._left / self._rate)


def _peek(sock: socket.socket, deadline: float) -> bytes:
    """Wait for the first byte and return it without consuming it."""
    sock.settimeout(remaining_s(deadline))
    return sock.recv(1, socket.MSG_PEEK)


def _receive_size(sock: socket.socket, first: bytes, max_frame: int, deadline: float) -> int:
    """Receive the rest of the length that begins with `first`, in bytes. FrameError if the frame is too long."""
    header = first + receive_exactly(sock, HEADER.size - len(first), deadline)
    size = int(HEADER.unpack(header)[0])
    if size > max_frame:
        raise FrameError(f"a frame of {size} bytes, at most {max_frame} are allowed")
    return size


def _unblock_accept(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=0.2).close()
    except OSError:
        pass


class ByteBudget:
    """Budget of `limit` bytes. Thread-safe. A single request above the limit is granted once nothing else is taken.

    Invariant: `used` <= max(limit, the largest single request)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._cond = threading.Condition()
        self._queue: deque[object] = deque()

    def reserve(self, size: int, timeout: float) -> bool:
        """Reserve `size` bytes; False if they were not free within `timeout` seconds."""
        ticket = object()
        with self._cond:
            self._queue.append(ticket)
            try:
                if not self._cond.wait_for(lambda: self._is_next(ticket, size), timeout):
                    return False
                self.used += size
                return True
            finally:
                self._queue.remove(ticket)
                self._cond.notify_all()

    def release(self, size: int) -> None:
        """Release `size` bytes."""
        with self._cond:
            self.used -= size
            self._cond.notify_all()

    @property
    def waiting(self) -> int:
        """Number of waiting threads."""
        return len(self._queue)

    def _is_next(self, ticket: object, size: int) -> bool:
        return self._queue[0] is ticket and (not self.used or self.used + size <= self.limit)
