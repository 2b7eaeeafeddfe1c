"""Interceptors that add and remove headers."""

from __future__ import annotations

import socket

from pydantic import Field

from artimon.model.clock import Clock
from pipeline.flows.event import Event
from pipeline.flows.interceptors.base import PerEvent
from pipeline.flows.options import Options
from pipeline.flows.registry import Component


class TimestampOptions(Options):
    """`keep`: leave the header of an event that has it."""

    header: str = "timestamp"
    keep: bool = True


class Timestamp(PerEvent):
    """Adds the time of passage, epoch milliseconds."""

    def __init__(self, options: TimestampOptions, clock: Clock) -> None:
        super().__init__()
        self._options, self._clock = options, clock

    def event(self, event: Event) -> Event:
        if self._options.keep and self._options.header in event.headers:
            return event
        return event.with_headers({self._options.header: str(self._clock.now_ms())})


class HostOptions(Options):
    """`ip`: add the address instead of the name."""

    header: str = "host"
    keep: bool = True
    ip: bool = False


class Host(PerEvent):
    """Adds the host that accepted the event."""

    def __init__(self, options: HostOptions) -> None:
        super().__init__()
        self._options = options
        self._host = _address() if options.ip else socket.gethostname()

    def event(self, event: Event) -> Event:
        if self._options.keep and self._options.header in event.headers:
            return event
        return event.with_headers({self._options.header: self._host})


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


TIMESTAMP = Component(
    "timestamp", TimestampOptions, lambda options, context: Timestamp(options, context.clock), outside={}
)
HOST = Component("host", HostOptions, lambda options, _: Host(options), outside={})
STATIC = Component("static", StaticOptions, lambda options, _: Static(options), outside={})
DROP_HEADERS = Component("drop-headers", DropHeadersOptions, lambda options, _: DropHeaders(options), outside={})
