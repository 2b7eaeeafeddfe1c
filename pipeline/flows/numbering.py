"""Gives parcels their identity and bytes, once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from artimon.model.batch import BatchId
from artimon.model.event_codec import encode_events
from artimon.model.routing import lane_of
from pipeline.flows.event import Parcel


class Numbering:
    """Numbers of the lanes of one epoch. Not thread-safe.

    A channel that does not keep its numbers over a restart takes a fresh epoch at each start, so that no identity is
    given twice."""

    def __init__(self, agent: str, source: str, epoch: int | None = None, next_sequences: Sequence[int] = (0,)) -> None:
        self.agent, self.source = agent, source
        self.epoch = secrets.randbits(64) if epoch is None else epoch
        self.next = list(next_sequences)

    def name(self, parcel: Parcel) -> Parcel:
        """The parcel with an identity; one that has one keeps it."""
        if parcel.id is not None:
            return parcel
        lane = lane_of(self.source, len(self.next))
        id = BatchId(self.agent, self.epoch, lane, self.next[lane])
        self.next[lane] += 1
        return Parcel(parcel.events, id)

    def seal(self, parcel: Parcel, time_ms: int) -> Parcel:
        """The parcel with identity and bytes. Raises BatchError beyond the limits of a batch, using no number."""
        before = list(self.next)
        named = self.name(parcel)
        try:
            return encoded(named, self.source, time_ms)
        except ValueError:
            self.next = before
            raise


def encoded(parcel: Parcel, source: str, time_ms: int) -> Parcel:
    """A parcel that has an identity, with its bytes; what has bytes keeps them. Raises BatchError."""
    if parcel.data is not None or parcel.id is None:
        return parcel
    batch = encode_events(parcel.id, source, time_ms, parcel.events)
    return Parcel(parcel.events, parcel.id, batch.data)
