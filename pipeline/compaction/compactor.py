"""The compactor: plans jobs over the raw table and runs them, one at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.model.znode import parse_json_object
from artimon.rawtable.commit import CompactionLog, FileSuperseded
from artimon.rawtable.delta import first_line
from artimon.rawtable.head import HeadReader
from artimon.rawtable.schema import LiveFile, TableError, end_ms
from artimon.rawtable.table_reader import ANY_VERSION, leased_versions
from artimon.rawtable.table_state import RawState
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.dead_files import FileSweeper, SweepResult, Tidier
from pipeline.compaction.job import DigestMismatchError, JobResult, JobRunner, JobStopped
from pipeline.compaction.plan import (
    FileCounts,
    Job,
    JobKey,
    closed_before_ms,
    count_files,
    due_keys,
    expired_files,
    expiry_ms,
    plan_jobs,
)
from pipeline.compaction.rollup_keeper import RollupKeeper
from pipeline.compaction.rollup_plan import HOLD_MS, NEVER_MS
from pipeline.compaction.sorted_runs import RunError
from pipeline.compaction.source_expiry import SourceExpiry

log = logging.getLogger(__name__)

ACKS_PATH = "/artimon/acks"
ZOOKEEPER_TIMEOUT_S = 5.0
ZOOKEEPER_ERRORS = (KazooException, KazooTimeoutError)


class Compactor:
    """Used by one thread; `figures` may be called from any. With `zookeeper` None, no reader holds a version and hours
    with an idle partition stay open."""

    def __init__(
        self,
        config: CompactorConfig,
        zookeeper: KazooClient | None,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
        table: CompactionLog | None = None,
    ) -> None:
        self._config, self._zookeeper, self._clock, self._probe = config, zookeeper, clock, probe
        self._log = table or CompactionLog(config.hdfs, clock)
        self._head = HeadReader(config.hdfs)
        self._runner = JobRunner(self._log, config.data / "runs", clock, probe, config.limits, self._heartbeat)
        self._sweeper = FileSweeper(self._log, self._on_delete)
        self._given_up: dict[JobKey, str] = {}
        """Jobs that failed for good, with the reason: not retried until their number of files changes, or a restart."""
        self._swept_at = -1e9
        self._stop = threading.Event()
        self._heartbeat_at = clock.monotonic()
        self._totals = {"jobs": 0, "rows": 0, "bytes_before": 0, "bytes_after": 0, "seconds": 0.0}
        self._swept, self._deleted, self._deleted_bytes, self._expired, self._alarms = SweepResult(), 0, 0, 0, 0
        self._count, self._closed_before_ms, self._waiting, self._behind_ms = FileCounts(), 0, 0, 0
        self._last: dict[str, Any] = {}
        self._orphans = self._cleaned = 0
        self._log_cleaner = Tidier(self._log, self._on_delete)
        self._rollups = RollupKeeper(config, clock, probe, self._heartbeat, self._on_delete)
        self._sources = SourceExpiry(config, clock, probe, self._heartbeat)

    def run_due(self, stop: threading.Event) -> None:
        """Do everything that is due: expiry, then all jobs, then dead files and sources. Returns early on `stop`.

        A job that fails delays no other; the next turn continues. Raises TableError, OSError, RunError;
        FileNotFoundError before the table exists."""
        self._stop = stop
        self._expire()
        problem: Exception | None = None
        failed: set[JobKey] = set()
        while not stop.is_set():
            jobs = self._due_jobs(failed)
            if not jobs:
                break
            problem = self._run_job(jobs[0], failed) or problem
        problem = self._roll_up() or problem
        if self._rollups.held_back and not stop.is_set():
            self._expire(HOLD_MS)
        if not stop.is_set() and self._clock.monotonic() - self._swept_at >= self._config.sweep_s:
            self.sweep()
            self._expire_sources()
        if problem is not None:
            raise problem

    def _run_job(self, job: Job, failed: set[JobKey]) -> Exception | None:
        """Run one job. A failure that a retry cannot cure is given up; any other is in `failed` for this turn."""
        try:
            self._record_result(self._runner.run(job))
        except JobStopped as stopped:
            log.info("%s: %s", job, stopped)
        except FileSuperseded as error:
            log.info("%s: %s; planning again", job, error)
        except (DigestMismatchError, RunError) as error:
            self._alarms += 1
            self._given_up[job.key] = first_line(error)
            log.error("%s is not compacted: %s", job, error)
            return error
        except (TableError, OSError) as error:
            failed.add(job.key)
            log.warning("%s was not compacted and will be retried: %s", job, first_line(error))
            return error
        return None

    def sweep(self) -> SweepResult:
        """Delete dead files that no reader needs any more, and the old part of the log. Raises TableError, OSError."""
        # before the leases are read: a reader that takes one later opens this version or a newer one
        version = int(self._log.refresh().version())
        self._swept = self._sweeper.sweep(version, self._held_versions(self._log.uri), self._clock.now_ms())
        self._deleted += self._swept.deleted
        self._orphans += self._swept.orphans
        self._deleted_bytes += self._swept.deleted_bytes
        if not self._swept.waiting:  # a checkpoint drops the names of files still to be deleted
            self._cleaned += self._log_cleaner.tidy(self._head.head()[0], self._clock.now_ms())
        self._rollups.sweep(self._held_versions)
        self._swept_at = self._clock.monotonic()
        return self._swept

    def silent_s(self) -> float:
        """Return the seconds since the working thread was last seen to make progress."""
        return self._clock.monotonic() - self._heartbeat_at

    def given_up(self) -> list[str]:
        """Return the jobs that are due but given up, with the reasons."""
        jobs = [f"{period}, keep {keep}: {why}" for (period, keep, _), why in list(self._given_up.items())]
        return [*jobs, *self._rollups.given_up()]

    def figures(self) -> dict[str, Any]:
        """Return the figures that `artimon status` shows."""
        return {
            **{name: round(value, 1) for name, value in self._totals.items()},
            "waiting": self._waiting,
            "behind_ms": self._behind_ms,
            "settled_ms": self._closed_before_ms,
            "live": asdict(self._count),
            "last": self._last,
            "dead": {"files": self._swept.waiting, "bytes": self._swept.waiting_bytes},
            "deleted": {"files": self._deleted, "bytes": self._deleted_bytes},
            "orphans": self._orphans,
            "log_files_deleted": self._cleaned,
            "expired_files": self._expired,
            "alarms": self._alarms,
            "given_up": len(self.given_up()),
            "rollups": self._rollups.figures(),
        }

    def _heartbeat(self) -> None:
        """Record progress; called often by long operations. Raises JobStopped."""
        self._heartbeat_at = self._clock.monotonic()
        if self._stop.is_set():
            raise JobStopped("stopped before the commit; the table is unchanged")

    def _on_delete(self) -> None:
        self._heartbeat_at = self._clock.monotonic()
        self._probe("delete")

    def _due_jobs(self, failed: Collection[JobKey] = ()) -> list[Job]:
        """Return the jobs on the newest version, without those that failed in this turn."""
        self._heartbeat_at = self._clock.monotonic()
        _, state = self._head.head()
        self._closed_before_ms = max(closed_before_ms(state, self._acks(state)), self._config.closed_ms)
        files = self._refresh()
        if self._given_up:
            due = due_keys(files, self._closed_before_ms)
            self._given_up = {key: why for key, why in self._given_up.items() if key in due}
        jobs = plan_jobs(files, self._closed_before_ms, {*self._given_up, *failed})
        self._waiting = len(jobs)
        self._behind_ms = max((self._closed_before_ms - end_ms(job.period) for job in jobs), default=0)
        return jobs

    def _refresh(self) -> list[LiveFile]:
        self._log.refresh()
        files = self._log.live()
        self._count = count_files(files, self._closed_before_ms)
        return files

    def _record_result(self, done: JobResult) -> None:
        for name, value in (("jobs", 1), ("rows", done.rows), ("seconds", done.seconds)):
            self._totals[name] += value
        self._totals["bytes_before"] += done.bytes_before
        self._totals["bytes_after"] += done.bytes_after
        self._last = done.to_json()
        log.info("compacted %s", self._last)

    def _roll_up(self) -> Exception | None:
        """Write the roll-ups that are due. A stop abandons the current job."""
        _, state = self._head.head()
        try:
            return self._rollups.run_due(self._refresh(), expiry_ms(self._clock.now_ms(), state.newest_append_ms))
        except JobStopped as stopped:
            log.info("roll-ups: %s", stopped)
            return None

    def _expire(self, hold_ms: int = NEVER_MS) -> None:
        """Remove raw files that have expired, once their roll-ups exist or `hold_ms` later, and roll-ups that have."""
        _, state = self._head.head()
        now_ms, live = expiry_ms(self._clock.now_ms(), state.newest_append_ms), self._refresh()
        self._rollups.expire(now_ms)
        old = self._rollups.ready_to_expire(
            expired_files(live, self._config.keeping, self._clock.now_ms(), state.newest_append_ms),
            live,
            now_ms,
            hold_ms,
        )
        if not old:
            return
        self._probe("expire")
        note = {"format": 1, "kind": "expire", "files": len(old), "rows": sum(file.rows for file in old)}
        self._log.expire(old, note)
        self._probe("expired")
        self._expired += len(old)
        log.info("expired %d files, %d rows", len(old), note["rows"])

    def _expire_sources(self) -> None:
        """Expire sources and series, and merge their tables. A stop abandons it; the tables are then unchanged."""
        _, state = self._head.head()
        now_ms = expiry_ms(self._clock.now_ms(), state.newest_append_ms)
        try:
            self._sources.run_due(self._refresh, self._rollups.live, now_ms)
        except JobStopped as stopped:
            log.info("sources: %s", stopped)

    def _acks(self, state: RawState) -> dict[str, Any] | None:
        """Return the acks document of the current topic; None if there is none."""
        if self._zookeeper is None or state.current is None:
            return None
        path = f"{ACKS_PATH}/{state.current.topic_id}"
        try:
            data, _ = self._zookeeper.get_async(path).get(timeout=ZOOKEEPER_TIMEOUT_S)
            found = parse_json_object(data)
        except (NoNodeError, ValueError):
            return None
        except ZOOKEEPER_ERRORS as error:
            log.warning("%s cannot be read: %s", path, first_line(error))
            return None
        return found if isinstance(found, dict) and found.get("table") == state.table else None

    def _held_versions(self, uri: str) -> list[int]:
        """Return the versions that readers hold; ANY if ZooKeeper does not answer, so that nothing is deleted."""
        if self._zookeeper is None:
            return []
        try:
            return leased_versions(self._zookeeper, uri, self._clock.now_ms())
        except ZOOKEEPER_ERRORS as error:
            log.warning("leases of readers cannot be read, nothing is deleted: %s", first_line(error))
            return [ANY_VERSION]


def compact_all(hdfs: str, folder: Path, closed_ms: int, clock: Clock = SYSTEM_CLOCK) -> dict[str, Any]:
    """Compact every hour and day that ended before `closed_ms` (Kafka append time, to which nothing more is appended),
    delete the dead files, and return the figures. `folder` is a local one for data that exceeds memory; the table must
    have no readers meanwhile. Raises as Compactor.run_due."""
    config = CompactorConfig("", hdfs, folder, sweep_s=0.0, closed_ms=closed_ms)
    made = Compactor(config, None, clock)
    made.run_due(threading.Event())
    return made.figures()


__all__ = ["Compactor", "TableError", "compact_all"]
