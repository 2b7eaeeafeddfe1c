"""One job: merge the files of a partition into new ones, prove that nothing changed, commit.

A kill at any moment leaves the table in its old or new state, and at most files that no commit names.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.commit import CompactionLog, FileSuperseded
from artimon.rawtable.schema import DataFile, TableError, folder_of
from artimon.runtime import file_access as files
from pipeline.compaction.merge import DEFAULT_LIMITS, MAX_BATCH_ROWS, MergeLimits, merge_all
from pipeline.compaction.plan import Job
from pipeline.compaction.row_digest import RowDigest, digest_of
from pipeline.compaction.row_order import SortKeys
from pipeline.compaction.sorted_files import SortedFileWriter
from pipeline.compaction.sorted_runs import ParquetRun, RunError, check_order

log = logging.getLogger(__name__)


class DigestMismatchError(TableError):
    """The rows written are not the rows read: the job is abandoned, the table stays as it was."""


class JobStopped(Exception):
    """The process is stopping: the job is abandoned, its files are deleted."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a job. `seconds` from its first read to its commit."""

    kind: str
    period: str
    keep: str
    rows: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    seconds: float
    version: int
    digest: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


@dataclass(slots=True)
class DigestingReader:
    """Digest of the batches that it saw; `beat` is called with each, and may raise JobStopped."""

    heartbeat: Callable[[], None]
    digest: RowDigest = field(default_factory=RowDigest)

    def add(self, batch: Any) -> None:
        self.heartbeat()
        self.digest = self.digest.plus(digest_of(batch))


class JobRunner:
    """Runs jobs one after another. `folder_of` is a local folder of its own for data that exceeds memory."""

    def __init__(
        self,
        table: CompactionLog,
        folder: Path,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
        limits: MergeLimits = DEFAULT_LIMITS,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._table, self._folder, self._clock = table, folder, clock
        self._probe, self._limits, self._heartbeat = probe, limits, beat
        self._clear_folder()

    def run(self, job: Job) -> JobResult:
        """Run a job. Raises FileSuperseded if another commit took one of the inputs, DigestMismatchError if the proof
        fails, RunError if an input is missing or is not what the table says, JobStopped, TableError, OSError. All of
        them leave the table unchanged."""
        began = self._clock.monotonic()
        each = max(1, -(-job.rows // job.outputs))
        ended = partial(self._probe, "file")
        output = SortedFileWriter(self._table.uri, folder_of(job.period, job.keep), _partition(job), each, ended)
        try:
            new, proof = self._write(job, output)
            note = {**_job_note(job), "digest": str(proof)}
            self._probe("verified")
            version = self._table.replace(job.inputs, new, note, began)
        except FileNotFoundError as error:
            delete_files(self._table.uri, output.names)
            raise self._missing_reason(job, error) from error
        except (RunError, DigestMismatchError, FileSuperseded, JobStopped):
            delete_files(self._table.uri, output.names)
            raise
        finally:
            output.discard()
            self._clear_folder()
        self._probe("committed")
        seconds, size = self._clock.monotonic() - began, sum(file.size for file in new)
        names = job.kind, job.period, job.keep
        return JobResult(*names, job.rows, len(job.inputs), len(new), job.size, size, seconds, version, str(proof))

    def _missing_reason(self, job: Job, error: FileNotFoundError) -> Exception:
        """Return the reason why a file could not be opened: another compactor replaced it, or the table has lost it."""
        self._table.refresh()
        live = {file.path for file in self._table.live()}
        if not {file.path for file in job.inputs} <= live:
            return FileSuperseded(f"files of {job} were replaced meanwhile")
        return RunError(f"a file of {job} is gone from HDFS, though the table names it: {error}")

    def _write(self, job: Job, output: SortedFileWriter) -> tuple[list[DataFile], RowDigest]:
        """Write the new files; return them, closed, with the digest that they share with the old ones."""
        read = DigestingReader(self._heartbeat)
        runs = [ParquetRun(f"{self._table.uri}/{f.path}", f.rows, f.size, read.add) for f in job.inputs]
        self._probe("planned")
        for rows in merge_all(runs, self._folder, self._limits):
            output.add(rows)
            self._probe("window")
        new = output.close()
        self._probe("written")
        written = digest_of_files(self._table.uri, new, self._heartbeat)
        if written != read.digest:
            raise DigestMismatchError(f"{self._table.uri}, {job}: {read.digest} were read and {written} were written")
        return new, written

    def _clear_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def digest_of_files(uri: str, new: Sequence[DataFile], beat: Callable[[], None] = lambda: None) -> RowDigest:
    """Read files of the table at `uri` back, check their order, and return the digest of their rows. Raises RunError,
    OSError."""
    seen = DigestingReader(beat)
    for file in new:
        last = None
        run = ParquetRun(f"{uri}/{file.path}", file.rows, file.size, seen.add)
        for batch in run.batches(MAX_BATCH_ROWS):
            keys = SortKeys.of(batch)
            check_order(keys, last, run.name)
            last = keys.at(len(keys) - 1)
    return seen.digest


def delete_files(uri: str, names: Iterable[str]) -> None:
    """Delete files that will never be part of the table; a file that cannot be deleted becomes an orphan."""
    for name in names:
        try:
            files.delete_file(f"{uri}/{name}")
        except (OSError, RuntimeError) as error:
            log.warning("%s could not be deleted yet: %s", name, error)


def _partition(job: Job) -> dict[str, str]:
    return {"period": job.period, "keep": job.keep}


def _job_note(job: Job) -> dict[str, Any]:
    return {"format": 1, "kind": job.kind, **_partition(job), "files": len(job.inputs), "rows": job.rows}
