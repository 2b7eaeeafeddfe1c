"""Client of framed binary Thrift: one call at a time over one connection, every wait with a deadline."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from bookkeeper.rpc.security import Peer, Security, UnauthorizedError
from bookkeeper.rpc.thrift_messages import HEADER, FramedError, FrameError, decode_reply, encode_call
from bookkeeper.rpc.tls import is_wrapped, wants_more

MiB = 1 << 20
FIRST_READ_BYTES = 1 << 16
"""Bytes requested from the socket before the length of the reply is known."""
TIMEOUTS = (TimeoutError, socket.timeout)  # two classes before Python 3.10


class ConnectionLostError(FramedError, ConnectionError):
    """The peer was unreachable, or closed the connection before its reply was complete."""


class CallTimeoutError(FramedError, TimeoutError):
    """No complete reply within the timeout of the call."""


class FramedClient:
    """Calls a FramedServer (or any framed binary Thrift server) one call at a time; safe to share between threads.

    Connects at the first call. Any error or timeout closes the connection and the next call opens a new one; nothing
    is ever sent twice. `timeout` seconds bound a whole call, connecting included.

    Raises ConnectionLostError, CallTimeoutError, FrameError (all FramedError), TApplicationException as reported by the
    server, and the exceptions that the IDL declares. `security` (security.py): authentication of both sides; raises
    UnauthorizedError (a FramedError) if one of them fails.

    Locks: `_lock` is held during a whole call and guards everything."""

    def __init__(
        self,
        service: Any,
        host: str,
        port: int,
        timeout: float = 10.0,
        *,
        max_frame: int = 64 * MiB,
        security: Security | None = None,
    ) -> None:
        self._security, self._peer = security, Peer()
        self._service, self._host, self._port = service, host, port
        self._timeout, self._max_frame = timeout, max_frame
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._seqid = 0
        self.was_connected = False
        """True if the newest call had a connection; if False, nothing of it was sent."""

    def call(self, method: str, *args: object, timeout: float | None = None) -> Any:
        """Call `method` and return its result; `timeout` in seconds replaces that of the client."""
        return self.begin_call(method, *args, timeout=timeout).result()

    def begin_call(self, method: str, *args: object, timeout: float | None = None) -> PendingCall:
        """First half of `call`, to await several replies in one thread. Finish the returned call by `result` or
        `abandon`; until then other calls wait."""
        deadline = monotonic() + (self._timeout if timeout is None else timeout)
        if not self._lock.acquire(timeout=max(0.0, deadline - monotonic())):
            raise CallTimeoutError(f"{self._describe(method)}: another call kept the connection busy")
        try:
            return self._send(method, args, deadline)
        except BaseException as error:
            if isinstance(error, (OSError, FramedError)):
                self._close()
            self._lock.release()
            raise

    @property
    def connected(self) -> bool:
        """True if a connection for the next call is open, as far as this side knows."""
        sock = self._sock
        if sock is None or not is_wrapped(sock):
            return sock is not None and not _is_stale(sock)
        if not self._lock.acquire(blocking=False):  # an encrypted stream cannot be checked during a call
            return True
        try:
            return not _is_stale(sock)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Closes the connection, after a running call; the next call opens a new one."""
        with self._lock:
            self._close()

    def abort(self) -> None:
        """Aborts a running call of another thread: it raises ConnectionLostError there."""
        sock = self._sock
        if sock is not None:
            shut_down(sock)

    def __enter__(self) -> FramedClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_") or method not in self._service.thrift_services:
            raise AttributeError(f"{self._service.__name__} has no method {method!r}")
        return lambda *args, **options: self.call(method, *args, **options)

    def _send(self, method: str, args: tuple[object, ...], deadline: float) -> PendingCall:
        self._seqid = self._seqid % 0x7FFFFFFF + 1
        request = encode_call(self._service, method, args, self._seqid)
        try:
            self.was_connected = False
            sock = self._connected(deadline)
            self.was_connected = True
            send_all(sock, request, deadline)
        except UnauthorizedError as error:
            raise UnauthorizedError(f"{self._describe(method)}: {error}") from None
        except TIMEOUTS as error:
            raise CallTimeoutError(f"{self._describe(method)}: no reply in time") from error
        except OSError as error:
            raise ConnectionLostError(f"{self._describe(method)}: {error}") from error
        return PendingCall(self, sock, method, self._seqid, deadline)

    def _connected(self, deadline: float) -> socket.socket:
        security = self._security
        if self._sock is not None and (
            _is_stale(self._sock) or (security is not None and not security.is_valid(self._peer))
        ):
            self._close()
        if self._sock is None:
            sock = socket.create_connection((self._host, self._port), timeout=remaining_s(deadline))
            self._sock = sock
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security is not None:
                self._sock, self._peer = security.connect(sock, self._host, deadline, receive_exactly, send_all)
        return self._sock

    def _close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def _describe(self, method: str) -> str:
        return f"{self._service.__name__}.{method} at {self._host}:{self._port}"


class PendingCall:
    """Call of a FramedClient that was sent and awaits its reply. Belongs to one thread at a time."""

    __slots__ = ("_client", "_deadline", "_failure", "_method", "_missing", "_oneway", "_pieces", "_seqid", "_sock")

    def __init__(self, client: FramedClient, sock: socket.socket, method: str, seqid: int, deadline: float) -> None:
        self._client, self._sock, self._method, self._seqid, self._deadline = client, sock, method, seqid, deadline
        self._oneway = bool(getattr(client._service, method + "_result").oneway)
        self._pieces: list[bytes] = []
        self._failure: Exception | None = None
        self._missing = -1
        """Bytes of the reply still missing; -1 while its length is unknown."""

    def fileno(self) -> int:
        """Descriptor to poll: when it is readable, call `advance`."""
        return self._sock.fileno()

    def receive_available(self) -> bool:
        """Receive available bytes without waiting. True once the reply is complete or failed; then call `result`."""
        try:
            while not self._receive(0.0):  # bytes decrypted already do not make the descriptor readable
                if not is_wrapped(self._sock):
                    return False
            return True
        except (BlockingIOError, InterruptedError):
            return False
        except (OSError, FramedError) as error:
            if isinstance(error, OSError) and wants_more(error):
                return False
            self._failure = error
            return True

    def result(self) -> Any:
        """Second half of `FramedClient.call`: waits for the rest of the reply, and raises the same errors."""
        client = self._client
        try:
            if self._oneway:
                return None
            if self._failure is not None:
                raise self._failure
            while not self._receive(remaining_s(self._deadline)):
                pass
            return decode_reply(client._service, self._method, self._frame(), self._seqid)
        except TIMEOUTS as error:
            client._close()
            raise CallTimeoutError(f"{client._describe(self._method)}: no reply in time") from error
        except FramedError:
            client._close()
            raise
        except OSError as error:
            client._close()
            raise ConnectionLostError(f"{client._describe(self._method)}: {error}") from error
        finally:
            client._lock.release()

    def abandon(self) -> None:
        """Give up the reply and close the connection."""
        self._client._close()
        self._client._lock.release()

    def _receive(self, wait: float) -> bool:
        # The buffer grows with the bytes received, so a length alone takes no memory.
        if self._missing == 0:
            return True
        self._sock.settimeout(wait)
        part = self._sock.recv(FIRST_READ_BYTES if self._missing < 0 else min(self._missing, MiB))
        if not part:
            if not self._pieces:
                raise ConnectionResetError("the server closed the connection without a reply")
            raise ConnectionResetError(f"the stream ended {max(self._missing, 1)} bytes before the end of a frame")
        self._pieces.append(part)
        if self._missing >= 0:
            self._missing -= len(part)
        else:
            self._read_header()
        return self._missing == 0

    def _read_header(self) -> None:
        """Parse the length once the first bytes contain it."""
        head = b"".join(self._pieces)
        if len(head) < HEADER.size:
            return
        size = HEADER.unpack_from(head)[0]
        if size > self._client._max_frame:
            raise FrameError(f"a frame of {size} bytes, at most {self._client._max_frame} are allowed")
        self._missing = size + HEADER.size - len(head)
        if self._missing < 0:
            raise FrameError(f"{-self._missing} bytes after the end of a frame")

    def _frame(self) -> bytes:
        held, first = self._pieces, self._pieces[0]
        if len(first) < HEADER.size:
            return b"".join(held)[HEADER.size :]
        return b"".join((memoryview(first)[HEADER.size :], *held[1:]))  # copied once, however large


def _is_stale(sock: socket.socket) -> bool:
    """True if the peer closed an idle connection, or sent unsolicited bytes."""
    sock.settimeout(0)
    try:
        sock.recv(1, 0 if is_wrapped(sock) else socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError as error:
        return not wants_more(error)
    return True


def shut_down(sock: socket.socket) -> None:
    """Shut down a connection that another thread may be using. The method of SSLSocket would let that thread continue
    in plain text for a moment, so the method of the plain socket is called."""
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass


def send_all(sock: socket.socket, data: bytes, deadline: float) -> None:
    """Send all bytes. Raises TimeoutError at the deadline."""
    sock.settimeout(remaining_s(deadline))
    if not is_wrapped(sock):
        sock.sendall(data)
        return
    view = memoryview(data)
    while view:  # sendall of an encrypted socket would apply the timeout to each piece
        sock.settimeout(remaining_s(deadline))
        view = view[sock.send(view[:MiB]) :]


def receive_exactly(sock: socket.socket, size: int, deadline: float) -> bytes:
    """Receive `size` bytes. Raises TimeoutError at the deadline, ConnectionResetError at the end of the stream."""
    # The buffer grows with the bytes received, so a length alone takes no memory.
    parts, missing = [], size
    while missing:
        sock.settimeout(remaining_s(deadline))
        part = sock.recv(min(missing, MiB))
        if not part:
            raise ConnectionResetError(f"the stream ended {missing} bytes before the end of a frame")
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def remaining_s(deadline: float) -> float:
    """Seconds until the deadline. Raises TimeoutError after it."""
    seconds = deadline - monotonic()
    if seconds <= 0:
        raise TimeoutError("deadline passed")
    return seconds
