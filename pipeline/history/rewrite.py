"""Files without the selected rows, or with new labels for them: raw files, and roll-ups of samples that have expired.
Each file is one commit, which is proven by digests: what was read is what was written and what was left out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.commit import CompactionLog, FileSuperseded
from artimon.rawtable.parquet_reader import MAX_GROUP_ROWS, GroupReader
from artimon.rawtable.rollup_rows import ROLLUP_FILE_SCHEMA
from artimon.rawtable.rollups import RollupFile, RollupTable, partition_of, rollup_folder
from artimon.rawtable.schema import FILE_SCHEMA, DataFile, LiveFile, folder_of
from pipeline.compaction.job import DigestingReader, DigestMismatchError, delete_files, digest_of_files
from pipeline.compaction.merge import DEFAULT_LIMITS, MAX_BATCH_ROWS, MergeLimits, merge_all
from pipeline.compaction.rollup_job import ALL_ROWS, ZSTD_LEVEL, write_empty
from pipeline.compaction.row_digest import RowDigest, digest_of
from pipeline.compaction.row_order import sort_rows
from pipeline.compaction.sorted_files import SortedFileWriter
from pipeline.compaction.sorted_runs import ParquetRun, RunError, SpilledRun, spill
from pipeline.history.row_selection import Ints, RowSelection, selected_pairs

RAW_LEVEL = 3
"""Level of zstd of rewritten raw files."""


@dataclass(frozen=True, slots=True)
class LabelChange:
    """New fingerprint of each pair of a selection, in its order, shape (pairs,). The source does not change. `folder`
    is local: about 60 bytes a selected row of one file."""

    series: Ints
    folder: Path
    limits: MergeLimits = DEFAULT_LIMITS

    def apply(self, rows: Any, pairs: Ints) -> Any:
        """Return a table of `rows` with their new fingerprints; `pairs`: number of the pair of each."""
        at = rows.schema.get_field_index("series")
        return rows.set_column(at, rows.schema.field(at), pa.array(self.series[pairs], pa.int64()))


class KeptRows:
    """Run of the rows of a file that are not selected. `batches_of` yields batches of at most so many rows."""

    def __init__(
        self, name: str, weight: int, batches_of: Callable[[int], Iterator[Any]], selection: RowSelection
    ) -> None:
        self.name, self.weight = name, weight
        self._batches_of, self._selection = batches_of, selection

    def batches(self, rows: int) -> Iterator[Any]:
        """Yield RecordBatches of at most `rows` rows."""
        for batch in self._batches_of(rows):
            mask, _ = selected_pairs(self._selection, batch)
            if not mask.all():
                yield batch.filter(pa.array(~mask))


class MovedRows:
    """Rows with new labels, as sorted runs on the local disk."""

    def __init__(self, change: LabelChange, schema: pa.Schema) -> None:
        self._change, self._schema = change, schema
        self._pending: list[Any] = []
        self._pending_rows = 0
        self.rows = 0
        self.runs: list[SpilledRun] = []
        self.close()

    def close(self) -> None:
        """Delete the local files."""
        shutil.rmtree(self._change.folder, ignore_errors=True)

    def add(self, rows: Any, pairs: Ints) -> Any:
        """Give selected rows, a table or batch, their new labels, and return them."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        moved = self._change.apply(table, pairs)
        self._pending.append(moved)
        self._pending_rows += len(moved)
        self.rows += len(moved)
        if self._pending_rows >= self._change.limits.window_rows:
            self.flush()
        return moved

    def flush(self) -> None:
        """Write the rows in memory as a run."""
        if self._pending_rows:
            rows = sort_rows(pa.concat_tables(self._pending))
            self.runs.append(spill(self._change.folder / "moved.arrow", [rows], MAX_BATCH_ROWS, self._schema))
        self._pending, self._pending_rows = [], 0

    def merged(self, kept: KeptRows) -> Iterator[Any]:
        """Yield tables of all rows in order, with those that keep their labels."""
        self.flush()
        return merge_all([kept, *self.runs], self._change.folder / "merge", self._change.limits, self._schema)


class FileRewriter:
    """Rewrites one file at a time, in the memory of a batch and a row group. Without a `change` the selected rows
    go."""

    def __init__(
        self,
        raw: CompactionLog,
        rollups: RollupTable,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
        change: LabelChange | None = None,
    ) -> None:
        """`probe`: called at the points "rewritten" and "replaced"."""
        self._raw, self._rollups, self._clock, self._probe = raw, rollups, clock, probe
        self._change = change

    @property
    def kind(self) -> str:
        """Kind of the commits."""
        return "relabel" if self._change else "delete"

    def rewrite_raw(self, file: LiveFile, selection: RowSelection) -> int:
        """Replace a raw file by one without the selected rows, or with new labels for them. It is empty if there are no
        others: a partition without any file would tell readers that its samples have expired, and its roll-ups count.
        Returns the number of selected rows. Raises FileSuperseded, RunError, DigestMismatchError, TableError,
        OSError."""
        began = self._clock.monotonic()
        partition = {"period": file.period, "keep": file.keep}
        folder = folder_of(file.period, file.keep)
        output = SortedFileWriter(self._raw.uri, folder, partition, max(1, file.rows), level=RAW_LEVEL)
        with _replacing(output, file.path):
            if self._change is None:
                new, selected, digest = self._write_kept(file, selection, output)
            else:
                new, selected, digest = self._write_moved(file, selection, output, self._change)
            self._probe("rewritten")
            note = {"format": 1, "kind": self.kind, **partition, "rows": selected, "digest": str(digest)}
            self._raw.replace([file], new, note, began, data_change=True)
        self._probe("replaced")
        return selected

    def _write_kept(
        self, file: LiveFile, selection: RowSelection, output: SortedFileWriter
    ) -> tuple[list[DataFile], int, RowDigest]:
        """Write the rows that are not selected; return the files, the number of selected rows and the digest."""
        read, removed = DigestingReader(lambda: None), RowDigest()
        run = ParquetRun(f"{self._raw.uri}/{file.path}", file.rows, file.size, read.add)
        for batch in run.batches(MAX_BATCH_ROWS):
            mask, _ = selected_pairs(selection, batch)
            removed = removed.plus(digest_of(batch.filter(pa.array(mask))))
            output.add(pa.Table.from_batches([batch.filter(pa.array(~mask))]))
        new = output.close() or [write_empty(output, FILE_SCHEMA)]
        kept = digest_of_files(self._raw.uri, new)
        if kept.plus(removed) != read.digest:
            raise DigestMismatchError(f"{run.name}: {read.digest} were read, {kept} kept and {removed} removed")
        return new, removed.rows, kept

    def _write_moved(
        self, file: LiveFile, selection: RowSelection, output: SortedFileWriter, change: LabelChange
    ) -> tuple[list[DataFile], int, RowDigest]:
        """Write all rows, the selected ones with new labels. The file is read twice: selected rows move to other places
        in the order."""
        moved, read = MovedRows(change, FILE_SCHEMA), DigestingReader(lambda: None)
        try:
            expected, removed = RowDigest(), RowDigest()
            uri = f"{self._raw.uri}/{file.path}"
            run = ParquetRun(uri, file.rows, file.size, read.add)
            for batch in run.batches(MAX_BATCH_ROWS):
                mask, pairs = selected_pairs(selection, batch)
                kept, selected = digest_of(batch.filter(pa.array(~mask))), batch.filter(pa.array(mask))
                removed, expected = removed.plus(kept).plus(digest_of(selected)), expected.plus(kept)
                for one in moved.add(selected, pairs).combine_chunks().to_batches():
                    expected = expected.plus(digest_of(one))
            again = ParquetRun(uri, file.rows, file.size)
            for rows in moved.merged(KeptRows(uri, again.weight, again.batches, selection)):
                output.add(rows)
            new = output.close() or [write_empty(output, FILE_SCHEMA)]
        finally:
            moved.close()
        written = digest_of_files(self._raw.uri, new)
        if removed != read.digest or written != expected:
            raise DigestMismatchError(f"{uri}: {read.digest} were read, {expected} expected and {written} written")
        return new, moved.rows, written

    def rewrite_rollup(self, file: RollupFile, selection: RowSelection) -> None:
        """Replace a file of roll-ups by one without the selected buckets, or with new labels for them. Raises as
        `rewrite_raw`."""
        began = self._clock.monotonic()
        folder = rollup_folder(file.level_ms, file.period, file.keep)
        partition = partition_of(file.level_ms, file.period, file.keep)
        output = SortedFileWriter(
            self._rollups.uri, folder, partition, ALL_ROWS, prefix=file.raw_name, level=ZSTD_LEVEL
        )
        with _replacing(output, file.path):
            removed = self._write_rollup(file, selection, output)
            new = output.close() or [write_empty(output)]
            self._check_rows(new, file.rows - (0 if self._change else removed))
            self._probe("rewritten")
            note = {"format": 1, "kind": self.kind, "period": file.period, "keep": file.keep, "rows": removed}
            self._rollups.change([file], new, note, began)
        self._probe("replaced")

    def _write_rollup(self, file: RollupFile, selection: RowSelection, output: SortedFileWriter) -> int:
        """Write the buckets; return the number of selected ones."""
        uri = f"{self._rollups.uri}/{file.path}"
        if self._change is None:
            removed = 0
            for rows in _buckets(uri, ALL_ROWS):
                mask, _ = selected_pairs(selection, rows)
                removed += int(mask.sum())
                output.add(pa.Table.from_batches([rows.filter(pa.array(~mask))]))
            return removed
        moved = MovedRows(self._change, ROLLUP_FILE_SCHEMA)
        try:
            for rows in _buckets(uri, MAX_BATCH_ROWS):
                mask, pairs = selected_pairs(selection, rows)
                moved.add(rows.filter(pa.array(mask)), pairs)
            for rows in moved.merged(KeptRows(uri, 0, lambda most: _buckets(uri, most), selection)):
                output.add(rows)
        finally:
            moved.close()
        return moved.rows

    def _check_rows(self, new: Sequence[DataFile], rows: int) -> None:
        held = 0
        for file in new:
            reader: Any = GroupReader(f"{self._rollups.uri}/{file.path}")
            held += sum(reader.rows(group) for group in range(reader.groups))
        if held != rows:
            raise DigestMismatchError(f"{self._rollups.uri}/{new[0].path} holds {held} of {rows} rows")


def _buckets(uri: str, rows: int) -> Iterator[Any]:
    """Yield the rows of a file of roll-ups, in batches of at most `rows` rows."""
    reader = GroupReader(uri)
    for group in range(reader.groups):
        table = reader.read(group, ROLLUP_FILE_SCHEMA.names).cast(ROLLUP_FILE_SCHEMA)
        yield from table.combine_chunks().to_batches(min(rows, MAX_GROUP_ROWS))


@contextmanager
def _replacing(output: SortedFileWriter, path: str) -> Iterator[None]:
    """Delete the new files if the old one is not replaced."""
    try:
        yield
    except FileNotFoundError as error:
        delete_files(output.table, output.names)
        raise FileSuperseded(f"{path} was replaced meanwhile: {error}") from error
    except (RunError, DigestMismatchError, FileSuperseded):
        delete_files(output.table, output.names)
        raise
    finally:
        output.discard()
