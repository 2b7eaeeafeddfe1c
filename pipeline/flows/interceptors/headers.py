"""Interceptors that add and remove headers, and the base class of all interceptors."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Sequence

from pydantic import Field

from artimon.model.event import RAW_BYTES, check_limits
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch, events_of
from pipeline.flows.options import Options
from pipeline.flows.registry import Component
from pipeline.flows.spi import Figures


class PerEvent:
    """Interceptor that maps events one by one. An event batch from a hop has final bytes: it passes unchanged, or is
    dropped when none of its events is kept. A source that gives identities itself also brings the events, and these may
    be changed: the channel encodes them anew, and drops repeats by identity alone."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """`dropped`: events removed; `final`: events that could not be changed any more."""

    def __call__(self, event_batches: Sequence[EventBatch]) -> Sequence[EventBatch]:
        return [changed for event_batch in event_batches if (changed := self._event_batch(event_batch)) is not None]

    def figures(self) -> Figures:
        return dict(self.counts)

    def event(self, event: Event) -> Event | None:
        """Return the event to pass on, None to drop it."""
        raise NotImplementedError

    def _event_batch(self, event_batch: EventBatch) -> EventBatch | None:
        events = events_of(event_batch)
        if not events:
            return event_batch
        kept = [changed for event in events if (changed := self.event(event)) is not None]
        if event_batch.id is not None and kept and not _changeable(event_batch, kept):
            self.counts["final"] += len(events)
            return event_batch
        self.counts["dropped"] += len(events) - len(kept)
        return EventBatch(tuple(kept), event_batch.id) if kept else None


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


class StaticHeaders(PerEvent):
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


def _changeable(event_batch: EventBatch, kept: Sequence[Event]) -> bool:
    """True if the event batch came with its events and they still fit into one batch (one identity, one batch)."""
    return bool(event_batch.events) and sum(map(check_limits, kept)) <= RAW_BYTES


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
STATIC = Component("static", StaticOptions, lambda options, _: StaticHeaders(options), outside={})
DROP_HEADERS = Component("drop-headers", DropHeadersOptions, lambda options, _: DropHeaders(options), outside={})
