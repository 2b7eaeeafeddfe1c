"""One job: read the raw files of a day once, write their roll-ups of every level, prove that no sample is missing,
commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.commit import FileSuperseded
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.rollup_rows import (
    ROLLUP_FILE_SCHEMA,
    RollupRows,
    concat_rows,
    merge_rows,
    roll_up,
    to_table,
)
from artimon.rawtable.rollups import LEVELS_MS, RollupTable, partition_of, rollup_folder, stem_of
from artimon.rawtable.schema import DataFile, LiveFile
from pipeline.compaction.job import DigestMismatchError, JobStopped, delete_files
from pipeline.compaction.rollup_plan import RollupJob
from pipeline.compaction.sorted_files import ROW_GROUP, HdfsSink, SortedFileWriter
from pipeline.compaction.sorted_runs import ParquetRun, RunError

log = logging.getLogger(__name__)

ZSTD_LEVEL = 3
"""Level 19 makes roll-ups of counters 2 % smaller and takes eleven times the time."""
ALL_ROWS = 2**62
"""Rows of a file: one file, whatever its size."""


@dataclass(frozen=True, slots=True)
class RollupResult:
    """Result of a job. `samples` were read, `rows` and `bytes` written at all levels."""

    period: str
    keep: str
    samples: int
    rows: int
    files: int
    bytes: int
    removed: int
    seconds: float
    version: int


class RollupRunner:
    """Runs jobs one after another; `raw_uri` is the URI of the raw table."""

    def __init__(
        self,
        table: RollupTable,
        raw_uri: str,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._table, self._raw_uri, self._clock = table, raw_uri, clock
        self._probe, self._heartbeat = probe, beat

    def run(self, job: RollupJob) -> RollupResult:
        """Run a job. Raises FileSuperseded if another process wrote these roll-ups, DigestMismatchError if the proof
        fails, RunError if a raw file is not what its table says, FileNotFoundError if it is gone, JobStopped,
        TableError, OSError. All of them leave the table unchanged."""
        began = self._clock.monotonic()
        writers: list[SortedFileWriter] = []
        try:
            new = [made for file, levels in job.missing for made in self._write(job, file, levels, writers)]
            self._probe("rollups written")
            note = {
                "format": 1,
                "kind": "rollups",
                "period": job.period,
                "keep": job.keep,
                "files": len(job.missing),
                "samples": job.rows,
            }
            version = self._table.change(job.stale, new, note, began)
        except (RunError, DigestMismatchError, FileSuperseded, JobStopped, FileNotFoundError):
            delete_files(self._table.uri, [name for writer in writers for name in writer.names])
            raise
        finally:
            for writer in writers:
                writer.discard()
        self._probe("rollups committed")
        written, size = sum(file.rows for file in new), sum(file.size for file in new)
        seconds = self._clock.monotonic() - began
        return RollupResult(job.period, job.keep, job.rows, written, len(new), size, len(job.stale), seconds, version)

    def _write(
        self, job: RollupJob, file: LiveFile, levels: tuple[int, ...], writers: list[SortedFileWriter]
    ) -> list[DataFile]:
        """Write the roll-ups of one raw file, one file per level."""
        stem = stem_of(file.path)
        outputs = {
            level: SortedFileWriter(
                self._table.uri,
                rollup_folder(level, job.period, job.keep),
                partition_of(level, job.period, job.keep),
                ALL_ROWS,
                prefix=stem,
                level=ZSTD_LEVEL,
            )
            for level in levels
        }
        writers += outputs.values()
        samples = _SampleCount(self._heartbeat)
        run = ParquetRun(f"{self._raw_uri}/{file.path}", file.rows, file.size, samples.add)
        finest = min(levels)
        for rows in rolled(run.batches(ROW_GROUP), finest, LEVELS_MS[-1]):
            for level, output in outputs.items():
                output.add(to_table(rows if level == finest else merge_rows(rows, level)))
            self._heartbeat()
        return [self._closed(output, samples.count) for output in outputs.values()]

    def _closed(self, output: SortedFileWriter, samples: int) -> DataFile:
        """Close a file, read back how many samples it counts, and return it. Raises DigestMismatchError."""
        found = output.close()
        made = found[0] if found else write_empty(output)
        counted = counted_samples(f"{self._table.uri}/{made.path}") if made.rows else 0
        if counted != samples:
            raise DigestMismatchError(f"{self._table.uri}/{made.path} counts {counted} of {samples} samples")
        return made


def rolled(batches: Iterator[Any], fine_ms: int, coarse_ms: int) -> Iterator[RollupRows]:
    """Yield the rows, at the fine step, of samples in the order of source, series and time. Each bucket of the coarse
    step is in one of the results. Memory holds a batch and the rows of one coarse bucket."""
    held = RollupRows()
    for batch in batches:
        rows = merge_rows(concat_rows([held, roll_up(pa.Table.from_batches([batch]), fine_ms)]), fine_ms)
        cut = _start_of_last(rows, coarse_ms)
        if cut:
            yield rows.select(slice(0, cut))
        held = rows.select(slice(cut, None)).with_used_strings()
    if len(held):
        yield held


def _start_of_last(rows: RollupRows, step_ms: int) -> int:
    """Return the first row of the last bucket of this step, of sorted rows."""
    if not len(rows):
        return 0
    bucket = -(-rows.end_ms // step_ms)
    other = (rows.source != rows.source[-1]) | (rows.series != rows.series[-1]) | (bucket != bucket[-1])
    different = np.flatnonzero(other)
    return int(different[-1]) + 1 if len(different) else 0


@dataclass(slots=True)
class _SampleCount:
    """Samples with a value in the batches that were read, but for those from the future."""

    heartbeat: Callable[[], None]
    count: int = 0

    def add(self, batch: Any) -> None:
        self.heartbeat()
        valued = pa.array(np.zeros(len(batch), np.bool_))
        for name in ("integer", "double", "boolean", "string"):
            valued = pc.or_(valued, batch.column(name).is_valid())
        self.count += pc.and_(valued, pc.invert(batch.column("future"))).true_count


def counted_samples(uri: str) -> int:
    """Return the sum of the counts in a file of roll-ups."""
    reader = GroupReader(uri)
    return sum(pc.sum(reader.read(group, ["count"]).column("count")).as_py() or 0 for group in range(reader.groups))


def write_empty(output: SortedFileWriter, schema: pa.Schema = ROLLUP_FILE_SCHEMA) -> DataFile:
    """Write a file without rows: the raw file has no samples that count, and needs no further job."""
    path = output.new_path()
    sink = HdfsSink(f"{output.table}/{path}")
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema):
        pass
    sink.close()
    return DataFile(path, sink.size, 0, output.partition, '{"numRecords": 0}')
