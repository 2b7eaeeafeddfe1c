"""Encodings of events in files and messages: lines, JSON lines, Arrow batches."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from artimon.model.batch import BatchId
from artimon.model.batch_codec import size_of
from artimon.model.event import split_events
from artimon.model.event_codec import decode_events, encode_events
from pipeline.flows.event import Event
from pipeline.flows.options import NoOptions, Options
from pipeline.flows.registry import Component


class LinesOptions(Options):
    """`end`: terminator of each body."""

    end: str = "\n"


class LinesCodec:
    """One body a line, without headers. A body that contains the terminator becomes several lines."""

    def __init__(self, options: LinesOptions) -> None:
        self._end = options.end.encode()

    def encode(self, events: Sequence[Event]) -> bytes:
        return b"".join(event.body + self._end for event in events)

    def decode(self, data: bytes) -> Sequence[Event]:
        parts = data.split(self._end)
        return [Event({}, part) for part in (parts if parts[-1] else parts[:-1])]


class JsonLinesCodec:
    """One JSON object a line: `headers`, and `body` as text, or `base64` if the body is not UTF-8."""

    def encode(self, events: Sequence[Event]) -> bytes:
        return b"".join(json.dumps(_object(event), ensure_ascii=False).encode() + b"\n" for event in events)

    def decode(self, data: bytes) -> Sequence[Event]:
        """Raises ValueError for what `encode` does not write."""
        return [_event(line) for line in data.split(b"\n") if line]


class ArrowCodec:
    """Batches of docs/formats/batch.md without an identity: compact and columnar."""

    def encode(self, events: Sequence[Event]) -> bytes:
        return b"".join(encode_events(BatchId("", 0, 0, 0), "", 0, portion).data for portion in split_events(events))

    def decode(self, data: bytes) -> Sequence[Event]:
        """Decode concatenated batches. Raises BatchError, which is a ValueError."""
        found: list[Event] = []
        while data:
            size = size_of(data)
            found += decode_events(data[:size] if size else data)
            data = data[size:]
        return found


def _object(event: Event) -> dict[str, object]:
    try:
        return {"headers": dict(event.headers), "body": event.body.decode()}
    except UnicodeDecodeError:
        return {"headers": dict(event.headers), "base64": base64.b64encode(event.body).decode()}


def _event(line: bytes) -> Event:
    try:
        found = json.loads(line)
        body = base64.b64decode(found["base64"]) if "base64" in found else str(found["body"]).encode()
        return Event({str(k): str(v) for k, v in (found.get("headers") or {}).items()}, body)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an event: {line[:80]!r} ({error!r})") from None


LINES = Component("lines", LinesOptions, lambda options, _: LinesCodec(options), outside={})
JSON = Component("json", NoOptions, lambda _, __: JsonLinesCodec(), outside={})
ARROW = Component("arrow", NoOptions, lambda _, __: ArrowCodec(), outside={})
