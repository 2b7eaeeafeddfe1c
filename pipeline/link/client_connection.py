"""One connection of a client: authentication, and several calls at a time whose replies come in any order."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from time import monotonic

from bookkeeper.rpc.framed_client import ConnectionLostError
from bookkeeper.rpc.security import Peer, Security, UnauthorizedError
from bookkeeper.rpc.thrift_messages import FrameError, parse_message
from bookkeeper.rpc.tokens import Tokens, client_hello
from pipeline.link.frame_protocol import FrameProtocol

MAX_REPLY_BYTES = 64 * 1024 * 1024


class ClientConnection(FrameProtocol):
    """Connection to a server. Used in one event loop.

    Invariant: `_replies` has the calls that were sent and have neither a reply nor given up."""

    def __init__(self, security: Security | None) -> None:
        super().__init__(MAX_REPLY_BYTES)
        self._security, self._peer = security, Peer(security.trust_versions()) if security is not None else Peer()
        self._replies: dict[int, asyncio.Future[memoryview]] = {}
        self._sent_at: dict[int, float] = {}
        self._greeting: asyncio.Future[memoryview] | None = None
        """Awaits the next frame of a hello."""
        self._limit = 1
        self._free = asyncio.Semaphore(1)
        self._reason: Exception = ConnectionResetError("the server closed the connection without a reply")

    @property
    def calls(self) -> int:
        """Number of calls in progress."""
        return len(self._replies)

    @property
    def is_full(self) -> bool:
        """True if another call would wait."""
        return self._free.locked()

    def is_usable(self) -> bool:
        """Return True if the next call may use it."""
        if not self.is_open:
            return False
        if self._security is not None and not self._security.is_valid(self._peer):
            if not self._replies:
                self.close()
            return False
        return True

    def raise_limit(self, calls: int) -> None:
        """Carry this many calls at a time."""
        for _ in range(max(1, calls) - self._limit):
            self._free.release()
        self._limit = max(1, calls)

    async def reserve(self) -> None:
        """Wait for room for one more call."""
        await self._free.acquire()

    def release(self) -> None:
        """End a call that was reserved."""
        self._free.release()

    async def call(self, seqid: int, frame: bytes) -> memoryview:
        """Send a call and return its reply. Raises ConnectionLostError."""
        if not self.is_open:
            raise ConnectionLostError(str(self._reason))
        reply: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._replies[seqid], self._sent_at[seqid] = reply, monotonic()
        self.transport.write(frame)
        del frame
        try:
            return await reply
        finally:
            self._replies.pop(seqid, None)

    def end_late(self, seqid: int) -> None:
        """Give up a call without a reply. The connection is closed if it was silent since, or takes one call at a
        time: else a late reply could be taken for the next one."""
        if self._limit == 1 or self.received_at <= self._sent_at.pop(seqid, 0.0):
            self.close()

    async def exchange(self, frame: bytes) -> memoryview:
        """Send a frame of a hello and return the next one. Raises ConnectionLostError."""
        self._greeting = asyncio.get_running_loop().create_future()
        self.transport.write(frame)
        return await self._greeting

    def close(self) -> None:
        """Close at once; calls in progress end."""
        if self.transport is not None:
            self.transport.abort()

    # --- frames

    def on_frame(self, frame: memoryview) -> None:
        if self._greeting is not None:
            greeting, self._greeting = self._greeting, None
            if not greeting.done():
                greeting.set_result(frame)
            return
        seqid = parse_message(frame).seqid
        self._sent_at.pop(seqid, None)
        reply = self._replies.get(seqid)
        if reply is not None and not reply.done():
            reply.set_result(frame)

    def on_broken(self, error: FrameError) -> None:
        self._reason = error

    def connection_lost(self, exc: Exception | None) -> None:
        lost = ConnectionLostError(str(exc or self._reason))
        for waiting in (*self._replies.values(), *([self._greeting] if self._greeting is not None else [])):
            if not waiting.done():
                waiting.set_exception(lost)


async def connect(host: str, port: int, security: Security | None) -> ClientConnection:
    """Open an authenticated connection; the caller sets the timeout. Raises UnauthorizedError, ConnectionLostError,
    OSError."""
    presents = security is not None and security.mode != "accept"
    tls = security.tls if security is not None and presents else None
    context, name = (None, None) if tls is None else (tls.client_context(), tls.expected(host))
    connection = ClientConnection(security)
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: connection, host, port, ssl=context, server_hostname=name
        )
        sock = connection.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security is not None and presents and security.tokens is not None:
            await _authenticate(connection, security.tokens)
    except ssl.SSLError as error:
        raise UnauthorizedError(f"the server is not {name}, or rejects us: {error}") from None
    except BaseException:
        connection.close()
        raise
    return connection


async def _authenticate(connection: ClientConnection, tokens: Tokens) -> None:
    """Prove our token and check the server's. Raises UnauthorizedError, ConnectionLostError."""
    steps = client_hello(tokens)
    frame = next(steps)
    with contextlib.suppress(StopIteration):
        while True:
            frame = steps.send(bytes(await connection.exchange(frame)))
