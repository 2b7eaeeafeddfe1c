"""A bounded server and client for framed binary Thrift, used by every part of the platform.

Every wait has a deadline and every size a limit: half a frame, a giant one, garbage or an idle peer costs one
connection and nothing else.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from thriftpy2.thrift import TApplicationException, TMessageType

from bookkeeper.wire import (
    HEADER,
    FramedError,
    FrameError,
    Message,
    decode_reply,
    decode_struct,
    encode_call,
    encode_message,
    read_message,
)

__all__ = [
    "CallTimeout",
    "ConnectionLost",
    "FrameError",
    "FramedClient",
    "FramedError",
    "FramedServer",
    "decode_reply",
    "encode_call",
]

MiB = 1 << 20
log = logging.getLogger("bookkeeper.framed")
_TIMEOUTS = (TimeoutError, socket.timeout)  # two classes before Python 3.10


class ConnectionLost(FramedError, ConnectionError):
    """The peer could not be reached, or closed the connection before its reply was whole."""


class CallTimeout(FramedError, TimeoutError):
    """No whole reply within the time that the call was given."""


class FramedServer:
    """Serves `handler` (an object with the methods of `service`) on one port, a daemon thread for each connection.

    `max_frame` bytes a request, `max_reply` bytes a reply (default: the greater of `max_frame` and 64 MiB),
    `max_connections` at once (then the one that is idle longest gives way), `idle_timeout` seconds without a request,
    `request_timeout` seconds for a request to arrive whole and for its reply to be taken.
    `on_reply(method)` runs after a reply was handed to the kernel.

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
    ) -> None:
        self.service, self.handler, self.host, self.port, self.name = service, handler, host, port, name
        self.max_frame, self.max_connections = max_frame, max_connections
        self.max_reply = max(max_frame, 64 * MiB) if max_reply is None else max_reply
        self.idle_timeout, self.request_timeout, self.on_reply = idle_timeout, request_timeout, on_reply
        self.accepted = self.refused = self.broken = 0  # connections: taken, turned away, closed for bad bytes
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> int:
        """Listens, and returns the port. OSError if the address cannot be bound."""
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
            if connection.thread is not threading.current_thread():
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
            _knock(self.host, self.port)  # wakes it elsewhere
        listener.close()

    def _accept(self) -> None:
        listener = self._listener
        while listener is not None and not self._stopping.is_set():
            try:
                sock, _ = listener.accept()
            except OSError as error:
                if self._stopping.wait(0.05):
                    return
                log.debug("%s: accept: %s", self.name, error)  # out of descriptors, or a peer that went away
                continue
            self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        connection = _Connection(self, sock)
        with self._lock:
            full = len(self._connections) >= self.max_connections
            oldest = (
                min((c for c in self._connections if c.idle), key=lambda c: c.since, default=None) if full else None
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

    def _run(self, connection: _Connection) -> None:
        self.accepted += 1
        try:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.thread.start()
        except (OSError, RuntimeError) as error:
            log.debug("%s: connection refused: %s", self.name, error)
            self.forget(connection)
            connection.sock.close()

    def forget(self, connection: _Connection) -> None:
        """Takes a connection that ended off the list."""
        with self._lock:
            self._connections.discard(connection)

    def answer(self, frame: bytes) -> tuple[str, bytes | None]:
        """The method of a request and its reply as a frame (None if it is one-way); FrameError for a bad request."""
        message = read_message(frame)
        if message.kind not in (TMessageType.CALL, TMessageType.ONEWAY):
            raise FrameError(f"message of kind {message.kind} instead of a call")
        if message.method not in self.service.thrift_services:
            text = f"{self.service.__name__} has no method {message.method!r}"
            return message.method, _failure(message, TApplicationException.UNKNOWN_METHOD, text)
        args = decode_struct(message, getattr(self.service, message.method + "_args")())
        return message.method, self._reply(message, args)

    def _reply(self, message: Message, args: Any) -> bytes | None:
        result = getattr(self.service, message.method + "_result")()
        try:
            self._call(message, args, result)
            if result.oneway:
                return None
            reply = encode_message(message.method, TMessageType.REPLY, message.seqid, result)
        except TApplicationException as error:
            return _failure(message, error.type, str(error))
        except Exception as error:  # the caller gets the reason; its connection and the others live on
            log.warning("%s.%s failed", self.name, message.method, exc_info=True)
            return _failure(message, TApplicationException.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        if len(reply) - HEADER.size > self.max_reply:
            text = f"reply of {len(reply)} bytes, at most {self.max_reply} are allowed: ask for less"
            return _failure(message, TApplicationException.INTERNAL_ERROR, text)
        return reply

    def _call(self, message: Message, args: Any, result: Any) -> None:
        values = [getattr(args, spec[1]) for spec in args.thrift_spec.values()]
        try:
            value = getattr(self.handler, message.method)(*values)
        except Exception as error:
            for fid, spec in result.thrift_spec.items():
                if fid != 0 and isinstance(error, spec[2]):
                    setattr(result, spec[1], error)
                    return
            raise
        if 0 in result.thrift_spec:
            result.success = value


class _Connection:
    """One accepted socket and its thread. `idle`: no byte of a request has come since `since` (monotonic seconds)."""

    def __init__(self, server: FramedServer, sock: socket.socket) -> None:
        self.server, self.sock, self.idle, self.since = server, sock, True, monotonic()
        self.thread = threading.Thread(target=self._serve, name=f"{server.name}-connection", daemon=True)

    def shut(self) -> None:
        """Ends the connection from another thread; its own thread closes the socket."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close_if_idle(self) -> None:
        if self.idle:
            self.shut()

    def _serve(self) -> None:
        try:
            while not self.server._stopping.is_set() and self._serve_one():
                pass
        except (FrameError, MemoryError, RecursionError) as error:
            self.server.broken += 1
            log.info("%s: closed a connection that sent no valid request: %s", self.server.name, error)
        except OSError as error:
            log.debug("%s: connection ended: %s", self.server.name, error)
        finally:
            self.server.forget(self)
            self.sock.close()

    def _serve_one(self) -> bool:
        """False once the peer closed the connection or was silent too long."""
        server = self.server
        self.idle, self.since = True, monotonic()
        try:
            first = _receive_some(self.sock, HEADER.size, self.since + server.idle_timeout)
        except _TIMEOUTS:
            return False
        if not first:
            return False
        self.idle = False
        deadline = monotonic() + server.request_timeout
        frame = _receive_frame(self.sock, first, server.max_frame, deadline)
        method, reply = server.answer(frame)
        if reply is not None:
            self.sock.settimeout(server.request_timeout)
            self.sock.sendall(reply)
            if server.on_reply is not None:
                server.on_reply(method)
        return True


class FramedClient:
    """Calls a FramedServer (or any framed binary Thrift server) one call at a time; safe to share between threads.

    Connects when first used. Any error or timeout closes the connection and the next call makes a new one; nothing is
    ever sent twice. `timeout` seconds bound a whole call, connecting included.

    Raises ConnectionLost, CallTimeout, FrameError (all FramedError), TApplicationException for what the server
    reports, and the exceptions that the IDL declares.

    Locks: `_lock` is held for the whole of a call and guards everything."""

    def __init__(self, service: Any, host: str, port: int, timeout: float = 10.0, *, max_frame: int = 64 * MiB) -> None:
        self._service, self._host, self._port = service, host, port
        self._timeout, self._max_frame = timeout, max_frame
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._seqid = 0

    def call(self, method: str, *args: object, timeout: float | None = None) -> Any:
        """What `method` returned; `timeout` seconds instead of the client's own."""
        deadline = monotonic() + (self._timeout if timeout is None else timeout)
        if not self._lock.acquire(timeout=max(0.0, deadline - monotonic())):
            raise CallTimeout(f"{self._where(method)}: another call kept the connection busy")
        try:
            return self._call(method, args, deadline)
        except (OSError, FramedError):
            self._close()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Closes the connection, after a running call; the next call makes a new one."""
        with self._lock:
            self._close()

    def __enter__(self) -> FramedClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_") or method not in self._service.thrift_services:
            raise AttributeError(f"{self._service.__name__} has no method {method!r}")
        return lambda *args, **options: self.call(method, *args, **options)

    def _call(self, method: str, args: tuple[object, ...], deadline: float) -> Any:
        self._seqid = self._seqid % 0x7FFFFFFF + 1
        seqid = self._seqid
        request = encode_call(self._service, method, args, seqid)
        try:
            frame = self._exchange(request, deadline)
        except _TIMEOUTS as error:
            raise CallTimeout(f"{self._where(method)}: no reply in time") from error
        except OSError as error:
            raise ConnectionLost(f"{self._where(method)}: {error}") from error
        if getattr(self._service, method + "_result").oneway:
            return None
        return decode_reply(self._service, method, frame, seqid)

    def _exchange(self, request: bytes, deadline: float) -> bytes:
        sock = self._connected(deadline)
        sock.settimeout(_left(deadline))
        sock.sendall(request)
        if request[4:8] == b"\x80\x01\x00\x04":  # one-way: no reply will come
            return b""
        first = _receive_some(sock, HEADER.size, deadline)
        if not first:
            raise ConnectionResetError("the server closed the connection without a reply")
        return _receive_frame(sock, first, self._max_frame, deadline)

    def _connected(self, deadline: float) -> socket.socket:
        if self._sock is not None and _stale(self._sock):
            self._close()
        if self._sock is None:
            sock = socket.create_connection((self._host, self._port), timeout=_left(deadline))
            self._sock = sock
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._sock

    def _close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def _where(self, method: str) -> str:
        return f"{self._service.__name__}.{method} at {self._host}:{self._port}"


def _failure(message: Message, code: int, text: str) -> bytes | None:
    if message.kind == TMessageType.ONEWAY:
        return None
    error = TApplicationException(code, text)
    return encode_message(message.method, TMessageType.EXCEPTION, message.seqid, error)


def _receive_some(sock: socket.socket, size: int, deadline: float) -> bytes:
    """At least one byte and at most `size`, or b"" at the end of the stream; TimeoutError at the deadline."""
    sock.settimeout(_left(deadline))
    return sock.recv(size)


def _receive_frame(sock: socket.socket, first: bytes, max_frame: int, deadline: float) -> bytes:
    """The frame whose length begins with the bytes `first`; FrameError if it is too long or its end never comes."""
    header = first + _receive_exactly(sock, HEADER.size - len(first), deadline)
    size = HEADER.unpack(header)[0]
    if size > max_frame:
        raise FrameError(f"a frame of {size} bytes, at most {max_frame} are allowed")
    return _receive_exactly(sock, size, deadline)


def _receive_exactly(sock: socket.socket, size: int, deadline: float) -> bytes:
    # The buffer grows with what has really come, so a length alone takes no memory.
    parts, missing = [], size
    while missing:
        part = _receive_some(sock, min(missing, MiB), deadline)
        if not part:
            raise ConnectionResetError(f"the stream ended {missing} bytes before the end of a frame")
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("deadline passed")
    return left


def _stale(sock: socket.socket) -> bool:
    """Whether the peer closed an idle connection, or sent something that nobody asked for."""
    sock.settimeout(0)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
    return True


def _knock(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=0.2).close()
    except OSError:
        pass
