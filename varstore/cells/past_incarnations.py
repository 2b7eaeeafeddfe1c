"""Past incarnations of series (all but the newest), packed by segments of slots so that a change copies little."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import distinct
from artimon.compute.sample_order import Cells
from varstore.cells.lazy_memory import lazy_zeros

SEGMENT = 256
"""Slots of a segment, whose lives are stored together; a slot within it fits 8 bits."""
BIRTH, FIRST, LAST_TIME, LAST = range(4)
_NO_INCARNATIONS = np.zeros((4, 0), np.int64)


class PastIncarnations:
    """(slot, birth, first, last time, last cell), 33 bytes each. Not locked: the owner's lock guards it.

    Invariant: the incarnations of a segment are sorted by (slot, birth), and a slot has at most one of each birth."""

    def __init__(self, size: int) -> None:
        self.count: npt.NDArray[np.uint16] = lazy_zeros(size, np.uint16)
        """Older lives of each slot."""
        self.total = 0
        self._slots: dict[int, npt.NDArray[np.uint8]] = {}  # segment -> slot within it, of each incarnation
        self._incarnations: dict[int, Cells] = {}  # segment -> (4, incarnations): birth, first, last time, last

    def find(self, slots: Cells, births: Cells) -> tuple[Cells, npt.NDArray[np.bool_]]:
        """Return (n,) positions of each (slot, birth) in its segment, or of its insertion; mask of those found."""
        at, found = np.zeros(len(slots), np.int64), np.zeros(len(slots), np.bool_)
        for segment, part in _by_segment(slots):
            if segment in self._slots:
                within = (slots[part] % SEGMENT).astype(np.uint8)
                at[part], found[part] = self._find(segment, within, births[part])
        return at, found

    def _find(self, segment: int, within: npt.NDArray[np.uint8], wanted: Cells) -> tuple[Cells, npt.NDArray[np.bool_]]:
        """`find` in one segment: binary search of all rows at once."""
        held, births = self._slots[segment], self._incarnations[segment][BIRTH]
        low, last = np.searchsorted(held, within), np.searchsorted(held, within, "right")
        high = last.copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            less = births.take(middle, mode="clip") < wanted
            low = np.where(open_ & less, middle + 1, low)
            high = np.where(open_ & ~less, middle, high)
        return low, (low < last) & (births.take(low, mode="clip") == wanted)

    def get(self, slots: Cells, at: Cells) -> Cells:
        """Return (4, n) incarnations at the positions that `find` returned."""
        lives = np.empty((4, len(slots)), np.int64)
        for segment, part in _by_segment(slots):
            lives[:, part] = self._incarnations[segment][:, at[part]]
        return lives

    def set(self, slots: Cells, at: Cells, lives: Cells) -> None:
        """Overwrite the incarnations at the positions that `find` returned; start times must not change."""
        for segment, part in _by_segment(slots):
            self._incarnations[segment][:, at[part]] = lives[:, part]

    def insert(self, slots: Cells, at: Cells | None, lives: Cells) -> None:
        """Insert one incarnation for each of `slots`, (4, n), at the positions that `find` returned for distinct ones;
        None: after those held, as start times are greater and rise within a slot."""
        for segment, part in _by_segment(slots):
            within = (slots[part] % SEGMENT).astype(np.uint8)
            held = self._slots.get(segment)
            if held is None:
                self._slots[segment], self._incarnations[segment] = within, np.ascontiguousarray(lives[:, part])
                continue
            # insertions at the same position keep their order, and `part` is in the order of slots
            places: Cells = np.searchsorted(held, within, "right") if at is None else at[part]
            self._slots[segment] = np.insert(held, places, within)
            self._incarnations[segment] = np.insert(self._incarnations[segment], places, lives[:, part], axis=1)
        np.add.at(self.count, slots, 1)
        self.total += len(slots)

    def read(self, slots: Cells) -> tuple[Cells, Cells]:
        """Return all incarnations of `slots`: (n,) index of each in `slots`, and (4, n) incarnations; sorted by index
        and birth."""
        rows = np.flatnonzero(self.count.take(slots))
        if not len(rows):
            return rows, _NO_INCARNATIONS
        rows = rows[np.argsort(slots[rows] // SEGMENT, kind="stable")]
        segment = slots[rows] // SEGMENT
        found = [self._read(part, slots) for part in np.split(rows, np.flatnonzero(np.diff(segment)) + 1)]
        row = np.concatenate([part[0] for part in found])
        lives = np.concatenate([part[1] for part in found], axis=1)
        order = np.argsort(row, kind="stable")
        return row[order], lives[:, order]

    def _read(self, rows: Cells, slots: Cells) -> tuple[Cells, Cells]:
        """`read` for rows whose slots are all in one segment."""
        segment = int(slots[rows[0]]) // SEGMENT
        held, within = self._slots[segment], (slots[rows] % SEGMENT).astype(np.uint8)
        first = np.searchsorted(held, within)
        many = self.count.take(slots[rows]).astype(np.int64)
        begins = np.cumsum(many) - many
        at = np.arange(int(many.sum())) - np.repeat(begins - first, many)
        return np.repeat(rows, many), self._incarnations[segment][:, at]

    def newest_ms(self, slots: Cells) -> Cells:
        """Return (n,) greatest last times among the past incarnations of each slot, 0 if it has none."""
        newest = np.zeros(len(slots), np.int64)
        rows, lives = self.read(slots)
        np.maximum.at(newest, rows, lives[LAST_TIME])
        return newest

    def set_last(self, slots: Cells, last: Cells) -> None:
        """Replace the last cells of all incarnations of distinct `slots`; `last` is in the order of `read`."""
        rows, lives = self.read(slots)
        lives = lives.copy()
        lives[LAST] = last
        self.replace(slots[rows], lives)

    def replace(self, slots: Cells, lives: Cells) -> None:
        """Replace all incarnations of the slots that occur with these, which are sorted by birth within each slot."""
        self.drop(distinct(slots))
        self.insert(slots, None, lives)

    def drop(self, slots: Cells) -> None:
        """Remove all incarnations of these slots."""
        slots = slots[self.count.take(slots) > 0]
        for segment in distinct(slots // SEGMENT).tolist():
            within = slots[slots // SEGMENT == segment] % SEGMENT
            self._keep(segment, ~np.isin(self._slots[segment], within))

    def drop_oldest(self, slot: int) -> None:
        """Remove the incarnation of this slot with the oldest last sample."""
        segment, within = slot // SEGMENT, np.uint8(slot % SEGMENT)
        held = self._slots[segment]
        first, last = int(np.searchsorted(held, within)), int(np.searchsorted(held, within, "right"))
        keep = np.ones(len(held), np.bool_)
        keep[first + int(np.argmin(self._incarnations[segment][LAST_TIME, first:last]))] = False
        self._keep(segment, keep)

    def prune(self, segment: int, floor_ms: int) -> None:
        """Remove the incarnations of a segment whose last sample is at `floor_ms` or earlier."""
        if segment in self._slots:
            self._keep(segment, self._incarnations[segment][LAST_TIME] > floor_ms)

    def drop_oldest_share(self, segment: int, least: int) -> int:
        """Remove the incarnations with the oldest last samples: 1/8 of the segment, at least `least`. Return the
        number."""
        if segment not in self._incarnations:
            return 0
        times = self._incarnations[segment][LAST_TIME]
        gone = min(len(times), max(least, len(times) // 8))
        keep = np.ones(len(times), np.bool_)
        keep[np.argpartition(times, gone - 1)[:gone]] = False
        self._keep(segment, keep)
        return gone

    def _keep(self, segment: int, keep: npt.NDArray[np.bool_]) -> None:
        if keep.all():
            return
        gone = self._slots[segment][~keep].astype(np.int64) + segment * SEGMENT
        np.subtract.at(self.count, gone, 1)
        self.total -= len(gone)
        if keep.any():
            self._slots[segment] = self._slots[segment][keep]
            self._incarnations[segment] = np.ascontiguousarray(self._incarnations[segment][:, keep])
        else:
            del self._slots[segment], self._incarnations[segment]

    def bytes(self) -> int:
        """Estimate of the bytes that the incarnations take."""
        return self.total * 33 + len(self._slots) * 500


def _by_segment(slots: Cells) -> Iterator[tuple[int, Cells]]:
    """Yield (segment, indexes of its slots in `slots`, sorted by slot)."""
    order = np.argsort(slots, kind="stable")
    segment = slots[order] // SEGMENT
    for part in np.split(order, np.flatnonzero(np.diff(segment)) + 1):
        if len(part):
            yield int(slots[part[0]]) // SEGMENT, part
