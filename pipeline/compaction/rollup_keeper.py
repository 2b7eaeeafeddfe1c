"""Roll-ups of the compactor: writes those that are due, expires and deletes old ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from artimon.model.clock import Clock
from artimon.model.failpoints import Failpoint
from artimon.rawtable.commit import FileSuperseded
from artimon.rawtable.delta import first_line
from artimon.rawtable.rollups import MONTHS_FOLDER, RollupFile, RollupTable
from artimon.rawtable.schema import LiveFile, TableError, raw_uri
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.dead_files import FileSweeper
from pipeline.compaction.job import DigestMismatchError
from pipeline.compaction.month_merger import MonthMerger
from pipeline.compaction.rollup_job import RollupResult, RollupRunner
from pipeline.compaction.rollup_plan import RollupJob, expired_rollups, plan_rollups, split_expired
from pipeline.compaction.sorted_runs import RunError

log = logging.getLogger(__name__)


class RollupKeeper:
    """Used by one thread; `figures` and `given_up` may be called from any. The table is created if any level is
    kept. `heartbeat` is called often and may raise JobStopped."""

    def __init__(
        self,
        config: CompactorConfig,
        clock: Clock,
        probe: Failpoint,
        heartbeat: Callable[[], None],
        on_delete: Callable[[], None],
    ) -> None:
        self._config, self._clock, self._heartbeat = config, clock, heartbeat
        self._table = RollupTable(config.hdfs, clock, made=bool(config.rollups.days))
        self._runner = RollupRunner(self._table, raw_uri(config.hdfs), clock, probe, heartbeat)
        self._months = MonthMerger(self._table.uri, heartbeat)
        self._sweeper = FileSweeper(self._table, on_delete, MONTHS_FOLDER)
        self._given_up: dict[Any, str] = {}
        """Jobs that failed for good, with the reason: not retried until their raw files change, or a restart."""
        self._totals = {"jobs": 0, "samples": 0, "rows": 0, "bytes": 0, "seconds": 0.0, "expired_files": 0}
        self._waiting = 0
        self.held_back = 0
        """Expired raw files that wait for their roll-ups."""
        self._held: list[RollupFile] = []

    def run_due(self, raw: Sequence[LiveFile], now_ms: int) -> Exception | None:
        """Run all jobs on these live raw files, and update the month files; return the last failure that a later turn
        may cure, or that was given up. Raises JobStopped, TableError, OSError."""
        problem: Exception | None = None
        jobs = plan_rollups(raw, self.live(), self._config.rollups, now_ms)
        keys = {job.key for job in jobs}
        self._given_up = {key: why for key, why in self._given_up.items() if key in keys}
        jobs = [job for job in jobs if job.key not in self._given_up]
        for done, job in enumerate(jobs):
            self._waiting = len(jobs) - done
            self._heartbeat()
            problem = self._run(job) or problem
        self._waiting = 0
        return self._months.update(self.live(), now_ms) or problem

    def _run(self, job: RollupJob) -> Exception | None:
        try:
            self._record(self._runner.run(job))
        except (FileSuperseded, FileNotFoundError) as error:
            log.info("%s: %s; planned again in the next turn", job, first_line(error))
        except (RunError, DigestMismatchError) as error:
            self._given_up[job.key] = first_line(error)
            log.error("%s are not written: %s", job, error)
            return error
        except (TableError, OSError) as error:
            log.warning("%s were not written and will be retried: %s", job, first_line(error))
            return error
        return None

    def _record(self, done: RollupResult) -> None:
        self._totals["jobs"] += 1
        for name in ("samples", "rows", "bytes", "seconds"):
            self._totals[name] += getattr(done, name)
        log.info("rolled up %s", asdict(done))

    def expire(self, now_ms: int) -> None:
        """Remove the roll-ups that have expired. Raises TableError, OSError."""
        old = expired_rollups(self.live(), self._config.rollups, now_ms)
        if old:
            self._table.expire(old, {"format": 1, "kind": "expire", "files": len(old)})
            self._totals["expired_files"] += len(old)
            log.info("expired %d files of roll-ups", len(old))

    def ready_to_expire(
        self, old: Sequence[LiveFile], live: Iterable[LiveFile], now_ms: int, hold_ms: int
    ) -> tuple[LiveFile, ...]:
        """Return those of the expired raw files that need not wait for their roll-ups: longer than `hold_ms` none does.
        Raises TableError, OSError."""
        if not old:
            self.held_back = 0
            return ()
        config = self._config
        split = split_expired(old, live, self.live(), config.rollups, config.keeping, now_ms, hold_ms)
        if split.stale:
            self._table.change(split.stale, [], {"format": 1, "kind": "stale"}, self._clock.monotonic())
        self.held_back = len(split.waiting)
        return split.ready

    def sweep(self, held: Callable[[str], list[int]]) -> None:
        """Delete dead files that no reader needs any more; `held` returns the versions of a table that readers hold.
        Raises TableError, OSError."""
        if self.live() or self._totals["expired_files"]:
            version = int(self._table.refresh().version())
            self._sweeper.sweep(version, held(self._table.uri), self._clock.now_ms())

    def given_up(self) -> list[str]:
        """Return the jobs that are due but given up, with the reasons."""
        return [f"roll-ups of {key[0]}, keep {key[1]}: {why}" for key, why in list(self._given_up.items())]

    def figures(self) -> dict[str, Any]:
        """Return the figures that `artimon status` shows."""
        return {
            **{name: round(value, 1) for name, value in self._totals.items()},
            "waiting": self._waiting,
            "held_back": self.held_back,
            "live_files": len(self._held),
            "live_bytes": sum(file.size for file in self._held),
            "month_files": len(months := self._months.sizes),
            "month_bytes": sum(months.values()),
        }

    def live(self) -> list[RollupFile]:
        """Read the live files of the newest version of the table, if it exists. Raises TableError, OSError."""
        try:
            self._table.refresh()
        except FileNotFoundError:
            return []
        self._held = self._table.live()
        return self._held
