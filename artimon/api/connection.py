"""Time limits that uvicorn lacks: a connection brings its headers and takes its answer in time, or it is closed."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from artimon.api.limits import Limits


class DeadlineProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with deadlines; bytes that drip in or out do not move them."""

    limits = Limits()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._header: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None
        self._whole: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        told = transport.get_extra_info("socket")
        if told is not None and told.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio does so itself only for sockets that name their protocol, and ours comes from outside: without it
            # the body waits for the acknowledgement of the head, some 40 ms
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
        _cancel(self._whole)  # what is left of the answer fits the buffers: `_write` watches it
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


def protocol_with(limits: Limits) -> type[DeadlineProtocol]:
    """The protocol class for these limits; uvicorn takes a class, not an instance."""

    class LimitedProtocol(DeadlineProtocol):
        pass

    LimitedProtocol.limits = limits
    return LimitedProtocol
