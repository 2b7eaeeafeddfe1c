"""Timeouts that uvicorn lacks: a connection is closed if headers arrive or the answer is read too slowly."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from artimon.runtime.http.http_limits import HttpLimits


class DeadlineProtocol(H11Protocol):
    """HTTP/1.1 protocol of uvicorn with deadlines, which single bytes do not extend."""

    limits = HttpLimits()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._header: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None
        self._whole: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        told = transport.get_extra_info("socket")
        if told is not None and told.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio sets this only on sockets with an explicit protocol, which ours has not. Without it the body
            # waits about 40 ms for the ACK of the headers
            told.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._await_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            _cancel(self._header)
            self._header = None
        else:
            self._await_header()

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
