"""Limits that uvicorn lacks: a connection is closed if headers are too long, or arrive too slowly, or if the answer is
read too slowly."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from artimon.runtime.http.http_limits import HttpLimits


class DeadlineProtocol(HttpToolsProtocol):
    """HTTP/1.1 protocol of uvicorn with deadlines, which single bytes do not extend."""

    limits = HttpLimits()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._header: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None
        self._whole: asyncio.TimerHandle | None = None
        self._unparsed = 0
        """Bytes since the parser last returned headers, a part of a body or its end; they stay in memory."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_header()

    def data_received(self, data: bytes) -> None:
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


def protocol_with(limits: HttpLimits) -> type[DeadlineProtocol]:
    """Return a protocol class with these limits; uvicorn takes a class, not an instance."""

    class LimitedProtocol(DeadlineProtocol):
        pass

    LimitedProtocol.limits = limits
    return LimitedProtocol
