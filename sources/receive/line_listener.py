"""Listener of lines: StatsD, Graphite and Influx over UDP, TCP and unix datagrams.

Its event loop runs in a thread of its own. Lines wait in a buffer of limited size and are handed on twice a second.
While it is full, connections are not read, and datagrams are left to the kernel, which drops and counts them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from artimon.model.clock import Clock
from artimon.model.protocols import SinkRefusedError
from artimon.runtime.exposure import family_of
from bookkeeper.rpc.security import Peer, Security
from sources.receive.line_body import MAX_LINE
from sources.receive.listener import RETRY_S, Listener
from sources.receive.receive_address import ReceiveAddress
from sources.receive.received_columns import BodyError
from sources.receive.senders import Senders, SendersError
from sources.receive.statsd import StatsdReader

MAX_WAITING, MAX_BODY = 1024 * 1024, 256 * 1024
"""Bytes that wait, and those that are handed on at once."""
PUMP_S = 0.5
"""Seconds for which lines wait, so that they share a batch."""
CONNECTIONS, IDLE_S, HANDSHAKE_S, START_S, STOP_S = 64, 600.0, 10.0, 60.0, 5.0
DATAGRAMS_AT_ONCE, MAX_DATAGRAM, RECEIVE_BUFFER = 64, 65_536, 4 * 1024 * 1024
_MEMINFO, _DROPS = 55, 8
"""SO_MEMINFO of Linux, and the place of the dropped datagrams in it."""


class LineListener(Listener):
    """`_waiting` and the sockets belong to the event loop of its thread."""

    def __init__(self, address: ReceiveAddress, senders: Senders, security: Security | None, clock: Clock) -> None:
        super().__init__(address, security)
        self._senders, self._clock = senders, clock
        self._tls = self.tls_context()
        self.aggregates: StatsdReader | None = None
        """Set before `start` for StatsD."""
        self._waiting = bytearray()
        self._connections = 0
        self._is_read = False
        """True while the socket of datagrams is read."""
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._stopped: Callable[[], object] = lambda: None

    def start(self) -> None:
        made = _bind(self.address)
        self._socket = made
        begun: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(made, begun)), name="lines", daemon=True)
        self._thread.start()
        begun.result(START_S)

    def stop(self) -> None:
        if self._thread is not None and self._socket is not None:
            self._stopped()
            self._thread.join(2 * STOP_S)
            self._socket.close()
            if self.address.path is not None:
                with contextlib.suppress(OSError):
                    self.address.path.unlink()

    async def _serve(self, sock: socket.socket, begun: Future[None]) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._stopped = lambda: loop.call_soon_threadsafe(stop.set)
        server = None
        if self.address.transport == "tcp":
            more = {"ssl": self._tls, "ssl_handshake_timeout": HANDSHAKE_S} if self._tls is not None else {}
            server = await asyncio.start_server(self._connected, sock=sock, limit=MAX_LINE, **more)  # type: ignore[arg-type]
        pump = asyncio.create_task(self._pump_forever(sock))
        begun.set_result(None)
        await stop.wait()
        pump.cancel()
        if server is not None:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._drain()

    # --- sockets

    def _read_datagrams(self, sock: socket.socket) -> None:
        for _ in range(DATAGRAMS_AT_ONCE):
            try:
                data = sock.recv(MAX_DATAGRAM)
            except OSError:  # none left
                return
            self._append(data + b"\n")
            if not self._room.is_set():
                return

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = self.admit(writer.transport)
        if peer is None or self._connections >= CONNECTIONS:
            self.dropped["too many connections"] += peer is not None
            writer.transport.abort()
            return
        self._connections += 1
        try:
            with contextlib.suppress(OSError, TimeoutError, ssl.SSLError):
                await self._read_lines(reader, peer)
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _read_lines(self, reader: asyncio.StreamReader, peer: Peer) -> None:
        """Read until the client closes, or its credentials are no longer valid."""
        rest = b""
        while chunk := await asyncio.wait_for(reader.read(MAX_LINE), IDLE_S):
            if not self.is_valid(peer):
                self.dropped["certificate no longer valid"] += 1
                return
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            if len(rest) > MAX_LINE:
                self.dropped["long line"] += 1
                return
            if newline:
                await self._room.wait()
                self._append(whole + newline)
        self._append(rest + b"\n")

    def _append(self, lines: bytes) -> None:
        self._waiting += lines
        if len(self._waiting) >= MAX_BODY:
            self._wake.set()
        if len(self._waiting) >= MAX_WAITING:
            self._room.clear()

    # --- the way on

    async def _pump_forever(self, sock: socket.socket) -> None:
        loop, datagrams = asyncio.get_running_loop(), self.address.transport != "tcp"
        while True:
            if datagrams:
                loop.add_reader(sock, self._read_datagrams, sock)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), PUMP_S)
            self._wake.clear()
            if datagrams:
                loop.remove_reader(sock)
                self._count_drops(sock)
            await self._drain()

    async def _drain(self) -> None:
        """Hand on all lines that wait."""
        while self._waiting:
            cut = self._waiting.rfind(b"\n", 0, MAX_BODY) + 1 or self._waiting.index(b"\n") + 1
            await self._hand_on(bytes(self._waiting[:cut]))
            del self._waiting[:cut]
        self._room.set()

    async def _hand_on(self, body: bytes) -> None:
        """Deliver lines, again and again while the log does not take them."""
        if not body.strip():
            return
        now_ms, name = self._clock.now_ms(), f"{self.address.protocol}/{self.address.sender}"
        if self.aggregates is not None:
            self.aggregates.aggregate(body, now_ms)
            return
        form = f"{now_ms}:ns::" if self.address.protocol == "influx" else str(now_ms)
        while True:
            try:
                await self._senders.deliver(name, body, form)
            except SinkRefusedError:
                await asyncio.sleep(RETRY_S)
            except (BodyError, SendersError) as problem:
                self.dropped[str(problem)] += 1
                return
            else:
                return

    def _count_drops(self, sock: socket.socket) -> None:
        """Note the datagrams that the kernel dropped; only Linux tells."""
        with contextlib.suppress(OSError, struct.error):
            drops = struct.unpack_from("9I", sock.getsockopt(socket.SOL_SOCKET, _MEMINFO, 36))[_DROPS]
            if drops:
                self.dropped["datagrams"] = drops


def _bind(address: ReceiveAddress) -> socket.socket:
    """Bind the sockets of an address. Raises OSError."""
    if address.path is not None:
        return _bind_unix(address.path)
    family = family_of(address.host)
    if address.transport == "tcp":
        return socket.create_server((address.host, address.port), family=family, backlog=CONNECTIONS)
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        made.setblocking(False)
        made.bind((address.host, address.port))
    except OSError:
        made.close()
        raise
    return made


def _bind_unix(path: Path) -> socket.socket:
    """Bind a socket that its group may write to, in place of one that nobody reads. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            with contextlib.suppress(ConnectionRefusedError):
                made.connect(str(path))
                raise OSError(f"{path} is in use")
            path.unlink()
        made.setblocking(False)
        made.bind(str(path))
        os.chmod(path, 0o660)
    except OSError:
        made.close()
        raise
    return made
