"""Limits that uvicorn lacks: a connection is closed if headers are too long, or arrive too slowly, or if the answer is
read too slowly."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from artimon.runtime.http.http_limits import HttpLimits
from bookkeeper.rpc.security import Peer


class ClientCheck(Protocol):
    """Check of the certificates of clients, in the event loop of the server."""

    def admit(self, transport: asyncio.BaseTransport) -> Peer | None:
        """Return the credentials of a new client, None to refuse it."""

    def is_valid(self, peer: Peer) -> bool:
        """Return True while the credentials are valid."""


class DeadlineProtocol(HttpToolsProtocol):
    """HTTP/1.1 protocol of uvicorn with deadlines, which single bytes do not extend. `clients`: None admits all."""

    limits = HttpLimits()
    clients: ClientCheck | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._header: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None
        self._whole: asyncio.TimerHandle | None = None
        self._unparsed = 0
        """Bytes since the parser last returned headers, a part of a body or its end; they stay in memory."""
        self._peer: Peer | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.clients is not None:
            self._peer = self.clients.admit(transport)
        if self.clients is not None and self._peer is None:
            transport.abort()
        else:
            self._await_header()

    def data_received(self, data: bytes) -> None:
        if not self._is_admitted():
            self.transport.abort()
            return
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > self.limits.header_bytes and not self.transport.is_closing():
            self.send_400_response("")
        if self.cycle is not None and not self.cycle.response_complete:
            _cancel(self._header)
            self._header = None
        else:
            self._await_header()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, and headers that are too long for the parser or for the limit."""
        if self._unparsed <= self.limits.header_bytes:
            super().send_400_response(msg)
            return
        body = f"URL and headers are longer than header_bytes = {self.limits.header_bytes}: send a long query by POST\n"
        head = "HTTP/1.1 431 \r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        self.transport.close()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._unparsed = 0

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write is None:
            self._write = self.loop.call_later(self.limits.write_s, self.transport.abort)
        if self._whole is None:
            self._whole = self.loop.call_later(self.limits.answer_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._write)
        self._write = None

    def on_response_complete(self) -> None:
        _cancel(self._whole)  # the rest of the answer is in the buffers, under the timeout `_write`
        self._whole = None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._header, self._write, self._whole):
            _cancel(timer)
        self._header = self._write = self._whole = None
        super().connection_lost(exc)

    def _is_admitted(self) -> bool:
        """Return False if a new request comes with credentials that are no longer valid."""
        if self.clients is None or (self.cycle is not None and not self.cycle.response_complete):
            return True
        return self._peer is not None and self.clients.is_valid(self._peer)

    def _await_header(self) -> None:
        if self._header is None:
            self._header = self.loop.call_later(self.limits.header_s, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._header = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def protocol_with(limits: HttpLimits, clients: ClientCheck | None = None) -> type[DeadlineProtocol]:
    """Return a protocol class with these limits and clients; uvicorn takes a class, not an instance."""

    class LimitedProtocol(DeadlineProtocol):
        pass

    LimitedProtocol.limits, LimitedProtocol.clients = limits, clients
    return LimitedProtocol
