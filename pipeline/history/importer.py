"""Import of one file into the raw table, exactly once.

The rows are collected by day on the local disk. Then one day after another becomes files of its own partition, which
are read back and committed together with the position of the import: the day after the last one that is stored. An
import that is repeated, or begun again after a crash, leaves out the days before its position.

Threads: one reads the file or merges, ahead of the one that sorts or encodes; a third one commits a day while the next
one is written. Commits are in the order of days, after that of the series.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.model.import_chunk import FIND_START_MS, ImportChunk
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.schema import DAY_MS, DataFile, TableError, folder_of, period_of
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable
from pipeline.compaction.job import DigestingReader, DigestMismatchError, delete_files, digest_of_files
from pipeline.compaction.merge import MergeLimits, merge_all
from pipeline.compaction.plan import TARGET_ROWS
from pipeline.compaction.row_digest import RowDigest
from pipeline.compaction.sorted_files import FileEncoding, SortedFileWriter
from pipeline.history.day_runs import DayRuns, file_rows
from pipeline.history.earlier_counts import FirstTimes, SampleSearch, find_last_counts
from pipeline.history.found_starts import FoundStarts

log = logging.getLogger(__name__)

DONE = 2**31
"""Position of an import of which every day is stored."""
ZSTD_LEVEL = 3
MAX_HELD_SERIES = 100_000
"""Series that wait to be added to the table of series: a commit to HDFS takes about a second."""
IMPORT_LIMITS = MergeLimits(gives_back=False)


@dataclass(slots=True)
class ImportResult:
    """Counts of one import. `samples` and `days` were stored now, `known` were stored before."""

    samples: int = 0
    days: int = 0
    files: int = 0
    bytes: int = 0
    known: int = 0
    series: set[int] = field(default_factory=set)
    """Hashes of the sources and texts."""
    is_known: bool = False
    """The whole file was stored before: it was not read."""


class Importer:
    """Writes one import at a time. `folder` is local, of this identity alone: about 60 bytes a sample."""

    def __init__(
        self,
        hdfs: str,
        folder: Path,
        keep: str,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
        limits: MergeLimits = IMPORT_LIMITS,
        search: SampleSearch | None = None,
    ) -> None:
        """`probe`: called at the points "described", "spilled", "written" and "committed". `search`: finds the samples
        before those of a file; without it counters of unknown start begin anew."""
        self._table = CompactionLog(hdfs, clock, made=True)
        self._sources, self._series = SourcesTable(hdfs, clock), SeriesTable(hdfs, clock)
        self._folder, self._keep, self._clock, self._probe, self._limits = folder, keep, clock, probe, limits
        self._search = search
        self._begin()

    def _begin(self) -> None:
        self._firsts = FirstTimes()
        self._numbers: dict[str, int] = {}
        self._held_series: list[pa.Table] = []

    def run(self, identity: str, chunks: Iterable[ImportChunk]) -> ImportResult:
        """Import the samples of a file; `chunks` are read only if some are missing in the table. Raises TableError,
        OSError, RunError, and errors of the reader. All may be repeated."""
        result = ImportResult()
        position = self._table.imported(identity)
        if position >= DONE:
            result.is_known = True
            return result
        self._begin()
        with _locked(self._folder):
            runs = DayRuns(self._folder / "days")
            try:
                with closing(read_ahead(chunks)) as ahead:
                    for chunk in ahead:
                        self._take(identity, chunk, runs, result)
                self._probe("spilled")
                self._store(identity, position, runs, result)
            finally:
                runs.close()
        return result

    def _take(self, identity: str, chunk: ImportChunk, runs: DayRuns, result: ImportResult) -> None:
        if not self._numbers.keys() >= set(chunk.sources):
            self._numbers = self._sources.assign(chunk.sources)
        if chunk.series:
            self._hold_series(chunk.series)
            result.series |= {hash((source, info.text)) for source, info in chunk.series}
            if sum(map(len, self._held_series)) >= MAX_HELD_SERIES:
                self._describe(identity)
        if len(chunk.samples):
            numbers = np.array([self._numbers[name] for name in chunk.sources], np.int64)
            runs.add(file_rows(chunk, numbers))
            if self._search is not None:
                samples = chunk.samples
                rows = np.flatnonzero(samples.birth_ms == FIND_START_MS)
                series = samples.fingerprint[rows].view(np.int64)
                self._firsts.add(numbers[chunk.source[rows]], series, samples.time_ms[rows] * 1000)

    def _hold_series(self, series: Iterable[tuple[str, SeriesInfo]]) -> None:
        by_source: dict[str, list[SeriesInfo]] = {}
        for source, info in series:
            by_source.setdefault(source, []).append(info)
        now = self._clock.now_ms()
        blocks = (SeriesBlock(name, 0, now, tuple(held)) for name, held in by_source.items())
        rows, refused = rows_of(blocks, self._numbers)
        for one in refused:
            log.error("series of %s left out: %s", one.source, one.reason)
        self._held_series.append(rows)

    def _describe(self, identity: str) -> None:
        """Add the held series to the table of series. What is added twice is merged."""
        held, self._held_series = self._held_series, []
        if held:
            topic = f"import-{identity}"
            start = self._series.positions(topic, 1)
            if not self._series.add(pa.concat_tables(held), topic, start, {0: start[0] + 1}):
                raise TableError(f"{self._series.uri}: another process imports the same file: wait for it, then repeat")
            self._probe("described")

    def _store(self, identity: str, position: int, runs: DayRuns, result: ImportResult) -> None:
        starts = FoundStarts()
        if self._search is not None and len(self._firsts):
            starts.begin(*find_last_counts(self._table, self._firsts, self._search))
        days = runs.days
        encoding: FileEncoding | None = None
        merging = closing(read_ahead(_merged(runs, starts, self._limits)))
        with ThreadPoolExecutor(1, "import-commit") as commits, merging as days_ahead:
            before: Future[None] = commits.submit(self._describe, identity)
            for day, group in groupby(days_ahead, itemgetter(0)):
                merged = (rows for _, rows in group)
                if day < position:  # only for the start times
                    result.known += sum(map(len, merged))
                    continue
                one = _NewDay(self._table.uri, day, runs.rows(day), self._keep, self._clock.monotonic(), encoding)
                try:
                    one.write(merged)
                    encoding = one.encoding or encoding
                    before.result()
                except BaseException:
                    one.discard()
                    raise
                after = DONE if day == days[-1] else day + 1
                before = commits.submit(self._commit, one, identity, position, after, result)
                position = after
            before.result()

    def _commit(self, day: _NewDay, identity: str, before: int, after: int, result: ImportResult) -> None:
        try:
            new, digest = day.close()
            self._probe("written")
        except BaseException:
            day.discard()
            raise
        note = {"format": 1, "kind": "import", **day.partition, "rows": day.rows, "digest": str(digest)}
        added = self._table.add(new, identity, before, after, {**note, "import": identity}, day.began)
        self._probe("committed")
        if added:
            result.samples += day.rows
            result.days += 1
            result.files += len(new)
            result.bytes += sum(file.size for file in new)
        else:
            result.known += day.rows


class _NewDay:
    """Files of a day that no commit names yet. `began`: by the monotonic clock. `encoding`: of the day before: choosing
    one takes as long as three row groups."""

    def __init__(self, uri: str, day: int, rows: int, keep: str, began: float, encoding: FileEncoding | None) -> None:
        period = period_of(day * DAY_MS).partition("T")[0]
        each = -(-rows // max(1, -(-rows // TARGET_ROWS)))
        self.rows, self.began, self.partition = rows, began, {"period": period, "keep": keep}
        self._output = SortedFileWriter(
            uri, folder_of(period, keep), self.partition, each, level=ZSTD_LEVEL, encoding=encoding
        )
        self._given = DigestingReader(lambda: None)

    def write(self, merged: Iterable[Any]) -> None:
        for table in merged:
            for batch in table.to_batches():
                self._given.add(batch)
            self._output.add(table)

    @property
    def encoding(self) -> FileEncoding | None:
        """Encoding of the newest file; None before the first row group."""
        return self._output.encoding

    def close(self) -> tuple[list[DataFile], RowDigest]:
        """Close the files and read them back. Raises DigestMismatchError, RunError, OSError."""
        new = self._output.close()
        written = digest_of_files(self._output.table, new)
        if written != self._given.digest:
            given = self._given.digest
            raise DigestMismatchError(f"{self._output.table}: {given} were given and {written} were written")
        return new, written

    def discard(self) -> None:
        """Delete the files, which no commit may name."""
        self._output.discard()
        delete_files(self._output.table, self._output.names)


def _merged(runs: DayRuns, starts: FoundStarts, limits: MergeLimits) -> Iterator[tuple[int, Any]]:
    """Yield each day, in order, with the tables of its sorted rows."""
    for day in runs.days:
        for rows in merge_all(runs.runs(day), runs.merge_folder, limits):
            yield day, starts.fill(rows)
        runs.discard(day)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises TableError if another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock.fileno()).st_ino != path.stat().st_ino:  # the owner before has just removed it
                raise FileExistsError(path)
        except OSError:
            raise TableError(f"another process imports the same file with {folder}: wait for it, then repeat") from None
        try:
            yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)


T = TypeVar("T")
_END: Any = object()


def read_ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """Yield the items; one is made ahead. An error of the items is raised in place of the next one. Close it to end the
    thread."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, "read-ahead") as thread:
        ahead = thread.submit(next, iterator, _END)
        while (item := ahead.result()) is not _END:
            ahead = thread.submit(next, iterator, _END)
            yield item
