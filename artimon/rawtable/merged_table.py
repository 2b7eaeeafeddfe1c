"""A Delta table without partitions that many commits extend by one small file each: small files are merged into few,
expired rows leave it, and files that no commit names are deleted. Base of the tables of sources and of series.

Every merge is one commit that removes exactly the files that it read. If other commits come first, the same files are
committed on the newer version, as long as all that were read are live.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import RemoveAction

from artimon.model.clock import Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.delta import DeltaHandle, files_of, first_line
from artimon.rawtable.merged_files import MergedFiles, delete_merged
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.schema import DAY_MS, DataFile, TableError
from artimon.runtime import file_access as files

log = logging.getLogger(__name__)

FULL_ROWS = 100_000
"""Rows in delta files from which a full merge is due, if they exceed the rows in base files, too."""
MERGE_PASS_ROWS = 250_000
"""Approximate number of rows in memory during a merge."""
UNNAMED_MS = 3_600_000
"""An unreferenced file is deleted once this process has known it for so long: readers open versions, not files."""
ORPHAN_MS = 6 * 3_600_000
"""Minimum age of an unreferenced file at its deletion."""
MAX_FILE_AGE_S = 3_600.0
"""Maximum age of a file at its commit, in seconds: much less than ORPHAN_MS."""
BASE, DELTA = "base", "delta"
PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 0 seconds",
    "delta.logRetentionDuration": "interval 1 days",
}
"""Checkpoints list no removed files, because unreferenced files are found by listing; commits are kept for a day."""

Split = Callable[[pa.Table], Mapping[str, pa.Table]]
"""Divides merged rows into the kinds of files that they are written to; rows that are in none are dropped."""


class UnknownColumnsError(TableError):
    """A newer program wrote a file; a merge by this program would lose its columns."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A live file of the table; `committed_ms` is the approximate time of its commit, 0 if its name has none."""

    path: str
    size: int
    rows: int
    committed_ms: int

    @property
    def kind(self) -> str:
        """First word of its name: what wrote it."""
        return self.path.split("-")[0]

    @property
    def is_base(self) -> bool:
        """True if a full merge wrote it."""
        return self.kind == BASE


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Result of a merge. `clashes` are fingerprints shared by two canonical texts (table of series)."""

    full: bool
    files: int
    rows_before: int
    rows: int
    size: int
    clashes: tuple[int, ...] = ()


class MergedTable(DeltaHandle):
    """A table that merges its small files. Used by one thread at a time; several processes may merge one table."""

    max_deltas = 64
    """Number of delta files (one per commit) from which they are merged."""
    row_group = 20_000
    pruned: Sequence[str] = ()
    """Columns that readers prune by."""
    is_indexed = False
    """True for an index of terms beside each large file."""

    def __init__(self, uri: str, schema: pa.Schema, clock: Clock, probe: Failpoint = no_failpoint) -> None:
        """`probe`: called at the points "merged" (files are written) and "replaced" (they are committed)."""
        super().__init__(uri, schema, properties=PROPERTIES, clock=clock)
        self._probe = probe
        self._unnamed_since: dict[str, int] = {}
        """Unreferenced files, and when this process first saw each without a reference."""

    # --- for the tables

    def _spans(self, passes: int) -> list[tuple[int, int]]:
        """Return the ranges [low, high] of the key that are merged one after another."""
        raise NotImplementedError

    def _read_span(self, uri: str, low: int, high: int) -> pa.Table:
        """Read the rows of one file with keys in [low, high]. Raises UnknownColumnsError, TableError, OSError."""
        raise NotImplementedError

    def _combine(self, rows: pa.Table) -> tuple[pa.Table, tuple[int, ...]]:
        """Return the merged rows in order, and clashes."""
        raise NotImplementedError

    # --- reads

    def live(self) -> list[TableFile]:
        """Return the files of the newest version. Raises TableError, OSError."""
        return live_files(self.refresh())

    # --- merging

    def maintain(self, go_on: Callable[[], bool] = lambda: True) -> MergeResult | None:
        """Run the merge that the number or size of small files makes due; None if nothing was merged. `go_on` is called
        between passes. Raises TableError, OSError."""
        due = self._plan_merge(self.live())
        return self.merge(*due, go_on) if due else None

    def is_aged(self, live: Sequence[TableFile]) -> bool:
        """True once a day: an aged table is merged as a whole, and its rows may expire."""
        merged = [file.committed_ms for file in live if file.is_base] + [f.committed_ms for f in self.deltas(live)]
        return self._clock.now_ms() - min(merged, default=self._clock.now_ms()) >= DAY_MS

    def _plan_merge(self, live: Sequence[TableFile]) -> tuple[list[TableFile], bool] | None:
        """Return the files to merge now, and True for a full merge: if most rows are in delta files."""
        base = [file for file in live if file.is_base]
        deltas = self.deltas(live)
        outside = sum(file.rows for file in deltas)
        if deltas and outside >= FULL_ROWS and outside > sum(file.rows for file in base):
            return [*base, *deltas], True
        return (deltas, False) if len(deltas) >= self.max_deltas else None

    def deltas(self, live: Sequence[TableFile]) -> list[TableFile]:
        """Return the files that no full merge wrote."""
        return [file for file in live if not file.is_base]

    def merge(
        self,
        old: Sequence[TableFile],
        full: bool,
        go_on: Callable[[], bool] = lambda: True,
        split: Split | None = None,
    ) -> MergeResult | None:
        """Replace `old`, some or all live files, by merged ones; None if another merge was first or `go_on` returned
        False. Raises TableError, OSError."""
        began = self._clock.monotonic()
        before = sum(file.rows for file in old)
        made = self.new_files()
        clashes: list[int] = []
        passes = math.ceil(before / MERGE_PASS_ROWS)
        for low, high in self._spans(passes if full else min(passes, self.max_deltas // 2)):
            if not go_on():
                self._discard(made.closed)
                return None
            try:
                parts = [self._read_span(f"{self.uri}/{file.path}", low, high) for file in old]
            except UnknownColumnsError as error:
                log.error("not merged: %s; run a newer version (docs/upgrade.md)", error)
                self._discard(made.closed)
                return None
            rows, found = self._combine(pa.concat_tables(parts))
            clashes += found
            for kind, part in (split(rows) if split else {BASE if full else DELTA: rows}).items():
                made.add(kind, part)
        new = made.close()
        self._probe("merged")
        if not self._replace(old, new, began):
            self._discard(new)
            return None
        self._probe("replaced")
        self.delete_orphans()
        rows_now, size = sum(file.rows for file in new), sum(file.size for file in new)
        return MergeResult(full, len(new), before, rows_now, size, tuple(clashes))

    def _replace(self, old: Sequence[TableFile], new: Sequence[DataFile], began: float) -> bool:
        """Commit the merge on the newest version of which all of `old` are live; False if there is none. Raises
        TableError if the outcome is uncertain."""
        removes = [RemoveAction(file.path, False, self._clock.now_ms(), file.size, {}) for file in old]
        wanted, added = {file.path for file in old}, {file.path for file in new}
        failure = ""
        for _ in self.attempts():
            named = {file.path for file in self.live()}
            if added and added <= named:
                return True
            if not wanted <= named or self._clock.monotonic() - began > MAX_FILE_AGE_S:
                return not added and wanted.isdisjoint(named)
            try:
                self.commit([*removes, *(file.action(False) for file in new)])
                return True
            except (DeltaError, OSError) as error:
                failure = first_line(error)
                log.info("merge of %s: %s; reading the table again", self.uri, failure)
        raise TableError(f"{self.uri}: not merged: {failure}")

    def _discard(self, new: Sequence[DataFile]) -> None:
        """Delete new files that no commit references; after an error the commit may have taken effect."""
        named = {file.path for file in self.live()}
        self._delete([file for file in new if file.path not in named])

    def _delete(self, unnamed: Sequence[DataFile]) -> None:
        for file in unnamed:
            delete_merged(self.uri, file.path)

    def delete_orphans(self) -> list[str]:
        """Delete files that have long been unreferenced: of earlier merges, and of commits that never took place. Call
        it after a commit: older commits under way then fail."""
        now = self._clock.now_ms()
        named = {file.path for file in self.live()}
        unnamed = {
            path: changed_ms
            for path, _, changed_ms in files.list_files(self.uri)
            if not path.startswith("_") and path not in named
        }
        self._unnamed_since = {path: self._unnamed_since.get(path, now) for path in unnamed}
        dead = [
            path
            for path, since in self._unnamed_since.items()
            if now - since >= UNNAMED_MS and now - unnamed[path] >= ORPHAN_MS
        ]
        for path in dead:
            delete_merged(self.uri, path)
        return dead

    # --- files

    def new_files(self) -> MergedFiles:
        """Return the files of a commit, without rows yet."""
        return MergedFiles(self.uri, self._clock, self.row_group, self.pruned, self.is_indexed)

    def _write(self, rows: pa.Table, kind: str) -> DataFile:
        made = self.new_files()
        made.add(kind, rows)
        return made.close()[0]


def live_files(table: DeltaTable) -> list[TableFile]:
    """Return the files of this version."""
    named = files_of(table, "path", "size_bytes", "num_records")
    return [TableFile(path, size, rows or 0, _committed_ms(path)) for path, size, rows in named]


def _committed_ms(path: str) -> int:
    kind, number, *_ = [*path.split("-"), ""]
    return int(number) if kind != "sources" and number.isdigit() else 0


def check_columns(reader: GroupReader, uri: str, schema: pa.Schema) -> None:
    """Check that a merge loses no column. Raises UnknownColumnsError."""
    if unknown := sorted(reader.columns - {*schema.names}):
        raise UnknownColumnsError(
            f"{uri} has columns that this program does not know and would lose: {', '.join(unknown)}"
        )
