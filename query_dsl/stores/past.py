"""The history as a Store: raw samples of the table on HDFS, bucketized as in a shard.

Samples are bucketized where they are read: few in this process, many by Spark tasks, which return only buckets.
docs/history.md.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from artimon.compute.statistics import with_needs
from artimon.model.grid import DEFAULT_LEVELS, Grid
from artimon.model.select import NAME, Buckets, Matcher, Part, SelectRequest, Series, too_many_series
from artimon.rawtable.head import newest_document
from artimon.rawtable.reader import read_whole
from artimon.rawtable.schema import TableError, raw_uri
from query_dsl.functions.step import NEVER
from query_dsl.stores.catalogue import Catalogue, Known, in_order
from query_dsl.stores.cutting import Piece, cut, join
from query_dsl.stores.held import Held
from query_dsl.stores.history.engine import LOCAL_BYTES, Engine, History, takes_spark
from query_dsl.stores.history.files import Pruned, RawFile, Wanted, prune
from query_dsl.stores.history.local import LocalReader, Progress, no_progress
from query_dsl.stores.history.question import NO_LIMIT, HistoryInterrupted, Question
from query_dsl.stores.levels import SPARE_ROWS, Reach
from query_dsl.stores.limits import Watch
from query_dsl.stores.protocol import EngineStore
from query_dsl.stores.rows import ENDED, Ints, Rows, raw_rows, settle
from query_dsl.stores.sampled import Sampled, SampleRequest
from query_dsl.stores.wire import decode_piece, encode_piece
from query_dsl.tree.timing import format_time

T = TypeVar("T")
TASK_BYTES = 64 * 1024 * 1024
"""Approximate bytes of files per Spark task; less if this gives fewer than TASKS tasks."""
TASKS = 8
MAX_COMMITS = 50
"""Maximum number of commits read to find the newest append; other commits are few."""
TASK_CELLS = 2_000_000
"""Maximum number of buckets that a task holds: more are merged, and returned if more than half remain."""
LOOK_BACK_MS = 8 * 24 * 3_600_000
MOST_BYTES = 256 * 1024 * 1024
"""Limit on the bytes of files that are read to find the newest samples; older ones are not found."""
LEVELS = tuple((level.step_ms, level.count) for level in DEFAULT_LEVELS)


class HistoryStore(EngineStore):
    """EngineStore over a History, which the caller closes. Threads may share it.

    Series are described as of the end of the grid: lives, newest samples and ends are those of the samples on the
    grid, and of some around it that are needed to interpret these (`_look_around`). `levels` are those of the memory
    store, so that both choose the same step."""

    def __init__(
        self,
        history: History,
        levels: tuple[tuple[int, int], ...] = LEVELS,
        engine: Engine = "auto",
        watch: Watch | None = None,
        progress: Progress = no_progress,
        catalogue: Catalogue | None = None,
    ) -> None:
        self._history, self._levels, self._engine = history, levels, engine
        self._watch, self._progress = watch or Watch(), progress
        self._catalogue = catalogue or Catalogue(history.hdfs)

    def watching(self, watch: Watch) -> HistoryStore:
        return HistoryStore(self._history, self._levels, self._engine, watch, self._progress, self._catalogue)

    def showing(self, progress: Progress) -> HistoryStore:
        """Return the same store with a callback for progress."""
        return HistoryStore(self._history, self._levels, self._engine, self._watch, progress, self._catalogue)

    def reach(self) -> Reach:
        return Reach(boundless=True, engine="history")

    def past(self) -> EngineStore:
        return self

    def levels(self) -> tuple[tuple[int, int], ...]:
        return self._levels

    # --- finding

    def names(self) -> list[str]:
        """See EngineStore: every name that was ever announced."""
        return self.label_values(NAME, NO_LIMIT)

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        columns = self._find(()).table.columns
        if label is None:
            return sorted(columns.keys() - {NAME})[:limit]
        values = columns[label][1] if label in columns else ()
        return sorted({value for value in values if value})[:limit]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """See EngineStore: every matching series that was ever announced, with or without samples."""
        table = self._find(matchers).table
        return in_order(table)[:limit] if len(table) else []

    def _find(self, matchers: tuple[Matcher, ...]) -> Known:
        self._watch.check()
        with self._history.opened():
            return self._catalogue.find(matchers)

    def _fitting(self, matchers: tuple[Matcher, ...], limit: int) -> Known:
        found = self._find(matchers)
        if len(found) > limit:
            raise too_many_series(len(found), limit)
        return found

    # --- buckets

    def select(self, request: SelectRequest) -> Buckets:
        """Answer on any grid. Raises HistoryError if HDFS or a table cannot be read, LimitExceeded, QueryCancelled."""
        found, grid = self._fitting(request.matchers, request.limit), request.grid

        def answer(reading: _Reading) -> Buckets:
            held = Held(len(found), grid, request.statistics)
            lock = threading.Lock()

            def take(piece: Piece) -> None:
                with lock:
                    held.add(piece)
                    self._watch.took_samples(held.samples)

            self._cut(reading, request, take)
            notes = self._look_around(reading, found, held, grid)
            part = reading.part(grid.start_ms, grid.end_ms, held.samples)
            said = (*reading.notes(found, grid.end_ms), _read(part), *notes)
            return replace(held.buckets(request, found.table, said), parts=(part,))

        return self._read(found, grid.start_ms, grid.end_ms, answer)

    def samples(self, request: SampleRequest) -> Sampled:
        found = self._fitting(request.matchers, request.limit)

        def answer(reading: _Reading) -> Sampled:
            rows = reading.rows(self._watch)
            settled = settle(replace(rows, row=reading.row_of[rows.row]), rows.row)
            part = reading.part(request.after_ms, request.until_ms, len(settled.rows))
            said = (*reading.notes(found, request.until_ms), _read(part), *_conflicts(settled.conflicts, settled.apart))
            return Sampled(found.table, settled.rows, said, parts=(part,))

        return self._read(found, request.after_ms, request.until_ms, answer)

    def newest(self, matchers: tuple[Matcher, ...], end_ms: int, prints: Collection[int] = ()) -> dict[int, int]:
        """See EngineStore: up to LOOK_BACK_MS back, in a limited number of files."""
        found = self._find(matchers)
        every = found.table.fingerprints
        if prints:
            chosen = np.flatnonzero(np.isin(every, np.array(list(prints), np.uint64)))
            found = _of_rows(found, chosen)

        def answer(reading: _Reading) -> Ints:
            return reading.newest(len(every))

        times = self._read(found, end_ms - LOOK_BACK_MS, end_ms, answer)
        return {int(every[row]): int(times[row]) for row in np.flatnonzero(times > NEVER).tolist()}

    def _read(self, found: Known, after_ms: int, until_ms: int, answer: Callable[[_Reading], T]) -> T:
        """Apply `answer` to the newest version of the table; restart if compaction removes a file."""
        ending = Ending(self._watch)
        uri = raw_uri(self._history.hdfs)
        wanted = Wanted(found.source, found.print, after_ms, until_ms)

        def read(table: DeltaTable) -> T:
            pruned = prune(table, wanted)
            newest_ms = _appended_ms(uri, table.version())
            return answer(_Reading(uri, table, wanted, found.row_of[wanted.order], pruned, newest_ms, ending))

        try:
            with self._history.opened() as zookeeper:
                return read_whole(uri, read, zookeeper)
        except HistoryInterrupted:
            raise ending.why() from None

    def _cut(self, reading: _Reading, request: SelectRequest, take: Callable[[Piece], None]) -> None:
        """Call `take` with all pieces: from several threads, or from this one as Spark tasks end."""
        chosen, grid = reading.pruned.files, request.grid
        if not len(reading.wanted) or not chosen:
            return
        if takes_spark(self._engine, reading.pruned):
            reading.engine, reading.bytes = "spark", reading.pruned.size
            work = CutWork(reading.uri, reading.wanted, reading.row_of, grid, request.statistics)
            tasks = [json.dumps([file.path for file in group]).encode() for group in _groups(chosen)]
            for data in self._history.in_tasks(work, tasks, reading.ending, self._progress):
                take(decode_piece(data))
        else:
            reader = reading.reader()
            reader.each(chosen, lambda table: take(cut(raw_rows(table, reading.row_of), grid)), self._progress)
            reading.bytes += reader.touched

    def _look_around(self, reading: _Reading, found: Known, held: Held, grid: Grid) -> tuple[str, ...]:
        """Read samples outside the grid that memory would know, too: they show whether a series continued after its
        end, and whether lives of several sources overlap. Also reread series of more than one type, because the type of
        every sample is settled by time. Returns notes."""
        around = Around.of(grid, reading.appended_ms, self._levels)
        notes: list[str] = []
        ended = held.ended()
        if around.until_ms > grid.end_ms and len(ended):
            after = _again(reading, found, ended, grid.end_ms, around.until_ms)
            if after.pruned.size <= LOCAL_BYTES:
                rows = after.rows(self._watch)
                valued = rows.type != ENDED
                held.went_on(after.row_of[rows.row[valued]], rows.time_ms[valued])
            else:
                notes.append(f"{len(ended)} series ended: samples after their end {_TOO_MUCH}")
        apart = np.array(sorted(held.mixed), np.int64)
        twins = held.begun(np.bincount(found.row_of, minlength=len(found)) > 1)
        if around.wide and len(twins):
            both = np.union1d(twins, apart)
            wide = _again(reading, found, both, around.after_ms, around.until_ms)
            if wide.pruned.size <= LOCAL_BYTES:
                return (*notes, *self._put_back(wide, held, grid, both))
            notes.append(f"{len(twins)} series of several sources: overlaps of their lives {_TOO_MUCH}")
        if len(apart):
            again = _again(reading, found, apart, grid.start_ms, grid.end_ms)
            notes += self._put_back(again, held, grid, apart)
        return tuple(notes)

    def _put_back(self, again: _Reading, held: Held, grid: Grid, series: Ints) -> tuple[str, ...]:
        rows = again.rows(self._watch)
        settled = settle(replace(rows, row=again.row_of[rows.row]), rows.row)
        held.put_back(cut(settled.rows, grid), series)
        return _conflicts(settled.conflicts, settled.apart)


_TOO_MUCH = "were not checked, as this needs too many files"


def _again(reading: _Reading, found: Known, rows: Ints, after_ms: int, until_ms: int) -> _Reading:
    """Return a reading of all samples of these series in (after, until]."""
    found = _of_rows(found, rows)
    wanted = Wanted(found.source, found.print, after_ms, until_ms)
    return replace(reading, wanted=wanted, row_of=found.row_of[wanted.order], pruned=prune(reading.table, wanted))


@dataclass(frozen=True, slots=True)
class Around:
    """Time range (after, until] that memory would take into account for a grid."""

    after_ms: int
    until_ms: int
    wide: bool
    """True if the range may exceed the grid: memory holds nothing of a grid that is too old."""

    @classmethod
    def of(cls, grid: Grid, appended_ms: int | None, levels: Sequence[tuple[int, int]]) -> Around:
        """Return the range; `appended_ms`: time up to which the history is complete, if known."""
        span = max(step * (count + SPARE_ROWS) for step, count in levels)
        if appended_ms is None or grid.end_ms < appended_ms - span:
            return cls(grid.start_ms, grid.end_ms, False)
        return cls(min(grid.start_ms, appended_ms - span), max(grid.end_ms, appended_ms), True)


class Ending(threading.Event):
    """Event that is set once the watch ends the evaluation; keeps the reason."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._why: BaseException | None = None

    def is_set(self) -> bool:
        """True if the evaluation has ended."""
        try:
            self._watch.check()
        except BaseException as why:
            self._why = why
            return True
        return False

    def why(self) -> BaseException:
        """Return the exception that ended it."""
        return self._why or HistoryInterrupted("reading the history was interrupted")


@dataclass(slots=True)
class _Reading:
    """One reading of one version of the table."""

    uri: str
    table: DeltaTable
    wanted: Wanted
    row_of: Ints
    """The series of each pair of `wanted`."""
    pruned: Pruned
    appended_ms: int | None
    """Append time of the newest batch in the table; None if unknown."""
    ending: Ending
    engine: str = "local"
    bytes: int = 0

    def reader(self, samples: int = NO_LIMIT) -> LocalReader:
        """A reader of the wanted rows in this process."""
        asked = Question("the query", (), self.wanted.after_us // 1000, self.wanted.until_us // 1000, samples)
        return LocalReader(self.uri, self.wanted, asked, self.ending)

    def rows(self, watch: Watch) -> Rows:
        """Read all wanted rows, numbered by pair, up to the limits of the query."""
        most = min(watch.limits.samples - watch.samples, (watch.limits.memory_bytes - watch.bytes) // 64)
        reader = self.reader(max(1, most))
        table = reader.read(self.pruned.files)
        self.bytes += reader.touched
        return raw_rows(table, np.arange(len(self.wanted)))

    def newest(self, rows: int) -> Ints:
        """Return (rows,) times of the newest wanted sample of each series, NEVER if none was found: reads the newest
        files first, and only as many as necessary."""
        found = np.full(rows, NEVER, np.int64)
        sought = np.zeros(rows, np.bool_)
        sought[self.row_of] = True
        reader, read = self.reader(), 0
        for file in sorted(self.pruned.files, key=lambda one: one.newest_us, reverse=True):
            if read > MOST_BYTES or (found[sought] * 1000 >= file.newest_us).all():
                break
            read += file.size
            for table in reader.stream([file]):
                samples = raw_rows(table, self.row_of)
                valued = samples.type != ENDED
                np.maximum.at(found, samples.row[valued], samples.time_ms[valued])
        return found

    def part(self, start_ms: int, end_ms: int, samples: int) -> Part:
        """Return the description of the reading for the origin of the answer."""
        kept = f"{len(self.pruned.files):,} of {self.pruned.of_files:,} files"
        how = f"{self.engine}, {kept}, {self.bytes:,} of {self.pruned.of_bytes:,} bytes"
        return Part("history", start_ms, end_ms, samples, self.bytes, how)

    def notes(self, found: Known, until_ms: int) -> tuple[str, ...]:
        """Return notes on missing data."""
        notes = []
        if found.aside:
            notes.append(f"{len(found.aside)} fingerprints that stand for two texts are set aside with their samples")
        if self.appended_ms is not None and self.appended_ms < until_ms:
            notes.append(
                f"the history holds samples appended until {format_time(self.appended_ms)}: later ones, up to"
                f" {format_time(until_ms)}, are not in it yet"
            )
        return tuple(notes)


@dataclass(frozen=True, slots=True)
class CutWork:
    """Work of a Spark task: reads its files and bucketizes their samples."""

    uri: str
    wanted: Wanted
    row_of: Ints
    grid: Grid
    statistics: tuple[str, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for piece in self._cut([RawFile(path, 0, 0) for path in json.loads(task)]):
                    yield pa.record_batch([pa.array([encode_piece(self._lean(piece))], pa.binary())], ["value"])

    def _cut(self, chosen: Sequence[RawFile]) -> Iterator[Piece]:
        asked = Question("the query", (), 0, 1, NO_LIMIT)
        reader = LocalReader(self.uri, self.wanted, asked, threading.Event())
        pieces: list[Piece] = []
        cells = 0
        for table in reader.stream(chosen):
            pieces.append(cut(raw_rows(table, self.row_of), self.grid))
            cells += len(pieces[-1].cuts.at)
            if cells > TASK_CELLS:
                pieces = [join(pieces)]
                cells = len(pieces[0].cuts.at)
                if cells > TASK_CELLS // 2:
                    yield pieces[0]
                    pieces, cells = [], 0
        if pieces:
            yield join(pieces)

    def _lean(self, piece: Piece) -> Piece:
        """Set statistics that are not requested to zero."""
        wanted = with_needs(self.statistics)
        wanted |= {"last", "last_time"} if wanted & {"last", "last_time"} else set()
        return replace(piece, cuts=piece.cuts.lean(wanted))


def _groups(chosen: Sequence[RawFile]) -> list[list[RawFile]]:
    """Split the files into one group per task, in the order of their paths, which is the order of time."""
    most = min(TASK_BYTES, sum(file.size for file in chosen) // TASKS)
    groups: list[list[RawFile]] = []
    size = 0
    for file in chosen:
        if not groups or size + file.size > most:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups


def _of_rows(found: Known, rows: Ints) -> Known:
    """Keep only the pairs of some series; the numbers of the series do not change."""
    pairs = np.isin(found.row_of, rows)
    return replace(found, source=found.source[pairs], print=found.print[pairs], row_of=found.row_of[pairs])


def _conflicts(left_out: int, apart: Sequence[int]) -> tuple[str, ...]:
    notes = []
    if left_out:
        notes.append(f"{left_out:,} samples left out: their type is not that of their series")
    if apart:
        notes.append(f"{len(apart)} series have two types in two sources: only one is shown")
    return tuple(notes)


def _read(part: Part) -> str:
    return f"history: {part.samples:,} samples, engine {part.how}"


def _appended_ms(uri: str, version: int) -> int | None:
    """Read the append time of the newest batch in the table; None if the log does not contain it."""
    try:
        found = newest_document(uri, version, max(-1, version - MAX_COMMITS))
    except (OSError, TableError):
        return None
    told = found[1].get("newest_append_ms") if found is not None else None
    return told if isinstance(told, int) else None
