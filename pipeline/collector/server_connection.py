"""One connection of a link server: authentication, calls in progress, deadlines; the byte budget of all. Belongs to
the server's event loop."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from thriftpy2.thrift import TApplicationException

from bookkeeper.rpc.security import Peer, Security, UnauthorizedError
from bookkeeper.rpc.service_dispatcher import ServiceDispatcher, failure
from bookkeeper.rpc.thrift_messages import FrameError, MessageHead, parse_message
from bookkeeper.rpc.tokens import HELLO_METHODS, MAX_FRAME_BYTES
from pipeline.link.frame_protocol import FrameProtocol
from pipeline.link.idl import OPEN_METHOD

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of each connection; times in seconds. `calls`: calls in progress of a connection that began with `open`.
    `budget_s`: wait of a large request for memory."""

    max_frame: int = 4 * 1024 * 1024
    calls: int = 32
    handshake_s: float = 15.0
    idle_s: float = 300.0
    request_s: float = 30.0
    budget_s: float = 10.0

    def seconds(self) -> tuple[float, ...]:
        """Return all times."""
        return self.handshake_s, self.idle_s, self.request_s, self.budget_s


class ConnectionServer(Protocol):
    """Server of connections: what they share, and the counts that they add to."""

    name: str
    limits: ConnectionLimits
    security: Security | None
    dispatcher: ServiceDispatcher
    budget: FrameBudget
    stopping: bool
    broken: int
    unauthorized: int

    def submit(self, work: Callable[[], None]) -> None:
        """Run a call in the pool."""

    def soon(self, act: Callable[..., None], *arguments: object) -> None:
        """Run a function on the event loop; callable from any thread."""

    def forget(self, connection: ServerConnection) -> None:
        """Remove a connection that has ended."""


class LongCall(Future[Any]):
    """Result of a call that waits for a notice: cancelled when its connection ends."""


class ServerConnection(FrameProtocol):
    """State of one peer. `proven`: it has made a valid request. `silent_since`: time of its last request or reply.

    A peer whose first call is not `open` has one call at a time: its next request is not read before the reply."""

    def __init__(self, server: ConnectionServer, refusal: str = "") -> None:
        """`refusal`: reason for which the first call is refused and the connection is closed."""
        super().__init__(server.limits.max_frame)
        self._server, self._refusal = server, refusal
        self._peer: Peer | None = None
        """None until the peer is admitted."""
        self._hello = server.security.server_hello() if server.security is not None else None
        if self._must_authenticate:
            self.max_frame = MAX_FRAME_BYTES
        self._began = self.silent_since = monotonic()
        self.proven = False
        self._most_calls = 1
        self._calls: dict[int, Future[Any] | None] = {}
        """Calls in progress by an own number; None while a thread decodes them."""
        self._number = 0
        self._granted = 0
        """Bytes of the budget for the frame that is being received."""
        self._waiting_since = self._blocked_since = 0.0

    def admit(self, peer: Peer) -> None:
        """Begin to answer: the peer has authenticated, as far as TLS does that."""
        self._peer = peer
        if not self.proven and "admission" in self._pauses:
            self.resume("admission")

    # --- deadlines

    @property
    def is_quiet(self) -> bool:
        """True if no call is in progress, except calls that wait for a notice."""
        return all(isinstance(call, LongCall) for call in self._calls.values())

    def is_evictable(self, before: float) -> bool:
        """Return True if the connection may be closed for a new one: it was silent since `before`, or never proven."""
        return not self.proven or (not self._calls and not self.receiving_since and self.silent_since < before)

    def overdue(self, now: float) -> str:
        """Return the reason to close the connection now, "" if there is none."""
        limits = self._server.limits
        if (self._must_authenticate or self._peer is None) and now > self._began + limits.handshake_s:
            self._server.unauthorized += 1
            return "it did not authenticate in time"
        if self._waiting_since:
            if now > self._waiting_since + limits.budget_s:
                used = f"{self._server.budget.used} of {self._server.budget.limit} bytes are in use"
                return f"no memory for a request within {limits.budget_s} s: {used}"
        elif self.receiving_since and now > self.receiving_since + limits.request_s:
            return "half a request"
        if self._blocked_since and now > self._blocked_since + limits.request_s:
            return "it does not read its replies"
        if not self._calls and now > max(self.silent_since, self.received_at) + limits.idle_s:
            return "idle"
        return ""

    def close_if_idle(self) -> None:
        """Close at once unless a call is in progress."""
        if self.is_quiet:
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    # --- asyncio

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.pause("admission")

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._server.forget(self)
        budget = self._server.budget
        if self._waiting_since:
            budget.cancel(self)
        if self._granted:
            budget.release(self._granted)
        self._granted = 0
        for call in list(self._calls.values()):
            if isinstance(call, LongCall):
                call.cancel()

    def pause_writing(self) -> None:
        self._blocked_since = monotonic()
        self.pause("replies")

    def resume_writing(self) -> None:
        self._blocked_since = 0.0
        self.resume("replies")

    # --- frames

    def begin_frame(self, size: int) -> bool:
        if self._server.budget.take(self, size):
            self._granted = size
            return True
        self._waiting_since, self._wanted = monotonic(), size
        return False

    def grant(self) -> None:
        self._waiting_since, self._granted = 0.0, self._wanted
        super().grant()

    def on_broken(self, error: FrameError) -> None:
        self._server.broken += 1
        log.info("%s: closed a connection after an invalid request: %s", self._server.name, error)

    def on_frame(self, frame: memoryview) -> None:
        held, self._granted = self._granted, 0
        try:
            if not self._answer_here(frame):
                self._begin_call(frame, held)
                held = 0
        except UnauthorizedError as error:
            self._server.unauthorized += 1
            log.info("%s: closed a connection: %s", self._server.name, error.args[0])
            for reply in error.args[1:]:
                self.transport.write(reply)
            self.transport.close()
        finally:
            if held:
                self._server.budget.release(held)

    @property
    def _must_authenticate(self) -> bool:
        """True if the next frame must belong to a hello."""
        security = self._server.security
        return self._hello is not None and security is not None and security.is_required

    def _answer_here(self, frame: memoryview) -> bool:
        """Answer what belongs to the connection itself; False for a call. Raises UnauthorizedError, FrameError."""
        security, message = self._server.security, parse_message(frame)
        if security is not None and (self._peer is None or not security.is_valid(self._peer)):
            raise UnauthorizedError("its credentials are no longer valid")
        if self._hello is not None:
            if self._must_authenticate or message.method in HELLO_METHODS:
                self.transport.write(self._hello.answer(bytes(frame)))
                if self._hello.authenticated:
                    self._hello, self.max_frame = None, self._server.limits.max_frame
                return True
            self._hello = None
        if self._refusal:
            reply = failure(message, TApplicationException.INTERNAL_ERROR, self._refusal)
            self.transport.write(reply or b"")
            self.transport.close()
            return True
        if message.method == OPEN_METHOD and not self.proven:
            self._most_calls = self._server.limits.calls
        return False

    def _begin_call(self, frame: memoryview, held: int) -> None:
        self._number += 1
        number = self._number
        self._calls[number] = None
        if len(self._calls) >= self._most_calls:
            self.pause("calls")
        self.silent_since = monotonic()
        self._server.submit(lambda: self._call(number, frame, held))

    # --- in the threads of the server

    def _call(self, number: int, frame: memoryview, held: int) -> None:
        dispatcher = self._server.dispatcher
        try:
            message = parse_message(frame)
            refusal, values = dispatcher.decode(message)
            del frame
            if refusal is not None:
                self._server.soon(self._reply, number, refusal, held)
                return
            found = dispatcher.call(message, values)
        except (FrameError, MemoryError, RecursionError) as error:
            self._server.soon(self._fail, number, held, FrameError(str(error)))
            return
        except Exception as error:
            self._server.soon(self._reply, number, dispatcher.error(message, error), held)
            return
        if not isinstance(found, Future):
            self._server.soon(self._reply, number, dispatcher.reply(message, found), held)
            return
        self._server.soon(self._await, number, found)
        found.add_done_callback(lambda done: self._finish(number, message, done, held))

    def _finish(self, number: int, message: MessageHead, done: Future[Any], held: int) -> None:
        dispatcher = self._server.dispatcher
        try:
            reply = dispatcher.reply(message, done.result())
        except CancelledError:
            reply = None
        except Exception as error:
            reply = dispatcher.error(message, error)
        self._server.soon(self._reply, number, reply, held)

    # --- in the loop

    def _await(self, number: int, call: Future[Any]) -> None:
        if number in self._calls:
            self._calls[number] = call
            if not self.is_open and isinstance(call, LongCall):
                call.cancel()

    def _reply(self, number: int, reply: bytes | None, held: int) -> None:
        """End a call."""
        del self._calls[number]
        if held:
            self._server.budget.release(held)
        self.proven, self.silent_since = True, monotonic()
        if not self.is_open:
            return
        if reply is not None:
            self.transport.write(reply)
        if self._server.stopping and self.is_quiet:
            self.transport.close()
        else:
            self.resume("calls")

    def _fail(self, number: int, held: int, error: FrameError) -> None:
        """End the connection after a malformed call."""
        self._calls.pop(number, None)
        if held:
            self._server.budget.release(held)
        self.on_broken(error)
        self.abort()


class FrameBudget:
    """Budget of `limit` bytes; used by one thread. A single request above the limit is granted once nothing else is
    taken. Invariant: `used` <= max(limit, the largest single request)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[ServerConnection, int]] = deque()

    def take(self, waiter: ServerConnection, size: int) -> bool:
        """Reserve `size` bytes; False if they are not free: then `waiter.grant()` is called once they are."""
        if not self._waiting and self._fits(size):
            self.used += size
            return True
        self._waiting.append((waiter, size))
        return False

    def release(self, size: int) -> None:
        """Release bytes, and grant them to those that wait."""
        self.used -= size
        while self._waiting and self._fits(self._waiting[0][1]):
            waiter, wanted = self._waiting.popleft()
            self.used += wanted
            waiter.grant()

    def cancel(self, waiter: ServerConnection) -> None:
        """Forget a waiter that has gone."""
        self._waiting = deque(one for one in self._waiting if one[0] is not waiter)
        self.release(0)

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return len(self._waiting)

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self.limit
