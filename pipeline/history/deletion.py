"""Deletion of selected samples, or of their labels, for ever: a plan with a token, the deletion, and the proof that the
bytes are gone. With a LabelChange the samples stay, under new labels.

Raw files are rewritten first, then roll-ups, so that a roll-up is never made of a deleted sample after its own rewrite.
Each file is a commit of its own; a deletion that ends early is planned again. Its record, which the proof reads, is a
file of the selected pairs at `<hdfs>/artimon/deletions`. docs/history.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.commit import CompactionLog, FileSuperseded
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.rollups import RollupFile, RollupTable, month_files, raw_name_of, stem_of
from artimon.rawtable.schema import FILE_SCHEMA, LiveFile, TableError, day_of, series_uri
from artimon.rawtable.series_delta import SeriesTable
from artimon.runtime import file_access as files
from pipeline.compaction.row_digest import RowDigest, digest_of
from pipeline.compaction.sorted_runs import conform
from pipeline.history.rewrite import FileRewriter, LabelChange
from pipeline.history.row_selection import Bools, Ints, Prune, RowSelection, Select, count_selected, matching_groups

log = logging.getLogger(__name__)

MAX_ROUNDS = 20
"""Rounds of a deletion: appends and compaction may make new files with selected rows during each."""
EVER = (-(2**62), 2**62)
RECORD_KEY = "artimon"
"""Key of the times in the metadata of a record."""


class DeletionError(TableError):
    """A deletion did not reach its end. The text says what remains."""


@dataclass(slots=True)
class DeletionPlan:
    """Selected rows of the newest version of both tables. `rollups` are those of samples that have expired."""

    version: int
    raw: list[tuple[LiveFile, int]] = field(default_factory=list)
    rollups: list[tuple[RollupFile, int]] = field(default_factory=list)
    stale: list[RollupFile] = field(default_factory=list)
    """Roll-ups of raw files that are no longer live, beside live ones. No question reads them."""
    digest: RowDigest = field(default_factory=RowDigest)
    pairs: set[int] = field(default_factory=set)

    @property
    def samples(self) -> int:
        return self.digest.rows

    @property
    def buckets(self) -> int:
        """Rows of roll-ups of samples that have expired."""
        return sum(count for _, count in self.rollups)

    @property
    def is_empty(self) -> bool:
        return not (self.raw or self.rollups or self.stale)

    def code(self, selection: RowSelection) -> str:
        """Return a digest of the selection and of the selected rows, whatever files hold them."""
        digest = xxhash.xxh3_64(np.ascontiguousarray(selection.source).tobytes())
        digest.update(np.ascontiguousarray(selection.series).tobytes())
        digest.update(f"{selection.after_us} {selection.until_us} {self.digest} {self.buckets}".encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """`version` of the raw table from which on the samples are gone, and that of the roll-ups, -1 without any; `series`
    were removed."""

    version: int
    rollup_version: int
    samples: int
    files: int
    series: int


@dataclass(frozen=True, slots=True)
class DeletionProof:
    """Files on HDFS, of versions that are no longer read too, that were searched, and those that hold selected rows or
    cannot be read."""

    searched: int
    remaining: tuple[str, ...]


class Deletion:
    """One selection. `select` makes selections of the same kind as `selection`."""

    def __init__(
        self,
        hdfs: str,
        selection: RowSelection,
        prune: Prune,
        select: Select,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
        change: LabelChange | None = None,
    ) -> None:
        self._hdfs, self._selection, self._prune, self._select = hdfs, selection, prune, select
        self._raw, self._rollups = CompactionLog(hdfs, clock), RollupTable(hdfs, clock, made=False)
        self._rewriter = FileRewriter(self._raw, self._rollups, clock, probe, change)
        self._clock, self._probe = clock, probe
        self._clear = set[str]()
        """Raw files without selected rows: they are not searched again."""

    # --- the plan

    def plan(self) -> DeletionPlan:
        """Find the selected rows; again if compaction removes a file meanwhile. Raises TableError, OSError."""
        for attempt in range(MAX_ROUNDS):
            try:
                return self._plan()
            except FileNotFoundError:
                if attempt == MAX_ROUNDS - 1:
                    raise
        raise AssertionError("unreachable")

    def _plan(self) -> DeletionPlan:
        table = self._raw.refresh()
        plan = DeletionPlan(int(table.version()))
        live = self._raw.live()
        near = self._prune(table, self._selection)
        for file in live:
            if file.path not in near or file.path in self._clear:
                continue
            count = 0
            uri = f"{self._raw.uri}/{file.path}"
            for reader, group, mask, pairs in matching_groups(uri, self._selection):
                names = [name for name in FILE_SCHEMA.names if name in reader.columns]
                rows = reader.read(group, names).filter(pa.array(mask)).combine_chunks()
                for batch in rows.to_batches():
                    plan.digest = plan.digest.plus(digest_of(conform(batch)))
                plan.pairs |= set(np.unique(pairs).tolist())
                count += len(pairs)
            if count:
                plan.raw.append((file, count))
            else:
                self._clear.add(file.path)
        self._plan_rollups(live, plan)
        return plan

    def _plan_rollups(self, live: Sequence[LiveFile], plan: DeletionPlan) -> None:
        """Find roll-ups with selected rows that are not those of a live raw file: these follow it."""
        names = {stem_of(file.path) for file in live}
        partitions = {(day_of(file.period), file.keep) for file in live}
        for file, selection in self._near_rollups():
            if file.raw_name in names:
                continue
            if count := count_selected(f"{self._rollups.uri}/{file.path}", selection):
                if (file.period, file.keep) in partitions:
                    plan.stale.append(file)
                else:
                    plan.rollups.append((file, count))

    def _near_rollups(self) -> Iterator[tuple[RollupFile, RowSelection]]:
        try:
            table = self._rollups.refresh()
        except FileNotFoundError:
            return
        found = self._rollups.live()
        for level in sorted({file.level_ms for file in found}):
            selection = self._of_buckets(level)
            near = self._prune(table, selection)
            yield from ((file, selection) for file in found if file.level_ms == level and file.path in near)

    def _of_buckets(self, level_ms: int) -> RowSelection:
        """Return the selection of the buckets (time - level, time] that overlap the selected time."""
        own = self._selection
        return self._select(own.source, own.series, own.after_us // 1000, own.until_us // 1000 + level_ms - 1)

    # --- the deletion

    def run(self, plan: DeletionPlan) -> DeletionResult:
        """Delete what is selected, also what has arrived since the plan. Raises DeletionError, RunError, TableError,
        OSError: some rows may then be deleted, and a new plan has the rest."""
        samples = rewritten = 0
        for _ in range(MAX_ROUNDS):
            if plan.is_empty:
                if not self._is_recorded(plan.version):
                    break
                self._raw.fence({"format": 1, "kind": self._rewriter.kind})
            for file, _ in plan.raw:
                try:
                    samples += self._rewriter.rewrite_raw(file, self._selection)
                    rewritten += 1
                except FileSuperseded as error:
                    log.info("%s: planned again", error)
            rewritten += self._clean_rollups()
            plan = self.plan()
        if not plan.is_empty:
            raise DeletionError(f"{plan.samples:,} samples remain after {MAX_ROUNDS} rounds: stop their source, repeat")
        rollup_version, gone = self._rollup_version(), self._gone_pairs()
        self._write_record(plan.version, gone)
        self._probe("recorded")
        if gone.any():
            keys = _keys(self._selection.source[gone], self._selection.series[gone])
            SeriesTable(self._hdfs, self._clock).remove(lambda rows: np.isin(_row_keys(rows), keys))
        return DeletionResult(plan.version, rollup_version, samples, rewritten, int(gone.sum()))

    def _clean_rollups(self) -> int:
        """Remove the roll-ups of replaced raw files, and rewrite those of expired samples. Returns the number of
        files."""
        plan = DeletionPlan(int(self._raw.refresh().version()))
        self._plan_rollups(self._raw.live(), plan)
        if plan.stale:
            self._rollups.change(plan.stale, [], {"format": 1, "kind": self._rewriter.kind}, self._clock.monotonic())
        for file, _ in plan.rollups:
            try:
                self._rewriter.rewrite_rollup(file, self._of_buckets(file.level_ms))
            except (FileSuperseded, FileNotFoundError) as error:
                log.info("%s: planned again", error)
        return len(plan.stale) + len(plan.rollups)

    def _rollup_version(self) -> int:
        try:
            return int(self._rollups.refresh().version())
        except FileNotFoundError:
            return -1

    def straddling(self, plan: DeletionPlan) -> int:
        """Return the number of buckets of expired samples that the selected time does not cover as a whole."""
        own, count = self._selection, 0
        for file, selected in plan.rollups:
            after_ms = own.after_us // 1000 + file.level_ms - 1
            inside = self._select(own.source, own.series, after_ms, own.until_us // 1000)
            count += selected - count_selected(f"{self._rollups.uri}/{file.path}", inside)
        return count

    def _gone_pairs(self) -> Bools:
        """Return the mask of the selected pairs of which no row remains at any time."""
        own = self._selection
        whole = self._select(own.source, own.series, *EVER)
        remain = np.zeros(len(own.source), np.bool_)
        raw, rollups = self._raw.refresh(), self._near_live_rollups(whole)
        near = self._prune(raw, whole)
        uris = [f"{self._raw.uri}/{file.path}" for file in self._raw.live() if file.path in near]
        for uri in (*uris, *rollups):
            for _, _, _, pairs in matching_groups(uri, whole):
                remain[pairs] = True
        return ~remain

    def _near_live_rollups(self, whole: RowSelection) -> list[str]:
        try:
            table = self._rollups.refresh()
        except FileNotFoundError:
            return []
        return [f"{self._rollups.uri}/{path}" for path in self._prune(table, whole)]

    def _is_recorded(self, version: int) -> bool:
        """True if another deletion ended at this version."""
        try:
            return bool(files.read_file(record_uri(self._hdfs, version)))
        except FileNotFoundError:
            return False

    def _write_record(self, version: int, gone: Bools) -> None:
        own = self._selection
        about = {"format": 1, "after_us": own.after_us, "until_us": own.until_us, "time_ms": self._clock.now_ms()}
        table = pa.table({"source": own.source, "series": own.series, "gone": gone})
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata({RECORD_KEY: json.dumps(about)}), sink, compression="zstd")
        files.replace_file(record_uri(self._hdfs, version), sink.getvalue())


def record_uri(hdfs: str, version: int) -> str:
    """Return the URI of the record of the deletion that ended at a version of the raw table."""
    return f"{hdfs.rstrip('/')}/artimon/deletions/{version:020d}.parquet"


def _keys(source: Ints, series: Ints) -> Any:
    """Return a 64-bit hash of each pair. Of one source, no two series share one."""
    return series.view(np.uint64) + source.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def _row_keys(rows: Any) -> Any:
    return _keys(*(rows.column(name).cast(pa.int64()).to_numpy() for name in ("source", "series")))


# --- the proof


def prove_deletion(hdfs: str, version: int, select: Select) -> DeletionProof:
    """Search every data file that exists for rows of the deletion that ended at `version`. Raises DeletionError if
    there is none, TableError, OSError."""
    try:
        data = files.read_file(record_uri(hdfs, version))
    except FileNotFoundError:
        raise DeletionError(f"no deletion ended at version {version}: {record_uri(hdfs, version)} is missing") from None
    try:
        record = pq.read_table(pa.BufferReader(data))
        about = json.loads((record.schema.metadata or {})[RECORD_KEY.encode()])
        source, series = (record.column(name).to_numpy() for name in ("source", "series"))
        gone = record.column("gone").to_numpy(zero_copy_only=False)
        after_ms, until_ms = int(about["after_us"]) // 1000, int(about["until_us"]) // 1000
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise DeletionError(f"{record_uri(hdfs, version)} cannot be read: {error!r:.200}") from error
    raw = CompactionLog(hdfs)
    raw.refresh()
    names = {stem_of(file.path) for file in raw.live()}
    searched, remaining = 0, []
    for uri, path in _existing(raw.uri):
        searched += 1
        if _holds(uri, select(source, series, after_ms, until_ms)):
            remaining.append(f"{raw.uri}/{path}")
    rollups = RollupTable(hdfs, made=False)
    months: Collection[str] = ()
    with suppress(FileNotFoundError):
        rollups.refresh()
        months = month_files(rollups.live())
    for uri, path in _existing(rollups.uri):
        searched += 1
        if path in months or raw_name_of(path) in names:
            continue  # a month file has what its days have, the roll-up of a live raw file what that file has
        level_ms = int(path.partition("/")[0].removeprefix("level=")) * 1000
        if _holds(uri, select(source, series, after_ms, until_ms + level_ms - 1)):
            remaining.append(uri)
    keys = _keys(source[gone], series[gone])
    for uri, path in _existing(series_uri(hdfs)) if gone.any() else ():
        searched += 1
        if _names_series(uri, keys):
            remaining.append(f"{series_uri(hdfs)}/{path}")
    return DeletionProof(searched, tuple(remaining))


def _existing(table: str) -> Iterator[tuple[str, str]]:
    """Yield URI and path of every data file in the folder of a table, whether a version names it or not."""
    try:
        found = files.list_files(table)
    except FileNotFoundError:
        return
    yield from ((f"{table}/{path}", path) for path, _, _ in found if not path.startswith("_"))


def _holds(uri: str, selection: RowSelection) -> bool:
    """True if a file has selected rows, or cannot be read."""
    try:
        return bool(count_selected(uri, selection))
    except FileNotFoundError:
        return False
    except TableError:
        return True


def _names_series(uri: str, keys: Any) -> bool:
    try:
        reader = GroupReader(uri)
        parts = (reader.read(group, ["source", "series"]) for group in range(reader.groups))
        return any(bool(np.isin(_row_keys(rows), keys).any()) for rows in parts)
    except FileNotFoundError:
        return False
    except TableError:
        return True
