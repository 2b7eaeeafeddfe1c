"""Dictionary encoding of the values of one label: a code for each value, and the code of each slot; posting lists."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import distinct
from artimon.model.select import Matcher
from varstore.cells.lazy_memory import lazy_zeros
from varstore.index.matchers import Test
from varstore.index.slot_table import Slots

V = TypeVar("V", bound=Hashable)
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

ABSENT = 0
CACHED_MATCHES = 16
"""Matchers of one label whose results per value are cached."""
_WARM_VALUES = 1_000
_ENTRY_BYTES = 130
"""Rough bytes of one value."""


class LabelDictionary(Generic[V]):
    """Interned values of one label by slot. Not locked: the owner's lock guards it, except as stated at `warm`.

    Invariants: `_counts[code]` slots have that code; a code without slots may be reused for another value; a slot
    with code 0 has no value."""

    def __init__(self, size: int, absent: V) -> None:
        self.codes: Codes = lazy_zeros(size, np.int32)
        self.values: list[V] = [absent]
        """Values by code; a free code keeps its last value."""
        self.used = 0
        """Number of slots that have a value."""
        self._ids: dict[V, int] = {}
        self._counts = array("q", [0])
        self._free: list[int] = []
        self._matches: OrderedDict[tuple[str, str], tuple[Test, Mask]] = OrderedDict()
        self._reused = 0

    def __len__(self) -> int:
        """Number of values in use."""
        return len(self._ids)

    def present(self) -> list[V]:
        """Return the values in use, unordered."""
        return list(self._ids)

    def code(self, value: V) -> int:
        """Return the code of a value, ABSENT if no slot has it."""
        return self._ids.get(value, ABSENT)

    def count(self, codes: npt.NDArray[np.int64] | Codes) -> int:
        """Return the number of slots that have one of these codes (not ABSENT)."""
        return int(np.frombuffer(self._counts, np.int64).take(codes).sum())

    def count_of(self, code: int) -> int:
        """Return the number of slots that have this code (not ABSENT)."""
        return self._counts[code]

    def intern(self, value: V) -> int:
        """Return the code of a value, a new one if needed; the caller must assign it to a slot."""
        code = self._ids.get(value)
        if code is not None:
            return code
        if self._free:
            code = self._free.pop()
            self.values[code] = value
            self._reuse(code, value)
        else:
            code = len(self.values)
            self.values.append(value)
            self._counts.append(0)
        self._ids[value] = code
        return code

    def _reuse(self, code: int, value: V) -> None:
        self._reused += 1
        for test, fits in self._matches.values():
            if code < len(fits):
                fits[code] = isinstance(value, str) and test(value)

    def set(self, slots: Slots, codes: Codes) -> None:
        """Assign values to distinct slots that have none."""
        self.codes[slots] = codes
        used, many = np.unique(codes, return_counts=True)
        np.frombuffer(self._counts, np.int64)[used] += many
        self.used += len(slots)

    def set_one(self, slot: int, code: int) -> None:
        self.codes[slot] = code
        self._counts[code] += 1
        self.used += 1

    def value_of(self, slot: int) -> V:
        return self.values[int(self.codes[slot])]

    def values_at(self, slots: Slots) -> list[V]:
        """Return the value of each slot."""
        return list(map(self.values.__getitem__, self.codes.take(slots).tolist()))

    def compact_codes(self, slots: Slots) -> tuple[Codes, list[V]]:
        """Return (n,) dense codes and the values that occur; code 0 is `absent`."""
        used, codes = np.unique(np.append(self.codes.take(slots), ABSENT), return_inverse=True)
        return codes[:-1].astype(np.int32), [self.values[code] for code in used.tolist()]

    def load(self, slots: Slots, codes: Codes, values: Sequence[V]) -> Codes:
        """`set` from a `dense` of another process, none of them absent; return the local codes."""
        own = np.zeros(len(values), np.int32)
        for code in distinct(codes).tolist():
            own[code] = self.intern(values[code])
        mine: Codes = own.take(codes)
        self.set(slots, mine)
        return mine

    def clear(self, slots: Slots) -> None:
        """Remove the values of distinct slots, all of which have one."""
        codes, many = np.unique(self.codes.take(slots), return_counts=True)
        self.codes[slots] = ABSENT
        counts = np.frombuffer(self._counts, np.int64)
        counts[codes] -= many
        self.used -= len(slots)
        self._release(codes[counts[codes] == 0].tolist())

    def _release(self, codes: Sequence[int]) -> None:
        for code in codes:
            del self._ids[self.values[code]]
        self._free.extend(codes)

    def precompute(self, matcher: Matcher, test: Test, lock: threading.Lock) -> None:
        """Prepare `fits`. Call *without* holding `lock`, the owner's: a pattern may be tested on a million values."""
        key = (matcher.op, matcher.value)
        with lock:
            known = len(self._matches[key][1]) if key in self._matches else 0
            fresh, reused = self.values[known:], self._reused
        if len(fresh) < _WARM_VALUES:
            return
        more = np.fromiter(map(test, fresh), np.bool_, len(fresh))  # type: ignore[arg-type]
        with lock:
            held = self._matches[key][1] if key in self._matches else np.zeros(0, np.bool_)
            if reused == self._reused and len(held) == known:
                self._remember(key, test, np.concatenate((held, more)))

    def matches(self, matcher: Matcher, test: Test) -> Mask:
        """Mask by code of the values that fit; results of the last matchers are cached."""
        key = (matcher.op, matcher.value)
        held = self._matches[key][1] if key in self._matches else np.zeros(0, np.bool_)
        if len(held) < len(self.values):
            more = [test(value) for value in self.values[len(held) :]]  # type: ignore[arg-type]
            held = np.concatenate((held, np.array(more, np.bool_)))
        self._remember(key, test, held)
        return held

    def _remember(self, key: tuple[str, str], test: Test, fits: Mask) -> None:
        self._matches[key] = (test, fits)
        self._matches.move_to_end(key)
        if len(self._matches) > CACHED_MATCHES:
            self._matches.popitem(last=False)

    def bytes(self) -> int:
        """Estimate of the bytes used."""
        return 4 * self.used + _ENTRY_BYTES * len(self.values)


class PostingLists:
    """Posting lists of one label: slots by code. They may contain stale slots, which `read` filters by current code.

    Invariant: every slot that has a code is in the posting list of that code."""

    def __init__(self, interned: LabelDictionary[str]) -> None:
        self._interned = interned
        self._slots: dict[int, array[int]] = {}

    def add(self, slots: Slots, codes: Codes) -> None:
        """Add slots; call after `LabelDictionary.set` of the same."""
        order = np.argsort(codes, kind="stable")
        slots, codes = slots[order].astype(np.int32), codes[order]
        for part in np.split(np.arange(len(codes)), np.flatnonzero(np.diff(codes)) + 1):
            if len(part):
                self._slots.setdefault(int(codes[part[0]]), array("i")).frombytes(slots[part].tobytes())

    def add_one(self, slot: int, code: int) -> None:
        held = self._slots.get(code)
        if held is None:
            self._slots[code] = array("i", (slot,))
        else:
            held.append(slot)

    def forget(self, codes: Sequence[int]) -> None:
        """Shorten posting lists that are mostly stale; call after `LabelDictionary.clear`."""
        for code in codes:
            held, count = self._slots.get(code), self._interned.count_of(code)
            if held is not None and not count:
                del self._slots[code]
            elif held is not None and len(held) > 2 * count + 64:
                self._slots[code] = array("i", self.read([code]).astype(np.int32).tobytes())

    def read(self, codes: Sequence[int]) -> Slots:
        """Return the slots that have one of these codes, ascending."""
        found = [np.frombuffer(self._slots[code], np.int32) for code in codes if code in self._slots]
        if not found:
            return np.zeros(0, np.int64)
        slots = np.concatenate(found) if len(found) > 1 else found[0].copy()
        if not (np.diff(slots) > 0).all():
            slots = distinct(slots)
        fits = self._interned.codes.take(slots)
        same = fits == codes[0] if len(codes) == 1 else np.isin(fits, codes)
        return slots[same].astype(np.int64)
