"""The buckets of every series of one shard: fingerprint to slot, time to bucket row, statistics brought up to date.

`Run` is the unit of work: rows of some batches, applied to all levels in a few passes of numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artimon.model.grid import DEFAULT_LEVELS, Grid, Level
from artimon.model.values import ValueType
from varstore.collapse import collapse
from varstore.lives import Lives
from varstore.memory import lazy_zeros
from varstore.ring import Part, Ring
from varstore.slots import NO_SLOT, SlotTable
from varstore.texts import NO_TEXT, Texts
from varstore.ties import Bounds, Cells
from varstore.typing_rules import NO_TYPE, Types

SPARE_ROWS = 4
"""Two ahead of the settled end, two for predecessors."""
FINEST_SPARE_ROWS = SPARE_ROWS + 15
"""The finest level serves windows that start before the range."""
FUTURE_MS = 60_000
"""A sample may be this much later than the append time of its batch."""
DEFAULT_CAPACITY = 1_000_000
_PAGE_CELLS = 1024  # rows of every array begin on a page of their own

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Run:
    """Rows of batches that follow one another; arrays of length n, never written to."""

    slots: Cells
    """NO_SLOT where the series was refused."""
    time_ms: Cells
    birth_ms: Cells
    type: npt.NDArray[np.uint8]
    cell: Cells
    """Of STRING rows: an index into `strings`."""
    append_ms: Cells
    """(batches,) append time of each batch."""
    batch_rows: Cells
    """(batches,) its number of rows."""
    distinct: bool
    """Whether no slot occurs twice."""
    strings: Sequence[str] = ()


@dataclass(slots=True)
class Tally:
    """What became of samples; rows that only say that a series ended are in none of the counts."""

    applied: int = 0
    late: int = 0
    future: int = 0
    conflicts: int = 0
    """A type that the series may not change to."""
    refused: int = 0
    """No slot, or no room for a string."""

    def add(self, other: Tally) -> None:
        self.applied += other.applied
        self.late += other.late
        self.future += other.future
        self.conflicts += other.conflicts
        self.refused += other.refused


@dataclass(slots=True)
class _Rows:
    """The rows of a run that are still in play, with the append time of each."""

    slots: Cells
    time_ms: Cells
    birth_ms: Cells
    type: npt.NDArray[np.uint8]
    cell: Cells
    append_ms: Cells

    def __len__(self) -> int:
        return len(self.slots)

    def pick(self, rows: Mask | Cells) -> _Rows:
        return _Rows(
            self.slots[rows],
            self.time_ms[rows],
            self.birth_ms[rows],
            self.type[rows],
            self.cell[rows],
            self.append_ms[rows],
        )


class BucketStore:
    """All levels, lives and types of up to `capacity` series. Not locked: the owner's lock guards everything here.

    Any order of the same samples gives the same answers, but for the last bits of sums of doubles, and for a change
    of type (see typing_rules)."""

    def __init__(self, levels: Sequence[Level] = DEFAULT_LEVELS, capacity: int = DEFAULT_CAPACITY) -> None:
        capacity = -(-capacity // _PAGE_CELLS) * _PAGE_CELLS
        self.slots = SlotTable(capacity)
        self.rings = [Ring(level, SPARE_ROWS if i else FINEST_SPARE_ROWS, capacity) for i, level in enumerate(levels)]
        self.types = Types(capacity)
        self.lives = Lives(capacity)
        self.texts = Texts()
        self._ended: Cells = lazy_zeros(capacity, np.int64)
        self.head_ms = 0
        """Greatest append time applied."""
        self._pruned_at = 0

    def apply(self, run: Run) -> Tally:
        """Add the samples of `run`; late, future, wrong type, no room: those are counted instead."""
        tally = Tally()
        with np.errstate(all="ignore"):  # inf - inf in a sum of doubles is NaN, not news
            rows = self._admitted(run, tally)
            rows, bounds = self._typed(rows, run, tally)
            if len(rows):
                self._add(rows, bounds, run.distinct)
        tally.applied = len(rows)
        self._advance(int(run.append_ms.max()))
        return tally

    def _admitted(self, run: Run, tally: Tally) -> _Rows:
        """Rows with a value that are neither future nor too old for every level; ends are noted."""
        append_ms = np.repeat(run.append_ms, run.batch_rows)
        rows = _Rows(run.slots, run.time_ms, run.birth_ms, run.type, run.cell, append_ms)
        ended = rows.type == ValueType.ENDED
        if ended.any():
            self._note_ends(rows.pick(ended))
            rows = rows.pick(~ended)
        lost = rows.slots == NO_SLOT
        if lost.any():
            tally.refused += int(lost.sum())
            rows = rows.pick(~lost)
        future = self._future(rows)
        if future is not None:
            tally.future += int(future.sum())
            rows = rows.pick(~future)
        late = self._late(rows, self.rings)
        if late is not None:
            tally.late += int(late.sum())
            rows = rows.pick(~late)
        return rows

    @staticmethod
    def _future(rows: _Rows) -> Mask | None:
        """Which rows are future; None if none is."""
        if not len(rows) or int(rows.time_ms.max()) <= int(rows.append_ms.min()) + FUTURE_MS:
            return None
        return rows.time_ms > rows.append_ms + FUTURE_MS

    @staticmethod
    def _late(rows: _Rows, rings: Sequence[Ring]) -> Mask | None:
        """Which rows are too old for each of `rings`; None if none is."""
        if not len(rows):
            return None
        newest, oldest = int(rows.append_ms.max()), int(rows.time_ms.min())
        if any(oldest > ring.too_old(newest) for ring in rings):
            return None
        limits = [ring.too_old_each(rows.append_ms) for ring in rings]
        late: Mask = rows.time_ms <= np.minimum.reduce(limits)
        return late

    def _note_ends(self, rows: _Rows) -> None:
        future = self._future(rows)
        usable = rows.slots != NO_SLOT if future is None else (rows.slots != NO_SLOT) & ~future
        np.maximum.at(self._ended, rows.slots[usable], rows.time_ms[usable])

    def _typed(self, rows: _Rows, run: Run, tally: Tally) -> tuple[_Rows, Bounds]:
        """Rows whose type their series takes, cells made its own, ordered INTEGER and BOOLEAN, DOUBLE, STRING."""
        verdict = self.types.judge(rows.slots, rows.type, rows.time_ms, run.distinct)
        if verdict is not None:
            if len(verdict.converted):
                self._to_double(verdict.converted)
            tally.conflicts += int(np.count_nonzero(~verdict.keep))
            rows = rows.pick(verdict.keep)
            as_double = verdict.as_double[verdict.keep]
            rows.cell, rows.type = rows.cell.copy(), rows.type.copy()
            rows.cell[as_double] = rows.cell[as_double].astype(np.float64).view(np.int64)
            rows.type[as_double] = ValueType.DOUBLE
        rows, bounds = _in_classes(rows)
        if bounds.doubles < len(rows):
            rows = self._interned(rows, bounds, run.strings, tally)
        return rows, bounds

    def _interned(self, rows: _Rows, bounds: Bounds, strings: Sequence[str], tally: Tally) -> _Rows:
        """Cells of STRING rows made numbers of `texts`; rows for which there is no room are left out."""
        if self.texts.wants_sweep():
            self._sweep_texts()
        cells = rows.cell.copy()
        for i in range(bounds.doubles, len(cells)):
            cells[i] = self.texts.intern(strings[int(cells[i])])
        rows.cell = cells
        lost = np.zeros(len(cells), np.bool_)
        lost[bounds.doubles :] = cells[bounds.doubles :] == NO_TEXT
        if not lost.any():
            return rows
        tally.refused += int(lost.sum())
        return rows.pick(~lost)

    def _add(self, rows: _Rows, bounds: Bounds, distinct: bool) -> None:
        for ring in self.rings:
            late = self._late(rows, [ring])
            if late is None:
                self._add_to(ring, rows, bounds, distinct)
            elif not late.all():
                self._add_to(ring, rows.pick(~late), bounds.cut(~late), distinct)
        lives = self.lives.add if distinct else self.lives.add_repeated
        lives(rows.slots, rows.birth_ms, rows.time_ms, rows.cell, bounds, self.texts)

    def _add_to(self, ring: Ring, rows: _Rows, bounds: Bounds, distinct: bool) -> None:
        at, offset, held = ring.locate(rows.time_ms, rows.slots, self.slots.used)
        cells = rows.cell
        if held is not None:
            at, offset, cells, bounds = at[held], offset[held], cells[held], bounds.cut(held)
        if not len(at):
            return
        if distinct:
            part = Part(at, None, offset, cells, cells, cells, cells, bounds)
        else:
            part = collapse(at, offset, cells, bounds, self.texts)
        ring.merge(part, self.texts)

    def _to_double(self, slots: Cells) -> None:
        for ring in self.rings:
            ring.to_double(slots)
        self.lives.to_double(slots)

    def _advance(self, append_ms: int) -> None:
        self.head_ms = max(self.head_ms, append_ms)
        longest = max(self.rings, key=lambda ring: ring.rows * ring.step_ms)
        if self.head_ms - self._pruned_at > longest.step_ms:
            # twice as long as they are shown, so that a late sample never finds half of a life that is shown
            self.lives.prune(self.floor_ms() - longest.rows * longest.step_ms)
            self._pruned_at = self.head_ms

    def _sweep_texts(self) -> None:
        slots = self.types.slots_of(ValueType.STRING, self.slots.used)
        held = set(self.lives.held_last(slots))
        for ring in self.rings:
            held.update(np.unique(ring.held_last(slots)).tolist())
        self.texts.keep(held)

    def ring(self, step_ms: int) -> Ring | None:
        """The level of that step, None if there is none."""
        return next((ring for ring in self.rings if ring.step_ms == step_ms), None)

    def floor_ms(self) -> int:
        """What the longest level no longer takes: lives that went before it are not shown."""
        return min(ring.too_old(self.head_ms) for ring in self.rings)

    def read(self, slots: Cells, grid: Grid, statistics: Collection[str]) -> dict[str, Cells]:
        """(grid.n, slots) of each statistic; KeyError unless a level has the grid's step."""
        ring = self.ring(grid.step_ms)
        if ring is None:
            raise KeyError(grid.step_ms)
        return ring.read(slots, grid, statistics)

    def births(self, slots: Cells) -> npt.NDArray[np.void]:
        """Lives of these slots as BIRTH_TYPE; those that went before every level only if they are the newest."""
        return self.lives.read(slots, self.floor_ms())

    def ended_ms(self, slots: Cells, newest_ms: Cells) -> Cells:
        """(n,) when the source said that a series ended, 0 where something newer came."""
        ended = self._ended.take(slots)
        return np.where(ended >= newest_ms, ended, 0)

    def type_of(self, slots: Cells) -> npt.NDArray[np.uint8]:
        """(n,) types, NO_TYPE where no sample came."""
        return self.types.of(slots)


def _in_classes(rows: _Rows) -> tuple[_Rows, Bounds]:
    """Rows ordered by class of type, and where the classes begin."""
    if not len(rows):
        return rows, Bounds(0, 0)
    first = rows.type[0]
    if (rows.type == first).all():
        n = len(rows)
        if first == ValueType.DOUBLE:
            return rows, Bounds(0, n)
        return rows, Bounds(0, 0) if first == ValueType.STRING else Bounds(n, n)
    doubles, texts = rows.type == ValueType.DOUBLE, rows.type == ValueType.STRING
    ints = np.flatnonzero(~(doubles | texts))
    order = np.concatenate((ints, np.flatnonzero(doubles), np.flatnonzero(texts)))
    return rows.pick(order), Bounds(len(ints), len(order) - int(np.count_nonzero(texts)))


__all__ = ["DEFAULT_CAPACITY", "NO_TYPE", "BucketStore", "Run", "Tally"]
