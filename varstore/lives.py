"""Lives of series: per birth the time of the first sample, and time and value of the last one.

The part of an increase that a reset would hide follows from them in any order of arrival.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.model.select import BIRTH_TYPE
from artimon.model.values import ValueType
from varstore.memory import lazy_zeros
from varstore.texts import Texts
from varstore.ties import Bounds, Cells, cell_outranks, outranks, ranks

LIVES_A_SERIES = 5_000
"""More than one a minute for three days; beyond it the life that went longest ago is dropped and counted."""


class Life(NamedTuple):
    """One life of a series."""

    birth_ms: int
    first_ms: int
    last_ms: int
    last: int


class Lives:
    """The life with the greatest birth in arrays by slot, older ones in a dict. The owner's lock guards it."""

    def __init__(self, capacity: int) -> None:
        self._known: npt.NDArray[np.bool_] = lazy_zeros(capacity, np.bool_)
        self._birth: Cells = lazy_zeros(capacity, np.int64)
        self._first: Cells = lazy_zeros(capacity, np.int64)
        self._last_time: Cells = lazy_zeros(capacity, np.int64)
        self._last: Cells = lazy_zeros(capacity, np.int64)
        self._older: dict[int, dict[int, Life]] = {}
        self.dropped = 0

    def add(self, slots: Cells, birth_ms: Cells, time_ms: Cells, cells: Cells, bounds: Bounds, texts: Texts) -> None:
        """One sample each of distinct slots."""
        known = self._known.take(slots)
        same = known & (self._birth.take(slots) == birth_ms)
        if same.all():
            self._extend(slots, time_ms, cells, bounds, texts)
            return
        if same.any():
            self._extend(slots[same], time_ms[same], cells[same], bounds.cut(same), texts)
        fresh = ~known
        self._begin(slots[fresh], birth_ms[fresh], time_ms[fresh], cells[fresh])
        for i in np.flatnonzero(known & ~same):
            time = int(time_ms[i])
            type_ = _class_of(int(i), bounds)
            self._merge(int(slots[i]), Life(int(birth_ms[i]), time, time, int(cells[i])), type_, texts)

    def add_repeated(
        self, slots: Cells, birth_ms: Cells, time_ms: Cells, cells: Cells, bounds: Bounds, texts: Texts
    ) -> None:
        """Samples of which several may be of one slot: the first and the last of each life tell all that is kept."""
        order = np.lexsort((ranks(cells, bounds, texts), time_ms, birth_ms, slots))
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (np.diff(slots[order]) != 0) | (np.diff(birth_ms[order]) != 0)
        ends = np.append(begins[1:], True)
        pending = np.sort(order[begins | ends])
        while len(pending):
            _, first = np.unique(slots[pending], return_index=True)
            now = pending[np.sort(first)]
            inside = Bounds(int(np.searchsorted(now, bounds.ints)), int(np.searchsorted(now, bounds.doubles)))
            self.add(slots[now], birth_ms[now], time_ms[now], cells[now], inside, texts)
            pending = np.delete(pending, first)

    def _begin(self, slots: Cells, birth_ms: Cells, time_ms: Cells, cells: Cells) -> None:
        self._known[slots] = True
        self._birth[slots] = birth_ms
        self._first[slots] = time_ms
        self._last_time[slots] = time_ms
        self._last[slots] = cells

    def _extend(self, slots: Cells, time_ms: Cells, cells: Cells, bounds: Bounds, texts: Texts) -> None:
        old_time = self._last_time.take(slots)
        newer = time_ms > old_time
        if newer.all():  # then none is a new first either
            self._last_time[slots] = time_ms
            self._last[slots] = cells
            return
        tied = time_ms == old_time
        if tied.any():
            newer[tied] = outranks(cells[tied], self._last.take(slots[tied]), bounds.cut(tied), texts)
        self._last_time[slots[newer]] = time_ms[newer]
        self._last[slots[newer]] = cells[newer]
        self._first[slots] = np.minimum(self._first.take(slots), time_ms)

    def _merge(self, slot: int, life: Life, type_: ValueType, texts: Texts) -> None:
        """A life that is not the current one of a slot that has one."""
        current = self._current(slot)
        older = self._older.setdefault(slot, {})
        if life.birth_ms > current.birth_ms:
            older[current.birth_ms] = current
            self._set_current(slot, life)
        else:
            held = older.get(life.birth_ms)
            older[life.birth_ms] = life if held is None else _join(held, life, type_, texts)
        if len(older) > LIVES_A_SERIES:
            older.pop(min(older, key=lambda birth: older[birth].last_ms))
            self.dropped += 1

    def _current(self, slot: int) -> Life:
        return Life(int(self._birth[slot]), int(self._first[slot]), int(self._last_time[slot]), int(self._last[slot]))

    def _set_current(self, slot: int, life: Life) -> None:
        self._birth[slot], self._first[slot], self._last_time[slot], self._last[slot] = life

    def read(self, slots: Cells, floor_ms: int) -> npt.NDArray[np.void]:
        """Lives of these slots as BIRTH_TYPE, `row` counts in `slots`, by (row, birth): of each series the newest
        birth always, others if their last sample is later than `floor_ms`."""
        rows = np.flatnonzero(self._known.take(slots))
        held = slots[rows]
        current = np.empty(len(rows), BIRTH_TYPE)
        arrays = (rows, *(array.take(held) for array in (self._birth, self._first, self._last_time, self._last)))
        for name, values in zip(BIRTH_TYPE.names or (), arrays, strict=True):
            current[name] = values
        older = [
            (row, *life)
            for row, slot in enumerate(slots.tolist() if self._older else ())
            for life in self._older.get(slot, {}).values()
            if life.last_ms > floor_ms
        ]
        if not older:
            return current
        lives = np.concatenate((np.array(older, BIRTH_TYPE), current))
        return lives[np.lexsort((lives["birth_ms"], lives["row"]))]

    def newest_ms(self, slots: Cells) -> Cells:
        """(n,) time of the newest sample of each slot, 0 where there is none."""
        newest = self._last_time.take(slots)
        if self._older:
            for i, slot in enumerate(slots.tolist()):
                if slot in self._older:
                    newest[i] = max(newest[i], *(life.last_ms for life in self._older[slot].values()))
        return newest

    def prune(self, floor_ms: int) -> None:
        """Forget older lives whose last sample is not later than `floor_ms`."""
        for slot in list(self._older):
            kept = {b: life for b, life in self._older[slot].items() if life.last_ms > floor_ms}
            if kept:
                self._older[slot] = kept
            else:
                del self._older[slot]

    def to_double(self, slots: Cells) -> None:
        """Values of INTEGER series that became DOUBLE."""
        known = slots[self._known.take(slots)]
        self._last.view(np.float64)[known] = self._last.take(known).astype(np.float64)
        for slot in known.tolist():
            for birth, life in self._older.get(slot, {}).items():
                cell = int(np.array([life.last]).astype(np.float64).view(np.int64)[0])
                self._older[slot][birth] = life._replace(last=cell)

    def held_last(self, slots: Cells) -> list[int]:
        """Every value cell that a life of `slots` holds."""
        held: list[int] = self._last.take(slots[self._known.take(slots)]).tolist()
        for slot in slots.tolist():
            held.extend(life.last for life in self._older.get(slot, {}).values())
        return held


def _class_of(row: int, bounds: Bounds) -> ValueType:
    if row < bounds.ints:
        return ValueType.INTEGER
    return ValueType.DOUBLE if row < bounds.doubles else ValueType.STRING


def _join(a: Life, b: Life, type_: ValueType, texts: Texts) -> Life:
    later = a
    if (b.last_ms > a.last_ms) or (b.last_ms == a.last_ms and cell_outranks(type_, b.last, a.last, texts)):
        later = b
    return Life(a.birth_ms, min(a.first_ms, b.first_ms), later.last_ms, later.last)
