"""Buckets of the chosen files of roll-ups: from the cache of closed parts, else read and cached. Files of which the
answer needs most rows are read as without a cache: an entry would be a copy of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from artimon.compute.statistics import with_needs
from artimon.model.grid import Grid
from artimon.model.select import SelectRequest
from artimon.rawtable.rollups import month_files, rollup_files
from query_dsl.stores.closed_parts import CachedPart, ClosedParts, renumber
from query_dsl.stores.history.file_pruning import SLACK_US, RawFile, RowFilter
from query_dsl.stores.history.local_reader import Progress
from query_dsl.stores.history.task_pool import THREADS, TaskPool, TaskResult
from query_dsl.stores.partial_buckets import PartialBuckets, merge_partials
from query_dsl.stores.rollup_blocks import RollupSink
from query_dsl.stores.rollup_buckets import bucketize_rollups, from_rollup_table, rollup_columns
from query_dsl.stores.sample_rows import Ints
from query_dsl.stores.table_read import TableRead

MIN_ROWS_A_BUCKET = 2
"""Rows of a file for each bucket that the answer needs of it, from which on an entry saves time: a bucket of an entry
takes up to 1.5 times the processor time of a row, and about four times to be written."""


@dataclass(frozen=True, slots=True)
class FileGrid:
    """Grid of all buckets of a file, and the place of its first bucket in the grid of the request."""

    grid: Grid
    offset: int

    @classmethod
    def of(cls, file: RawFile, grid: Grid) -> FileGrid | None:
        """Return it; None if buckets of the file may be outside the grid of the request."""
        first_ms, last_ms = file.oldest_us // 1000, (file.newest_us - SLACK_US) // 1000
        first, last = ((at - (grid.start_ms + 1)) // grid.step_ms for at in (first_ms, last_ms))
        if first < 0 or last >= grid.n:
            return None
        count = last - first + 1
        return cls(Grid(grid.start_ms + (last + 1) * grid.step_ms, grid.step_ms, count), first)


class PartReader:
    """One reading of the roll-ups that `reading` has chosen, for all its series. `take` gets pieces and `sink` the
    rows of files that are not cached, from several threads."""

    def __init__(
        self,
        reading: TableRead,
        request: SelectRequest,
        cache: ClosedParts,
        take: Callable[[PartialBuckets], None],
        sink: RollupSink,
    ) -> None:
        self._reading, self._grid, self._cache, self._take = reading, request.grid, cache, take
        self._sink = sink
        self._columns = rollup_columns(request.statistics)
        self._table = reading.versions.rollups_uri
        grid = request.grid
        self._shape = (
            f"{request.matchers} {grid.step_ms} {grid.end_ms % grid.step_ms} {sorted(with_needs(request.statistics))}"
        )
        wanted = reading.row_filter
        self._series, first = np.unique(wanted.series, return_index=True)
        self._row_of_series = reading.row_of[first]

    def read(self, progress: Progress) -> None:
        """Read all. Raises as LocalReader.read_each."""
        rollups = self._reading.versions.rollups
        if rollups is not None and self._cache.sweep_due():
            live = rollup_files(rollups)
            self._cache.keep_only(self._table, [*(file.path for file in live), *month_files(live)])
        files = self._reading.choice.rollups
        inside = {file.path: place for file in files if (place := self._place(file)) is not None}
        others = [file for file in files if file.path not in inside]
        closed = [file for file in files if file.path in inside]
        total = sum(file.size for file in files) or 1
        share = sum(file.size for file in closed) / total
        few = len(closed) < THREADS  # then the row groups of a file are shared out

        def work(file: RawFile) -> TaskResult:
            self._read_file(file, inside[file.path], few)
            return TaskResult(file.size)

        text = f"of {len(files):,} files"
        if few:
            done = 0
            for file in closed:
                done += work(file).size
                progress(done / total, text)
        else:
            pool = TaskPool(self._reading.budget_event)
            pool.run([partial(work, file) for file in closed], lambda size: progress(size / total, text))
        if others:
            self._reading.read_blocks(others, self._sink, lambda done, told: progress(share + done * (1 - share), told))

    def _place(self, file: RawFile) -> FileGrid | None:
        """Return the place of a file whose buckets are cached, None for other files."""
        place = FileGrid.of(file, self._grid)
        if place is None or len(self._series) * place.grid.n * MIN_ROWS_A_BUCKET > file.rows:
            return None
        return place

    def _read_file(self, file: RawFile, place: FileGrid, threads: bool) -> None:
        wanted = self._reading.row_filter
        part = self._cache.load(self._table, file.path, self._shape)
        missing = np.ones(len(wanted), np.bool_) if part is None else ~part.holds(wanted.source, wanted.series)
        if part is None or missing.any():
            part = self._merge(part, file, place.grid, wanted.source[missing], wanted.series[missing], threads)
            self._cache.store(self._table, file.path, self._shape, part)
        else:
            self._reading.count_cached()
        rows = part.rows()
        same = np.array_equal(rows, self._series)
        numbers = self._row_of_series if same else _places(rows, self._series, self._row_of_series)
        self._take(self._reading.count_rollups(renumber(part.piece, numbers, self._grid.n, place.offset)))

    def _merge(
        self, part: CachedPart | None, file: RawFile, grid: Grid, source: Ints, series: Ints, threads: bool
    ) -> CachedPart:
        """Read these pairs, and add them to what is known of the file."""
        own = self._reading.row_filter
        wanted = RowFilter(source, series, own.after_us // 1000, own.until_us // 1000)
        rows = np.unique(wanted.series)
        row_of = np.searchsorted(rows, wanted.series)
        pieces: list[PartialBuckets] = []

        def take(table: Any) -> None:
            pieces.append(bucketize_rollups(from_rollup_table(table, row_of), grid))

        self._reading.read_rollup(file, wanted, self._columns, take, threads)
        piece = merge_partials(pieces) if pieces else PartialBuckets(columns=grid.n)
        if part is None:
            return CachedPart(wanted.source, wanted.series, piece)
        both = [np.concatenate(pair) for pair in ((part.source, wanted.source), (part.series, wanted.series))]
        order = np.lexsort((both[1], both[0]))
        joined = np.unique(both[1])
        merged = [
            renumber(one, np.searchsorted(joined, held), grid.n)
            for one, held in ((part.piece, part.rows()), (piece, rows))
        ]
        return CachedPart(both[0][order], both[1][order], merge_partials(merged))


def _places(rows: Ints, series: Ints, numbers: Ints) -> Ints:
    """Return the number of each of `rows`, -1 if it is not in `series`, which is sorted."""
    if not len(series):
        return np.full(len(rows), -1, np.int64)
    at = np.minimum(np.searchsorted(series, rows), len(series) - 1)
    return np.where(series[at] == rows, numbers[at], -1)
