"""Memory cache for parcels of a log: keeps the oldest that fit, so that they need not be read back. Losing it loses no
data."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from artimon.model.batch import NO_LANE, BatchId
from pipeline.flows.event import Parcel, parcel_bytes

_EVENT_OBJECTS = 200
"""Estimate of the memory of one event's objects, in bytes."""


class Cache:
    """Cache of at most `most` bytes; thread-safe. Invariant: `bytes` is the sum of the costs of its parcels."""

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0
        self._lock = threading.Lock()
        self._held: dict[BatchId, tuple[Parcel, int]] = {}

    def offer(self, parcels: Sequence[Parcel]) -> None:
        """Add the parcels that fit."""
        with self._lock:
            for parcel in parcels:
                cost = parcel_bytes(parcel) + sum(len(e.body) + _EVENT_OBJECTS for e in parcel.events)
                if parcel.id is None or parcel.id.lane == NO_LANE or self.bytes + cost > self.most:
                    continue
                self._drop(parcel.id)
                self._held[parcel.id] = (parcel, cost)
                self.bytes += cost

    def get(self, id: BatchId) -> Parcel | None:
        with self._lock:
            found = self._held.get(id)
            return found[0] if found else None

    def drop(self, ids: Iterable[BatchId]) -> None:
        with self._lock:
            for id in ids:
                self._drop(id)

    def _drop(self, id: BatchId) -> None:
        found = self._held.pop(id, None)
        if found:
            self.bytes -= found[1]
