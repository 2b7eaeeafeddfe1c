"""Import of one file into the raw table, exactly once.

The rows are collected by day on the local disk. Then one day after another becomes files of its own partition, which
are read back and committed together with the position of the import: the day after the last one that is stored. An
import that is repeated, or begun again after a crash, leaves out the days before its position.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

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
from pipeline.compaction.merge import DEFAULT_LIMITS, MergeLimits, merge_all
from pipeline.compaction.plan import TARGET_ROWS
from pipeline.compaction.row_digest import RowDigest
from pipeline.compaction.sorted_files import SortedFileWriter
from pipeline.compaction.sorted_runs import RunError
from pipeline.history.day_runs import DayRuns, file_rows
from pipeline.history.earlier_counts import FirstTimes, SampleSearch, find_last_counts
from pipeline.history.found_starts import FoundStarts

log = logging.getLogger(__name__)

DONE = 2**31
"""Position of an import of which every day is stored."""
ZSTD_LEVEL = 3
Progress = Callable[[str], None]


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
        limits: MergeLimits = DEFAULT_LIMITS,
        search: SampleSearch | None = None,
    ) -> None:
        """`probe`: called at the points "described", "spilled", "written" and "committed". `search`: finds the samples
        before those of a file; without it counters of unknown start begin anew."""
        self._table = CompactionLog(hdfs, clock, made=True)
        self._sources, self._series = SourcesTable(hdfs, clock), SeriesTable(hdfs, clock)
        self._folder, self._keep, self._clock, self._probe, self._limits = folder, keep, clock, probe, limits
        self._search, self._firsts = search, FirstTimes()

    def run(self, identity: str, chunks: Iterable[ImportChunk]) -> ImportResult:
        """Import the samples of a file; `chunks` are read only if some are missing in the table. Raises TableError,
        OSError, RunError, and errors of the reader. All may be repeated."""
        result = ImportResult()
        position = self._table.imported(identity)
        if position >= DONE:
            result.is_known = True
            return result
        self._firsts = FirstTimes()
        with _locked(self._folder):
            runs = DayRuns(self._folder / "days")
            try:
                for chunk in chunks:
                    self._take(identity, chunk, runs, result)
                self._probe("spilled")
                self._store(identity, position, runs, result)
            finally:
                runs.close()
        return result

    def _take(self, identity: str, chunk: ImportChunk, runs: DayRuns, result: ImportResult) -> None:
        ids = self._sources.assign(chunk.sources) if chunk.sources else {}
        if chunk.series:
            self._describe(identity, chunk.series, ids)
            result.series |= {hash((source, info.text)) for source, info in chunk.series}
        if len(chunk.samples):
            numbers = np.array([ids[name] for name in chunk.sources], np.int64)
            runs.add(file_rows(chunk, numbers))
            if self._search is not None:
                samples = chunk.samples
                rows = np.flatnonzero(samples.birth_ms == FIND_START_MS)
                series = samples.fingerprint[rows].view(np.int64)
                self._firsts.add(numbers[chunk.source[rows]], series, samples.time_ms[rows] * 1000)

    def _describe(self, identity: str, series: Iterable[tuple[str, SeriesInfo]], ids: dict[str, int]) -> None:
        """Add series to the table of series. What is added twice is merged."""
        by_source: dict[str, list[SeriesInfo]] = {}
        for source, info in series:
            by_source.setdefault(source, []).append(info)
        now = self._clock.now_ms()
        rows, refused = rows_of((SeriesBlock(name, 0, now, tuple(held)) for name, held in by_source.items()), ids)
        for one in refused:
            log.error("series of %s left out: %s", one.source, one.reason)
        topic = f"import-{identity}"
        start = self._series.positions(topic, 1)
        if not self._series.add(rows, topic, start, {0: start[0] + 1}):
            raise TableError(f"{self._series.uri}: another process imports the same file: wait for it, then repeat")
        self._probe("described")

    def _store(self, identity: str, position: int, runs: DayRuns, result: ImportResult) -> None:
        starts = FoundStarts()
        if self._search is not None and len(self._firsts):
            starts.begin(*find_last_counts(self._table, self._firsts, self._search))
        days = runs.days
        for day in days:
            merged = (starts.fill(rows) for rows in merge_all(runs.runs(day), runs.merge_folder, self._limits))
            if day < position:  # only for the start times
                result.known += sum(map(len, merged))
            else:
                after = DONE if day == days[-1] else day + 1
                self._store_day(identity, position, after, day, runs.rows(day), merged, result)
                position = after
            runs.discard(day)

    def _store_day(
        self,
        identity: str,
        before: int,
        after: int,
        day: int,
        rows: int,
        merged: Iterator[Any],
        result: ImportResult,
    ) -> None:
        began = self._clock.monotonic()
        period = period_of(day * DAY_MS).partition("T")[0]
        each = -(-rows // max(1, -(-rows // TARGET_ROWS)))
        partition = {"period": period, "keep": self._keep}
        output = SortedFileWriter(self._table.uri, folder_of(period, self._keep), partition, each, level=ZSTD_LEVEL)
        try:
            new, digest = self._write(output, merged)
            self._probe("written")
            note = {"format": 1, "kind": "import", **partition, "rows": rows, "digest": str(digest), "import": identity}
            added = self._table.add(new, identity, before, after, note, began)
        except (RunError, DigestMismatchError):
            delete_files(self._table.uri, output.names)
            raise
        finally:
            output.discard()
        self._probe("committed")
        if added:
            result.samples += rows
            result.days += 1
            result.files += len(new)
            result.bytes += sum(file.size for file in new)
        else:
            result.known += rows

    def _write(self, output: SortedFileWriter, merged: Iterator[Any]) -> tuple[list[DataFile], RowDigest]:
        given = DigestingReader(lambda: None)
        for table in merged:
            for batch in table.to_batches():
                given.add(batch)
            output.add(table)
        new = output.close()
        written = digest_of_files(self._table.uri, new)
        if written != given.digest:
            raise DigestMismatchError(f"{self._table.uri}: {given.digest} were given and {written} were written")
        return new, written


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
