"""The history as a Store: raw samples of the table on HDFS, bucketized as in a shard.

Samples are bucketized where they are read: few in this process, many by Spark tasks, which return only buckets.
docs/history.md.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from artimon.compute.statistics import with_needs
from artimon.model.grid import DEFAULT_LEVELS, Grid
from artimon.model.select import NAME, Buckets, Matcher, SelectRequest, Series, too_many_series
from artimon.rawtable.rollups import existing_months, rollups_uri
from artimon.rawtable.schema import DAY_MS, raw_uri
from artimon.rawtable.table_reader import TableSnapshot
from query_dsl.functions.step import NEVER
from query_dsl.stores.bucket_accumulator import BucketAccumulator
from query_dsl.stores.closed_parts import ClosedParts
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.history.engine import LOCAL_BYTES, Engine, History, takes_spark
from query_dsl.stores.history.file_pruning import RawFile, RowFilter
from query_dsl.stores.history.local_reader import LocalReader, Progress, no_progress
from query_dsl.stores.history.sample_query import NO_LIMIT, HistoryInterrupted, SampleQuery
from query_dsl.stores.history_catalogue import HistoryCatalogue, SeriesMatch, sort_series
from query_dsl.stores.levels import SPARE_ROWS, StoreReach
from query_dsl.stores.part_reader import PartReader
from query_dsl.stores.partial_buckets import PartialBuckets, bucketize, merge_partials
from query_dsl.stores.partial_codec import decode_partial, encode_partial
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.stores.rollup_blocks import RollupBlock, RollupSink
from query_dsl.stores.rollup_buckets import (
    bucketize_rollups,
    from_rollup_table,
    unify_rollup_types,
)
from query_dsl.stores.sample_rows import ENDED, Ints, from_raw_table, unify_types
from query_dsl.stores.table_read import BudgetEvent, TableRead, TableVersions, read_text

T = TypeVar("T")
TASK_BYTES = 64 * 1024 * 1024
"""Approximate bytes of files per Spark task; less if this gives fewer than TASKS tasks."""
TARGET_TASKS = 8
TASK_CELLS = 2_000_000
"""Maximum number of buckets that a task holds: more are merged, and returned if more than half remain."""
APART = 24
"""Columns between opening buckets from which on they are read apart."""
LOOK_BACK_MS = 8 * 24 * 3_600_000
LEVELS = tuple((level.step_ms, level.count) for level in DEFAULT_LEVELS)


class HistoryStore(EngineStore):
    """EngineStore over a History, which the caller closes. Threads may share it.

    Series are described as of the end of the grid: incarnations, newest samples and ends are those of the samples on
    the grid, and of some around it that are needed to interpret these (`_read_context`). `levels` are those of the
    memory store, so that both choose the same step."""

    def __init__(
        self,
        history: History,
        levels: tuple[tuple[int, int], ...] = LEVELS,
        engine: Engine = "auto",
        watch: QueryBudget | None = None,
        progress: Progress = no_progress,
        catalogue: HistoryCatalogue | None = None,
        parts: ClosedParts | None = None,
    ) -> None:
        """`parts`: cache of the buckets of closed days."""
        self._history, self._levels, self._engine = history, levels, engine
        self._watch, self._progress = watch or QueryBudget(), progress
        self._catalogue, self._parts = catalogue or HistoryCatalogue(history.hdfs, history.opened), parts

    def watching(self, watch: QueryBudget) -> HistoryStore:
        return HistoryStore(
            self._history, self._levels, self._engine, watch, self._progress, self._catalogue, self._parts
        )

    def with_progress(self, progress: Progress) -> HistoryStore:
        """Return the same store with a callback for progress."""
        return HistoryStore(
            self._history, self._levels, self._engine, self._watch, progress, self._catalogue, self._parts
        )

    def reach(self) -> StoreReach:
        return StoreReach(unbounded=True, engine="history")

    def history(self) -> EngineStore:
        return self

    def appended_ms(self) -> int | None:
        """Append time of the newest batch; None if unknown. Raises HistoryError."""
        uri = raw_uri(self._history.hdfs)
        with self._history.lease_client() as zookeeper:
            return self._history.opened.read(uri, TableSnapshot.appended_ms, zookeeper)

    def levels(self) -> tuple[tuple[int, int], ...]:
        return self._levels

    # --- finding

    def names(self) -> list[str]:
        """See EngineStore: every name that was ever announced."""
        return self.label_values(NAME, NO_LIMIT)

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        self._watch.check()
        with self._history.errors_converted():
            return self._catalogue.label_values(label)[:limit]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """See EngineStore: every matching series that was ever announced, with or without samples."""
        table = self._find(matchers).table
        return sort_series(table)[:limit] if len(table) else []

    def _find(self, matchers: tuple[Matcher, ...]) -> SeriesMatch:
        self._watch.check()
        with self._history.errors_converted():
            return self._catalogue.find(matchers)

    def _find_limited(self, matchers: tuple[Matcher, ...], limit: int) -> SeriesMatch:
        found = self._find(matchers)
        if len(found) > limit:
            raise too_many_series(len(found), limit)
        return found

    # --- buckets

    def select(self, request: SelectRequest) -> Buckets:
        """Answer on any grid. Raises HistoryError if HDFS or a table cannot be read, LimitExceeded, QueryCancelled."""
        ahead_s = self._history.read_ahead()  # while the series are looked up
        found, grid = self._find_limited(request.matchers, request.limit), request.grid

        def answer(reading: TableRead) -> Buckets:
            held, notes = self._with_context(reading, found, request)
            part = reading.part(grid.start_ms, grid.end_ms, held.samples)
            expired = reading.choice.expired
            said = (*reading.notes(found, grid.end_ms), read_text(part), *expired, *notes)
            return replace(held.buckets(request, found.table, said), parts=(part,), partial=bool(expired))

        return self._read(found, grid.start_ms, grid.end_ms, answer, grid, ahead_s)

    def _with_context(
        self, reading: TableRead, found: SeriesMatch, request: SelectRequest
    ) -> tuple[BucketAccumulator, tuple[str, ...]]:
        """Return all that is read for a request, and notes. `min` of opening buckets is read after all others."""
        others = replace(request, statistics=tuple(name for name in request.statistics if name != "min"))
        if request.opening and "min" not in with_needs(others.statistics) and not reading.choice.raw.files:
            counted = reading.rollup_rows
            held = self._merged(reading, found, others)
            notes = self._read_context(reading, found, held, others)
            if not held.replaced:
                self._read_least(reading, found, held, request)
                return held, notes
            reading.rollup_rows = counted
        held = self._merged(reading, found, request)
        return held, self._read_context(reading, found, held, request)

    def _merged(self, reading: TableRead, found: SeriesMatch, request: SelectRequest) -> BucketAccumulator:
        """Return what the files have for a request."""
        grid = request.grid
        held = BucketAccumulator(len(found), grid, request.statistics, found.canonical_order)

        def take(piece: PartialBuckets) -> None:
            held.add(piece)
            self._watch.check_samples(held.samples)

        def merged(rows: int | None) -> bool:
            if rows is not None:
                reading.count_rows(rows)
                self._watch.check_samples(held.samples)
            return rows is not None

        def take_block(block: RollupBlock, pairs: Ints) -> bool:
            return merged(held.add_block(block, pairs, reading.row_of, grid.start_ms, grid.end_ms))

        def take_rollups(table: Any) -> None:
            rows = from_rollup_table(table, reading.row_of)
            if not merged(held.add_rows(rows)):
                take(reading.count_rollups(bucketize_rollups(rows, grid)))

        self._bucketize(reading, request, take, RollupSink(request.statistics, take_block, take_rollups))
        return held

    def _read_least(
        self, reading: TableRead, found: SeriesMatch, held: BucketAccumulator, request: SelectRequest
    ) -> None:
        """Read `min` of the opening buckets."""
        grid = request.grid
        rows, columns = held.opening()
        for some in np.split(np.arange(len(columns)), np.flatnonzero(np.diff(columns) > APART) + 1):
            first, last = columns[some[[0, -1]]].tolist() if len(some) else (0, 0)
            part = Grid(grid.start_ms + (last + 1) * grid.step_ms, grid.step_ms, last + 1 - first)
            again = _restricted(reading, found, np.unique(rows[some]), part.start_ms, part.end_ms, True)
            least = self._merged(again, found, replace(request, grid=part, statistics=("min",)))
            held.take_least(least, rows[some], columns[some])
            reading.bytes = again.bytes

    def samples(self, request: SampleRequest) -> RawSamples:
        found = self._find_limited(request.matchers, request.limit)

        def answer(reading: TableRead) -> RawSamples:
            rows = reading.samples(self._watch)
            settled = unify_types(replace(rows, row=reading.row_of[rows.row]), rows.row)
            part = reading.part(request.after_ms, request.until_ms, len(settled.rows))
            said = (
                *reading.notes(found, request.until_ms),
                read_text(part),
                *_conflict_notes(settled.conflicts, settled.conflicting),
            )
            return RawSamples(found.table, settled.rows, said, parts=(part,))

        return self._read(found, request.after_ms, request.until_ms, answer)

    def newest(self, matchers: tuple[Matcher, ...], end_ms: int, prints: Collection[int] = ()) -> dict[int, int]:
        """See EngineStore: up to LOOK_BACK_MS back, in a limited number of files."""
        found = self._find(matchers)
        every = found.table.fingerprints
        if prints:
            chosen = np.flatnonzero(np.isin(every, np.array(list(prints), np.uint64)))
            found = _select_pairs(found, chosen)

        def answer(reading: TableRead) -> Ints:
            return reading.newest(len(every))

        times = self._read(found, end_ms - LOOK_BACK_MS, end_ms, answer)
        return {int(every[row]): int(times[row]) for row in np.flatnonzero(times > NEVER).tolist()}

    def _read(
        self,
        found: SeriesMatch,
        after_ms: int,
        until_ms: int,
        answer: Callable[[TableRead], T],
        grid: Grid | None = None,
        since_s: float = inf,
    ) -> T:
        """Apply `answer` to the newest versions of the tables; restart if compaction removes a file. The buckets of
        `grid` may be read from roll-ups. `since_s`: see OpenTables.read_both."""
        ending = BudgetEvent(self._watch)
        uri = raw_uri(self._history.hdfs)
        beside = rollups_uri(self._history.hdfs)
        wanted = RowFilter(found.source, found.fingerprint, after_ms, until_ms)

        opened = self._history.opened

        def read(table: TableSnapshot, rollups: TableSnapshot | None) -> T:
            files = opened.files, opened.rollup_files
            months = existing_months(beside) if grid is not None and grid.step_ms % DAY_MS == 0 else {}
            versions = TableVersions(table, uri, rollups, beside, grid, table.appended_ms(), *files, months)
            return answer(TableRead(versions, wanted, found.row_of[wanted.order], versions.choose(wanted), ending))

        try:
            with self._history.lease_client(ask=False) as zookeeper:  # it was asked for the series
                if grid is None:
                    return opened.read(uri, lambda table: read(table, None), zookeeper)
                return opened.read_both(uri, beside, read, zookeeper, since_s)
        except HistoryInterrupted:
            raise ending.reason() from None

    def _bucketize(
        self,
        reading: TableRead,
        request: SelectRequest,
        take: Callable[[PartialBuckets], None],
        sink: RollupSink,
    ) -> None:
        """Call `take` with all pieces, and `sink` with roll-ups that are in none: from several threads, or from this
        one as Spark tasks end."""
        if not len(reading.row_filter):
            return
        raw, rollups = reading.choice.raw, reading.choice.rollups
        size = sum(file.size for file in rollups)
        share = size / (size + raw.size) if size else 0.0
        if rollups:

            def told(done: float, text: str) -> None:
                self._progress(done * share, text)

            if self._parts is not None:
                PartReader(reading, request, self._parts, take, sink).read(told)
            else:
                reading.read_blocks(reading.choice.rollups, sink, told)
        if raw.files:
            self._bucketize_samples(
                reading, request, take, lambda done, text: self._progress(share + done * (1 - share), text)
            )

    def _bucketize_samples(
        self,
        reading: TableRead,
        request: SelectRequest,
        take: Callable[[PartialBuckets], None],
        progress: Progress,
    ) -> None:
        chosen, grid = reading.choice.raw.files, request.grid
        if takes_spark(self._engine, reading.choice.raw):
            reading.engine = "spark"
            reading.bytes += reading.choice.raw.size
            work = BucketizeTask(reading.uri, reading.row_filter, reading.row_of, grid, request.statistics)
            tasks = [json.dumps([file.path for file in group]).encode() for group in _groups(chosen)]
            for data in self._history.in_tasks(work, tasks, reading.budget_event, progress):
                take(decode_partial(data))
        else:
            reader = reading.reader()
            reader.read_each(
                chosen, lambda table: take(bucketize(from_raw_table(table, reading.row_of), grid)), progress
            )
            reading.bytes += reader.fetched_bytes

    def _read_context(
        self, reading: TableRead, found: SeriesMatch, held: BucketAccumulator, request: SelectRequest
    ) -> tuple[str, ...]:
        """Read samples outside the grid that memory would know, too: they show whether a series continued after its
        end, and whether incarnations of several sources overlap. Also reread series of more than one type, because the
        type of every sample is settled by time. Returns notes."""
        grid = request.grid
        around = ContextRange.of(grid, reading.versions.appended_ms, self._levels)
        notes: list[str] = []
        ended = held.ended()
        if around.until_ms > grid.end_ms and len(ended):
            after = _restricted(reading, found, ended, grid.end_ms, around.until_ms)
            if after.choice.size <= LOCAL_BYTES:
                rows = after.rows(self._watch, ())
                valued = rows.type != ENDED
                held.add_later(rows.series[valued], rows.stats["last_time"][valued])
            else:
                notes.append(f"{len(ended)} series ended: samples after their end {_NOT_CHECKED}")
        apart = np.array(sorted(held.mixed), np.int64)
        twins = held.maybe_overlapping(np.bincount(found.row_of, minlength=len(found)) > 1)
        if around.wide and len(twins):
            both = np.union1d(twins, apart)
            wide = _restricted(reading, found, both, around.after_ms, around.until_ms)
            if wide.choice.size <= LOCAL_BYTES:
                return (*notes, *self._read_again(wide, held, request, both))
            notes.append(f"{len(twins)} series of several sources: overlaps of their incarnations {_NOT_CHECKED}")
        if len(apart):
            again = _restricted(reading, found, apart, grid.start_ms, grid.end_ms)
            notes += self._read_again(again, held, request, apart)
        return tuple(notes)

    def _read_again(
        self, again: TableRead, held: BucketAccumulator, request: SelectRequest, series: Ints
    ) -> tuple[str, ...]:
        rows, left_out, conflicting = unify_rollup_types(again.rows(self._watch, request.statistics))
        held.replace(bucketize_rollups(rows, request.grid), series)
        return _conflict_notes(left_out, conflicting)


_NOT_CHECKED = "were not checked, as this needs too many files"


def _restricted(
    reading: TableRead, found: SeriesMatch, rows: Ints, after_ms: int, until_ms: int, inside: bool = False
) -> TableRead:
    """Return a reading of all samples of these series in (after, until]; `inside`: within what `reading` reads."""
    found = _select_pairs(found, rows)
    wanted = RowFilter(found.source, found.fingerprint, after_ms, until_ms)
    row_of = found.row_of[wanted.order]
    choice = reading.choice.within(wanted) if inside else reading.versions.choose(wanted)
    return replace(reading, row_filter=wanted, row_of=row_of, choice=choice)


@dataclass(frozen=True, slots=True)
class ContextRange:
    """Time range (after, until] that memory would take into account for a grid."""

    after_ms: int
    until_ms: int
    wide: bool
    """True if the range may exceed the grid: memory holds nothing of a grid that is too old."""

    @classmethod
    def of(cls, grid: Grid, appended_ms: int | None, levels: Sequence[tuple[int, int]]) -> ContextRange:
        """Return the range; `appended_ms`: time up to which the history is complete, if known."""
        span = max(step * (count + SPARE_ROWS) for step, count in levels)
        if appended_ms is None or grid.end_ms < appended_ms - span:
            return cls(grid.start_ms, grid.end_ms, False)
        return cls(min(grid.start_ms, appended_ms - span), max(grid.end_ms, appended_ms), True)


@dataclass(frozen=True, slots=True)
class BucketizeTask:
    """Work of a Spark task: reads its files and bucketizes their samples."""

    uri: str
    row_filter: RowFilter
    row_of: Ints
    grid: Grid
    statistics: tuple[str, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for piece in self._bucketize([RawFile(path, 0, 0) for path in json.loads(task)]):
                    yield pa.record_batch(
                        [pa.array([encode_partial(self._zero_others(piece))], pa.binary())], ["value"]
                    )

    def _bucketize(self, chosen: Sequence[RawFile]) -> Iterator[PartialBuckets]:
        asked = SampleQuery("the query", (), 0, 1, NO_LIMIT)
        reader = LocalReader(self.uri, self.row_filter, asked, threading.Event())
        pieces: list[PartialBuckets] = []
        cells = 0
        for table in reader.stream(chosen):
            pieces.append(bucketize(from_raw_table(table, self.row_of), self.grid))
            cells += len(pieces[-1].buckets.at)
            if cells > TASK_CELLS:
                pieces = [merge_partials(pieces)]
                cells = len(pieces[0].buckets.at)
                if cells > TASK_CELLS // 2:
                    yield pieces[0]
                    pieces, cells = [], 0
        if pieces:
            yield merge_partials(pieces)

    def _zero_others(self, piece: PartialBuckets) -> PartialBuckets:
        """Set statistics that are not requested to zero."""
        wanted = with_needs(self.statistics)
        wanted |= {"last", "last_time"} if wanted & {"last", "last_time"} else set()
        return replace(piece, buckets=piece.buckets.zero_except(wanted))


def _groups(chosen: Sequence[RawFile]) -> list[list[RawFile]]:
    """Split the files into one group per task, in the order of their paths, which is the order of time."""
    most = min(TASK_BYTES, sum(file.size for file in chosen) // TARGET_TASKS)
    groups: list[list[RawFile]] = []
    size = 0
    for file in chosen:
        if not groups or size + file.size > most:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups


def _select_pairs(found: SeriesMatch, rows: Ints) -> SeriesMatch:
    """Keep only the pairs of some series; the numbers of the series do not change."""
    pairs = np.isin(found.row_of, rows)
    return replace(found, source=found.source[pairs], fingerprint=found.fingerprint[pairs], row_of=found.row_of[pairs])


def _conflict_notes(left_out: int, apart: Sequence[int]) -> tuple[str, ...]:
    notes = []
    if left_out:
        notes.append(f"{left_out:,} samples left out: their type is not that of their series")
    if apart:
        notes.append(f"{len(apart)} series have two types in two sources: only one is shown")
    return tuple(notes)
