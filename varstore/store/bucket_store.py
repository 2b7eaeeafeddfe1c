"""The buckets of every series of one shard: fingerprint to slot, time to bucket row, statistics brought up to date.

`Run` is the unit of work: rows of some batches, applied to all levels in a few passes of numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.distinct import distinct
from artimon.compute.ties import Bounds, Cells
from artimon.model.grid import DEFAULT_LEVELS, Grid, Level
from artimon.model.values import ValueType
from varstore.cells.lives import Lives
from varstore.cells.memory import lazy_zeros
from varstore.cells.ring import Ring
from varstore.cells.segments import Samples
from varstore.cells.sorted_rows import Folded
from varstore.cells.texts import NO_TEXT, Texts
from varstore.cells.typing_rules import NO_TYPE, Types
from varstore.index.limits import DEFAULT_CAPACITY, FINEST_SPARE_ROWS, SPARE_ROWS
from varstore.index.slots import NO_SLOT, SlotTable
from varstore.store.capture import Capture

SILENT_ROWS = 6
"""Buckets of the longest level for which a series is remembered that no level takes samples of any longer."""
FUTURE_MS = 60_000
"""A sample may be this much later than the append time of its batch."""
_STATE_BYTES = 52  # type 9, end 8, newest life 33, number of older ones 2

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
        self.slots = SlotTable(capacity)
        capacity = self.slots.size
        self.types = Types(capacity)
        self.lives = Lives(capacity)
        self.texts = Texts()
        self.rings = list[Ring]()
        for i, level in enumerate(levels):
            spare, finest = (SPARE_ROWS, self.rings[0]) if i else (FINEST_SPARE_ROWS, None)
            self.rings.append(Ring(level, spare, capacity, self.types, self.texts, finest))
        self._ended: Cells = lazy_zeros(capacity, np.int64)
        self.captures: list[Capture] = []
        """Copies under way: each is told of what is about to change."""
        self.head_ms = 0
        """Greatest append time applied."""
        self.longest = max(self.rings, key=lambda ring: ring.rows * ring.step_ms)

    def apply(self, run: Run) -> Tally:
        """Add the samples of `run`; late, future, wrong type, no room: those are counted instead."""
        tally = Tally()
        for capture in self.captures:
            capture.guard(run.slots, run.time_ms)
        self._advance(int(run.append_ms.max()))
        self.begin_anew(run.slots)
        with np.errstate(all="ignore"):  # inf - inf in a sum of doubles is NaN, not news
            rows = self._admitted(run, tally)
            rows, bounds = self._typed(rows, run, tally)
            if len(rows):
                self._add(rows, bounds, run.distinct)
        tally.applied = len(rows)
        self.tend()
        return tally

    def settled_ms(self) -> int:
        """Rows up to this time can be folded: none of them is in an open row, or would open one."""
        return min(ring.settled_ms(self.head_ms) for ring in self.rings if not ring.follows)

    def fold(self, folded: Folded, slots: Cells, some: Mask) -> None:
        """Add cells and lives of `some` series, all before `settled_ms`, of distinct slots ((series,), anything where
        not `some`), that `begin_anew` has seen and whose types are theirs."""
        for ring in self.rings:
            for number, part in folded.parts(ring.step_ms, slots, some):
                for capture in self.captures:
                    capture.guard(part.at, np.array([number * ring.step_ms]))
                ring.fold(number, part, self.slots.used)
        for doubles, first, last, once in folded.lives:
            for life in (first.of(some.take(first.series)), last.of(some.take(last.series))):
                n = len(life.series)
                add = self.lives.add if once else self.lives.add_repeated
                bounds = Bounds(0, n) if doubles else Bounds(n, n)
                add(slots.take(life.series), life.birth_ms, life.time_ms, life.cell, bounds, self.texts)

    def tend(self) -> bool:
        """A few ms of closing and packing rows, if there is any to do: once a run is enough to keep up."""
        return any(ring.tend(self.head_ms) for ring in self.rings)

    def bytes_used(self) -> int:
        """About what is resident: cells, and the state by slot."""
        state = self.slots.used * _STATE_BYTES + self.slots.bytes() + self.lives.bytes() + self.texts.bytes()
        return sum(ring.bytes_used() for ring in self.rings) + state

    def bytes_reserved(self) -> int:
        """Address space of cells, resident or not."""
        return sum(ring.bytes_reserved() for ring in self.rings)

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
        usable = (rows.slots != NO_SLOT) & (rows.time_ms > self.silent_ms())
        if future is not None:
            usable &= ~future
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
        rest: tuple[_Rows, Bounds] | None = None  # what the levels that follow the finest one must be given
        for ring in self.rings:
            if not ring.follows:
                direct = self._add_to(ring, rows, bounds, distinct)
                if ring is self.rings[0] and direct is not None and direct.any():
                    rest = rows.pick(direct), bounds.cut(direct)
            elif rest is not None:
                self._add_to(ring, *rest, distinct)
        lives = self.lives.add if distinct else self.lives.add_repeated
        lives(rows.slots, rows.birth_ms, rows.time_ms, rows.cell, bounds, self.texts)

    def _add_to(self, ring: Ring, rows: _Rows, bounds: Bounds, distinct: bool) -> Mask | None:
        """Add those that are not too late for it; says which of all its followers must be given."""
        late = self._late(rows, [ring])
        if late is None:
            return ring.add(Samples(rows.slots, rows.time_ms, rows.cell, bounds, distinct), self.slots.used)
        direct = late.copy()
        if not late.all():
            mine = rows.pick(~late)
            samples = Samples(mine.slots, mine.time_ms, mine.cell, bounds.cut(~late), distinct)
            closed = ring.add(samples, self.slots.used)
            if closed is not None:
                direct[~late] = closed
        return direct

    def _to_double(self, slots: Cells) -> None:
        self._guard(slots)
        for ring in self.rings:
            ring.to_double(slots)
        self.lives.to_double(slots)

    def _advance(self, append_ms: int) -> None:
        self.head_ms = max(self.head_ms, append_ms)
        # twice as long as they are shown, so that a late sample never finds half of a life that is shown
        self.lives.forgotten_ms = self.longest.too_old(self.head_ms) - self.longest.rows * self.longest.step_ms

    # silence

    def silent_ms(self) -> int:
        """A series without a sample or an end later than this is forgotten: what comes of it now begins anew. It was
        silent for longer than the longest level, by append time. Constant within a bucket of the longest level."""
        return self.longest.too_old(self.head_ms) - SILENT_ROWS * self.longest.step_ms

    def silent(self, slots: Cells) -> Mask:
        """(n,) which slots are forgotten, or never had anything."""
        silent = self.lives.silent(slots, self.silent_ms())
        if silent.any():
            silent[silent] = self._ended.take(slots[silent]) <= self.silent_ms()
        return silent

    def begin_anew(self, slots: Cells) -> None:
        """Clear what is forgotten of these slots (NO_SLOT among them), to which something is about to be added. So
        it makes no difference when a slot is freed."""
        floor = self.silent_ms()
        if self.lives.newest_quick(slots) > floor:
            return
        slots = distinct(slots[slots != NO_SLOT])
        self.reset(slots[self.silent(slots)])

    def reset(self, slots: Cells) -> None:
        """Clear everything but the slots themselves."""
        slots = slots[self.types.known(slots) | (self._ended.take(slots) != 0)]
        if not len(slots):
            return
        self._guard(slots)
        newest = self._newest(slots)
        for ring in self.rings:
            numbers = ring.numbers_until(newest)
            if numbers:
                ring.clear(slots, set(numbers))
        self.types.forget(slots)
        self.lives.forget(slots)
        self._ended[slots] = 0

    def _newest(self, slots: Cells) -> int:
        return int(self.lives.newest_ms(slots).max()) if len(slots) else 0

    def clear_one_row(self, slots: Cells) -> bool:
        """Clear the cells of silent slots in one row, if one has any: so that `reset` finds nothing to do. False if no
        row has: nearly always, because rows that old belong to later buckets by now."""
        newest = self._newest(slots)
        for ring in self.rings:  # the finest first, others may still take over what it holds
            for number in ring.numbers_until(newest):
                held = ring.read_row(number, slots, ("count",))
                if held is not None and held["count"].any():
                    for capture in self.captures:
                        capture.guard_all(slots)
                    ring.clear(slots, {number})
                    return True
        return False

    def forget(self, slots: Cells) -> None:
        """Clear distinct slots in use, and give them back. The index has forgotten them already."""
        self._guard(slots)
        self.reset(slots)
        self.slots.free(slots)

    def _guard(self, slots: Cells) -> None:
        for capture in self.captures:
            capture.guard_all(slots)

    def moved_to(self, head_ms: int) -> None:
        """What was imported had come as far as this append time."""
        self._advance(head_ms)

    # images

    def export_slots(self, slots: Cells) -> dict[str, npt.NDArray[Any]]:
        """State of each slot: `fingerprint` uint64, `vshard`, `type` uint8 (NO_TYPE: none), `double_from`, `ended`
        int64, and of the newest life `known` bool, `birth`, `first`, `last_ms`, `last` int64 (a cell; of STRING
        series a number of `texts`)."""
        return {
            "fingerprint": self.slots.fingerprint.take(slots),
            "vshard": self.slots.vshard.take(slots),
            "ended": self._ended.take(slots),
            **self.types.export(slots),
            **self.lives.export(slots),
        }

    def export_older(self, slots: Cells) -> dict[str, npt.NDArray[Any]]:
        """Older lives: `slot`, `birth`, `first`, `last_ms`, `last`; in the order of `slots`, of one slot by birth."""
        return self.lives.export_older(slots)

    def import_slots(self, slots: Cells, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the state of distinct slots by what `export_slots` gave; `last` with numbers of `texts` here.
        Older lives are forgotten."""
        self._ended[slots] = columns["ended"]
        self.types.load(slots, columns)
        self.lives.load(slots, columns)

    def import_older(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the older lives of the slots that occur by what `export_older` gave; after `import_slots`."""
        self.lives.load_older(columns)

    def _sweep_texts(self) -> None:
        slots = self.types.slots_of(ValueType.STRING, self.slots.used)
        held = set(self.lives.held_last(slots))
        for ring in self.rings:
            held.update(distinct(ring.held_last(slots)).tolist())
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

    def said_ended(self, slots: Cells) -> Cells:
        """(n,) when the source said that a series ended, whatever came later; 0 where it never did."""
        return self._ended.take(slots)

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


__all__ = ["NO_TYPE", "BucketStore", "Run", "Tally"]
