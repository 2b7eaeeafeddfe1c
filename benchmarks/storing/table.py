"""Copy of the tables of a running stack, compaction of the copy, and the size of its folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from hdfs_native import Client

from artimon.model.clock import SYSTEM_CLOCK
from artimon.rawtable.commit import CompactionLog, RawTable
from artimon.rawtable.head import HeadReader
from artimon.rawtable.schema import day_of, end_ms, is_hour
from artimon.rawtable.table_state import Increment, TableTotals, advance
from artimon.runtime import file_access as files
from pipeline.compaction.dead_files import KEEP_MS, FileSweeper, Tidier
from pipeline.compaction.job import JobRunner
from pipeline.compaction.plan import plan_jobs

TABLES = ("raw", "series", "sources")
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of the folder of the raw table: live and dead data files, and the log."""

    data: int
    log: int

    @property
    def all(self) -> int:
        return self.data + self.log


def size(hdfs: str, table: str = "raw") -> Size:
    """Return the size of everything in the folder of a table."""
    told = {False: 0, True: 0}
    for path, length, _ in files.list_files(f"{hdfs}/artimon/{table}"):
        told[path.startswith("_delta_log/")] += length
    return Size(told[False], told[True])


def copy_tables(source: str, target: str) -> None:
    """Copy log and live files of the three tables while others write them."""
    for table in TABLES:
        _copy_table(f"{source}/artimon/{table}", f"{target}/artimon/{table}")


def _copy_table(source: str, target: str) -> None:
    for attempt in range(ATTEMPTS):
        try:
            _copy_files(
                source, target, [f"_delta_log/{path}" for path, _, _ in files.list_files(f"{source}/_delta_log")]
            )
            actions = pa.table(DeltaTable(target).get_add_actions(flatten=True))
            _copy_files(source, target, actions.column("path").to_pylist())
            return
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
            delete_folder(target)  # compaction has just removed a file: retry


def _copy_files(source: str, target: str, paths: list[str]) -> None:
    for path in paths:
        files.write_file(f"{target}/{path}", files.read_file(f"{source}/{path}"))


def delete_folder(uri: str) -> None:
    """Delete a folder with its contents."""
    authority, path = files.split_uri(uri)
    Client(authority).delete(path, True)


def compact(hdfs: str, folder: Path, days: bool) -> None:
    """Do the compactor's work for closed hours or days: merge, delete dead files, clean the log.

    An append without rows precedes the cleaning, as another append does within a minute in a running stack: the log is
    cleaned up to the newest append."""
    log = CompactionLog(hdfs)
    worker = JobRunner(log, folder / "runs")
    try:
        while True:
            log.refresh()
            live = log.live()
            newest = max(file.period for file in live)
            jobs = plan_jobs(live, end_ms(day_of(newest) if days else newest))
            jobs = [job for job in jobs if days or is_hour(job.period)]
            if not jobs:
                break
            worker.run(jobs[0])
        FileSweeper(log).sweep(log.refresh().version(), [], SYSTEM_CLOCK.now_ms())
        append_nothing(hdfs)
        version, _ = HeadReader(hdfs).head()
        Tidier(log).tidy(version, SYSTEM_CLOCK.now_ms() + 2 * KEEP_MS)
    finally:
        shutil.rmtree(folder / "runs", ignore_errors=True)


def only_full_hour(hdfs: str) -> str | None:
    """Remove everything from the table but the newest hour that was collected in full; return that hour. Without such
    an hour remove nothing and return None."""
    log = CompactionLog(hdfs)
    log.refresh()
    live = log.live()
    first = min(file.period for file in live)
    _, state = HeadReader(hdfs).head()
    full = [file.period for file in live if file.period > first and end_ms(file.period) <= state.newest_append_ms]
    if not full:
        return None
    log.expire([file for file in live if file.period != max(full)], {"format": 1, "kind": "expire"})
    return max(full)


def appended_bytes(hdfs: str) -> int | None:
    """Return the bytes of the live files; None if one was compacted already."""
    log = CompactionLog(hdfs)
    log.refresh()
    live = log.live()
    return None if any(file.compacted for file in live) else sum(file.size for file in live)


def append_nothing(hdfs: str) -> None:
    """Make an append without rows."""
    table = RawTable(hdfs)
    _, state = table.head()
    table.append([], state, advance(state, "bench", Increment({}, {}, {}, TableTotals(), state.newest_append_ms)))
