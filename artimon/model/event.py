"""An event: headers and a body, produced by sources of lines and messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from artimon.model.batch import MAX_SAMPLES, BatchError

MAX_HEADERS = 64
MAX_DECODED_HEADERS = 4 * MAX_HEADERS
"""Limit of the headers of an event in a batch: interceptors add headers to the received ones."""
MAX_HEADER_BYTES = 32 * 1024
"""Limit of the header names and values of one event together, bytes of UTF-8."""
MAX_BODY_BYTES = 256 * 1024
MAX_EVENTS = MAX_SAMPLES
RAW_BYTES = 480 * 1024
"""Limit of the uncompressed events of one batch, bytes: incompressible events still fit into 512 KiB."""
_EVENT_OVERHEAD = 16
_HEADER_OVERHEAD = 8


class EventError(BatchError):
    """An event breaks a limit. The text names the limit; no event of the call was kept."""


@dataclass(frozen=True, slots=True)
class Event:
    """`headers`: at most 64 pairs of text, together at most 32 KiB; `body`: at most 256 KiB.

    The limits are checked where a flow accepts the event (`check_limits`), not here."""

    headers: Mapping[str, str]
    body: bytes

    def with_headers(self, more: Mapping[str, str]) -> Event:
        """Return the event with these headers added or replaced."""
        return Event({**self.headers, **more}, self.body)


def event_bytes(event: Event) -> int:
    """Return the uncompressed size of an event in a batch, bytes."""
    headers = sum(_text_bytes(k) + _text_bytes(v) + _HEADER_OVERHEAD for k, v in event.headers.items())
    return len(event.body) + headers + _EVENT_OVERHEAD


def check_limits(event: Event) -> int:
    """Check the limits of an event and return its `event_bytes`. Raises EventError."""
    if len(event.body) > MAX_BODY_BYTES:
        raise EventError(f"a body of {len(event.body)} bytes: at most {MAX_BODY_BYTES}; cut it at the source")
    if len(event.headers) > MAX_HEADERS:
        raise EventError(f"{len(event.headers)} headers: at most {MAX_HEADERS}")
    try:
        size = event_bytes(event)
    except (AttributeError, UnicodeEncodeError) as error:
        raise EventError(f"headers must be text that UTF-8 can encode: {error}") from None
    if size - len(event.body) > MAX_HEADER_BYTES + _EVENT_OVERHEAD + _HEADER_OVERHEAD * len(event.headers):
        raise EventError(f"headers of {size - len(event.body)} bytes: at most {MAX_HEADER_BYTES}")
    return size


def split_events(events: Iterable[Event]) -> Iterator[tuple[Event, ...]]:
    """Split events, in order, into portions that fit into one batch each. Raises EventError."""
    portion: list[Event] = []
    size = 0
    for event in events:
        more = check_limits(event)
        if portion and (size + more > RAW_BYTES or len(portion) >= MAX_EVENTS):
            yield tuple(portion)
            portion, size = [], 0
        portion.append(event)
        size += more
    if portion:
        yield tuple(portion)


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
