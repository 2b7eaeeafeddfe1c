"""Fingerprint -> slot: an open-addressing hash table in numpy, looked up thousands at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from varstore.memory import lazy_zeros

Fingerprints = npt.NDArray[np.uint64]
Slots = npt.NDArray[np.int64]

NO_SLOT = -1
_FIRST_SIZE = 1 << 12


class SlotTable:
    """Allots slots 0, 1, 2 … up to `capacity`; a slot is never given back. The owner's lock guards it.

    Invariant: the table is at most half full, so that a probe ends. Fingerprints are hashes: the low bits say where
    probing begins."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.refused = 0
        """Series that found no slot, counted once for each time they were looked up to be added."""
        self.fingerprint: Fingerprints = lazy_zeros(capacity, np.uint64)
        self._grow(_FIRST_SIZE)

    def find(self, fingerprints: Fingerprints) -> Slots:
        """(n,) slots, NO_SLOT where a fingerprint is unknown."""
        found = np.full(len(fingerprints), NO_SLOT, np.int64)
        at = (fingerprints & self._mask).astype(np.int64)
        pending = np.arange(len(fingerprints))
        while len(pending):
            slots = self._slots.take(at)
            taken = slots != NO_SLOT
            hit = taken & (self._keys.take(at) == fingerprints.take(pending))
            found[pending[hit]] = slots[hit]
            on = taken & ~hit
            pending, at = pending[on], (at[on] + 1) & int(self._mask)
        return found

    def add(self, fingerprints: Fingerprints) -> Slots:
        """(n,) slots, new ones for unknown fingerprints in the order given; NO_SLOT (and counted) at capacity."""
        slots = self.find(fingerprints)
        missing = slots == NO_SLOT
        if not missing.any():
            return slots
        values, first = np.unique(fingerprints[missing], return_index=True)
        fresh = values[np.argsort(first, kind="stable")]
        room = self.capacity - self.used
        self.refused += max(0, len(fresh) - room)
        fresh = fresh[:room]
        made = np.arange(self.used, self.used + len(fresh), dtype=np.int64)
        self.fingerprint[self.used : self.used + len(fresh)] = fresh
        self.used += len(fresh)
        if self.used * 2 > len(self._slots):
            self._grow(1 << (self.used * 4 - 1).bit_length())
        else:
            self._insert(fresh, made)
        slots[missing] = self.find(fingerprints[missing])
        return slots

    def _grow(self, size: int) -> None:
        self._mask = np.uint64(size - 1)
        self._keys = np.zeros(size, np.uint64)
        self._slots = np.full(size, NO_SLOT, np.int32)
        self._insert(self.fingerprint[: self.used], np.arange(self.used, dtype=np.int64))

    def _insert(self, keys: Fingerprints, slots: Slots) -> None:
        """`keys` are distinct and not in the table. Of those that want one place, the last one written gets it."""
        at = (keys & self._mask).astype(np.int64)
        while len(keys):
            free = self._slots.take(at) == NO_SLOT
            self._slots[at[free]] = slots[free]
            placed = self._slots.take(at) == slots
            self._keys[at[placed]] = keys[placed]
            on = ~placed
            keys, slots, at = keys[on], slots[on], (at[on] + 1) & int(self._mask)
