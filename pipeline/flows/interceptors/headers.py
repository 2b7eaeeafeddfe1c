"""Interceptors that add and remove headers."""

from __future__ import annotations

import socket
from collections.abc import Callable

from pydantic import Field

from pipeline.flows.context import Context
from pipeline.flows.event import Event
from pipeline.flows.interceptors.base import PerEvent
from pipeline.flows.options import Options
from pipeline.flows.registry import Component


class TimestampOptions(Options):
    """Of the time of passage, epoch milliseconds. `keep`: leave the header of an event that has it."""

    header: str = "timestamp"
    keep: bool = True


class SetHeader(PerEvent):
    """Adds one header. `keep`: leave that of an event that has it."""

    def __init__(self, header: str, value: Callable[[], str], keep: bool) -> None:
        super().__init__()
        self._header, self._value, self._keep = header, value, keep

    def event(self, event: Event) -> Event:
        if self._keep and self._header in event.headers:
            return event
        return event.with_headers({self._header: self._value()})


class HostOptions(Options):
    """Of the host that accepted the event. `ip`: add the address instead of the name."""

    header: str = "host"
    keep: bool = True
    ip: bool = False


class StaticOptions(Options):
    """Headers to add to every event."""

    headers: dict[str, str] = Field(min_length=1)
    keep: bool = True


class Static(PerEvent):
    """Adds the same headers to all events."""

    def __init__(self, options: StaticOptions) -> None:
        super().__init__()
        self._options = options

    def event(self, event: Event) -> Event:
        if self._options.keep:
            return Event({**self._options.headers, **event.headers}, event.body)
        return event.with_headers(self._options.headers)


class DropHeadersOptions(Options):
    """Names of the headers to remove."""

    names: list[str] = Field(min_length=1)


class DropHeaders(PerEvent):
    """Removes headers."""

    def __init__(self, options: DropHeadersOptions) -> None:
        super().__init__()
        self._names = frozenset(options.names)

    def event(self, event: Event) -> Event:
        if self._names.isdisjoint(event.headers):
            return event
        return Event({k: v for k, v in event.headers.items() if k not in self._names}, event.body)


def _address() -> str:
    """Return the address of this host's name."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _timestamp(options: TimestampOptions, context: Context) -> SetHeader:
    return SetHeader(options.header, lambda: str(context.clock.now_ms()), options.keep)


def _host(options: HostOptions, _: Context) -> SetHeader:
    host = _address() if options.ip else socket.gethostname()
    return SetHeader(options.header, lambda: host, options.keep)


TIMESTAMP = Component("timestamp", TimestampOptions, _timestamp, outside={})
HOST = Component("host", HostOptions, _host, outside={})
STATIC = Component("static", StaticOptions, lambda options, _: Static(options), outside={})
DROP_HEADERS = Component("drop-headers", DropHeadersOptions, lambda options, _: DropHeaders(options), outside={})
