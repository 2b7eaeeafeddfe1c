"""Rows of the raw table into a shard: aggregated to cells where possible, with one hold of the lock for each piece.

The table does not record the append time of each row. It is not needed: a level that takes a row at the append time
of the newest batch took it at any earlier time. So every row is compared with that time only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from artimon.model.value_traits import TRAITS, VALUE_COLUMNS
from artimon.model.values import CellContent, ValueType
from varstore.cells.open_block import CELL_BYTES
from varstore.cells.slot_segments import SEGMENT
from varstore.cells.sorted_aggregate import SortedAggregate, SortedRows, mask_aggregatable
from varstore.index.slot_table import NO_SLOT
from varstore.shard.shard import Shard
from varstore.store.bucket_store import BucketStore, SampleRun

RUN_ROWS = 32_768
BATCH_ROWS = 131_072
MAX_PIECE_SERIES = 16_384
"""Maximum number of series in one hold of the lock."""
COLUMNS = ("source", "series", "time", "birth", *VALUE_COLUMNS)
SAMPLES_PER_HOUR = 60
"""Least samples of a series: gives an estimate of the number of series before they are known."""
SEGMENT_BYTES = CELL_BYTES * SEGMENT
BUDGET_BYTES = 1 << 30
LENGTHS_MS = tuple(minutes * 60_000 for minutes in (1440, 720, 480, 240, 120, 60, 30, 15, 10, 5))
_ENDED = int(ValueType.ENDED)

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class TablePeriod(NamedTuple):
    """A partition of the table, by append time."""

    name: str
    start_ms: int
    end_ms: int
    rows: int


class Target(NamedTuple):
    """A level that is filled."""

    step_ms: int
    floor_ms: int
    """Samples at or before this time are too old for the level."""
    segment_bytes: int
    """Bytes of one open segment."""

    def rows(self, after_ms: int, until_ms: int) -> int:
        """Return the number of buckets with samples later than `after_ms`, up to `until_ms`."""
        after_ms = max(after_ms, self.floor_ms)
        return max(0, -(-until_ms // self.step_ms) + (-(after_ms + 1) // self.step_ms) + 1)


class Slice(NamedTuple):
    """Samples later than `after_ms`, up to `until_ms` (None: no limit)."""

    after_ms: int
    until_ms: int | None
    open: tuple[int, ...]
    """Segments of each level that are open meanwhile."""


def plan(start_ms: int, end_ms: int, floor_ms: int, targets: Sequence[Target], segments: int) -> list[Slice]:
    """Return the time slices in which a period is applied, so that open cells fit in memory. The table is sorted by
    series and a level by time, so a day read in one pass would open every segment of every row. They are of samples
    appended in [start, end) and later than `floor_ms`, newest first. The first also takes later samples, the last
    earlier ones. `segments`: number in each row."""
    start_ms = max(start_ms, floor_ms)
    for length in LENGTHS_MS:
        edges = [*range(end_ms, start_ms, -length), start_ms]
        spans = [(after, until) for until, after in pairwise(edges)] or [(floor_ms, end_ms)]
        rows = [tuple(target.rows(*span) for target in targets) for span in spans]
        worst = max(sum(n * target.segment_bytes for n, target in zip(one, targets, strict=True)) for one in rows)
        if worst * segments <= BUDGET_BYTES or length == LENGTHS_MS[-1]:
            break
    last = len(spans) - 1
    return [
        Slice(
            after if i < last else floor_ms, until if i else None, tuple((n + 1) * segments for n in rows[i])
        )  # one more row: the previous period ended inside a bucket
        for i, (after, until) in enumerate(spans)
    ]


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


class RawRowLoader:
    """Applies rows of the table, from one thread: `begin` a slice, `apply` its batches; `close` at the end."""

    def __init__(self, shard: Shard, sources: Mapping[int, int], append_ms: int) -> None:
        self._shard, self._append_ms = shard, append_ms
        self._store = shard.ownership.store
        self._vshards = np.full(max(sources, default=0) + 1, -1, np.int64)
        for id_, vshard in sources.items():
            self._vshards[id_] = vshard
        with shard.cells:
            self._store.advance_head(append_ms)
        rings = self._store.rings
        self._floors = [ring.late_until(append_ms) for ring in rings]
        self._steps = [ring.step_ms for ring in rings]
        self._targets = [Target(*one, SEGMENT_BYTES) for one in zip(self._steps, self._floors, strict=True)]
        self.floor_ms = min(self._floors)
        """Rows at or before this time are too old for every level."""
        self._source_filter = pc.field("source").isin(pa.array(sorted(sources), pa.int32()))

    # slices

    def slices(self, period: TablePeriod) -> list[Slice]:
        """Return the slices of a period, newest first."""
        table = self._store.slots
        series = min(table.size, max(table.used, period.rows // SAMPLES_PER_HOUR))
        return plan(period.start_ms, period.end_ms, self.floor_ms, self._targets, -(-series // SEGMENT))

    def filter_of(self, slice_: Slice) -> Any:
        later = pc.field("time") > _time(slice_.after_ms)
        until = later if slice_.until_ms is None else later & (pc.field("time") <= _time(slice_.until_ms))
        return self._source_filter & until & ~pc.field("future")

    def begin_slice(self, slice_: Slice) -> None:
        """Begin a slice: segments that are written to stay open until the next one."""
        self._pack()
        with self._shard.cells:
            for ring, count in zip(self._store.rings, slice_.open, strict=True):
                ring.set_unpacked_allowance(count)

    def close(self) -> None:
        """Pack all segments after the last slice."""
        with self._shard.cells:
            for ring in self._store.rings:
                ring.set_unpacked_allowance(0)
        self._pack()

    def _pack(self) -> None:
        for ring in self._store.rings:
            more = True
            while more:
                with self._shard.cells:  # held for a few ms
                    more = ring.pack_one()

    # rows

    def apply(self, batch: Any) -> None:
        """Apply rows sorted by (source, series, time): those of settled buckets are aggregated to cells first, the rest
        is applied row by row."""
        if not len(batch):
            return
        columns = _StoreRows.of(batch, self._vshards)
        fine = int(columns.rows.time_ms.max()) > self._floors[0]  # nearly one cell for each sample
        for piece in columns.pieces(RUN_ROWS if fine else BATCH_ROWS):
            self._aggregate(piece)

    def _aggregate(self, columns: _StoreRows) -> None:
        with self._shard.cells:
            settled_ms = self._store.settled_ms()
        rows = columns.rows
        keep, good = mask_aggregatable(rows, settled_ms)
        if keep.any():
            good &= np.logical_or.reduceat(keep, rows.starts)
            folded = SortedAggregate(rows, keep, self._steps, self._floors)
            with self._shard.cells:
                keep &= np.repeat(self._add_aggregate(columns, folded, good), rows.counts)
        rest = np.flatnonzero(~keep)
        for first in range(0, len(rest), RUN_ROWS):
            self._apply(columns, rest[first : first + RUN_ROWS])

    def _add_aggregate(self, columns: _StoreRows, folded: SortedAggregate, good: Mask) -> Mask:
        """Add the cells of good series; return the mask of finished series. Call with the lock of cells."""
        rows, types = columns.rows, self._store.types
        slots = _slots(self._store, columns.fingerprints[rows.starts], columns.vshards[rows.starts])
        refused = slots == NO_SLOT
        good = good & ~refused
        ordered = np.sort(slots[good])
        twice = ordered[1:][ordered[1:] == ordered[:-1]]  # series reported by two sources of one virtual shard
        if len(twice):
            good &= ~np.isin(slots, twice)
        self._store.reset_silent(slots[good])
        type_, time_ms = rows.type[rows.starts], rows.time_ms[rows.starts]
        fresh = np.flatnonzero(good & ~types.is_typed(slots))
        if len(fresh):
            types.resolve(slots[fresh], type_[fresh], time_ms[fresh], True)
        good &= types.types_of(slots) == type_
        if good.any():
            self._store.add_aggregate(folded, slots, good)
        done: Mask = good | refused
        return done

    def _apply(self, columns: _StoreRows, at: Ints) -> None:
        """Apply the rows `at` as one run."""
        rows = columns.rows
        time_ms, types = rows.time_ms[at], rows.type[at]
        with self._shard.cells:
            slots = _slots(self._store, columns.fingerprints[at], columns.vshards[at])
            self._store.reset_silent(slots)
            _set_types(self._store, slots, types, time_ms)
            append, count = (np.array([one], np.int64) for one in (self._append_ms, len(slots)))
            run = SampleRun(
                slots, time_ms, rows.birth_ms[at], types, rows.cell[at], append, count, False, columns.strings
            )
            self._store.apply(run)


@dataclass(slots=True)
class _StoreRows:
    """Rows of the table in the form of the store."""

    rows: SortedRows
    fingerprints: npt.NDArray[np.uint64]
    vshards: Ints
    strings: list[str]
    """Texts of STRING rows, whose cells are indices into it."""

    @classmethod
    def of(cls, batch: Any, vshards: Ints) -> _StoreRows:
        """`vshards`: virtual shard of each source, by its number."""
        columns = {name: batch.column(name) for name in COLUMNS}
        source, series = columns["source"].to_numpy(), columns["series"].to_numpy()
        begins = np.ones(len(series), np.bool_)
        begins[1:] = (series[1:] != series[:-1]) | (source[1:] != source[:-1])
        types, cells, strings = _values(columns)
        time_ms, birth_ms = _milliseconds(columns["time"]), _milliseconds(columns["birth"])
        rows = SortedRows(time_ms, birth_ms, types, cells, np.flatnonzero(begins))
        return cls(rows, series.view(np.uint64), vshards.take(source), strings)

    def pieces(self, most_rows: int) -> Iterator[_StoreRows]:
        """Yield pieces of about MOST_SERIES series, or fewer."""
        n = len(self.fingerprints)
        size = max(1, min(most_rows, n * MAX_PIECE_SERIES // max(1, len(self.rows.starts))))
        return (self._part(first, min(first + size, n)) for first in range(0, n, size))

    def _part(self, first: int, last: int) -> _StoreRows:
        at, rows = slice(first, last), self.rows
        a, b = np.searchsorted(rows.starts, [first, last])
        starts = rows.starts[a:b] - first
        if not len(starts) or starts[0]:
            starts = np.insert(starts, 0, 0)
        part = SortedRows(rows.time_ms[at], rows.birth_ms[at], rows.type[at], rows.cell[at], starts)
        return _StoreRows(part, self.fingerprints[at], self.vshards[at], self.strings)


def _milliseconds(column: Any) -> Ints:
    whole: Ints = column.cast(pa.timestamp("us", tz="UTC")).view(pa.int64()).to_numpy() // 1000
    return whole


def _values(columns: Mapping[str, Any]) -> tuple[npt.NDArray[np.uint8], Ints, list[str]]:
    """Return type and cell of each row, and the strings that cells point to."""
    n = len(columns["series"])
    types, cells = np.full(n, _ENDED, np.uint8), np.zeros(n, np.int64)
    strings: list[str] = []
    for traits in TRAITS.values():
        column = columns[traits.column]
        if column.null_count == n:
            continue
        there = column.is_valid().to_numpy(zero_copy_only=False)
        types[there] = int(traits.type)
        if traits.content is CellContent.TEXT:
            coded = column.drop_null().dictionary_encode()
            strings = coded.dictionary.to_pylist()
            cells[there] = coded.indices.to_numpy()
        elif traits.content is CellContent.FLAG:
            cells |= column.fill_null(False).to_numpy(zero_copy_only=False)
        else:  # zero where null, so that columns can be combined by OR
            cells |= column.fill_null(0).to_numpy().view(np.int64)
    return types, cells, strings


def _slots(store: BucketStore, prints: npt.NDArray[np.uint64], vshards: Ints) -> Ints:
    """Return the slots, created if absent; rows of one source are contiguous."""
    slots = np.full(len(prints), NO_SLOT, np.int64)
    edges = np.flatnonzero(np.diff(vshards)) + 1
    for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(prints)], strict=True):
        slots[start:end] = store.slots.add(prints[start:end], int(vshards[start]))
    return slots


def _set_types(store: BucketStore, slots: Ints, types: npt.NDArray[np.uint8], time_ms: Ints) -> None:
    """Give series without a type that of their first row here, so that the run need not be judged row by row."""
    usable = np.flatnonzero((slots != NO_SLOT) & (types != _ENDED))
    _, first = np.unique(slots[usable], return_index=True)
    rows = usable[first]
    rows = rows[~store.types.is_typed(slots[rows])]
    if len(rows):
        store.types.resolve(slots[rows], types[rows], time_ms[rows], True)
