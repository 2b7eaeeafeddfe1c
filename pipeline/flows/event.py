"""Events, and batches of events that keep identity and bytes from hop to hop."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from artimon.model.batch import BatchId
from artimon.model.event import Event, EventError, event_bytes, split_events
from artimon.model.event_codec import decode_events, encode_events
from pipeline.delivery.batch_numbers import LaneNumbers

__all__ = [
    "Event",
    "EventBatch",
    "EventError",
    "batch_events",
    "events_of",
    "memory_bytes",
    "with_bytes",
    "with_identity",
    "with_identity_and_bytes",
]

_BATCH_OVERHEAD = 128


def __getattr__(name: str) -> object:
    if name == "Parcel":
        warnings.warn("pipeline.flows.event.Parcel is called EventBatch now", DeprecationWarning, stacklevel=2)
        return EventBatch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events that are kept, sent, stored and dropped as one.

    `id`: given by the first channel and then fixed; equal ids have equal bytes. `data`: the encoded message
    (docs/formats/batch.md) if there is one; then `events` may be () and `events_of` reads them from it."""

    events: tuple[Event, ...]
    id: BatchId | None = None
    data: bytes | None = None

    def __len__(self) -> int:
        """Number of events; 0 for samples and announcements."""
        return len(events_of(self))


def events_of(event_batch: EventBatch) -> tuple[Event, ...]:
    """Return the events, decoded if necessary; () for samples and announcements. Raises BatchError."""
    if event_batch.events or event_batch.data is None:
        return event_batch.events
    return decode_events(event_batch.data)


def memory_bytes(event_batch: EventBatch) -> int:
    """Return the memory that an event batch takes, in bytes, roughly; never 0."""
    if event_batch.data is not None:
        return _BATCH_OVERHEAD + len(event_batch.data)
    return _BATCH_OVERHEAD + sum(map(event_bytes, event_batch.events))


def batch_events(events: Iterable[Event]) -> Sequence[EventBatch]:
    """Return the events in order, in as few event batches as the limits of a batch allow. Raises EventError."""
    return [EventBatch(portion) for portion in split_events(events)]


def with_identity(event_batch: EventBatch, numbers: LaneNumbers, source: str) -> EventBatch:
    """Return the event batch with an identity; an existing one is kept."""
    if event_batch.id is not None:
        return event_batch
    return EventBatch(event_batch.events, numbers.use(numbers.lane_of(source)))


def with_identity_and_bytes(event_batch: EventBatch, numbers: LaneNumbers, source: str, time_ms: int) -> EventBatch:
    """Return the event batch with identity and bytes. Raises BatchError beyond the limits of a batch, using no
    number."""
    if event_batch.id is not None:
        return with_bytes(event_batch, source, time_ms)
    lane = numbers.lane_of(source)
    found = with_bytes(EventBatch(event_batch.events, numbers.peek(lane)), source, time_ms)
    numbers.use(lane)
    return found


def with_bytes(event_batch: EventBatch, source: str, time_ms: int) -> EventBatch:
    """Return an event batch that has an identity with its bytes; existing bytes are kept. Raises BatchError."""
    if event_batch.data is not None or event_batch.id is None:
        return event_batch
    batch = encode_events(event_batch.id, source, time_ms, event_batch.events)
    return EventBatch(event_batch.events, event_batch.id, batch.data)
