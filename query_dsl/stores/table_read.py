"""One reading of one version of the raw table and of its roll-ups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from artimon.model.grid import Grid
from artimon.model.select import EngineShare
from artimon.rawtable.delta import ListedTable
from artimon.rawtable.parquet_reader import OpenFiles
from artimon.rawtable.rollup_rows import RollupRows, concat_rows
from query_dsl.functions.step import NEVER
from query_dsl.stores.history.file_pruning import RawFile, RowFilter
from query_dsl.stores.history.local_reader import LocalReader, Progress
from query_dsl.stores.history.rollup_choice import FileChoice, choose_files
from query_dsl.stores.history.sample_query import NO_LIMIT, HistoryInterrupted, SampleQuery
from query_dsl.stores.history_catalogue import SeriesMatch
from query_dsl.stores.partial_buckets import PartialBuckets
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.stores.rollup_blocks import BlockReader, RollupSink
from query_dsl.stores.rollup_buckets import as_rollups, from_rollup_table, rollup_columns
from query_dsl.stores.sample_rows import ENDED, Ints, SampleRows, from_raw_table
from query_dsl.tree.times import format_time

HISTORY_NOTE = "history: "
"""Beginning of the note on what was read."""
MOST_BYTES = 256 * 1024 * 1024
"""Limit on the bytes of files that are read to find the newest samples; older ones are not found."""


class BudgetEvent(threading.Event):
    """Event that is set once the watch ends the evaluation; keeps the reason."""

    def __init__(self, watch: QueryBudget) -> None:
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

    def reason(self) -> BaseException:
        """Return the exception that ended it."""
        return self._why or HistoryInterrupted("reading the history was interrupted")


@dataclass(frozen=True, slots=True)
class TableVersions:
    """Versions of the raw table and of the table of roll-ups, None if there is none, that one reading uses."""

    table: ListedTable
    uri: str
    rollups: ListedTable | None
    rollups_uri: str
    grid: Grid | None
    """Grid of the buckets to make; None: samples are wanted."""
    appended_ms: int | None
    """Append time of the newest batch in the raw table; None if unknown."""
    files: OpenFiles
    """Data files of the raw table that stay open."""
    rollup_files: OpenFiles
    """The same of the table of roll-ups."""
    months: Mapping[str, int]
    """Path and size of the month files that exist, if the grid may be read from them."""

    def choose(self, wanted: RowFilter) -> FileChoice:
        """Return the files that may hold wanted rows."""
        return choose_files(self.table, self.rollups, wanted, self.grid, self.appended_ms, self.months)


@dataclass(slots=True)
class TableRead:
    """One reading of one version of the tables. `_lock` guards the counts of roll-ups."""

    versions: TableVersions
    row_filter: RowFilter
    row_of: Ints
    """The series of each pair of `wanted`."""
    choice: FileChoice
    budget_event: BudgetEvent
    engine: str = "local"
    bytes: int = 0
    rollup_rows: int = 0
    cached_files: int = 0
    """Files of roll-ups whose buckets were in the cache of closed parts."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def uri(self) -> str:
        """URI of the raw table."""
        return self.versions.uri

    def reader(self, samples: int = NO_LIMIT) -> LocalReader:
        """A reader of the wanted samples in this process."""
        asked = self._question(samples)
        return LocalReader(self.uri, self.row_filter, asked, self.budget_event, opened=self.versions.files)

    def _question(self, samples: int) -> SampleQuery:
        after_ms, until_ms = self.row_filter.after_us // 1000, self.row_filter.until_us // 1000
        return SampleQuery("the query", (), after_ms, until_ms, samples)

    def read_rollups(
        self,
        columns: Sequence[str],
        take: Callable[[Any], None],
        most: int,
    ) -> None:
        """Call `take` with the wanted rows of each row group of the chosen roll-ups, from several threads."""
        reader = self._rollup_reader(self.row_filter, most, columns)
        reader.read_each(self.choice.rollups, take)
        self._add_bytes(reader)

    def read_blocks(self, files: Sequence[RawFile], sink: RollupSink, progress: Progress) -> None:
        """Give the wanted rows of some of the chosen roll-ups to `sink`, from several threads."""
        reader = self._rollup_reader(self.row_filter, NO_LIMIT, rollup_columns(sink.statistics))
        blocks = BlockReader(reader, self.row_filter, self.versions.rollup_files.decoded, sink)
        reader.shares(files, blocks.read_share, progress)
        self._add_bytes(reader)

    def read_rollup(
        self,
        file: RawFile,
        wanted: RowFilter,
        columns: Sequence[str],
        take: Callable[[Any], None],
        threads: bool,
    ) -> None:
        """Call `take` with the rows of each row group of one file, which `wanted` selects: from several `threads`, or
        from this one."""
        reader = self._rollup_reader(wanted, NO_LIMIT, columns)
        if threads:
            reader.read_each([file], take)
        else:
            for rows in reader.stream([file]):
                take(rows)
        self._add_bytes(reader)

    def _rollup_reader(self, wanted: RowFilter, most: int, columns: Sequence[str]) -> LocalReader:
        versions, asked = self.versions, self._question(most)
        return LocalReader(versions.rollups_uri, wanted, asked, self.budget_event, columns, versions.rollup_files)

    def _add_bytes(self, reader: LocalReader) -> None:
        with self._lock:
            self.bytes += reader.fetched_bytes

    def count_cached(self) -> None:
        """Count a file whose buckets were in the cache."""
        with self._lock:
            self.cached_files += 1

    def count_rollups(self, piece: PartialBuckets) -> PartialBuckets:
        """Count the rows that a piece was made of."""
        self.count_rows(piece.samples)
        return piece

    def count_rows(self, rows: int) -> None:
        """Count rows of roll-ups."""
        with self._lock:
            self.rollup_rows += rows

    def samples(self, watch: QueryBudget) -> SampleRows:
        """Read all wanted samples, numbered by pair, up to the limits of the query."""
        reader = self.reader(self._most(watch))
        table = reader.read(self.choice.raw.files)
        self.bytes += reader.fetched_bytes
        return from_raw_table(table, np.arange(len(self.row_filter)))

    def rows(self, watch: QueryBudget, statistics: Sequence[str]) -> RollupRows:
        """Read all wanted rows, samples as rows of their own, up to the limits of the query. `source` is the number of
        the pair, `series` that of the series."""
        samples = self.samples(watch)
        pairs = samples.row
        parts = [as_rollups(replace(samples, row=self.row_of[pairs]), pairs)]
        if self.choice.rollups:
            tables: list[Any] = []
            self.read_rollups(rollup_columns(statistics), tables.append, self._most(watch))
            parts += [from_rollup_table(table, self.row_of) for table in tables]
        return concat_rows(parts)

    def _most(self, watch: QueryBudget) -> int:
        return max(1, min(watch.limits.samples - watch.samples, (watch.limits.memory_bytes - watch.bytes) // 64))

    def newest(self, rows: int) -> Ints:
        """Return (rows,) times of the newest wanted sample of each series, NEVER if none was found: reads the newest
        files first, and only as many as necessary."""
        found = np.full(rows, NEVER, np.int64)
        sought = np.zeros(rows, np.bool_)
        sought[self.row_of] = True
        reader, read = self.reader(), 0
        for file in sorted(self.choice.raw.files, key=lambda one: one.newest_us, reverse=True):
            if read > MOST_BYTES or (found[sought] * 1000 >= file.newest_us).all():
                break
            read += file.size
            for table in reader.stream([file]):
                samples = from_raw_table(table, self.row_of)
                valued = samples.type != ENDED
                np.maximum.at(found, samples.row[valued], samples.time_ms[valued])
        return found

    def part(self, start_ms: int, end_ms: int, read: int) -> EngineShare:
        """Return the description of the reading for the origin of the answer; `read`: rows, of roll-ups too."""
        raw = self.choice.raw
        kept = f"{len(raw.files):,} of {raw.of_files:,} files"
        if self.choice.rollups:
            kept += f" and {self.rollup_rows:,} buckets of {self.choice.to_text()}"
        if self.cached_files:
            kept += f", {self.cached_files:,} of them cached"
        how = f"{self.engine}, {kept}, {self.bytes:,} of {raw.of_bytes:,} bytes"
        return EngineShare("history", start_ms, end_ms, read - self.rollup_rows, self.bytes, how)

    def notes(self, found: SeriesMatch, until_ms: int) -> tuple[str, ...]:
        """Return notes on missing data."""
        notes = []
        if found.ambiguous:
            notes.append(f"{len(found.ambiguous)} fingerprints with two texts are left out with their samples")
        if (appended_ms := self.versions.appended_ms) is not None and appended_ms < until_ms:
            notes.append(
                f"the history holds samples appended until {format_time(appended_ms)}: later ones, up to"
                f" {format_time(until_ms)}, are not in it yet"
            )
        return tuple(notes)


def read_text(part: EngineShare) -> str:
    return f"{HISTORY_NOTE}{part.samples:,} samples, engine {part.detail}"
