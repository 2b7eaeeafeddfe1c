"""Import of files into the history: one after another, or several processes at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import xxhash

from artimon.cli.common import print_error
from artimon.cli.history_deletion import near_files, select
from artimon.model.batch import MAX_NAME_BYTES, MAX_SOURCE_BYTES
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.model.import_chunk import ImportChunk
from artimon.rawtable.delta import first_line
from artimon.rawtable.schema import TableError
from artimon.runtime.config_file import read_config
from artimon.runtime.text import parse_period, printable
from pipeline.compaction.merge import keep_freed
from pipeline.compaction.sorted_runs import RunError
from pipeline.history.earlier_counts import SampleSearch
from pipeline.history.importer import Importer, ImportResult
from query_dsl.stores.history.sample_query import parse_sample_query
from sources.base.source_errors import FileRefusedError, RejectCounts
from sources.history.column_mapping import ColumnMapping
from sources.history.import_builder import ImportBuilder
from sources.history.import_reader import ImportFormat, ImportSettings, format_of
from sources.history.remote_read_client import RemoteRead, check_url

TABLE_FORMATS = ("csv", "parquet", "arrow")


class ImportFailure(RuntimeError):
    """A file was not imported as a whole. The text says why; repeating the import adds what is missing."""


def read_mapping(file: Path) -> ColumnMapping:
    """Read a mapping of columns. Raises ConfigFileError."""
    return read_config(file).validate(ColumnMapping)


def check_names(source: str, keep: str) -> None:
    """Raise ValueError for a source or class that the table cannot hold."""
    if not 0 < len(source.encode()) <= MAX_SOURCE_BYTES or not 0 < len(keep.encode()) <= MAX_NAME_BYTES:
        raise ValueError(f"a source has 1 to {MAX_SOURCE_BYTES} bytes, a retention class 1 to {MAX_NAME_BYTES}")


@dataclass(frozen=True, slots=True)
class ImportJob:
    """Import of one file. `data`: local folder; about 60 bytes a sample are used below it."""

    file: Path
    settings: ImportSettings
    keep: str
    hdfs: str
    data: Path

    @property
    def name(self) -> str:
        return str(self.file)

    @classmethod
    def of(
        cls,
        file: Path,
        form: ImportFormat | None,
        mapping: ColumnMapping | None,
        *,
        source: str,
        keep: str,
        hdfs: str,
        data: Path,
    ) -> ImportJob:
        """Return a checked job. Raises ValueError."""
        form = form or format_of(file)
        if form is None:
            raise ValueError(f"{file}: its name does not tell the format: give --format")
        if mapping and form not in TABLE_FORMATS:
            raise ValueError(f"--mapping is for {', '.join(TABLE_FORMATS)}; {file} is {form}")
        check_names(source, keep)
        return cls(file, ImportSettings(form, source, mapping), keep, hdfs, data)

    def run(self, clock: Clock = SYSTEM_CLOCK, probe: Failpoint = no_failpoint) -> tuple[ImportResult, RejectCounts]:
        """Import the file; return counts of stored and of refused samples. Raises ImportFailure."""

        def read(builder: ImportBuilder) -> Iterator[ImportChunk]:
            return self.settings.read(self.file, builder)

        with _failures(self.name):
            identity = self.settings.identity(self.file, self.keep)
            return _run(self.hdfs, self.data, identity, self.settings.source, self.keep, read, clock, probe)


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """Import from a server."""

    remote: RemoteRead
    source: str
    keep: str
    hdfs: str
    data: Path

    @property
    def name(self) -> str:
        return str(self.remote)

    @classmethod
    def of(
        cls,
        url: str,
        selector: str,
        start: object,
        end: object,
        window: str,
        token_file: Path | None,
        *,
        source: str,
        keep: str,
        hdfs: str,
        data: Path,
    ) -> RemoteJob:
        """Return a checked job. Raises ValueError, QueryError, OSError."""
        check_names(source, keep)
        asked = parse_sample_query(selector, start, end, SYSTEM_CLOCK.now_ms())
        token = token_file.read_text().strip() if token_file else ""
        found = tuple(
            (one.label, "=~", f"{re.escape(one.value)}.*") if one.op == "prefix" else (one.label, one.op, one.value)
            for one in asked.matchers
        )
        remote = RemoteRead(check_url(url), found, asked.after_ms, asked.until_ms, parse_period(window), token)
        return cls(remote, source, keep, hdfs, data)

    def run(self, clock: Clock = SYSTEM_CLOCK, probe: Failpoint = no_failpoint) -> tuple[ImportResult, RejectCounts]:
        """Import the samples; see ImportJob.run."""
        asked = self.remote
        what = (asked.url, asked.matchers, asked.after_ms, asked.until_ms, self.source, self.keep)
        identity = xxhash.xxh3_128_hexdigest(repr(what).encode())
        with _failures(self.name):
            return _run(self.hdfs, self.data, identity, self.source, self.keep, asked.read, clock, probe)


@contextmanager
def _failures(name: str) -> Iterator[None]:
    try:
        yield
    except FileRefusedError as problem:
        raise ImportFailure(str(problem)) from problem
    except (TableError, RunError, OSError, EOFError) as problem:
        raise ImportFailure(f"{name}: {first_line(problem)}") from problem


def _run(
    hdfs: str,
    data: Path,
    identity: str,
    source: str,
    keep: str,
    read: Callable[[ImportBuilder], Iterator[ImportChunk]],
    clock: Clock,
    probe: Failpoint,
) -> tuple[ImportResult, RejectCounts]:
    keep_freed()
    builder = ImportBuilder(source, clock.now_ms())
    folder, search = data / "import" / identity, SampleSearch(near_files, select)
    importer = Importer(hdfs, folder, keep, clock, probe, search=search)
    return importer.run(identity, read(builder)), builder.rejects


def import_all(todo: Sequence[ImportJob | RemoteJob], jobs: int) -> bool:
    """Run jobs, at most `jobs` at a time, and print each result; return False if one failed."""
    good = True
    if jobs == 1 or len(todo) == 1:
        for job in todo:
            try:
                _show(job.name, *job.run())
            except ImportFailure as problem:
                print_error(f"artimon: {problem}")
                good = False
        return good
    with ProcessPoolExecutor(min(jobs, len(todo)), get_context("spawn")) as pool:
        running = {pool.submit(job.run): job for job in todo}
        for done in as_completed(running):
            try:
                _show(running[done].name, *done.result())
            except (ImportFailure, BrokenProcessPool) as problem:
                where = f"{running[done].name}: " if isinstance(problem, BrokenProcessPool) else ""
                print_error(f"artimon: {where}{problem}")
                good = False
    return good


def _show(file: str, result: ImportResult, rejects: RejectCounts) -> None:
    for line, text in sorted(rejects.named):
        print_error(f"artimon: {file}{f':{line}' if line else ''}: {printable(text)}")
    if result.is_known:
        print(f"{file}: imported before, nothing to do")
        return
    print(
        f"{file}: {result.samples:,} samples of {len(result.series):,} series, {result.days:,} days,"
        f" {result.bytes:,} bytes"
        + (f"; {result.known:,} samples were imported before" if result.known else "")
        + (f"; refused: {_counts(rejects)}" if rejects.counts.total() else "")
    )


def _counts(rejects: RejectCounts) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(rejects.counts.items()) if count)
