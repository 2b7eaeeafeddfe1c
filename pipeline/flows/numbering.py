"""Identity and bytes of parcels, each set once."""

from __future__ import annotations

from artimon.model.event_codec import encode_events
from pipeline.delivery.numbering import Numbers
from pipeline.flows.event import Parcel


def named(parcel: Parcel, numbers: Numbers, source: str) -> Parcel:
    """Return the parcel with an identity; an existing one is kept."""
    if parcel.id is not None:
        return parcel
    return Parcel(parcel.events, numbers.take(numbers.lane_of(source)))


def sealed(parcel: Parcel, numbers: Numbers, source: str, time_ms: int) -> Parcel:
    """Return the parcel with identity and bytes. Raises BatchError beyond the limits of a batch, using no number."""
    if parcel.id is not None:
        return encoded(parcel, source, time_ms)
    lane = numbers.lane_of(source)
    found = encoded(Parcel(parcel.events, numbers.peek(lane)), source, time_ms)
    numbers.take(lane)
    return found


def encoded(parcel: Parcel, source: str, time_ms: int) -> Parcel:
    """Return a parcel that has an identity with its bytes; existing bytes are kept. Raises BatchError."""
    if parcel.data is not None or parcel.id is None:
        return parcel
    batch = encode_events(parcel.id, source, time_ms, parcel.events)
    return Parcel(parcel.events, parcel.id, batch.data)
