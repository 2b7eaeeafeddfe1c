"""Connections to collectors, and to agents with the same service: opened on demand, kept for the next calls.

One connection carries all calls to an endpoint that takes several at a time; an endpoint of an older version has a
connection for each call in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from itertools import count
from typing import Any

from thriftpy2.thrift import TApplicationException, TException

from artimon.runtime.settings import security
from bookkeeper.rpc.framed_client import CallTimeoutError, ConnectionLostError
from bookkeeper.rpc.security import UnauthorizedError
from bookkeeper.rpc.thrift_messages import FramedError, decode_reply, encode_call
from pipeline.link.client_connection import ClientConnection, connect
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.link.idl import OPEN_METHOD, collector_idl

CALL_FAILURES = (FramedError, TException, OSError)
"""Errors of a failed call."""
MAX_CONNECTIONS = 16
"""Connections to one endpoint that takes one call at a time; further calls wait for one of them."""


class LinkCall:
    """One call that was begun. `was_connected`: True once it had a connection; if False, nothing of it was sent."""

    def __init__(self, endpoint: CollectorEndpoint, method: str, seqid: int, frame: bytes) -> None:
        self.endpoint, self.method, self.seqid = endpoint, method, seqid
        self._frame = frame
        self.was_connected = False
        self.future: Future[memoryview] = Future()

    def take_frame(self) -> bytes:
        """Return the encoded call, once: it is not kept in memory until the reply."""
        frame, self._frame = self._frame, b""
        return frame

    def result(self) -> Any:
        """Wait for the reply and decode it. Raises CALL_FAILURES."""
        return self.decode(self.future.result())

    def decode(self, frame: memoryview) -> Any:
        """Decode the reply. Raises CALL_FAILURES."""
        return decode_reply(collector_idl().Collector, self.method, frame, self.seqid)


class LinkConnections:
    """Calls from any thread. Threads: the event loop of one thread, begun by the first call, does all I/O."""

    def __init__(self, known: Callable[[], Collection[CollectorEndpoint]], caller: str) -> None:
        """`known`: endpoints that may still be called. `caller`: name of this process."""
        self._known, self._caller = known, caller
        self._lock = threading.Lock()
        """Guards the two below."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._numbers = count(1)
        self._endpoints: dict[CollectorEndpoint, _EndpointConnections] = {}
        """Used in the loop only."""

    def begin(self, endpoint: CollectorEndpoint, method: str, argument: object, timeout_s: float) -> LinkCall:
        """Begin a call; its future ends within about `timeout_s`. Raises TypeError for an unknown method."""
        seqid = next(self._numbers) % 0x7FFFFFFF + 1
        frame = encode_call(collector_idl().Collector, method, (argument,), seqid)
        call = LinkCall(endpoint, method, seqid, frame)
        try:
            self._running_loop().call_soon_threadsafe(self._begin, call, timeout_s)
        except RuntimeError:
            call.future.set_exception(ConnectionLostError("the connections are closed"))
        return call

    def close(self) -> None:
        """Close all connections; calls in progress end with them."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise RuntimeError("closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._run, args=(self._loop,), name="link", daemon=True).start()
            return self._loop

    # --- in the loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(lambda _loop, _context: None)
        try:
            loop.run_forever()
        finally:
            for endpoint in self._endpoints.values():
                endpoint.close()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.close()

    def _begin(self, call: LinkCall, timeout_s: float) -> None:
        task = asyncio.get_running_loop().create_task(self._call(call, timeout_s))
        task.add_done_callback(lambda done: _complete(call.future, done))

    async def _call(self, call: LinkCall, timeout_s: float) -> memoryview:
        connection = None
        where = f"{call.method} at {call.endpoint.host}:{call.endpoint.port}"
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._of(call.endpoint).take(self._caller)
                call.was_connected = True
                return await connection.call(call.seqid, call.take_frame())
        except TimeoutError:
            if connection is not None:
                connection.end_late(call.seqid)
            raise CallTimeoutError(f"{where}: no reply in time") from None
        except UnauthorizedError as error:
            raise UnauthorizedError(f"{where}: {error}") from None
        except asyncio.CancelledError:
            raise ConnectionLostError(f"{where}: the connections were closed") from None
        except OSError as error:
            raise ConnectionLostError(f"{where}: {error}") from None
        finally:
            if connection is not None:
                connection.release()

    def _of(self, endpoint: CollectorEndpoint) -> _EndpointConnections:
        found = self._endpoints.get(endpoint)
        if found is None:
            known = self._known()
            for gone in [one for one in self._endpoints if one not in known]:  # a restarted one listens elsewhere
                self._endpoints.pop(gone).close()
            found = self._endpoints[endpoint] = _EndpointConnections(endpoint)
        return found


class _EndpointConnections:
    """Connections to one endpoint. Used in the loop only."""

    def __init__(self, endpoint: CollectorEndpoint) -> None:
        self._endpoint = endpoint
        self._connections: list[ClientConnection] = []
        self._opening = asyncio.Lock()
        """Held while a connection is opened: the first one tells how many are needed."""
        self._takes_one_call = False

    async def take(self, caller: str) -> ClientConnection:
        """Return a connection with room for one more call, which is counted; call `release` at its end."""
        async with self._opening:
            self._connections = [one for one in self._connections if one.is_usable()]
            self._takes_one_call = self._takes_one_call and bool(self._connections)
            found = min(self._connections, key=lambda one: (one.is_full, one.calls), default=None)
            if found is None or (found.is_full and self._takes_one_call and len(self._connections) < MAX_CONNECTIONS):
                found = await connect(self._endpoint.host, self._endpoint.port, security())
                self._connections.append(found)
                await self._negotiate(found, caller)
            await found.reserve()
            return found

    async def _negotiate(self, connection: ClientConnection, caller: str) -> None:
        """Ask how many calls the connection may carry. An older server does not know the question."""
        if self._takes_one_call:
            return
        service = collector_idl().Collector
        try:
            await connection.reserve()
            try:
                frame = await connection.call(0, encode_call(service, OPEN_METHOD, (caller,), 0))
            finally:
                connection.release()
            connection.raise_limit(decode_reply(service, OPEN_METHOD, frame, 0).calls)
        except TApplicationException as error:
            if error.type != TApplicationException.UNKNOWN_METHOD:
                connection.close()
                raise ConnectionLostError(str(error)) from None
            self._takes_one_call = True
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def _complete(future: Future[memoryview], done: asyncio.Task[memoryview]) -> None:
    error = ConnectionLostError("the connections were closed") if done.cancelled() else done.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())
