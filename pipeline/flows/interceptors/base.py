"""Base of the interceptors: handles one event at a time and keeps the bytes of parcels from other agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from artimon.model.event import RAW_BYTES, check
from pipeline.flows.event import Event, Parcel, events_of
from pipeline.flows.spi import Figures


class PerEvent:
    """Interceptor that maps events one by one. A parcel from a hop has final bytes: it passes unchanged, or is dropped
    when none of its events is kept. A source that gives identities itself also brings the events, and these may be
    changed: the channel encodes them anew, and drops repeats by identity alone."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """`dropped`: events removed; `final`: events that could not be changed any more."""

    def __call__(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        return [changed for parcel in parcels if (changed := self._parcel(parcel)) is not None]

    def figures(self) -> Figures:
        return dict(self.counts)

    def event(self, event: Event) -> Event | None:
        """Return the event to pass on, None to drop it."""
        raise NotImplementedError

    def _parcel(self, parcel: Parcel) -> Parcel | None:
        events = events_of(parcel)
        if not events:
            return parcel
        kept = [changed for event in events if (changed := self.event(event)) is not None]
        if parcel.id is not None and kept and not _changeable(parcel, kept):
            self.counts["final"] += len(events)
            return parcel
        self.counts["dropped"] += len(events) - len(kept)
        return Parcel(tuple(kept), parcel.id) if kept else None


def _changeable(parcel: Parcel, kept: Sequence[Event]) -> bool:
    """True if the parcel came with its events and they still fit into one batch (one identity, one batch)."""
    return bool(parcel.events) and sum(map(check, kept)) <= RAW_BYTES
