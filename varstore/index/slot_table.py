"""Slot table (virtual shard, fingerprint) -> slot: an open-addressing hash table in numpy with batch lookups."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import distinct
from varstore.cells.lazy_memory import lazy_zeros

Fingerprints = npt.NDArray[np.uint64]
Slots = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_SLOT = -1
VSHARDS = 256
UNIT_SLOTS = 16
"""Slots of an allocation unit; all slots of a unit belong to one virtual shard."""
PAGE_SLOTS = 256
"""Greatest growth step of a big virtual shard in slots; big steps keep its slots in runs."""
MAX_REFUSED = 200_000
"""Limit of remembered refused series; the oldest refusal is forgotten first."""
_BLOCK = 1_024
_EMPTY, _TOMB = 0, -1  # table entries are slot + 1, so that untouched memory means "empty"


class SlotTable:
    """Slots of at most `capacity` series. A series is a fingerprint *in a virtual shard*: if sources of two virtual
    shards report it, it has two slots, called twins. Not locked: the owner's lock guards it.

    Arrays by slot have `size` >= capacity cells, because units belong to virtual shards and some stay half empty.
    Invariants: the table is at most three quarters full, so that a probe ends; a run of nonempty places ends with one
    that is in use, not a tombstone; a unit has an owner while one of its slots is in use; `epoch` changes whenever an
    earlier result of `find` or `add` may have become wrong."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = -(-(capacity + min(VSHARDS * PAGE_SLOTS, capacity // 8) + VSHARDS * UNIT_SLOTS) // _BLOCK) * _BLOCK
        self.used = 0
        """Upper bound of the slots in use; never falls."""
        self.live = 0
        """Number of slots in use."""
        self.epoch = 0
        self.closed = False
        """True if new series are refused although there are slots. Call `changed` after setting it to False."""
        self.refusals = 0
        """Number of refusals of a slot; a series counts each time it is to be added."""
        self.fingerprint: Fingerprints = lazy_zeros(self.size, np.uint64)
        self.vshard: npt.NDArray[np.uint8] = lazy_zeros(self.size, np.uint8)
        self.in_use: Mask = lazy_zeros(self.size, np.bool_)
        self._twin: Mask = lazy_zeros(self.size, np.bool_)  # may stay True after the twins are gone
        self._refused: dict[tuple[int, int], None] = {}
        self._units = _Units(self.size)
        places = 1 << (self.size * 2 - 1).bit_length()
        self._mask = np.uint64(places - 1)
        self._table: npt.NDArray[np.int32] = lazy_zeros(places, np.int32)
        self._tombstones = 0

    # look up

    def find(self, fingerprints: Fingerprints, vshard: int) -> Slots:
        """Return (n,) slots, NO_SLOT for fingerprints unknown in that virtual shard."""
        at = (fingerprints & self._mask).astype(np.int64)
        slots = self._table.take(at).astype(np.int64) - 1
        hit = self._is(slots, fingerprints, vshard)
        if hit.all():
            return slots
        found = np.where(hit, slots, NO_SLOT)
        pending = np.flatnonzero(~hit & (slots != _EMPTY - 1))
        at = at[pending]
        while len(pending):
            at = (at + 1) & int(self._mask)
            slots = self._table.take(at).astype(np.int64) - 1
            hit = self._is(slots, fingerprints[pending], vshard)
            found[pending[hit]] = slots[hit]
            on = ~hit & (slots != _EMPTY - 1)
            pending, at = pending[on], at[on]
        return found

    def _is(self, slots: Slots, fingerprints: Fingerprints, vshard: int) -> Mask:
        """Mask of the `slots` (negative: none) that have these fingerprints in that virtual shard."""
        same: Mask = self.fingerprint.take(slots, mode="wrap") == fingerprints
        same &= self.vshard.take(slots, mode="wrap") == vshard
        same &= slots >= 0
        return same

    def holds_series(self, slots: Slots, fingerprints: Fingerprints, vshard: int) -> Mask:
        """Mask of the slots (may include NO_SLOT) that hold exactly these series now. Cheaper than `find`."""
        same = self._is(slots, fingerprints, vshard)
        same &= self.in_use.take(slots, mode="wrap")
        return same

    def holds(self, slots: Slots, fingerprints: Fingerprints) -> Mask:
        """Mask of the slots that hold series with these fingerprints now.
        Detects slots that were freed between a lookup in the index and taking the lock."""
        same: Mask = self.in_use.take(slots)
        same &= self.fingerprint.take(slots) == fingerprints
        return same

    def of(self, vshard: int) -> Slots:
        """Return the slots in use of a virtual shard, ascending."""
        return self._units.slots_of(vshard, self.in_use)

    def twins(self, slots: Slots) -> Slots:
        """Return those of distinct `slots` that share their fingerprint with another of them."""
        may = slots[self._twin.take(slots)]
        if not len(may):
            return may
        _, which, counts = np.unique(self.fingerprint.take(may), return_inverse=True, return_counts=True)
        return may[counts[which] > 1]

    def twins_of(self, slot: int) -> list[int]:
        """Return the other slots with the same fingerprint."""
        if not self._twin[slot]:
            return []
        print_ = self.fingerprint[slot]
        at, found = int(print_ & self._mask), []
        while (held := int(self._table[at])) != _EMPTY:
            if held > 0 and held - 1 != slot and self.fingerprint[held - 1] == print_:
                found.append(held - 1)
            at = (at + 1) & int(self._mask)
        return found

    # allocate and free

    def add(self, fingerprints: Fingerprints, vshard: int) -> Slots:
        """Return (n,) slots, allocating new ones for unknown fingerprints in the order given.
        NO_SLOT (and counted in `refused`) at capacity, for barred series, and for all new ones while closed."""
        slots = self.find(fingerprints, vshard)
        missing = slots == NO_SLOT
        if not missing.any():
            return slots
        wanted = fingerprints[missing]
        fresh = self._admitted(_distinct(wanted), vshard)
        if len(fresh):
            made = self._allocate(fresh, vshard)
            slots[missing] = made if len(made) == len(wanted) else self.find(wanted, vshard)
        return slots

    def _admitted(self, fresh: Fingerprints, vshard: int) -> Fingerprints:
        wanted = len(fresh)
        if self._refused:
            barred = [(vshard, print_) in self._refused for print_ in fresh.tolist()]
            fresh = fresh[~np.array(barred, np.bool_)]
        fresh = fresh[: 0 if self.closed else max(0, self.capacity - self.live)]
        self.refusals += wanted - len(fresh)
        return fresh

    def _allocate(self, fresh: Fingerprints, vshard: int) -> Slots:
        """Allocate slots for the first of `fresh`; for all of them if there is room."""
        made = self._units.take(vshard, len(fresh), self.in_use)
        self.refusals += len(fresh) - len(made)
        fresh = fresh[: len(made)]
        if not len(fresh):
            return made
        self.fingerprint[made], self.vshard[made], self.in_use[made] = fresh, vshard, True
        self.live += len(made)
        self.used = max(self.used, int(made.max()) + 1)
        if (self.live + self._tombstones) * 4 > len(self._table) * 3:
            self._rebuild()
        else:
            self._insert(made)
        self._mark_twins(made)
        return made

    def _mark_twins(self, made: Slots) -> None:
        """Mark those of these series, just inserted, that are in another virtual shard too, and their twins."""
        at = (self.fingerprint.take(made) & self._mask).astype(np.int64)
        while len(made):
            slots = self._table.take(at).astype(np.int64) - 1
            same = self.fingerprint.take(slots, mode="wrap") == self.fingerprint.take(made)
            same &= (slots >= 0) & (slots != made)
            self._twin[slots[same]] = True
            self._twin[made[same]] = True
            on = slots != _EMPTY - 1
            made, at = made[on], (at[on] + 1) & int(self._mask)

    def _insert(self, slots: Slots) -> None:
        """Insert slots: of several with one place, the last one written gets it, the others probe on."""
        at = (self.fingerprint.take(slots) & self._mask).astype(np.int64)
        while len(slots):
            held = self._table.take(at)
            free = held <= 0
            self._table[at[free]] = slots[free] + 1
            placed = self._table.take(at) == slots + 1
            self._tombstones -= int(np.count_nonzero(held[placed] == _TOMB))
            on = ~placed
            slots, at = slots[on], (at[on] + 1) & int(self._mask)

    def _rebuild(self) -> None:
        self._table[:] = _EMPTY
        self._tombstones = 0
        self._insert(np.flatnonzero(self.in_use[: self.used]))

    def free(self, slots: Slots) -> None:
        """Free distinct slots in use; all other state by slot must be cleared before."""
        if not len(slots):
            return
        self._unlink(slots)
        self.in_use[slots] = False
        self._twin[slots] = False
        self.live -= len(slots)
        self._units.give_back(slots)
        self.invalidate()

    def _unlink(self, slots: Slots) -> None:
        at, pending = (self.fingerprint.take(slots) & self._mask).astype(np.int64), slots
        while len(pending):
            hit = self._table.take(at) == pending + 1
            self._table[at[hit]] = _TOMB
            self._clear_tombstones(at[hit])
            pending, at = pending[~hit], (at[~hit] + 1) & int(self._mask)

    def _clear_tombstones(self, at: Slots) -> None:
        """Turn tombstones in front of an empty place into empty places, and those before them: no probe needs them."""
        self._tombstones += len(at)
        while len(at):
            at = at[(self._table.take(at) == _TOMB) & (self._table.take((at + 1) & int(self._mask)) == _EMPTY)]
            at = distinct(at)
            self._table[at] = _EMPTY
            self._tombstones -= len(at)
            at = (at - 1) & int(self._mask)

    def restore(self, slots: Slots, fingerprints: Fingerprints, vshards: npt.NDArray[np.uint8]) -> None:
        """Assign exactly these free slots to these unknown series. Slots of a unit must be of one virtual shard, as in
        the table they come from. Raises ValueError if they do not fit."""
        if not len(slots):
            return
        if int(slots.max()) >= self.size or self.live + len(slots) > self.capacity:
            raise ValueError(f"{self.live + len(slots)} series up to slot {int(slots.max())}, capacity {self.capacity}")
        self._units.claim(slots, vshards)
        self.fingerprint[slots], self.vshard[slots], self.in_use[slots] = fingerprints, vshards, True
        self.live += len(slots)
        self.used = max(self.used, int(slots.max()) + 1)
        self._insert(slots)
        self._mark_twins(slots)

    def bytes(self) -> int:
        """Estimate of the bytes used."""
        return self._table.nbytes + self.used * 11 + 200 * len(self._refused)

    # refusals

    def refuse(self, fingerprints: Sequence[int], vshard: int) -> None:
        """Refuse slots to these series from now on; they have none now."""
        for print_ in fingerprints:
            if len(self._refused) >= MAX_REFUSED:
                del self._refused[next(iter(self._refused))]
                self.invalidate()
            self._refused[vshard, print_] = None

    def allow(self, fingerprint: int, vshard: int) -> bool:
        """Lift a refusal; True if there was one."""
        if (vshard, fingerprint) not in self._refused:
            return False
        del self._refused[vshard, fingerprint]
        self.invalidate()
        return True

    def is_refused(self, fingerprint: int, vshard: int) -> bool:
        """True if a series is refused a slot."""
        return (vshard, fingerprint) in self._refused

    @property
    def refused_series(self) -> int:
        """Number of series that are refused a slot."""
        return len(self._refused)

    def invalidate(self) -> None:
        """Invalidate earlier lookups: a slot was freed, or a refused series may get one now."""
        self.epoch += 1


def _distinct(fingerprints: Fingerprints) -> Fingerprints:
    """Return the distinct fingerprints in the order given."""
    ordered = np.sort(fingerprints)
    if not (ordered[1:] == ordered[:-1]).any():
        return fingerprints
    values, first = np.unique(fingerprints, return_index=True)
    return values[np.argsort(first, kind="stable")]


class _Units:
    """Owners of the units of slots, and units with free slots."""

    def __init__(self, size: int) -> None:
        self._owner: npt.NDArray[np.int16] = np.full(size // UNIT_SLOTS, -1, np.int16)
        self._live: npt.NDArray[np.uint8] = np.zeros(size // UNIT_SLOTS, np.uint8)
        self._first_unused = 0
        self._released: list[int] = []  # a heap: lowest first, so that used units stay together
        self._with_room: list[dict[int, None]] = [{} for _ in range(VSHARDS)]
        self._of = np.zeros(VSHARDS, np.int64)

    def slots_of(self, vshard: int, in_use: Mask) -> Slots:
        units = np.flatnonzero(self._owner[: self._first_unused] == vshard)
        slots = _slots(units)
        return slots[in_use[slots]]

    def take(self, vshard: int, wanted: int, in_use: Mask) -> Slots:
        """Allocate at most `wanted` free slots of units of `vshard`."""
        room, units, found = self._with_room[vshard], [], 0
        while found < wanted:
            if not room and not self._grow(vshard, wanted - found):
                break
            unit, _ = room.popitem()
            units.append(unit)
            found += UNIT_SLOTS - int(self._live[unit])
        free = _slots(np.array(units, np.int64))
        free = free[~in_use[free]][:wanted]
        units_of = free // UNIT_SLOTS
        begins = np.flatnonzero(np.append(True, units_of[1:] != units_of[:-1])) if len(free) else np.zeros(0, np.int64)
        self._live[units_of[begins]] += np.diff(np.append(begins, len(free))).astype(np.uint8)
        for unit in units[-1:]:
            if self._live[unit] < UNIT_SLOTS:
                room[unit] = None
        self._of[vshard] += len(free)
        return free

    def _grow(self, vshard: int, wanted: int) -> bool:
        """Add units for about `wanted` slots, and more for a big virtual shard; return False if no units are left."""
        own = int(self._of[vshard]) // 8
        more = max(-(-min(wanted, 4 * PAGE_SLOTS) // UNIT_SLOTS), 1, min(own, PAGE_SLOTS) // UNIT_SLOTS)
        released = list[int]()
        while self._released and len(released) < more:
            unit = heapq.heappop(self._released)
            if self._owner[unit] == -1:  # else it was claimed
                released.append(unit)
        until = min(self._first_unused + more - len(released), len(self._owner))
        units = released + list(range(self._first_unused, until))
        self._first_unused = until
        self._owner[units] = vshard
        self._with_room[vshard].update(dict.fromkeys(reversed(units)))  # the last one in is filled first
        return bool(units)

    def claim(self, slots: Slots, vshards: npt.NDArray[np.uint8]) -> None:
        """Mark exactly these slots as used. Raises ValueError if a unit would have two owners."""
        units, first, counts = np.unique(slots // UNIT_SLOTS, return_index=True, return_counts=True)
        owners = vshards[first].astype(np.int16)
        held = self._owner[units]
        if ((held != -1) & (held != owners)).any() or (vshards != self._expand(units, owners, slots)).any():
            raise ValueError("slots of one unit are in two virtual shards")
        self._release_until(int(units[-1]) + 1)
        self._owner[units] = owners
        self._live[units] += counts.astype(np.uint8)
        np.add.at(self._of, owners, counts)
        for unit, owner, live in zip(units.tolist(), owners.tolist(), self._live[units].tolist(), strict=True):
            if live < UNIT_SLOTS:
                self._with_room[owner][unit] = None
            else:
                self._with_room[owner].pop(unit, None)

    @staticmethod
    def _expand(units: Slots, owners: npt.NDArray[np.int16], slots: Slots) -> npt.NDArray[np.int16]:
        return owners[np.searchsorted(units, slots // UNIT_SLOTS)]

    def _release_until(self, end: int) -> None:
        for unit in range(self._first_unused, end):
            heapq.heappush(self._released, unit)
        self._first_unused = max(self._first_unused, end)

    def give_back(self, slots: Slots) -> None:
        units, counts = np.unique(slots // UNIT_SLOTS, return_counts=True)
        owners = self._owner[units]
        np.subtract.at(self._of, owners, counts)
        self._live[units] -= counts.astype(np.uint8)
        for unit, owner, live in zip(units.tolist(), owners.tolist(), self._live[units].tolist(), strict=True):
            if live:
                self._with_room[owner][unit] = None
            else:
                self._with_room[owner].pop(unit, None)
                self._owner[unit] = -1
                heapq.heappush(self._released, unit)


def _slots(units: Slots) -> Slots:
    return (units[:, None] * UNIT_SLOTS + np.arange(UNIT_SLOTS)).reshape(-1)
