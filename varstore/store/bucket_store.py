"""Buckets of every series of one shard: map fingerprint to slot and time to bucket row, and update the statistics.

`SampleRun` is the unit of work: rows of some batches, applied to all levels in a few passes of numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import distinct
from artimon.compute.kernels import kernels
from artimon.compute.sample_order import Cells, TypeBounds
from artimon.model.grid import DEFAULT_LEVELS, Level
from artimon.model.values import ValueType
from varstore.cells.incarnations import Incarnations
from varstore.cells.lazy_memory import lazy_zeros
from varstore.cells.level_ring import LevelRing
from varstore.cells.slot_segments import LevelSamples
from varstore.cells.sorted_aggregate import SortedAggregate
from varstore.cells.string_pool import NO_STRING, StringPool
from varstore.cells.type_rules import NO_TYPE, SeriesTypes
from varstore.index.shard_limits import DEFAULT_CAPACITY, FINEST_SPARE_ROWS, SPARE_ROWS
from varstore.index.slot_table import NO_SLOT, SlotTable
from varstore.store.capture import Capture

SILENCE_BUCKETS = 6
"""Buckets of the longest level for which a series is kept after its last sample is late for every level."""
FUTURE_MS = 60_000
"""Limit in ms by which a sample may be later than the append time of its batch."""
_STATE_BYTES = 52  # per slot: type 9, end 8, current incarnation 33, number of past incarnations 2

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class SampleRun:
    """Rows of consecutive batches; read-only arrays of length n."""

    slots: Cells
    """Slot of each row, NO_SLOT if the series was refused."""
    time_ms: Cells
    birth_ms: Cells
    type: npt.NDArray[np.uint8]
    cell: Cells
    """Value of each row; for STRING rows an index into `strings`."""
    append_ms: Cells
    """(batches,) append time of each batch."""
    batch_rows: Cells
    """(batches,) its number of rows."""
    distinct: bool
    """True if no slot occurs twice."""
    strings: Sequence[str] = ()


@dataclass(slots=True)
class OutcomeCounts:
    """Counts of samples by outcome; end markers are not counted."""

    applied: int = 0
    late: int = 0
    future: int = 0
    conflicts: int = 0
    """Samples of a type that the series may not change to."""
    refused: int = 0
    """Samples without a slot, or without room for their string."""

    def add(self, other: OutcomeCounts) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(slots=True)
class _AdmittedRows:
    """Remaining rows of a run, with the append time of each."""

    slots: Cells
    time_ms: Cells
    birth_ms: Cells
    type: npt.NDArray[np.uint8]
    cell: Cells
    append_ms: Cells

    def __len__(self) -> int:
        return len(self.slots)

    def select(self, rows: Mask | Cells | slice) -> _AdmittedRows:
        return _AdmittedRows(*(getattr(self, one.name)[rows] for one in fields(self)))


class BucketStore:
    """All levels, incarnations and types of up to `capacity` series. Not locked: the owner's lock guards everything
    here.

    Any order of the same samples gives the same answers, except for the last bits of sums of doubles, and for a change
    of type (see typing_rules)."""

    def __init__(self, levels: Sequence[Level] = DEFAULT_LEVELS, capacity: int = DEFAULT_CAPACITY) -> None:
        self.slots = SlotTable(capacity)
        capacity = self.slots.size
        self.types = SeriesTypes(capacity)
        self.incarnations = Incarnations(capacity)
        self.strings = StringPool()
        self.rings = list[LevelRing]()
        for i, level in enumerate(levels):
            spare, finest = (SPARE_ROWS, self.rings[0]) if i else (FINEST_SPARE_ROWS, None)
            self.rings.append(LevelRing(level, spare, capacity, self.types, self.strings, finest))
        self._ended_ms: Cells = lazy_zeros(capacity, np.int64)
        self.captures: list[Capture] = []
        """Copies in progress; each is notified before a change."""
        self.head_ms = 0
        """Greatest append time applied."""
        self.longest_ring = max(self.rings, key=lambda ring: ring.rows * ring.step_ms)

    def apply(self, run: SampleRun) -> OutcomeCounts:
        """Add the samples of `run`; late, future, conflicting and refused ones are only counted."""
        tally = OutcomeCounts()
        for capture in self.captures:
            capture.before_apply(run.slots, run.time_ms)
        self.advance_head(int(run.append_ms.max()))
        done = self._add_plain(run) if run.distinct and len(run.slots) else 0
        if done < len(run.slots):
            self._add_rest(run, done, tally)
        tally.applied += done
        self.maintain()
        return tally

    def _add_rest(self, run: SampleRun, done: int, tally: OutcomeCounts) -> None:
        """Add all samples of a run but the first `done`."""
        self.reset_silent(run.slots[done:])
        with np.errstate(all="ignore"):  # inf - inf in a sum of doubles is NaN without a warning
            rows = self._admitted(run, done, tally)
            rows, bounds = self._typed(rows, run, tally)
            if len(rows):
                self._add(rows, bounds, run.distinct)
        tally.applied = len(rows)

    def _add_plain(self, run: SampleRun) -> int:
        """Add the first samples of a run, as long as each is the next of its series in an open bucket in which it has
        none, and return their number. This is the common case: it needs no order by type, and no merge."""
        compiled, finest = kernels(), self.rings[0]
        if compiled is None or not all(ring.is_follower for ring in self.rings[1:]):
            return 0
        number = -(-run.time_ms.item(0) // finest.step_ms)
        start_ms, newest = (number - 1) * finest.step_ms, int(run.append_ms.max())
        block = finest.open_block(number)
        if block is None or start_ms < finest.late_until(newest):
            return 0
        until_ms = min(number * finest.step_ms, int(run.append_ms.min()) + FUTURE_MS)
        columns = run.slots, run.time_ms, run.birth_ms, run.cell, run.type
        cells = block.count, block.offset, block.last
        state = self.types.type_up, *self.incarnations.newest(), *cells
        done = compiled.add_plain(columns, state, (start_ms, until_ms, self.silent_ms()))
        if done:
            finest.mark_changed(number, self.slots.used)
        return done

    def settled_ms(self) -> int:
        """Return the time up to which `fold` may be used: no such sample is in an open row or opens one."""
        return min(ring.settled_ms(self.head_ms) for ring in self.rings if not ring.is_follower)

    def add_aggregate(self, folded: SortedAggregate, slots: Cells, some: Mask) -> None:
        """Add cells and incarnations of the series of the mask `some`, all up to `settled_ms`.
        slots: (series,) distinct where `some`, arbitrary elsewhere; `reset_silent` was called and types match."""
        for ring in self.rings:
            for number, part in folded.updates(ring.step_ms, slots, some):
                for capture in self.captures:
                    capture.before_apply(part.at, np.array([number * ring.step_ms]))
                ring.add_closed(number, part, self.slots.used)
        for doubles, first, last, once in folded.incarnations:
            for life in (first.select(some.take(first.series)), last.select(some.take(last.series))):
                n = len(life.series)
                add = self.incarnations.add if once else self.incarnations.add_batch
                bounds = TypeBounds(0, n) if doubles else TypeBounds(n, n)
                add(slots.take(life.series), life.birth_ms, life.time_ms, life.cell, bounds, self.strings)

    def maintain(self) -> bool:
        """Close or pack rows for a few ms if any are due; one call per run keeps up. False if nothing was due."""
        return any(ring.maintain(self.head_ms) for ring in self.rings)

    def bytes_used(self) -> int:
        """Estimate of the resident bytes of cells and per-slot state."""
        state = self.slots.used * _STATE_BYTES + self.slots.bytes() + self.incarnations.bytes() + self.strings.bytes()
        return sum(ring.bytes_used() for ring in self.rings) + state

    def _admitted(self, run: SampleRun, done: int, tally: OutcomeCounts) -> _AdmittedRows:
        """Select rows after the first `done` with a slot and a value that are neither future nor late for every level;
        store end markers."""
        append_ms = np.repeat(run.append_ms, run.batch_rows)
        rows = _AdmittedRows(run.slots, run.time_ms, run.birth_ms, run.type, run.cell, append_ms)
        if done:
            rows = rows.select(slice(done, None))
        ended = rows.type == ValueType.ENDED
        if ended.any():
            self._note_ends(rows.select(ended))
            rows = rows.select(~ended)
        lost = rows.slots == NO_SLOT
        if lost.any():
            tally.refused += int(lost.sum())
            rows = rows.select(~lost)
        future = self._future(rows)
        if future is not None:
            tally.future += int(future.sum())
            rows = rows.select(~future)
        late = self._late(rows, self.rings)
        if late is not None:
            tally.late += int(late.sum())
            rows = rows.select(~late)
        return rows

    @staticmethod
    def _future(rows: _AdmittedRows) -> Mask | None:
        """Mask of future rows; None if there are none."""
        if not len(rows) or int(rows.time_ms.max()) <= int(rows.append_ms.min()) + FUTURE_MS:
            return None
        return rows.time_ms > rows.append_ms + FUTURE_MS

    @staticmethod
    def _late(rows: _AdmittedRows, rings: Sequence[LevelRing]) -> Mask | None:
        """Mask of rows too old for every one of `rings`; None if there are none."""
        if not len(rows):
            return None
        newest, oldest = int(rows.append_ms.max()), int(rows.time_ms.min())
        if any(oldest > ring.late_until(newest) for ring in rings):
            return None
        limits = [ring.late_until_each(rows.append_ms) for ring in rings]
        late: Mask = rows.time_ms <= np.minimum.reduce(limits)
        return late

    def _note_ends(self, rows: _AdmittedRows) -> None:
        future = self._future(rows)
        usable = (rows.slots != NO_SLOT) & (rows.time_ms > self.silent_ms())
        if future is not None:
            usable &= ~future
        np.maximum.at(self._ended_ms, rows.slots[usable], rows.time_ms[usable])

    def _typed(self, rows: _AdmittedRows, run: SampleRun, tally: OutcomeCounts) -> tuple[_AdmittedRows, TypeBounds]:
        """Drop rows in type conflict, convert cells to the type of the series, order rows by class of type."""
        verdict = self.types.resolve(rows.slots, rows.type, rows.time_ms, run.distinct)
        if verdict is not None:
            if len(verdict.converted):
                self._to_double(verdict.converted)
            tally.conflicts += int(np.count_nonzero(~verdict.keep))
            rows = rows.select(verdict.keep)
            as_double = verdict.as_double[verdict.keep]
            rows.cell, rows.type = rows.cell.copy(), rows.type.copy()
            rows.cell[as_double] = rows.cell[as_double].astype(np.float64).view(np.int64)
            rows.type[as_double] = ValueType.DOUBLE
        rows, bounds = _order_by_type(rows)
        if bounds.doubles < len(rows):
            rows = self._interned(rows, bounds, run.strings, tally)
        return rows, bounds

    def _interned(
        self, rows: _AdmittedRows, bounds: TypeBounds, strings: Sequence[str], tally: OutcomeCounts
    ) -> _AdmittedRows:
        """Replace the cells of STRING rows by numbers of `texts`; drop rows without room for their string."""
        if self.strings.wants_sweep():
            self._sweep_strings()
        cells = rows.cell.copy()
        for i in range(bounds.doubles, len(cells)):
            cells[i] = self.strings.intern(strings[int(cells[i])])
        rows.cell = cells
        lost = np.zeros(len(cells), np.bool_)
        lost[bounds.doubles :] = cells[bounds.doubles :] == NO_STRING
        if not lost.any():
            return rows
        tally.refused += int(lost.sum())
        return rows.select(~lost)

    def _add(self, rows: _AdmittedRows, bounds: TypeBounds, distinct: bool) -> None:
        rest: tuple[_AdmittedRows, TypeBounds] | None = (
            None  # rows to add directly to the levels that follow the finest one
        )
        for ring in self.rings:
            if not ring.is_follower:
                direct = self._add_to(ring, rows, bounds, distinct)
                if ring is self.rings[0] and direct is not None and direct.any():
                    rest = rows.select(direct), bounds.select(direct)
            elif rest is not None:
                self._add_to(ring, *rest, distinct)
        lives = self.incarnations.add if distinct else self.incarnations.add_batch
        lives(rows.slots, rows.birth_ms, rows.time_ms, rows.cell, bounds, self.strings)

    def _add_to(self, ring: LevelRing, rows: _AdmittedRows, bounds: TypeBounds, distinct: bool) -> Mask | None:
        """Add the rows that are not late for a level; return a mask of those to add to its followers too."""
        late = self._late(rows, [ring])
        if late is None:
            return ring.add(LevelSamples(rows.slots, rows.time_ms, rows.cell, bounds, distinct), self.slots.used)
        direct = late.copy()
        if not late.all():
            mine = rows.select(~late)
            samples = LevelSamples(mine.slots, mine.time_ms, mine.cell, bounds.select(~late), distinct)
            closed = ring.add(samples, self.slots.used)
            if closed is not None:
                direct[~late] = closed
        return direct

    def _to_double(self, slots: Cells) -> None:
        self._before_change(slots)
        for ring in self.rings:
            ring.to_double(slots)
        self.incarnations.to_double(slots)

    def advance_head(self, append_ms: int) -> None:
        """Advance the head to the append time of a batch, or to the head of an import."""
        self.head_ms = max(self.head_ms, append_ms)
        # twice the time for which incarnations are shown, so that a late sample never restarts an incarnation that is
        # shown
        self.incarnations.expired_ms = (
            self.longest_ring.late_until(self.head_ms) - self.longest_ring.rows * self.longest_ring.step_ms
        )

    # silence

    def silent_ms(self) -> int:
        """Return the time floor of silence: a series without a sample or end marker later than this is forgotten.
        Its next sample starts from nothing. It was silent for longer than the longest level, by append time. Constant
        within a bucket of the longest level."""
        return self.longest_ring.late_until(self.head_ms) - SILENCE_BUCKETS * self.longest_ring.step_ms

    def silent(self, slots: Cells) -> Mask:
        """Mask (n,) of the slots that are silent, or never had a sample."""
        silent = self.incarnations.silent(slots, self.silent_ms())
        if silent.any():
            silent[silent] = self._ended_ms.take(slots[silent]) <= self.silent_ms()
        return silent

    def reset_silent(self, slots: Cells) -> None:
        """Clear those of these slots that are silent, before samples are added, so that results do not depend on the
        time at which a silent slot is freed. `slots` may include NO_SLOT."""
        floor = self.silent_ms()
        if self.incarnations.newest_lower_bound(slots) > floor:
            return
        slots = distinct(slots[slots != NO_SLOT])
        self.reset(slots[self.silent(slots)])

    def reset(self, slots: Cells) -> None:
        """Clear cells, types, incarnations and ends of these slots; the slots stay in use."""
        slots = slots[self.types.is_typed(slots) | (self._ended_ms.take(slots) != 0)]
        if not len(slots):
            return
        self._before_change(slots)
        newest = self._newest(slots)
        for ring in self.rings:
            numbers = ring.bucket_numbers_until(newest)
            if numbers:
                ring.clear(slots, set(numbers))
        self.types.forget(slots)
        self.incarnations.forget(slots)
        self._ended_ms[slots] = 0

    def _newest(self, slots: Cells) -> int:
        return int(self.incarnations.newest_ms(slots).max()) if len(slots) else 0

    def clear_one_row(self, slots: Cells) -> bool:
        """Clear the cells of silent slots in one row, so that `reset` has less to do. False if no row has any.
        Nearly always False, because rows that old belong to later buckets by now."""
        newest = self._newest(slots)
        for ring in self.rings:  # the finest first: others may still absorb its open rows
            for number in ring.bucket_numbers_until(newest):
                held = ring.read_row(number, slots, ("count",))
                if held is not None and held["count"].any():
                    self._before_change(slots)
                    ring.clear(slots, {number})
                    return True
        return False

    def forget(self, slots: Cells) -> None:
        """Clear and free distinct slots in use, after the index removed them."""
        self._before_change(slots)
        self.reset(slots)
        self.slots.free(slots)

    def _before_change(self, slots: Cells) -> None:
        for capture in self.captures:
            capture.before_change(slots)

    # snapshots

    def export_slots(self, slots: Cells) -> dict[str, npt.NDArray[Any]]:
        """Return the state of each slot: `fingerprint` uint64, `vshard`, `type` uint8 (NO_TYPE: none), `double_from`,
        `ended` int64, and for the current incarnation `known` bool, `birth`, `first`, `last_ms`, `last` int64 (a cell;
        for STRING series a number of `texts`)."""
        return {
            "fingerprint": self.slots.fingerprint.take(slots),
            "vshard": self.slots.vshard.take(slots),
            "ended": self._ended_ms.take(slots),
            **self.types.export(slots),
            **self.incarnations.export(slots),
        }

    def import_slots(self, slots: Cells, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the state of distinct slots by an `export_slots` whose `last` has numbers of this store's `texts`.
        past incarnations are removed: `incarnations.load_past` comes after this."""
        self._ended_ms[slots] = columns["ended"]
        self.types.load(slots, columns)
        self.incarnations.load(slots, columns)

    def _sweep_strings(self) -> None:
        slots = self.types.slots_of(ValueType.STRING, self.slots.used)
        held = set(self.incarnations.last_cells(slots))
        for ring in self.rings:
            held.update(distinct(ring.last_cells(slots)).tolist())
        self.strings.retain(held)

    def ring(self, step_ms: int) -> LevelRing | None:
        """Return the level of that step, None if there is none."""
        return next((ring for ring in self.rings if ring.step_ms == step_ms), None)

    def floor_ms(self) -> int:
        """Return the time at which a sample is late for every level; incarnations that ended by then are not shown."""
        return min(ring.late_until(self.head_ms) for ring in self.rings)

    def read_incarnations(self, slots: Cells) -> npt.NDArray[np.void]:
        """Return incarnations of these slots as BIRTH_TYPE; those that ended by `floor_ms` only if they are the
        newest."""
        return self.incarnations.read(slots, self.floor_ms())

    def ended_ms(self, slots: Cells) -> Cells:
        """Return (n,) times of the last end markers, 0 if a newer sample came."""
        ended = self._ended_ms.take(slots)
        rows = np.flatnonzero(ended)
        if len(rows):
            said = ended[rows]
            ended[rows] = np.where(said >= self.incarnations.newest_ms(slots[rows]), said, 0)
        return ended


def _order_by_type(rows: _AdmittedRows) -> tuple[_AdmittedRows, TypeBounds]:
    """Order rows by class of type; return them and the bounds of the classes."""
    if not len(rows):
        return rows, TypeBounds(0, 0)
    first = rows.type[0]
    if (rows.type == first).all():
        n = len(rows)
        if first == ValueType.DOUBLE:
            return rows, TypeBounds(0, n)
        return rows, TypeBounds(0, 0) if first == ValueType.STRING else TypeBounds(n, n)
    doubles, texts = rows.type == ValueType.DOUBLE, rows.type == ValueType.STRING
    ints = np.flatnonzero(~(doubles | texts))
    order = np.concatenate((ints, np.flatnonzero(doubles), np.flatnonzero(texts)))
    return rows.select(order), TypeBounds(len(ints), len(order) - int(np.count_nonzero(texts)))


__all__ = ["NO_TYPE", "BucketStore", "OutcomeCounts", "SampleRun"]
