"""Lives of series: per birth the time of the first sample, and time and value of the last one.

From these the part of an increase that a reset would hide is computed, whatever the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.sample_order import Cells, TypeBounds, ranks, replaces
from artimon.model.select import INCARNATION_DTYPE
from varstore.cells.lazy_memory import lazy_zeros
from varstore.cells.past_incarnations import BIRTH, FIRST, LAST, LAST_TIME, SEGMENT, PastIncarnations
from varstore.cells.string_pool import StringPool

MAX_INCARNATIONS = 5_000
"""Limit of incarnations of one series: one a minute for three days is 4,320. Beyond it the incarnation with the oldest
last sample is dropped and counted."""
PAST_PER_SLOT = 16
"""Limit of past incarnations in all, per slot of capacity. Beyond it a segment that adds incarnations drops those with
the oldest last samples, an eighth of its lives and at least as many as it adds; they are counted."""
INCARNATION_COLUMNS = ("birth", "first", "last_ms", "last")
"""Columns of incarnations in a snapshot."""

Mask = npt.NDArray[np.bool_]


class Incarnations:
    """Newest life of each slot (greatest birth) in arrays by slot, older ones packed. The owner's lock guards it."""

    def __init__(self, capacity: int) -> None:
        self._has_samples: Mask = lazy_zeros(capacity, np.bool_)
        self._newest: Cells = lazy_zeros(4 * capacity, np.int64).reshape(4, capacity)  # rows as in PastIncarnations
        self._past = PastIncarnations(capacity)
        self._room = PAST_PER_SLOT * capacity
        self.expired_ms = 0
        """A new sample restarts a life whose last sample is at this time or earlier: results are the same whether
        `prune` removed that life before or not."""
        self.dropped = 0

    def add(
        self, slots: Cells, birth_ms: Cells, time_ms: Cells, cells: Cells, bounds: TypeBounds, texts: StringPool
    ) -> None:
        """Add one sample to each of distinct slots."""
        known = self._has_samples.take(slots)
        birth = self._newest[BIRTH].take(slots)
        same = known & (birth == birth_ms)
        if same.all():
            self._extend(slots, time_ms, cells, bounds, texts)
            return
        if same.any():
            self._extend(slots[same], time_ms[same], cells[same], bounds.select(same), texts)
        later = known & (birth < birth_ms)
        if later.any():  # start times held are less
            self._past.insert(slots[later], None, self._newest.take(slots[later], axis=1))
        fresh = ~known | later
        self._has_samples[slots[fresh]] = True
        self._put(slots[fresh], (birth_ms[fresh], time_ms[fresh], time_ms[fresh], cells[fresh]))
        if later.any():
            self._bound(slots[later])
        before = known & (birth > birth_ms)
        if before.any():
            lives = np.array([birth_ms[before], time_ms[before], time_ms[before], cells[before]], np.int64)
            self._merge(slots[before], lives, bounds.select(before), texts)

    def add_batch(
        self, slots: Cells, birth_ms: Cells, time_ms: Cells, cells: Cells, bounds: TypeBounds, texts: StringPool
    ) -> None:
        """Add samples, possibly several of one slot; only the first and last of each incarnation need to be applied."""
        order = np.lexsort((ranks(cells, bounds, texts), time_ms, birth_ms, slots))
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (np.diff(slots[order]) != 0) | (np.diff(birth_ms[order]) != 0)
        ends = np.append(begins[1:], True)
        pending = np.sort(order[begins | ends])
        while len(pending):
            _, first = np.unique(slots[pending], return_index=True)
            now = pending[np.sort(first)]
            inside = TypeBounds(int(np.searchsorted(now, bounds.ints)), int(np.searchsorted(now, bounds.doubles)))
            self.add(slots[now], birth_ms[now], time_ms[now], cells[now], inside, texts)
            pending = np.delete(pending, first)

    def newest(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the arrays by slot of whether it has samples, and of birth, last time and last value."""
        return self._has_samples, self._newest[BIRTH], self._newest[LAST_TIME], self._newest[LAST]

    def _put(self, slots: Cells, lives: Iterable[Cells]) -> None:
        for array, values in zip(self._newest, lives, strict=True):
            array[slots] = values

    def _extend(self, slots: Cells, time_ms: Cells, cells: Cells, bounds: TypeBounds, texts: StringPool) -> None:
        _, first, last_time, last = self._newest
        old_time = last_time.take(slots)
        newer = time_ms > old_time
        if newer.all():  # then none is a new first either
            last_time[slots] = time_ms
            last[slots] = cells
            return
        tied = time_ms == old_time
        if tied.any():
            newer[tied] = replaces(cells[tied], last.take(slots[tied]), bounds.select(tied), texts)
        last_time[slots[newer]] = time_ms[newer]
        last[slots[newer]] = cells[newer]
        first[slots] = np.minimum(first.take(slots), time_ms)

    def _merge(self, slots: Cells, lives: Cells, bounds: TypeBounds, texts: StringPool) -> None:
        """Merge samples of distinct slots, as incarnations (4, n), whose start times are before the current ones."""
        at, found = self._past.find(slots, lives[BIRTH])
        if found.any():
            held = self._past.get(slots[found], at[found])
            merged = self._merged(held, lives[:, found], bounds.select(found), texts)
            self._past.set(slots[found], at[found], merged)
        new = slots[~found]
        if len(new):
            self._past.insert(new, at[~found], lives[:, ~found])
            self._bound(new)

    def _merged(self, held: Cells, lives: Cells, bounds: TypeBounds, texts: StringPool) -> Cells:
        """Return `held` (4, n) with one more sample each, of the same slot and birth."""
        newer = lives[LAST_TIME] > held[LAST_TIME]
        tied = lives[LAST_TIME] == held[LAST_TIME]
        if tied.any():
            newer[tied] = replaces(lives[LAST, tied], held[LAST, tied], bounds.select(tied), texts)
        merged: Cells = np.where(newer, lives, held)
        merged[FIRST] = np.minimum(held[FIRST], lives[FIRST])
        forgotten = held[LAST_TIME] <= self.expired_ms
        merged[:, forgotten] = lives[:, forgotten]
        return merged

    def _bound(self, slots: Cells) -> None:
        """Enforce the limits after one incarnation was added to each of `slots`."""
        for slot in slots[self._past.count.take(slots) > MAX_INCARNATIONS].tolist():
            self._past.drop_oldest(slot)
            self.dropped += 1
        if self._past.total > self._room:
            for segment, added in zip(*np.unique(slots // SEGMENT, return_counts=True), strict=True):
                self.dropped += self._past.drop_oldest_share(int(segment), int(added))

    def read(self, slots: Cells, floor_ms: int) -> npt.NDArray[np.void]:
        """Return incarnations of these slots as BIRTH_TYPE, sorted by (row, birth); `row` is the index in `slots`.
        The newest birth of a series is always included, others if their last sample is later than `floor_ms`."""
        rows = np.flatnonzero(self._has_samples.take(slots))
        current = _as_table(rows, self._newest.take(slots[rows], axis=1))
        row, lives = self._past.read(slots)
        shown = lives[LAST_TIME] > floor_ms
        if not shown.any():
            return current
        joined = np.concatenate((_as_table(row[shown], lives[:, shown]), current))
        # stable: of one row the older ones come in order of birth, and the current one after them
        return joined[np.argsort(joined["row"], kind="stable")]

    def newest_ms(self, slots: Cells) -> Cells:
        """Return (n,) times of the newest sample of each slot, 0 if it has none."""
        newest: Cells = np.maximum(self._newest[LAST_TIME].take(slots), self._past.newest_ms(slots))
        return newest

    def silent(self, slots: Cells, floor_ms: Cells | int) -> Mask:
        """Mask of the slots without a sample later than `floor_ms`. Fast if none is silent."""
        old: Mask = self._newest[LAST_TIME].take(slots) <= floor_ms
        if self._past.total and old.any():
            old[old] = self._past.newest_ms(slots[old]) <= (floor_ms if isinstance(floor_ms, int) else floor_ms[old])
        return old

    def newest_lower_bound(self, slots: Cells) -> int:
        """Return a quick lower bound of the newest sample times of slots (may include NO_SLOT); 0 without slots."""
        return int(self._newest[LAST_TIME].take(slots, mode="wrap").min()) if len(slots) else 0

    def prune(self, first: int, end: int) -> None:
        """Remove past incarnations that ended by `expired_ms`, in all segments that slots [first, end) touch."""
        for segment in range(first // SEGMENT, -(-end // SEGMENT)):
            self._past.prune(segment, self.expired_ms)

    def forget(self, slots: Cells) -> None:
        """Remove all incarnations of these slots."""
        self._has_samples[slots] = False
        self._newest[:, slots] = 0
        self._past.drop(slots)

    def to_double(self, slots: Cells) -> None:
        """Convert the values of INTEGER series that became DOUBLE."""
        known = slots[self._has_samples.take(slots)]
        last = self._newest[LAST]
        last.view(np.float64)[known] = last.take(known).astype(np.float64)
        held = known[self._past.count.take(known) > 0]
        if len(held):
            _, lives = self._past.read(held)
            self._past.set_last(held, lives[LAST].astype(np.float64).view(np.int64))

    def last_cells(self, slots: Cells) -> list[int]:
        """Return every value cell that an incarnation of `slots` holds."""
        held: list[int] = self._newest[LAST].take(slots[self._has_samples.take(slots)]).tolist()
        held.extend(self._past.read(slots)[1][LAST].tolist())
        return held

    def export(self, slots: Cells) -> dict[str, npt.NDArray[Any]]:
        """Return the current incarnation of each slot: `known`, `birth`, `first`, `last_ms`, `last`, each (n,)."""
        return {
            "known": self._has_samples.take(slots),
            **dict(zip(INCARNATION_COLUMNS, self._newest.take(slots, axis=1), strict=True)),
        }

    def load(self, slots: Cells, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Inverse of `export`: replace the current incarnation of distinct `slots` and remove their older ones."""
        self._has_samples[slots] = columns["known"]
        self._put(slots, (columns[name] for name in INCARNATION_COLUMNS))
        self._past.drop(slots)

    def export_past(self, slots: Cells) -> dict[str, npt.NDArray[Any]]:
        """Return past incarnations as `slot`, `birth`, `first`, `last_ms`, `last`, in the order of `slots`, then by
        birth."""
        row, lives = self._past.read(slots)
        return {"slot": slots[row], **dict(zip(INCARNATION_COLUMNS, lives, strict=True))}

    def load_past(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Inverse of `export_past`: replace the past incarnations of the slots that occur; slot numbers may differ."""
        lives = np.array([columns[name] for name in INCARNATION_COLUMNS], np.int64)
        self._past.replace(columns["slot"].astype(np.int64), lives)

    def bytes(self) -> int:
        """Estimate of the bytes of past incarnations."""
        return self._past.bytes()


def _as_table(row: Cells, lives: Cells) -> npt.NDArray[np.void]:
    births = np.empty(len(row), INCARNATION_DTYPE)
    for name, values in zip(INCARNATION_DTYPE.names or (), (row, *lives), strict=True):
        births[name] = values
    return births
