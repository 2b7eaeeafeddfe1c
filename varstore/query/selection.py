"""Selections of pushdowns: slots and their classes, computed from label codes and cached until the index changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.aggregate import AggregateRequest, ClassLabels
from artimon.compute.sample_order import Cells
from artimon.model.select import NAME, Matcher
from varstore.index.label_index import LabelIndex
from varstore.index.slot_table import Slots, SlotTable

CACHED_SELECTIONS = 8
CACHED_LAYOUTS = 4
CACHED_SERIES = 2_000_000
"""Limit of series in all cached selections, about 60 bytes each."""


class SelectionChanged(Exception):
    """Slots were freed during the lookup: try again."""


@dataclass(slots=True)
class SeriesSelection:
    """Announced series that fit, in arrays by ascending slot; independent of samples."""

    slots: Slots
    fingerprints: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint8]
    codes: Cells
    """Class of each series, an index into `classes`."""
    classes: tuple[ClassLabels, ...]
    stamp: tuple[int, int]
    layouts: dict[Hashable, Any] = field(default_factory=dict)
    """Cached layouts of these slots; at most LAYOUTS."""
    _ranks: npt.NDArray[np.int64] | None = None

    def cache_layout(self, key: Hashable, layout: Any) -> None:
        """Cache a layout; evicts the oldest beyond LAYOUTS."""
        if len(self.layouts) >= CACHED_LAYOUTS:
            self.layouts.pop(next(iter(self.layouts), None), None)
        self.layouts[key] = layout

    def ranks(self, index: LabelIndex) -> npt.NDArray[np.int64]:
        """Return the rank (series,) of each series in the order of names and labels, computed once."""
        if self._ranks is None:
            self._ranks = ranks_of_slots(index, self.slots)
        return self._ranks

    def __len__(self) -> int:
        return len(self.slots)

    def subset(self, rows: npt.NDArray[np.intp]) -> SeriesSelection:
        """Select some of the series; all classes stay."""
        return SeriesSelection(
            self.slots[rows], self.fingerprints[rows], self.kinds[rows], self.codes[rows], self.classes, self.stamp
        )


_Key = tuple[tuple[Matcher, ...], int | None, tuple[str, ...] | None, tuple[str, ...] | None]


class SelectionCache:
    """Cache of the last selections, for dashboards that repeat queries. `_lock` guards `_kept` only."""

    def __init__(self, index: LabelIndex, slots: SlotTable) -> None:
        self._index, self._slots = index, slots
        self._lock = threading.Lock()
        self._cache: OrderedDict[_Key, SeriesSelection] = OrderedDict()

    def _stamp(self) -> tuple[int, int]:
        return self._index.changes, self._slots.epoch

    def get(self, request: AggregateRequest) -> SeriesSelection:
        """Return a cached or new selection. SelectError: bad matcher; SelectionChanged: slots were freed meanwhile."""
        key = (request.matchers, request.vshards, request.by, request.without)
        with self._lock:
            held = self._cache.get(key)
            if held is not None and held.stamp == self._stamp():
                self._cache.move_to_end(key)
                return held
        made = self._make(request)
        with self._lock:
            self._cache[key] = made
            self._cache.move_to_end(key)
            while len(self._cache) > 1 and (
                len(self._cache) > CACHED_SELECTIONS or self._cached_series() > CACHED_SERIES
            ):
                self._cache.popitem(last=False)
        return made

    def _cached_series(self) -> int:
        return sum(map(len, self._cache.values()))

    def _make(self, request: AggregateRequest) -> SeriesSelection:
        stamp = self._stamp()
        slots = self._index.select(request.matchers, request.vshards)
        labels = self._labels(request, slots)
        codes, classes = classes_of_slots(self._index, labels, slots)
        made = SeriesSelection(
            slots, self._slots.fingerprint.take(slots), self._index.kinds(slots), codes, classes, stamp
        )
        if self._slots.epoch != stamp[1]:  # a slot may have got another series between two lookups
            raise SelectionChanged
        return made

    def _labels(self, request: AggregateRequest, slots: Slots) -> Sequence[str]:
        if request.by is not None:
            return sorted(set(request.by))
        left_out = {NAME, *(request.without or ())}
        return [label for label in self._index.labels_of(slots) if label not in left_out]


def classes_of_slots(index: LabelIndex, labels: Sequence[str], slots: Slots) -> tuple[Cells, tuple[ClassLabels, ...]]:
    """Return dense codes of the classes of the slots by these labels, and the labels of each class."""
    codes, made = np.zeros(len(slots), np.int64), 1
    classes: list[ClassLabels] = [()]
    for label in labels:
        own, values = index.codes(label, slots)
        codes *= len(values)
        codes += own
        used, codes = renumber(codes, made * len(values))
        before, made = classes, len(used)
        classes = [
            _with_label(before[code // len(values)], label, values[code % len(values)]) for code in used.tolist()
        ]
    return codes, tuple(classes) if len(slots) else ()


def _with_label(pairs: ClassLabels, label: str, value: str) -> ClassLabels:
    return (*pairs, (label, value)) if value else pairs


def renumber(codes: Cells, most: int) -> tuple[Cells, Cells]:
    """Return the codes that occur, ascending, and the index of each code in them; all are below `most`."""
    if most > 4 * len(codes) + 1_024:
        used, places = np.unique(codes, return_inverse=True)
        return used, places.reshape(-1)
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    place = np.zeros(most, np.int64)
    place[used] = np.arange(len(used))
    return used, place.take(codes)


def ranks_of_slots(index: LabelIndex, slots: Slots) -> npt.NDArray[np.int64]:
    """Return the rank (slots,) of each series in the order of names and labels: that of tuples of pairs."""
    keys, later = list[npt.NDArray[np.int64]](), np.zeros(len(slots), np.bool_)
    for label in reversed([NAME, *sorted(set(index.labels_of(slots)) - {NAME})]):
        sparse, values = index.codes(label, slots)
        used, codes = renumber(sparse.astype(np.int64), len(values))
        found = [values[code] for code in used.tolist()]
        ranks = np.zeros(len(found), np.int64)
        ranks[sorted(range(len(found)), key=found.__getitem__)] = np.arange(1, len(found) + 1)
        has = np.array([bool(value) for value in found], np.bool_)[codes]
        # a series without this label comes before the others if it has no further one, else after them
        keys.append(np.where(has, ranks[codes], np.where(later, len(found) + 1, 0)))
        later |= has
    ranks = np.empty(len(slots), np.int64)
    ranks[np.lexsort(keys)] = np.arange(len(slots))
    return ranks


def labels_of_slot(index: LabelIndex, slot: Slots) -> ClassLabels:
    """Return name and labels of one slot, given as an array."""
    found = [(label, *index.codes(label, slot)) for label in (NAME, *index.labels_of(slot))]
    return tuple((label, values[int(codes[0])]) for label, codes, values in found if values[int(codes[0])])
