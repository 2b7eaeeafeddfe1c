"""The compactor: looks at the raw table again and again, and does what is due, one thing at a time."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.compaction.config import CompactorConfig
from pipeline.compaction.dead import Sweeper, Swept
from pipeline.compaction.job import Done, Probe, Unequal, Worker, no_probe
from pipeline.compaction.log import RawLog, Superseded
from pipeline.compaction.plan import Count, LiveFile, count, expired, plan, settled_ms
from pipeline.compaction.runs import RunError
from pipeline.leases import ANY, held_versions
from pipeline.spark.state import RawState
from pipeline.spark.table import HeadReader, TableError, first_line

log = logging.getLogger(__name__)

ACKS = "/artimon/acks"
ZOOKEEPER_TIMEOUT_S = 5.0
Zookeeper = (KazooException, KazooTimeoutError)


class Compactor:
    """Used by one thread; `figures` may be read from any. `zookeeper` None: nobody holds a version, and hours with an
    idle partition stay open."""

    def __init__(
        self,
        config: CompactorConfig,
        zookeeper: KazooClient | None,
        clock: Clock = SYSTEM_CLOCK,
        probe: Probe = no_probe,
        table: RawLog | None = None,
    ) -> None:
        self._config, self._zookeeper, self._clock, self._probe = config, zookeeper, clock, probe
        self._log = table or RawLog(config.hdfs, clock)
        self._head = HeadReader(config.hdfs)
        self._worker = Worker(self._log, config.data / "runs", clock, probe, config.limits)
        self._sweeper = Sweeper(self._log, lambda: probe("delete"))
        self._given_up: set[tuple[str, str, int]] = set()
        """(period, keep, number of files) whose proof failed: not tried again until something changes."""
        self._swept_at = -1e9
        self._totals = {"jobs": 0, "rows": 0, "bytes_before": 0, "bytes_after": 0, "seconds": 0.0}
        self._swept, self._deleted, self._deleted_bytes, self._expired, self._alarms = Swept(), 0, 0, 0, 0
        self._count, self._settled, self._waiting, self._last = Count(), 0, 0, {}  # type: ignore[var-annotated]

    def turn(self, stop: threading.Event) -> None:
        """Everything that is due now: expiry, then all jobs, then dead files. Returns early on `stop`.

        Raises TableError, OSError, RunError; FileNotFoundError if there is no table yet. The next turn goes on."""
        problem: Exception | None = None
        self._expire()
        while not stop.is_set():
            jobs = self._due()
            if not jobs:
                break
            try:
                self._finish(self._worker.run(jobs[0]))
            except Superseded as error:
                log.info("%s: %s; planning again", jobs[0], error)
            except (Unequal, RunError) as error:
                problem = error
                self._alarms += 1
                self._given_up.add((jobs[0].period, jobs[0].keep, len(jobs[0].inputs)))
                log.error("%s is not compacted: %s", jobs[0], error)
        if not stop.is_set() and self._clock.monotonic() - self._swept_at >= self._config.sweep_s:
            self.sweep()
        if problem is not None:
            raise problem

    def sweep(self) -> Swept:
        """Delete dead files that nobody reads any more. Raises TableError, OSError."""
        version = self._log.refresh()  # before the leases are read: who takes one later opens this version or a newer
        self._swept = self._sweeper.sweep(version, self._held(), self._clock.now_ms())
        self._deleted += self._swept.deleted
        self._deleted_bytes += self._swept.deleted_bytes
        self._swept_at = self._clock.monotonic()
        return self._swept

    def figures(self) -> dict[str, Any]:
        """What `artimon status` shows."""
        return {
            **{name: round(value, 1) for name, value in self._totals.items()},
            "waiting": self._waiting,
            "settled_ms": self._settled,
            "live": asdict(self._count),
            "last": self._last,
            "dead": {"files": self._swept.waiting, "bytes": self._swept.waiting_bytes},
            "deleted": {"files": self._deleted, "bytes": self._deleted_bytes},
            "expired_files": self._expired,
            "alarms": self._alarms,
        }

    def _due(self) -> list[Any]:
        """Jobs on the newest version."""
        _, state = self._head.head()
        self._settled = settled_ms(state, self._acks(state))
        files = self._look()
        jobs = [
            job for job in plan(files, self._settled) if (job.period, job.keep, len(job.inputs)) not in self._given_up
        ]
        self._waiting = len(jobs)
        return jobs

    def _look(self) -> list[LiveFile]:
        self._log.refresh()
        files = self._log.live()
        self._count = count(files, self._settled)
        return files

    def _finish(self, done: Done) -> None:
        for name, value in (("jobs", 1), ("rows", done.rows), ("seconds", done.seconds)):
            self._totals[name] += value
        self._totals["bytes_before"] += done.bytes_before
        self._totals["bytes_after"] += done.bytes_after
        self._last = done.to_json()
        log.info("compacted %s", self._last)

    def _expire(self) -> None:
        _, state = self._head.head()
        old = expired(self._look(), self._config.keeping, self._clock.now_ms(), state.newest_append_ms)
        if not old:
            return
        self._probe("expire")
        note = {"format": 1, "kind": "expire", "files": len(old), "rows": sum(file.rows for file in old)}
        self._log.expire(old, note)
        self._probe("expired")
        self._expired += len(old)
        log.info("expired %d files, %d rows", len(old), note["rows"])

    def _acks(self, state: RawState) -> dict[str, Any] | None:
        """The document that says how far the log is in the table; None if there is none."""
        if self._zookeeper is None or state.current is None:
            return None
        path = f"{ACKS}/{state.current.topic_id}"
        try:
            data, _ = self._zookeeper.get_async(path).get(timeout=ZOOKEEPER_TIMEOUT_S)
            found = json.loads(data)
        except (NoNodeError, ValueError):
            return None
        except Zookeeper as error:
            log.warning("%s cannot be read: %s", path, first_line(error))
            return None
        return found if isinstance(found, dict) and found.get("table") == state.table else None

    def _held(self) -> list[int]:
        """Versions that readers hold; while ZooKeeper does not answer, all of them."""
        if self._zookeeper is None:
            return []
        try:
            return held_versions(self._zookeeper, self._log.uri, self._clock.now_ms())
        except Zookeeper as error:
            log.warning("leases of readers cannot be read, nothing is deleted: %s", first_line(error))
            return [ANY]


__all__ = ["Compactor", "TableError"]
