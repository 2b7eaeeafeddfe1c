"""Selection of `Buckets` by matchers: series in columns, rows copied a few at a time under the store's lock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import perf_counter

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import is_whole_number
from artimon.compute.sample_order import Cells
from artimon.compute.statistics import FOLDS, STATISTICS, with_needs
from artimon.compute.true_sums import wrap_notes
from artimon.model.grid import Level
from artimon.model.select import NAME, Buckets, SelectError, SelectRequest, too_many_series
from artimon.model.series_table import SeriesTable
from artimon.model.values import ValueType
from varstore.cells.level_ring import LevelRing
from varstore.cells.locks import FairLock
from varstore.cells.open_block import copy_row
from varstore.index.label_index import LabelIndex
from varstore.index.slot_table import Fingerprints, Slots
from varstore.query.query_deadline import IsDisconnected, QueryDeadline, never_disconnected
from varstore.store.bucket_store import NO_TYPE, BucketStore

ANSWER_BYTES = 256 * 1024 * 1024
LOCK_HOLD_S = 0.003
"""Seconds for which the store's lock is held at a time, except to finish a row or a chunk of series."""
FEW_SERIES = 6
"""Read up to this many series cell by cell: 0.5 us a number, whereas a row takes about 20 us whatever its size."""
WARM_ROWS = 24
"""Number of rows that are read from disk together."""
CHUNK_SERIES = 16_384
"""Number of series whose lives are copied at a time."""
TRIES, SEARCHES = 3, 10
_STRING = int(ValueType.STRING)


class SeriesChanged(Exception):
    """Slots changed their series or types during the read: read again."""


def check_request(request: SelectRequest, levels: Sequence[Level], series: int = 1) -> None:
    """Raise SelectError unless a level has the grid's step and the answer takes at most ANSWER_BYTES."""
    grid = request.grid
    if not any(level.step_ms == grid.step_ms for level in levels):
        steps = ", ".join(f"{level.count} x {level.step_s} s" for level in levels)
        raise SelectError(f"no level has buckets of {grid.step_ms} ms: the levels are {steps}")
    if grid.end_ms % grid.step_ms:
        raise SelectError(f"the grid ends at {grid.end_ms} ms: use a multiple of its step of {grid.step_ms} ms")
    unknown = sorted(set(request.statistics) - set(STATISTICS))
    if unknown:
        raise SelectError(f"unknown statistic {unknown[0]!r}: use some of {', '.join(STATISTICS)}")
    size = series * grid.n * 8 * len(set(request.statistics))
    if size > ANSWER_BYTES:
        raise SelectError(
            f"{series} series x {grid.n} buckets x {len(request.statistics)} statistics are {size} bytes, "
            f"at most {ANSWER_BYTES} are allowed: ask for fewer"
        )


class BucketReader:
    """Answers selects of one shard. `cells` is the lock of the store, held for about HOLD_S at a time."""

    def __init__(self, store: BucketStore, index: LabelIndex, cells: FairLock) -> None:
        self._store, self._index, self._cells = store, index, cells

    def select(
        self, request: SelectRequest, levels: Sequence[Level], whose: str, gone: IsDisconnected = never_disconnected
    ) -> Buckets:
        """Return copies of the buckets of every announced series that fits; `whose` names the shard in errors.
        Raises SelectError, which names the limit or the levels, and CallerDisconnected once `gone` returns True."""
        check_request(request, levels)
        waiting = QueryDeadline(gone)
        for _ in range(SEARCHES):
            epoch = self._store.slots.epoch
            slots = self._index.select(request.matchers, request.vshards)
            if request.only is not None:
                only = np.array(request.only, np.uint64)
                slots = slots[np.isin(self._store.slots.fingerprint.take(slots), only)]
            if len(slots) > request.limit:
                raise too_many_series(len(slots), request.limit, whose)
            check_request(request, levels, len(slots))
            prints = self._store.slots.fingerprint.take(slots)
            if self._store.slots.epoch == epoch:
                try:
                    return self.buckets(request, slots, prints, waiting)
                except SeriesChanged:
                    continue
        raise SelectError(f"{whose} cannot answer: series changed during every attempt to read them, try again")

    def buckets(self, request: SelectRequest, slots: Slots, prints: Fingerprints, waiting: QueryDeadline) -> Buckets:
        """Return the buckets of these series, which had these slots. Raises SeriesChanged if a slot has another by
        now."""
        ring = self._store.ring(request.grid.step_ms)
        if ring is None:
            raise SelectError(f"no level has buckets of {request.grid.step_ms} ms")
        for _ in range(TRIES):
            with self._cells:
                types = self._store.types.types_of(slots)
            read = self._rows(ring, request, slots, waiting)
            births, newest, ended = self._incarnations(slots, waiting)
            strings: tuple[str, ...] = ()
            with self._cells:
                if not self._store.slots.holds(slots, prints).all():
                    raise SeriesChanged
                if (types == _STRING).any():
                    strings = self._strings(ring, request, slots, types == _STRING, read, births)
                same = np.array_equal(types, self._store.types.types_of(slots))
            if same:
                break
        else:
            raise SeriesChanged
        series = self._series(slots, prints, types)
        return Buckets(
            request.grid,
            series,
            {name: read[name].T for name in request.statistics},
            strings,
            births,
            ended,
            newest,
            _sum_notes(series, read) if "sum" in request.statistics else (),
        )

    def _series(self, slots: Slots, prints: Fingerprints, types: npt.NDArray[np.uint8]) -> SeriesTable:
        """Make the table of series, typed by their samples, or as announced if there are none."""
        own = np.where(types == NO_TYPE, self._index.types(slots), types).astype(np.uint8)
        labels = [NAME, *self._index.labels_of(slots)]
        columns = {label: self._index.codes(label, slots) for label in labels}
        return SeriesTable(prints, own, self._index.kinds(slots), columns)

    def _rows(self, ring: LevelRing, request: SelectRequest, slots: Slots, waiting: QueryDeadline) -> dict[str, Cells]:
        """Return each statistic and those it needs as (grid.n, slots), zero where count is zero."""
        grid = request.grid
        names = with_needs(request.statistics)
        out = {name: np.zeros((grid.n, len(slots)), np.int64) for name in names}
        if not len(slots):
            return out
        first, at = grid.start_ms // grid.step_ms + 1, 0
        _warm(ring, range(first, first + grid.n), slots, names, waiting)
        if len(slots) <= FEW_SERIES:
            with self._cells:
                ring.read_cells(slots, first, out)
            return out
        chosen = ring.selection(slots)
        while at < grid.n:
            waiting.check()
            with self._cells:
                began = perf_counter()
                while at < grid.n and perf_counter() - began < LOCK_HOLD_S:
                    copy_row(ring.read_row(first + at, chosen, names), out, at)
                    at += 1
        return out

    def _incarnations(self, slots: Slots, waiting: QueryDeadline) -> tuple[npt.NDArray[np.void], Cells, Cells]:
        """Return incarnations, times of the newest samples, and times of end markers."""
        births, newest, ended = list[npt.NDArray[np.void]](), list[Cells](), list[Cells]()
        for start in range(0, max(1, len(slots)), CHUNK_SERIES):
            part = slots[start : start + CHUNK_SERIES]
            waiting.check()
            with self._cells:
                births.append(self._store.read_incarnations(part))
                newest.append(self._store.incarnations.newest_ms(part))
                ended.append(self._store.ended_ms(part))
            births[-1]["row"] += start
        return np.concatenate(births), np.concatenate(newest), np.concatenate(ended)

    def _strings(
        self,
        ring: LevelRing,
        request: SelectRequest,
        slots: Slots,
        is_text: npt.NDArray[np.bool_],
        read: dict[str, Cells],
        births: npt.NDArray[np.void],
    ) -> tuple[str, ...]:
        """Read the cells of STRING series again and replace them by indexes into the returned strings.
        Call with the lock held: numbers of strings are reused, so all must be read at the same moment."""
        texts = np.flatnonzero(is_text)
        held = ring.read(slots[texts], request.grid, {"count", "last"})
        read["count"][:, texts] = held["count"]
        own = self._store.read_incarnations(slots[texts])
        alive = np.isin(births["row"], texts)
        if len(own) != int(alive.sum()):
            raise SeriesChanged
        some, last = held["count"] > 0, own["last"]
        ids = np.unique(np.concatenate([last, held["last"][some]]))
        births["last"][alive] = np.searchsorted(ids, last)
        if "last" in read:
            read["last"][:, texts] = np.where(some, np.searchsorted(ids, held["last"]), 0)
        for name in FOLDS.keys() & read.keys():  # strings have no folded statistics
            read[name][:, texts] = 0
        return tuple(self._store.strings[id] for id in ids.tolist())


def _warm(ring: LevelRing, numbers: range, slots: Slots, names: Collection[str], waiting: QueryDeadline) -> None:
    """Read what these buckets have on disk into the page cache, some rows at a time."""
    if not ring.is_follower:
        return
    chosen = ring.selection(slots)
    for at in range(0, len(numbers), WARM_ROWS):
        waiting.check()
        ring.warm(numbers[at : at + WARM_ROWS], chosen, names)


def _sum_notes(series: SeriesTable, read: dict[str, Cells]) -> tuple[str, ...]:
    stats = {name: matrix.T for name, matrix in read.items()}
    return wrap_notes(stats, is_whole_number(series.types), lambda row: series[row].name)
