"""Label index: maps names and labels to slots. Stores codes of label values by slot, and matches over these codes."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import distinct
from artimon.model.select import NAME, Matcher
from artimon.model.values import Kind, ValueType
from varstore.cells.lazy_memory import lazy_zeros
from varstore.index.label_dictionary import ABSENT, Codes, LabelDictionary, Mask, PostingLists
from varstore.index.matchers import Test, compile_matcher
from varstore.index.shard_limits import ShardLimits
from varstore.index.slot_table import VSHARDS, Slots, SlotTable

_TYPES = {int(type_): type_ for type_ in ValueType}
_KINDS = {int(kind): kind for kind in Kind}
_BITS = 31
_LOCKED_BATCH = 4_096
"""Entries built under one hold of the lock."""
_SCAN_FRACTION = 8
"""Scan all slots, instead of reading posting lists, for names held by more than 1/8 of them."""

_FEW_SLOTS = 16
"""Up to this many slots, codes are made dense in plain Python, which is faster than numpy."""
_RARER_FACTOR = 16
"""Match an exact label value first if it has less than 1/16 of the series of the name and the name is frequent."""

LabelNames = tuple[str, ...]
"""Sorted label names of a series."""


class SeriesEntry(NamedTuple):
    """Announced series; `pairs` begin with the name. Sorting by `pairs` gives the canonical order."""

    pairs: tuple[tuple[str, str], ...]
    type: ValueType
    kind: Kind
    version: int
    fingerprint: int = 0

    @property
    def name(self) -> str:
        return self.pairs[0][1]

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.pairs[1:])


class AnnounceOutcome(Enum):
    """Result of announcing one series."""

    KNOWN = 1
    CLASH = 2
    """Another text has the same fingerprint: both series are quarantined."""
    REFUSED = 3
    """A limit of `ShardLimits` is reached."""


@dataclass(frozen=True, slots=True)
class AnnouncedColumns:
    """Columns of announced series, one row per slot. Labels are dictionary-encoded: `values[code]`, code 0: absent."""

    slots: Slots
    type: npt.NDArray[np.uint8]
    kind: npt.NDArray[np.uint8]
    version: npt.NDArray[np.int64]
    seen_s: npt.NDArray[np.uint32]
    labels: Mapping[str, tuple[Codes, list[str]]]
    """Codes and values by label, the name included as NAME."""


class LabelIndex:
    """Index of the announced series. `_lock` guards everything here; it is taken last, nothing is locked under it.

    Invariant: a slot has a name, a shape and a value for each label of its shape, or none of these if it is not
    announced or is quarantined."""

    def __init__(self, table: SlotTable | None = None, limits: ShardLimits | None = None) -> None:
        self._table = table or SlotTable(1_000)
        self._limits = (limits or ShardLimits()).of_capacity(self._table.size)
        self._lock = threading.Lock()
        size = self._table.size
        self._names: LabelDictionary[str] = LabelDictionary(size, "")
        self._postings = PostingLists(self._names)
        self._label_sets: LabelDictionary[LabelNames] = LabelDictionary(size, ())
        self._labels: dict[str, LabelDictionary[str]] = {}
        self._type: npt.NDArray[np.uint8] = lazy_zeros(size, np.uint8)
        self._kind: npt.NDArray[np.uint8] = lazy_zeros(size, np.uint8)
        self._version: npt.NDArray[np.int64] = lazy_zeros(size, np.int64)
        self._seen_s: npt.NDArray[np.uint32] = lazy_zeros(size, np.uint32)
        self._clashing: set[int] = set()
        self._used = 0
        """Upper bound of the slots ever announced."""
        self.changes = 0
        """Rises whenever the series that fit some matchers may change, or a kind changes. Read without the lock."""

    def __len__(self) -> int:
        return self._names.used

    @property
    def clashes(self) -> int:
        """Number of series whose fingerprint was announced with two texts."""
        return len(self._clashing)

    # announcements

    def add(
        self,
        slot: int,
        name: str,
        labels: Mapping[str, str],
        type_: ValueType,
        kind: Kind,
        version: int,
        seen_ms: int = 0,
    ) -> AnnounceOutcome:
        """Add one series, announced at `seen_ms` (append time, 0: unknown). Type and kind are replaced unless the known
        version is greater."""
        with self._lock:
            seen_s = _seconds(seen_ms)
            if slot in self._clashing:
                self._seen_s[slot] = max(int(self._seen_s[slot]), seen_s)
                return AnnounceOutcome.CLASH
            pairs = sorted(labels.items())
            if self._names.codes[slot] == ABSENT:
                outcome = self._insert(slot, name, pairs)
            else:
                outcome = AnnounceOutcome.KNOWN if self._same(slot, name, pairs) else self._clash([slot])
            if outcome is not AnnounceOutcome.REFUSED:
                self._seen_s[slot] = max(int(self._seen_s[slot]), seen_s)
            if outcome is AnnounceOutcome.KNOWN and version >= int(self._version[slot]):
                self.changes += int(self._kind[slot]) != kind
                self._type[slot], self._kind[slot], self._version[slot] = type_, kind, version
            return outcome

    def _insert(self, slot: int, name: str, pairs: Sequence[tuple[str, str]]) -> AnnounceOutcome:
        for twin in self._table.twins_of(slot):
            if self._names.codes[twin] != ABSENT and not self._same(twin, name, pairs):
                return self._clash([slot, twin])
        if self._is_full(name) or self._labels_full(pairs):
            return AnnounceOutcome.REFUSED
        code = self._names.intern(name)
        self._names.set_one(slot, code)
        self._postings.add_one(slot, code)
        self._label_sets.set_one(slot, self._label_sets.intern(tuple(label for label, _ in pairs)))
        for label, value in pairs:
            interned = self._label(label)
            interned.set_one(slot, interned.intern(value))
        self._used = max(self._used, slot + 1)
        self.changes += 1
        return AnnounceOutcome.KNOWN

    def has_room(self, name: str) -> bool:
        """True if one more series of that name is allowed."""
        with self._lock:
            return not self._is_full(name)

    def _is_full(self, name: str) -> bool:
        code = self._names.code(name)
        return code != ABSENT and self._names.count_of(code) >= self._limits.series_a_name

    def _labels_full(self, pairs: Sequence[tuple[str, str]]) -> bool:
        room = self._limits.labels - len(self._labels)
        return room < len(pairs) and sum(label not in self._labels for label, _ in pairs) > room

    def _label(self, label: str) -> LabelDictionary[str]:
        interned = self._labels.get(label)
        if interned is None:
            interned = self._labels[label] = LabelDictionary(self._table.size, "")
        return interned

    def _same(self, slot: int, name: str, pairs: Sequence[tuple[str, str]]) -> bool:
        if self._names.value_of(slot) != name or self._label_sets.value_of(slot) != tuple(label for label, _ in pairs):
            return False
        return all(self._labels[label].value_of(slot) == value for label, value in pairs)

    def _clash(self, slots: Sequence[int]) -> AnnounceOutcome:
        self._clashing.update(slots)
        self._remove(np.array([slot for slot in slots if self._names.codes[slot] != ABSENT], np.int64))
        return AnnounceOutcome.CLASH

    # forgetting

    def not_announced_since(self, slots: Slots, floor_ms: int, now_ms: int) -> Mask:
        """Mask of the slots not announced since `floor_ms` (append time). An unknown time of an announced slot is set
        to `now_ms`. Takes no lock, as the caller holds another: slots must not be announced at the same time."""
        seen_s = self._seen_s.take(slots)
        unknown = slots[(seen_s == 0) & (self._names.codes.take(slots) != ABSENT)]
        self._seen_s[unknown] = _seconds(now_ms)
        return self._seen_s.take(slots).astype(np.int64) * 1000 <= floor_ms

    def remove(self, slots: Slots) -> None:
        """Remove the series of distinct slots."""
        with self._lock:
            self._clashing.difference_update(slots.tolist())
            self._seen_s[slots] = 0
            self._remove(slots[self._names.codes.take(slots) != ABSENT])

    def _remove(self, slots: Slots) -> None:
        """Remove names, labels and versions of announced slots."""
        if not len(slots):
            return
        self.changes += 1
        for shape, rows in self._by_label_set(slots):
            for label in shape:
                interned = self._labels[label]
                interned.clear(slots[rows])
                if not interned.used:
                    del self._labels[label]
        self._label_sets.clear(slots)
        codes = distinct(self._names.codes.take(slots)).tolist()
        self._names.clear(slots)
        self._postings.forget(codes)
        self._version[slots] = 0

    def _by_label_set(self, slots: Slots) -> list[tuple[LabelNames, npt.NDArray[np.int64]]]:
        """Return each shape and the indexes in `slots` of those that have it."""
        codes = self._label_sets.codes.take(slots)
        if len(codes) and (codes == codes[0]).all():
            return [(self._label_sets.values[codes[0]], np.arange(len(slots)))]
        return [(self._label_sets.values[code], np.flatnonzero(codes == code)) for code in distinct(codes).tolist()]

    # queries

    def select(self, matchers: Collection[Matcher], vshards: int | None = None) -> Slots:
        """Return the slots of all series that fit all matchers, ascending; vshards: mask, None: all.
        Raises SelectError. Slots may be freed as soon as this returns: see `first`."""
        tests = self._tests(matchers)
        with self._lock:
            return self._select(tests, vshards)

    def _valid_entries(self, slots: Slots, prints: npt.NDArray[np.uint64]) -> tuple[Slots, list[SeriesEntry]]:
        """Return the slots that still hold these fingerprints, with their entries."""
        entries: list[SeriesEntry] = []
        kept = []
        for first in range(0, len(slots), _LOCKED_BATCH):
            part = slots[first : first + _LOCKED_BATCH]
            with self._lock:
                same = self._names.codes.take(part) != ABSENT
                same &= self._table.fingerprint.take(part) == prints[first : first + _LOCKED_BATCH]
                kept.append(part[same])
                entries += self._entries(kept[-1])
        return np.concatenate(kept) if kept else slots, entries

    def _tests(self, matchers: Collection[Matcher]) -> list[tuple[Matcher, Test]]:
        """Compile the matchers and test known values, which takes long, before the lock is taken."""
        tests = [(matcher, compile_matcher(matcher)) for matcher in matchers]
        for matcher, test in tests:
            with self._lock:
                interned = self._values_of(matcher.label)
            if interned is not None and matcher.op != "=":
                interned.precompute(matcher, test, self._lock)
        return tests

    def _values_of(self, label: str) -> LabelDictionary[str] | None:
        return self._names if label == NAME else self._labels.get(label)

    def _select(self, tests: Sequence[tuple[Matcher, Test]], vshards: int | None) -> Slots:
        # most selective first: names have posting lists, and an exact value takes one comparison a slot
        tests = sorted(tests, key=lambda each: (each[0].label != NAME, each[0].op != "=", not each[0].value))
        rare = self._rarest(tests)
        if rare is not None:  # far fewer than the name has: scan all slots instead of its long posting
            slots = self._fitting(None, *rare)
        elif not tests or tests[0][0].label != NAME:
            slots = None
        else:
            slots, tests = self._slots_of_names(*tests[0]), tests[1:]
        for matcher, test in tests:
            slots = self._fitting(slots, matcher, test)
        if slots is None:
            slots = np.flatnonzero(self._names.codes[: self._used])
        if vshards is not None:
            slots = slots[vshard_flags(vshards).take(self._table.vshard.take(slots))]
        return slots

    def _rarest(self, tests: Sequence[tuple[Matcher, Test]]) -> tuple[Matcher, Test] | None:
        """Return the exact label matcher with the fewest series, if the name has far more; else None."""
        least, found = self._used, None
        for matcher, test in tests:
            if matcher.op == "=" and matcher.value:
                interned = self._values_of(matcher.label)
                code = ABSENT if interned is None else interned.code(matcher.value)
                count = 0 if interned is None or code == ABSENT else interned.count_of(code)
                if matcher.label == NAME:
                    least = min(least, count // _RARER_FACTOR if count * _SCAN_FRACTION > self._used else 0)
                elif count < least:
                    least, found = count, (matcher, test)
        return found

    def _slots_of_names(self, matcher: Matcher, test: Test) -> Slots | None:
        """Return the slots of the names that fit; None: all announced slots."""
        if matcher.op == "=":
            code = self._names.code(matcher.value)
            return self._postings.read([code] if code != ABSENT else [])
        fits = self._names.matches(matcher, test)
        codes = np.flatnonzero(fits[1:]) + 1
        if self._names.count(codes) == self._names.used:
            return None
        if self._names.count(codes) * _SCAN_FRACTION > self._used:
            fits = np.concatenate(([False], fits[1:]))
            return np.flatnonzero(fits.take(self._names.codes[: self._used]))
        return self._postings.read(codes.tolist())

    def _fitting(self, slots: Slots | None, matcher: Matcher, test: Test) -> Slots | None:
        """Return those of `slots` (None: all announced) that fit; None: all announced."""
        interned = self._values_of(matcher.label)
        if interned is None:
            return slots if test("") else np.zeros(0, np.int64)
        if matcher.op == "=" and matcher.value:
            code = interned.code(matcher.value)
            if code == ABSENT:
                return np.zeros(0, np.int64)
            if slots is None:
                return np.flatnonzero(interned.codes[: self._used] == code)
            exact: Slots = slots[interned.codes.take(slots) == code]
            return exact
        fits = interned.matches(matcher, test)
        if slots is None:
            found = fits.take(interned.codes[: self._used])
            if fits[ABSENT]:
                found &= self._names.codes[: self._used] != ABSENT
            return np.flatnonzero(found)
        fitting: Slots = slots[fits.take(interned.codes.take(slots))]
        return fitting

    def find_first(self, matchers: Collection[Matcher], limit: int) -> tuple[Slots, list[SeriesEntry]]:
        """Return the first `limit` series that fit in canonical order, one of each set of twins, as far as they still
        exist; reads only names needed. With the store's lock held, `SlotTable.holds(slots, fingerprints of the
        entries)` tells which exist then."""
        tests = self._tests(matchers)
        with self._lock:
            slots = self._select(tests, None)
            twins = self._table.twins(slots)
            if len(twins):
                _, one = np.unique(self._table.fingerprint.take(twins), return_index=True)
                slots = slots[~np.isin(slots, np.delete(twins, one))]
            names, which, counts = np.unique(self._names.codes.take(slots), return_inverse=True, return_counts=True)
            texts = [self._names.values[code] for code in names.tolist()]
            prints = self._table.fingerprint.take(slots)
        order = sorted(range(len(texts)), key=texts.__getitem__)
        enough = np.searchsorted(np.cumsum(counts[order]), limit) + 1
        among = np.isin(which, order[:enough])
        slots, entries = self._valid_entries(slots[among], prints[among])
        chosen = heapq.nsmallest(limit, range(len(entries)), key=lambda i: entries[i].pairs)
        return slots[np.array(chosen, np.int64)], [entries[i] for i in chosen]

    def _entries(self, slots: Slots) -> list[SeriesEntry]:
        pairs: list[tuple[tuple[str, str], ...]] = [()] * len(slots)
        names = [(NAME, name) for name in self._names.values_at(slots)]
        for shape, rows in self._by_label_set(slots):
            columns = [names if len(rows) == len(slots) else [names[row] for row in rows.tolist()]]
            for label in shape:
                values = self._labels[label].values_at(slots[rows])
                columns.append(list(zip(repeat(label), values, strict=False)))
            for row, found in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
                pairs[row] = found
        types = [_TYPES[code] for code in self._type.take(slots).tolist()]
        kinds = [_KINDS[code] for code in self._kind.take(slots).tolist()]
        prints = self._table.fingerprint.take(slots).tolist()
        return list(map(SeriesEntry, pairs, types, kinds, self._version.take(slots).tolist(), prints))

    def codes(self, label: str, slots: Slots) -> tuple[Codes, list[str]]:
        """Return (n,) codes and values: `values[code]` is the value of `label` (NAME: the name), "" if a series has no
        value or left the index. Codes may have gaps; equal values have equal codes."""
        with self._lock:
            interned = self._values_of(label)
            if interned is None:
                return np.zeros(len(slots), np.int32), [""]
            codes = interned.codes.take(slots)
            if len(codes) <= _FEW_SLOTS:
                places = {code: i for i, code in enumerate(dict.fromkeys(codes.tolist()))}
                few = np.array([places[code] for code in codes.tolist()], np.int32)
                return few, [interned.values[code] for code in places]
            if len(interned.values) <= 2 * len(slots) + 64:
                return codes, list(interned.values)
            used, dense = np.unique(codes, return_inverse=True)
            return dense.astype(np.int32), [interned.values[code] for code in used.tolist()]

    def types(self, slots: Slots) -> npt.NDArray[np.uint8]:
        """Return (n,) announced types."""
        return self._type.take(slots)

    def kinds(self, slots: Slots) -> npt.NDArray[np.uint8]:
        """Return (n,) announced kinds."""
        return self._kind.take(slots)

    def labels_of(self, slots: Slots) -> list[str]:
        """Return all labels of `slots`, sorted."""
        with self._lock:
            shapes = distinct(self._label_sets.codes.take(slots)).tolist()
            return sorted({label for shape in shapes for label in self._label_sets.values[shape]})

    def values(self, label: str | None) -> list[str]:
        """Return the values of a label, sorted; label None: all labels."""
        with self._lock:
            if label is None:
                return sorted(self._labels)
            interned = self._values_of(label)
            found = interned.present() if interned is not None else []
        return sorted(found)

    # snapshots

    def export(self, slots: Slots) -> AnnouncedColumns:
        """Return the announced series among `slots`."""
        with self._lock:
            slots = slots[self._names.codes.take(slots) != ABSENT]
            shapes = distinct(self._label_sets.codes.take(slots)).tolist()
            labels = {label for shape in shapes for label in self._label_sets.values[shape]}
            columns = {NAME: self._names.compact_codes(slots)}
            columns.update((label, self._labels[label].compact_codes(slots)) for label in sorted(labels))
            return AnnouncedColumns(
                slots,
                self._type.take(slots),
                self._kind.take(slots),
                self._version.take(slots),
                self._seen_s.take(slots),
                columns,
            )

    def load(self, announced: AnnouncedColumns) -> None:
        """Load series that another process exported, without checking limits or twins: that process did.
        Slots that are announced here already stay unchanged."""
        with self._lock:
            rows = np.flatnonzero(self._names.codes.take(announced.slots) == ABSENT)
            if not len(rows):
                return
            slots = announced.slots[rows]
            self.changes += 1
            self._type[slots], self._kind[slots] = announced.type[rows], announced.kind[rows]
            self._version[slots], self._seen_s[slots] = announced.version[rows], announced.seen_s[rows]
            self._used = max(self._used, int(slots.max()) + 1)
            codes = self._names.load(slots, *_rows(announced.labels[NAME], rows))
            self._postings.add(slots, codes)
            self._load_labels(slots, {k: _rows(v, rows) for k, v in announced.labels.items() if k != NAME})

    def _load_labels(self, slots: Slots, labels: Mapping[str, tuple[Codes, list[str]]]) -> None:
        names = sorted(labels)
        shape, rows = np.zeros(len(slots), np.int64), np.zeros(1, np.int64)  # rows: one row of each shape
        for first in range(0, len(names), _BITS):
            for bit, label in enumerate(names[first : first + _BITS]):
                codes, values = labels[label]
                has = codes != ABSENT
                if has.any():
                    self._label(label).load(slots[has], codes[has], values)
                shape |= has.astype(np.int64) << bit
            _, rows, shape = np.unique(shape, return_index=True, return_inverse=True)
            shape = shape.reshape(-1) << _BITS
        shape >>= _BITS
        texts = [tuple(label for label in names if labels[label][0][row] != ABSENT) for row in rows.tolist()]
        own = np.array([self._label_sets.intern(text) for text in texts], np.int32)
        self._label_sets.set(slots, own.take(shape))

    def bytes(self) -> int:
        """Estimate of the bytes used. Takes no lock."""
        labels = sum(interned.bytes() for interned in list(self._labels.values()))
        return 18 * self._used + self._names.bytes() + self._label_sets.bytes() + labels


def _seconds(ms: int) -> int:
    return min(-(-max(ms, 0) // 1000), 2**32 - 1)


def _rows(column: tuple[Codes, list[str]], rows: Slots) -> tuple[Codes, list[str]]:
    return column[0][rows], column[1]


def vshard_flags(vshards: int) -> Mask:
    """Return (256,) booleans: True for each virtual shard in a mask."""
    return np.array([vshards >> vshard & 1 for vshard in range(VSHARDS)], np.bool_)
