"""Accumulator of pieces: arrays of (series, buckets), as an engine answers them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.arrays import picked_lives
from artimon.compute.cells import is_whole_number
from artimon.compute.kernels import BlockRows, kernels
from artimon.compute.sample_order import rank
from artimon.compute.statistics import FOLDS, bits_of, join_cells, to_double, with_needs
from artimon.compute.succession import normalize_incarnations
from artimon.compute.true_sums import wrap_notes
from artimon.model.grid import Grid
from artimon.model.import_chunk import UNKNOWN_START_MS
from artimon.model.select import INCARNATION_DTYPE, Buckets, SelectRequest
from artimon.model.series_table import SeriesTable
from artimon.rawtable.rollup_rows import RollupRows
from query_dsl.stores.partial_buckets import (
    INCARNATION_FIELDS,
    PartialBuckets,
    SparseBuckets,
    merge_incarnations,
    newest_ends,
    renumber_texts,
    without_series,
)
from query_dsl.stores.rollup_blocks import RollupBlock
from query_dsl.stores.sample_rows import DOUBLE, ENDED, INTEGER, NO_TYPE, STRING, Bools, Ints, Types

MAX_INCARNATIONS = 5_000
"""Maximum number of lives per series, as in shards: the oldest are left out, with a note."""


COLUMNS = 8
"""Columns that are searched at a time: they stay in the cache of the processor."""
STRIPES = 2
"""Parts of the series, by their order in the answer: as many threads merge blocks at a time."""


class BucketAccumulator:
    """Buckets, incarnations and ends of one selection of `rows` series. Threads may add to it. `_stripes` guard what is
    kept by series, each of its part; `_lock`, taken before them, guards the rest.

    `_flat` has a matrix (columns, series) per statistic, the layout of shards, its series already in the order of the
    answer: that of series `row` is `_place[row]`. The incarnation that was added first for a series is in `_first`;
    others are in `_incarnations`."""

    def __init__(self, rows: int, grid: Grid, statistics: Collection[str], order: Ints | None = None) -> None:
        """`order`: series of each row of the answer; None: as numbered."""
        self._rows, self._grid, self._order = rows, grid, order
        self._place = np.arange(rows, dtype=np.int64)
        if order is not None:
            self._place[order] = np.arange(rows)
        wanted = with_needs(statistics)
        wanted |= {"last_time"} if "last" in wanted else set()
        self._flat = {name: np.zeros(rows * grid.n, np.int64) for name in sorted(wanted)}
        self._types: Types = np.full(rows, NO_TYPE, np.uint8)
        self._newest, self._ended = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._first = {name: np.zeros(rows, np.int64) for name in INCARNATION_FIELDS[1:]}
        self._begun = np.zeros(rows, np.uint8)
        self._incarnations = [np.zeros(0, INCARNATION_DTYPE)]
        self._added = self._merged = 0
        self._texts: list[str] = []
        self._text_index: dict[str, int] = {}
        self.mixed: set[int] = set()
        """Series of more than one type: their data is incomplete until `put_back`."""
        self.replaced = False
        """True if data of a series was replaced."""
        self.samples = 0
        self._last_order: tuple[Ints, Ints, Ints, Ints, list[int]] | None = None
        """Arguments and result of the last `_in_order`."""
        self._lock, self._stripes = threading.Lock(), [threading.Lock() for _ in range(STRIPES)]
        self._turns = count()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with ExitStack() as held:
            for lock in (self._lock, *self._stripes):
                held.enter_context(lock)
            yield

    def add(self, piece: PartialBuckets) -> None:
        """Merge a piece; pieces may come in any order."""
        with self._alone():
            self._add(piece)

    def _add(self, piece: PartialBuckets) -> None:
        self.samples += piece.samples
        self.mixed.update(piece.mixed.tolist())
        piece = self._of_one_type(piece)
        if piece.strings:
            piece = renumber_texts(piece, np.array([self._intern(text) for text in piece.strings], np.int64))
        self._types[piece.rows] = piece.types
        self._newest[piece.rows] = np.maximum(self._newest[piece.rows], piece.newest_ms)
        rows, times = piece.ended
        self._ended[rows] = np.maximum(self._ended[rows], times)
        self._merge_buckets(piece.buckets, piece.bucket_types())
        self._add_incarnations(piece.incarnations)

    def add_rows(self, rows: RollupRows) -> int | None:
        """Merge rows of roll-ups, whose buckets nest in those of the grid, with the result of `add` of their piece.
        Return their number; None: nothing was merged; only `add` can: there are texts, series of several types, or no
        kernels."""
        if (rows.type == STRING).any():
            return None
        over = rows.type == ENDED
        valued = rows.select(~over) if over.any() else rows
        stats = valued.stats
        columns = (valued.series, valued.end_ms, valued.birth_ms, valued.first_ms, stats["last_time"], stats["count"])
        folds = (stats["last"], *(stats[name] for name in FOLDS), valued.type)
        with self._alone():
            if not self._merge_rows([np.ascontiguousarray(column) for column in (*columns, *folds)]):
                return None
            if over.any():
                ended, times = newest_ends(rows.series[over], rows.stats["last_time"][over])
                self._ended[ended] = np.maximum(self._ended[ended], times)
        return len(valued)

    def add_block(self, block: RollupBlock, pairs: Ints, row_of: Ints, after_ms: int, until_ms: int) -> int | None:
        """Merge the rows of a block whose buckets end in (after, until], with the result of `add` of their piece, and
        whose run has a pair, of the series `row_of` it; -1: none. Return the number of rows; None: nothing was merged;
        only `add` can."""
        compiled = kernels()
        with self._lock:
            if compiled is None or self.mixed or self._flat.keys() & FOLDS.keys() - block.folds.keys():
                return None
            runs, rows, cuts = self._in_order(pairs, row_of)
            wanted = BlockRows(
                (runs, rows),
                (block.begin, block.birth_ms, block.types, block.rows, *(block.folds.get(name) for name in FOLDS)),
                (self._grid.start_ms, self._grid.step_ms, self._grid.n),
                (after_ms, until_ms, block.base_ms),
            )
            if not compiled.enter_types(wanted, self._types, int(NO_TYPE)):
                return None
            first = next(self._turns)
        merged, spilled = 0, []
        for turn in range(first, first + STRIPES):  # threads begin with different ones
            part = wanted.part(slice(*cuts[turn % STRIPES :][:2]))
            others = np.empty((len(part.chosen[0]), len(INCARNATION_FIELDS)), np.int64)
            with self._stripes[turn % STRIPES]:
                held = *self._kernel_lives(others), self._ended
                spills, added = compiled.add_block(part, self._kernel_matrices(), held)
            merged += added
            spilled.append(others[:spills])
        with self._lock:
            self.samples += merged
            full = self._append_incarnations(_as_incarnations(np.concatenate(spilled)))
        if full:
            with self._alone():
                self._merge_incarnations()
        return merged

    def _in_order(self, pairs: Ints, row_of: Ints) -> tuple[Ints, Ints, list[int]]:
        """Return the runs that have a pair, and their series, in the order of the answer: neighbours then share cache
        lines of the matrices; and where the runs of each stripe begin, and the last ends. Files of one source have
        mostly the same runs, so the last order is kept."""
        known = self._last_order
        if known is None or known[0] is not row_of or not np.array_equal(known[1], pairs):
            runs = np.flatnonzero(pairs >= 0)
            rows = row_of[pairs[runs]]
            places = self._place[rows]
            order = np.argsort(places, kind="stable")
            borders = np.arange(STRIPES + 1) * self._rows // STRIPES
            cuts = np.searchsorted(places[order], borders).tolist()
            self._last_order = known = row_of, pairs, runs[order], rows[order], cuts
        return known[2], known[3], known[4]

    def _merge_rows(self, columns: Sequence[Any]) -> bool:
        """Merge columns as the kernel takes them; False if it cannot."""
        compiled = kernels()
        if compiled is None or self.mixed:
            return False
        others = np.empty((len(columns[0]), len(INCARNATION_FIELDS)), np.int64)
        grid = self._grid.start_ms, self._grid.step_ms, self._grid.n
        lives = self._kernel_lives(others)
        count = compiled.add_rollups(columns, self._kernel_matrices(), lives, grid, int(NO_TYPE))
        if count < 0:
            return False
        self.samples += len(columns[0])
        self._add_incarnations(_as_incarnations(others[:count]))
        return True

    def _kernel_matrices(self) -> list[Ints | None]:
        return [self._flat.get(name) for name in ("count", "last", "last_time", *FOLDS)]

    def _kernel_lives(self, others: Ints) -> tuple[npt.NDArray[Any], ...]:
        return self._types, self._newest, self._place, self._begun, *self._first.values(), others

    def _add_incarnations(self, lives: npt.NDArray[np.void]) -> None:
        if self._append_incarnations(lives):
            self._merge_incarnations()

    def _append_incarnations(self, lives: npt.NDArray[np.void]) -> bool:
        """Append incarnations; True if so many were appended that they are to be merged."""
        if len(lives):
            self._incarnations.append(lives)
            self._added += len(lives)
        return self._added > 2 * self._merged + 100_000

    def opening(self) -> tuple[Ints, Ints]:
        """Series and columns of the opening buckets, see SelectRequest, in the order of the columns."""
        counts = self._flat["count"].reshape(self._grid.n, self._rows)
        columns, places = [], []
        for at in range(0, self._grid.n, COLUMNS):
            opening = counts[at : at + COLUMNS] > 1
            before = max(at - 1, 0)
            after = opening[before + 1 - at :]  # the first column has none before it
            after &= counts[before : before + len(after)] == 0
            if opening.any():
                some = np.nonzero(opening)
                columns.append(some[0] + at)
                places.append(some[1])
        if not columns:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.argsort(self._place)[np.concatenate(places)], np.concatenate(columns)

    def take_least(self, other: BucketAccumulator, rows: Ints, columns: Ints) -> None:
        """Take `min` of some buckets from an accumulator of the same series, whose grid is a part of this one."""
        first = (other._grid.start_ms - self._grid.start_ms) // self._grid.step_ms
        places = self._place[rows]
        least = self._flat.setdefault("min", np.zeros(self._rows * self._grid.n, np.int64))
        least[columns * self._rows + places] = other._flat["min"][(columns - first) * self._rows + places]

    def ended(self) -> Ints:
        """Series with an end that no known sample follows."""
        return np.flatnonzero((self._ended > 0) & (self._ended >= self._newest))

    def add_later(self, rows: Ints, newest_ms: Ints) -> None:
        """Enter times of samples after the grid, and their series."""
        np.maximum.at(self._newest, rows, newest_ms)

    def maybe_overlapping(self, several: Bools) -> Ints:
        """Series of several sources (mask `several`) of which an incarnation may have begun on the grid. Samples before
        and after the grid show whether it overlaps with another incarnation."""
        self._merge_incarnations()
        lives = self._incarnations[0]
        begun = lives["birth_ms"] > self._grid.start_ms
        begun[1:] |= lives["row"][1:] == lives["row"][:-1]
        rows: Ints = np.unique(lives["row"][begun & several[lives["row"]]]).astype(np.int64)
        return rows

    def replace(self, piece: PartialBuckets, rows: Ints | None = None) -> None:
        """Replace the data of these series (default: `mixed`) by a piece made of all their samples."""
        rows = np.array(sorted(self.mixed), np.int64) if rows is None else rows
        self.replaced |= len(rows) > 0
        for matrix in self._flat.values():
            matrix.reshape(self._grid.n, self._rows)[:, self._place[rows]] = 0
        self._types[rows], self._newest[rows], self._ended[rows], self._begun[rows] = NO_TYPE, 0, 0, 0
        self._incarnations = [lives[~np.isin(lives["row"], rows)] for lives in self._incarnations]
        self.mixed.difference_update(rows.tolist())
        samples = self.samples
        self._add(piece)
        self.samples = samples

    def _of_one_type(self, piece: PartialBuckets) -> PartialBuckets:
        held = self._types[piece.rows]
        self.mixed.update(piece.rows[(held != NO_TYPE) & (held != piece.types)].tolist())
        if not self.mixed:
            return piece
        return without_series(piece, np.array(sorted(self.mixed), np.int64))

    def _intern(self, text: str) -> int:
        number = self._text_index.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number

    def _merge_buckets(self, cuts: SparseBuckets, kinds: Types) -> None:
        stats, flat = cuts.stats, self._flat
        row, column = np.divmod(cuts.at, self._grid.n)
        at = column * self._rows + self._place[row]
        before = flat["count"][at]
        there = before > 0
        flat["count"][at] = before + stats["count"]
        if "last_time" in flat:
            later = ~there | self._later(at, cuts, kinds, there)
            for name in {"last_time", "last"} & flat.keys():
                flat[name][at[later]] = stats[name][later]
        double = bits_of(kinds == DOUBLE)
        for name, fold in FOLDS.items():
            if name in flat:
                new = stats[name]
                if there.any():
                    new = np.where(there, join_cells(fold, flat[name][at], new, double), new)
                flat[name][at] = new

    def _later(self, at: Ints, cuts: SparseBuckets, kinds: Types, there: Bools) -> Bools:
        times, new = self._flat["last_time"][at], cuts.stats["last_time"]
        later = there & (new > times)
        tied = np.flatnonzero(there & (new == times))
        if len(tied) and "last" in self._flat:
            lasts = cuts.stats["last"], self._flat["last"][at]
            ranks = [self._ranks(cells[tied], kinds[tied]) for cells in lasts]
            later[tied] = ranks[0] > ranks[1]
        return np.asarray(later)

    def _ranks(self, cells: Ints, kinds: Types) -> Ints:
        ranks = rank(cells, kinds == DOUBLE)
        text = kinds == STRING
        if text.any():
            place = np.argsort(np.argsort(np.array(self._texts, object)))
            ranks = np.where(text, place[np.where(text, cells, 0)], ranks)
        return ranks

    def _merge_incarnations(self) -> None:
        rows = np.flatnonzero(self._begun)
        if not len(rows) and len(self._incarnations) == 1:
            return
        first = np.empty(len(rows), INCARNATION_DTYPE)
        first["row"] = rows
        for name, column in self._first.items():
            first[name] = column[rows]
        self._begun[:] = 0
        if not sum(map(len, self._incarnations)):
            self._incarnations = [first]
            self._added = self._merged = len(first)
            return
        lives = np.concatenate([first, *self._incarnations])
        text = (self._types == STRING)[lives["row"]] if len(lives) else np.zeros(0, np.bool_)
        if text.any():  # ties are ordered by text
            place = np.argsort(np.argsort(np.array(self._texts, object))).astype(np.int64)
            back = np.argsort(place)
            lives["last"][text] = place[lives["last"][text]]
            lives = merge_incarnations(lives, self._types == DOUBLE)
            text = (self._types == STRING)[lives["row"]]
            lives["last"][text] = back[lives["last"][text]]
        else:
            lives = merge_incarnations(lives, self._types == DOUBLE)
        self._incarnations = [lives]
        self._added = self._merged = len(lives)

    def buckets(self, request: SelectRequest, series: SeriesTable, notes: tuple[str, ...] = ()) -> Buckets:
        """Return the answer. `series` has the announced types: a series without samples has that type, and INTEGER
        samples of a series that was later announced as DOUBLE become doubles, as in a shard."""
        self._merge_incarnations()
        announced = series.types
        types = np.where(self._types == NO_TYPE, announced, self._types).astype(np.uint8)
        late = np.flatnonzero((self._types == INTEGER) & (announced == DOUBLE))
        lives, dropped = _newest_incarnations(normalize_incarnations(self._incarnations[0]), self._rows)
        if len(late):
            self._to_double(late, lives)
            types[late] = DOUBLE
        held = self._matrices()
        more: tuple[str, ...] = (
            (f"{dropped:,} incarnations of series with more than {MAX_INCARNATIONS:,} are left out",) if dropped else ()
        )
        made = SeriesTable(series.fingerprints, types, series.kinds, series.columns)
        ended, newest = np.where(self._ended >= self._newest, self._ended, 0), self._newest
        if self._order is not None:
            made, ended, newest = made.take(self._order), ended[self._order], newest[self._order]
            lives = picked_lives(lives, self._order, self._rows)
        if seams := _count_seams(self._incarnations[0]):
            more += (
                f"{seams:,} series have counts of unknown start after counts of known start, from files or sources that"
                " do not know each other: an increase from one to the other may be wrong",
            )
        if "sum" in request.statistics:
            more += wrap_notes(held, is_whole_number(made.types), lambda row: made[row].name)
        return Buckets(
            request.grid,
            made,
            {name: held[name] for name in request.statistics},
            tuple(self._texts),
            lives,
            ended,
            newest,
            (*notes, *more),
        )

    def _matrices(self) -> dict[str, Ints]:
        """Return the statistics as (series, columns), in the order of the answer, without a copy."""
        shape = (self._grid.n, self._rows)
        return {name: matrix.reshape(shape).T for name, matrix in self._flat.items()}

    def _to_double(self, rows: Ints, lives: npt.NDArray[np.void]) -> None:
        held, places = self._matrices(), self._place[rows]
        for name, cells in to_double({name: matrix[places] for name, matrix in held.items()}).items():
            held[name][places] = cells
        mine = np.isin(lives["row"], rows)
        lives["last"][mine] = lives["last"][mine].astype(np.float64).view(np.int64)


def _as_incarnations(words: Ints) -> npt.NDArray[np.void]:
    """Return rows of five words as incarnations in memory of their own."""
    return words.copy().view(INCARNATION_DTYPE).reshape(-1)


def _newest_incarnations(lives: npt.NDArray[np.void], rows: int) -> tuple[npt.NDArray[np.void], int]:
    """Keep the newest MAX_INCARNATIONS incarnations of each series; also return the number left out."""
    many = np.bincount(lives["row"], minlength=rows) if len(lives) else np.zeros(rows, np.int64)
    if not (many > MAX_INCARNATIONS).any():
        return lives, 0
    after = np.cumsum(many)[lives["row"]] - np.arange(len(lives))  # incarnations of the series from this one on
    kept = lives[after <= MAX_INCARNATIONS]
    return kept, len(lives) - len(kept)


def _count_seams(lives: npt.NDArray[np.void]) -> int:
    """Return the number of series of which an incarnation of unknown start goes on after a later one has begun. `lives`
    are sorted by (row, birth)."""
    unknown = np.flatnonzero(lives["birth_ms"][:-1] == UNKNOWN_START_MS)
    after = unknown + 1
    same = lives["row"][unknown] == lives["row"][after]
    return int(np.count_nonzero(same & (lives["last_ms"][unknown] > lives["first_ms"][after])))
