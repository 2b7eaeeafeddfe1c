"""Files without the selected rows: raw files, and roll-ups of samples that have expired. Each file is one commit, which
is proven by digests: what was read is what was written and what was left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.commit import CompactionLog, FileSuperseded
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.rollup_rows import ROLLUP_FILE_SCHEMA
from artimon.rawtable.rollups import RollupFile, RollupTable, partition_of, rollup_folder
from artimon.rawtable.schema import FILE_SCHEMA, DataFile, LiveFile, folder_of
from pipeline.compaction.job import DigestingReader, DigestMismatchError, delete_files, digest_of_files
from pipeline.compaction.merge import MAX_BATCH_ROWS
from pipeline.compaction.rollup_job import ALL_ROWS, ZSTD_LEVEL, write_empty
from pipeline.compaction.row_digest import RowDigest, digest_of
from pipeline.compaction.sorted_files import SortedFileWriter
from pipeline.compaction.sorted_runs import ParquetRun, RunError
from pipeline.history.row_selection import RowSelection, selected_pairs

RAW_LEVEL = 3
"""Level of zstd of rewritten raw files."""


class FileRewriter:
    """Rewrites one file at a time, in the memory of a batch and a row group."""

    def __init__(
        self, raw: CompactionLog, rollups: RollupTable, clock: Clock = SYSTEM_CLOCK, probe: Failpoint = no_failpoint
    ) -> None:
        """`probe`: called at the points "rewritten" and "replaced"."""
        self._raw, self._rollups, self._clock, self._probe = raw, rollups, clock, probe

    def rewrite_raw(self, file: LiveFile, selection: RowSelection) -> int:
        """Replace a raw file by one without the selected rows, which is empty if there are no others: a partition
        without any file would tell readers that its samples have expired, and its roll-ups count. Returns the number
        of removed rows. Raises FileSuperseded, RunError, DigestMismatchError, TableError, OSError."""
        began = self._clock.monotonic()
        partition = {"period": file.period, "keep": file.keep}
        output = SortedFileWriter(
            self._raw.uri, folder_of(file.period, file.keep), partition, max(1, file.rows), level=RAW_LEVEL
        )
        read, removed = DigestingReader(lambda: None), RowDigest()
        try:
            run = ParquetRun(f"{self._raw.uri}/{file.path}", file.rows, file.size, read.add)
            for batch in run.batches(MAX_BATCH_ROWS):
                mask, _ = selected_pairs(selection, batch)
                removed = removed.plus(digest_of(batch.filter(pa.array(mask))))
                output.add(pa.Table.from_batches([batch.filter(pa.array(~mask))]))
            new = output.close() or [write_empty(output, FILE_SCHEMA)]
            kept = digest_of_files(self._raw.uri, new)
            if kept.plus(removed) != read.digest:
                raise DigestMismatchError(f"{run.name}: {read.digest} were read, {kept} kept and {removed} removed")
            self._probe("rewritten")
            note = {"format": 1, "kind": "delete", **partition, "rows": removed.rows, "digest": str(kept)}
            self._raw.replace([file], new, note, began, data_change=True)
        except FileNotFoundError as error:
            delete_files(self._raw.uri, output.names)
            raise FileSuperseded(f"{file.path} was replaced meanwhile: {error}") from error
        except (RunError, DigestMismatchError, FileSuperseded):
            delete_files(self._raw.uri, output.names)
            raise
        finally:
            output.discard()
        self._probe("replaced")
        return removed.rows

    def rewrite_rollup(self, file: RollupFile, selection: RowSelection) -> None:
        """Replace a file of roll-ups by one without the selected buckets. Raises as `rewrite_raw`."""
        began = self._clock.monotonic()
        folder = rollup_folder(file.level_ms, file.period, file.keep)
        partition = partition_of(file.level_ms, file.period, file.keep)
        output = SortedFileWriter(
            self._rollups.uri, folder, partition, ALL_ROWS, prefix=file.raw_name, level=ZSTD_LEVEL
        )
        try:
            reader, removed = GroupReader(f"{self._rollups.uri}/{file.path}"), 0
            for group in range(reader.groups):
                rows = reader.read(group, ROLLUP_FILE_SCHEMA.names).cast(ROLLUP_FILE_SCHEMA)
                mask, _ = selected_pairs(selection, rows)
                removed += int(mask.sum())
                output.add(rows.filter(pa.array(~mask)))
            new = output.close() or [write_empty(output)]
            self._check_rows(new, file.rows - removed)
            self._probe("rewritten")
            note = {"format": 1, "kind": "delete", "period": file.period, "keep": file.keep, "rows": removed}
            self._rollups.change([file], new, note, began)
        except (FileSuperseded, DigestMismatchError):
            delete_files(self._rollups.uri, output.names)
            raise
        finally:
            output.discard()
        self._probe("replaced")

    def _check_rows(self, new: list[DataFile], rows: int) -> None:
        held = 0
        for file in new:
            reader: Any = GroupReader(f"{self._rollups.uri}/{file.path}")
            held += sum(reader.rows(group) for group in range(reader.groups))
        if held != rows:
            raise DigestMismatchError(f"{self._rollups.uri}/{new[0].path} holds {held} of {rows} rows")
