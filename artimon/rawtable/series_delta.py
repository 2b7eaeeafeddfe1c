"""The Delta table of series on HDFS, beside the raw table: every announcement, without expiry.

Every commit that adds rows also stores the read positions of the topic: transaction
`artimon.series/<topic id>/<partition>`, whose version is the next offset. Adding rows is idempotent: a crash between
any two steps, or two concurrent drivers, are harmless. docs/formats/series.md.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import RemoveAction

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.rawtable.announced_rows import PRUNED, SERIES_SCHEMA, merge_rows
from artimon.rawtable.delta import MAX_ATTEMPTS, DeltaHandle, files_of, first_line
from artimon.rawtable.file_statistics import statistics_of
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.schema import DAY_MS, DataFile, TableError, series_uri
from artimon.runtime import file_access as files

log = logging.getLogger(__name__)

APP_ID = "artimon.series"
MAX_DELTAS = 64
"""Number of delta files (one per commit) from which they are merged."""
FULL_ROWS = 100_000
"""Rows in delta files from which a full merge is due, if they exceed the rows in base files, too."""
MERGE_PASS_ROWS = 250_000
"""Approximate number of rows in memory during a merge."""
ROW_GROUP = 20_000
SWEEP_MS = 3_600_000
"""Minimum time between a merge, or the start of this process, and the deletion of unreferenced files."""
ORPHAN_MS = 6 * 3_600_000
"""Minimum age of an unreferenced file at its deletion: a younger one may belong to a commit under way."""
BASE, DELTA = "base", "delta"


class UnknownColumnsError(TableError):
    """A newer program wrote a file; a merge by this program would lose its columns."""


@dataclass(frozen=True, slots=True)
class SeriesFile:
    """A live file of the table; `made_ms` is the approximate time of its commit."""

    path: str
    size: int
    rows: int
    committed_ms: int

    @property
    def is_base(self) -> bool:
        """True if a full merge wrote it."""
        return self.path.startswith(BASE)


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Result of a merge. `clashes` are fingerprints shared by two canonical texts."""

    full: bool
    files: int
    rows_before: int
    rows: int
    size: int
    clashes: tuple[int, ...]


class SeriesTable(DeltaHandle):
    """The table of series. Used by one thread at a time."""

    def __init__(self, hdfs: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(series_uri(hdfs), SERIES_SCHEMA)
        self._clock = clock
        self._quiet_from_ms = clock.now_ms()

    # --- reads

    def positions(self, topic_id: str, partitions: int) -> dict[int, int]:
        """Return the next offset of each partition of the topic of announcements. Raises TableError, OSError."""
        table = self.refresh()
        return {p: table.transaction_version(app_id(topic_id, p)) or 0 for p in range(partitions)}

    def live(self) -> list[SeriesFile]:
        """Return the files of the newest version. Raises TableError, OSError."""
        return live_files(self.refresh())

    # --- adding

    def add(self, rows: Any, topic_id: str, start: Mapping[int, int], until: Mapping[int, int]) -> bool:
        """Add rows of SERIES_SCHEMA, read from the topic between `start` and `until`. Returns False, without adding,
        if another driver advanced the positions. After a TableError or OSError the outcome is unknown, and the rows may
        be added again."""
        new = [self._write(merge_rows(rows).table, DELTA)] if len(rows) else []
        ids = [Transaction(app_id(topic_id, p), at) for p, at in sorted(until.items())]
        failure: Exception | None = None
        for _ in range(MAX_ATTEMPTS):
            held = self.positions(topic_id, len(until))
            if failure is not None and held == until:
                self._discard(new)  # added by this commit, or by another driver that read the same range
                return True
            if held != start:
                self._delete(new)
                return False
            try:
                self.commit([file.action() for file in new], ids)
                return True
            except (DeltaError, OSError) as error:
                failure = error
                log.warning("series not added: %s; reading the table again", first_line(error))
        raise TableError(f"{self.uri}: announcements could not be added in {MAX_ATTEMPTS} attempts: {failure}")

    # --- merging

    def maintain(self, go_on: Callable[[], bool] = lambda: True) -> MergeResult | None:
        """Run a merge that is due and delete unreferenced files; None if nothing was merged. `go_on` is called between
        passes. Raises TableError, OSError."""
        if self._plan_merge() is None:
            return None
        self.delete_orphans()
        due = self._plan_merge()
        return self.merge(*due, go_on) if due else None

    def _plan_merge(self) -> tuple[list[SeriesFile], bool] | None:
        """Return the files to merge now, and True for a full merge: once a day, or if most rows are in delta files."""
        live = self.live()
        deltas = [file for file in live if not file.is_base]
        outside = sum(file.rows for file in deltas)
        inside = sum(file.rows for file in live) - outside
        oldest = min((file.committed_ms for file in live), default=0)
        aged = self._clock.now_ms() - oldest >= DAY_MS
        if deltas and (aged or (outside >= FULL_ROWS and outside > inside)):
            return live, True
        return (deltas, False) if len(deltas) >= MAX_DELTAS else None

    def merge(
        self, old: Sequence[SeriesFile], full: bool, go_on: Callable[[], bool] = lambda: True
    ) -> MergeResult | None:
        """Replace `old`, some or all live files, by merged ones; None if another driver was first or `go_on` returned
        False. The table must not be refreshed after `old` was listed: the commit applies to exactly that version."""
        before = sum(file.rows for file in old)
        new: list[DataFile] = []
        clashes: list[int] = []
        passes = math.ceil(before / MERGE_PASS_ROWS)
        for low, high in split_fingerprints(passes if full else min(passes, MAX_DELTAS // 2)):
            if not go_on():
                self._discard(new)
                return None
            try:
                parts = [read_span(f"{self.uri}/{file.path}", low, high) for file in old]
            except UnknownColumnsError as error:
                log.error("series not merged: %s; run a newer version (docs/upgrade.md)", error)
                self._discard(new)
                return None
            merged = merge_rows(pa.concat_tables(parts))
            clashes += merged.clashes
            if len(merged.table):
                new.append(self._write(merged.table, BASE if full else DELTA))
        now = self._clock.now_ms()
        removes = [RemoveAction(file.path, False, now, file.size, {}) for file in old]
        try:
            self.commit([*removes, *(file.action(False) for file in new)])
        except (DeltaError, OSError) as error:
            log.warning("series not merged: %s", first_line(error))
            self._discard(new)
            return None
        self._quiet_from_ms = now
        rows, size = sum(file.rows for file in new), sum(file.size for file in new)
        return MergeResult(full, len(new), before, rows, size, tuple(clashes))

    def _discard(self, new: Sequence[DataFile]) -> None:
        """Delete new files that no commit references; after an error the commit may have taken effect."""
        named = {file.path for file in self.live()}
        self._delete([file for file in new if file.path not in named])

    def _delete(self, unnamed: Sequence[DataFile]) -> None:
        for file in unnamed:
            files.delete_file(f"{self.uri}/{file.path}")

    def delete_orphans(self) -> list[str]:
        """Delete unreferenced files: of earlier merges, and of commits that never took place."""
        now = self._clock.now_ms()
        if now - self._quiet_from_ms < SWEEP_MS:
            return []
        named = {file.path for file in self.live()}
        dead = [
            path
            for path, _, changed_ms in files.list_files(self.uri)
            if not path.startswith("_") and path not in named and now - changed_ms >= ORPHAN_MS
        ]
        for path in dead:
            files.delete_file(f"{self.uri}/{path}")
        return dead

    # --- files

    def _write(self, rows: Any, kind: str) -> DataFile:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd", row_group_size=ROW_GROUP)
        data = sink.getvalue()
        path = f"{kind}-{self._clock.now_ms()}-{uuid.uuid4().hex[:12]}.parquet"
        files.write_file(f"{self.uri}/{path}", data)
        return DataFile(path, len(data), len(rows), {}, statistics_of(rows, PRUNED))


def app_id(topic_id: str, partition: int) -> str:
    """Return the transaction id for the read position of a partition."""
    return f"{APP_ID}/{topic_id}/{partition}"


def live_files(table: DeltaTable) -> list[SeriesFile]:
    """Return the files of this version."""
    named = files_of(table, "path", "size_bytes", "num_records")
    return [SeriesFile(path, size, rows or 0, int(path.split("-")[1])) for path, size, rows in named]


def split_fingerprints(passes: int) -> list[tuple[int, int]]:
    """Split all fingerprints into `passes` ranges [low, high] of nearly equal length."""
    step = 2**64 // max(1, passes)
    lows = [-(2**63) + step * n for n in range(max(1, passes))]
    return [(low, high - 1) for low, high in zip(lows, [*lows[1:], 2**63], strict=True)]


def read_span(uri: str, low: int, high: int) -> Any:
    """Read the rows of one file with fingerprints in [low, high]. Raises UnknownColumnsError, TableError, OSError."""
    reader = GroupReader(uri)
    if unknown := sorted(reader.columns - {*SERIES_SCHEMA.names}):
        raise UnknownColumnsError(
            f"{uri} has columns that this program does not know and would lose: {', '.join(unknown)}"
        )
    parts = []
    for group in range(reader.groups):
        least, most = reader.bounds(group, ["series"])["series"]
        if least <= high and most >= low:
            rows = reader.read(group, SERIES_SCHEMA.names)
            series = rows.column("series").to_numpy()
            parts.append(rows.filter(pa.array((series >= low) & (series <= high))))
    return pa.concat_tables([part.cast(SERIES_SCHEMA) for part in parts]) if parts else SERIES_SCHEMA.empty_table()
