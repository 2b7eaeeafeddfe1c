"""Disk failover: batches go straight to the next hop while that works, and into the log only when it fails. The backlog
in the log goes first, so that a lane stays in order. Batches sent straight are not acked end to end."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from artimon.model.batch import NO_LANE
from artimon.model.clock import Clock
from artimon.model.protocols import SinkRefusedError
from pipeline.link.collector_link import MAX_CALL_BYTES, MAX_CALL_MESSAGES
from pipeline.link.timer import backoff_s
from pipeline.wal.log import LogEntry, LogWriteError, WriteAheadLog
from pipeline.wal.state_records import LogPosition

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 64 * 1024 * 1024
_LOG_INTERVAL_S = 60.0
_IDLE_S = 1.0


class DirectRoute(Protocol):
    """Way past a log, straight to the next hop."""

    @property
    def is_reachable(self) -> bool:
        """True if a call may be tried now."""
        ...

    def has_backlog(self, entries: Sequence[LogEntry]) -> bool:
        """True if the log still holds batches that go before these."""
        ...

    def send(self, entries: Sequence[LogEntry]) -> Sequence[tuple[LogEntry, str]]:
        """Deliver in order, within its own deadline. Returns the entries not known to be delivered, with reasons."""
        ...


@dataclass(slots=True)
class DirectBackoff:
    """Decides whether the next batches of a line bypass the log. Pure.

    They go into the log while it holds a backlog of the line, and during the back-off after a failure. The sender that
    drains the log then detects when the direct route works again."""

    failures: int = 0
    not_before: float = 0.0

    def is_open(self, now: float, backlog: bool, reachable: bool) -> bool:
        return reachable and not backlog and now >= self.not_before

    def record_failure(self, now: float) -> None:
        self.failures += 1
        self.not_before = now + backoff_s(self.failures, 0.5, 30.0)

    def record_success(self) -> None:
        self.failures, self.not_before = 0, 0.0


@dataclass(slots=True, eq=False)
class _LineAppend:
    """Entries of one line from one caller."""

    entries: list[LogEntry]
    size: int
    append: _CallerAppend


@dataclass(slots=True, eq=False)
class _CallerAppend:
    """Call of one caller. Ends when all its parts have ended, with the first error if there is one."""

    future: Future[list[LogPosition]]
    pending_lines: int
    places: list[LogPosition] = field(default_factory=list)
    error: Exception | None = None


def line_of_entry(entry: LogEntry) -> int:
    """Return the line of an entry: its lane, so that only lanes keep their order."""
    return entry.header.id.lane


def _ignore_entries(entries: Sequence[LogEntry]) -> None:
    """Ignore the entries that bypassed the log."""


class FailoverLog:
    """Log wrapper that tries the direct way first. Locks: `_cond` guards the queues; no I/O under it. Threads: one for
    each line, started on demand, so that a hanging call delays no other line."""

    def __init__(
        self,
        wal: WriteAheadLog,
        way: DirectRoute,
        clock: Clock,
        line_of: Callable[[LogEntry], int] = line_of_entry,
        passed: Callable[[Sequence[LogEntry]], None] = _ignore_entries,
    ) -> None:
        """`line_of`: number of an entry's line; each line keeps its order and has a thread. `passed`: called with the
        entries that bypassed the log, before their caller gets the result."""
        self._log, self._route, self._clock = wal, way, clock
        self._line_of, self._on_bypass = line_of, passed
        self._cond = threading.Condition()
        self._queues: dict[int, deque[_LineAppend]] = {}
        self._backoffs: dict[int, DirectBackoff] = {}
        self._waiting = 0
        self._stop = False
        self.direct_batches = self.logged_batches = 0
        self.reasons: Counter[str] = Counter()
        """Reasons for which batches went into the log."""

    # --- interface of the log

    def append(self, entries: Sequence[LogEntry], beyond_quota: bool = False) -> Future[list[LogPosition]]:
        """Accept all of `entries` or none: delivered to the next hop, or durable in the log. Raises
        SinkRefusedError."""
        if beyond_quota:
            return self._log.append(entries, True)
        lines: dict[int, list[LogEntry]] = {}
        for entry in entries:
            lines.setdefault(self._line_of(entry), []).append(entry)
        size = sum(len(entry.payload) for entry in entries)
        with self._cond:
            if self._stop:
                raise SinkRefusedError("the agent is stopping")
            if self._waiting and self._waiting + size > MAX_QUEUED_BYTES:
                raise SinkRefusedError(f"next hop and disk are too slow: {self._waiting} bytes wait in memory")
            self._waiting += size
            whole = _CallerAppend(Future(), len(lines))
            whole.future.set_running_or_notify_cancel()
            for line, own in lines.items():
                self._enqueue(line, _LineAppend(own, sum(len(entry.payload) for entry in own), whole))
            self._cond.notify_all()
        return whole.future

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @property
    def deletion_paused(self) -> bool:
        return self._log.deletion_paused

    @deletion_paused.setter
    def deletion_paused(self, keep: bool) -> None:
        self._log.deletion_paused = keep

    # ---

    def stop(self) -> None:
        """Accept nothing more; waiting entries go into the log."""
        with self._cond:
            self._stop = True
            self._cond.notify_all()

    def figures(self) -> dict[str, Any]:
        with self._cond:
            return {
                "direct_batches": self.direct_batches,
                "failed_over_batches": self.logged_batches,
                "failed_over_because": dict(self.reasons),
                "waiting_bytes": self._waiting,
            }

    def _enqueue(self, line: int, part: _LineAppend) -> None:
        """Called under `_cond`."""
        if line not in self._queues:
            self._queues[line], self._backoffs[line] = deque(), DirectBackoff()
            threading.Thread(target=self._run, args=(line,), name=f"direct {line}", daemon=True).start()
        self._queues[line].append(part)

    def _run(self, line: int) -> None:
        while True:
            with self._cond:
                self._cond.wait_for(lambda: self._queues[line] or self._stop, _IDLE_S)
                if self._stop and not self._queues[line]:
                    return
                parts = self._take(line)
            if parts:
                try:
                    self._deliver(line, parts)
                except Exception as error:  # the callers must get an error, and the line must go on
                    log.exception("delivery of line %d failed", line)
                    self._finish_lines(parts, [], SinkRefusedError(f"internal error: {error!r}"))

    def _take(self, line: int) -> list[_LineAppend]:
        """Remove the parts of the next call from the queue. Called under `_cond`."""
        parts: list[_LineAppend] = []
        size = count = 0
        queue = self._queues[line]
        while queue:
            size, count = size + queue[0].size, count + len(queue[0].entries)
            if parts and (size > MAX_CALL_BYTES or count > MAX_CALL_MESSAGES):
                break
            parts.append(queue.popleft())
        return parts

    def _deliver(self, line: int, parts: list[_LineAppend]) -> None:
        entries = [entry for part in parts for entry in part.entries]
        left = self._try_direct(line, entries)
        if not left:
            self._finish_lines(parts, [])
            return
        try:
            places = self._log.append(left).result(_LOG_INTERVAL_S)
        except (SinkRefusedError, LogWriteError, TimeoutError) as error:
            self._finish_lines(parts, [], error)
            return
        with self._cond:
            self.logged_batches += _count_batches(left)
        self._finish_lines(parts, places)

    def _try_direct(self, line: int, entries: list[LogEntry]) -> list[LogEntry]:
        """Try the direct way; return the entries not known to be delivered."""
        now, route, way = self._clock.monotonic(), self._backoffs[line], self._route
        reachable = not self._stop and way.is_reachable
        if not route.is_open(now, way.has_backlog(entries), reachable):
            self._count_reason("behind what the log holds" if reachable else "no collector", len(entries))
            return entries
        refused = {id(entry): reason for entry, reason in way.send(entries)}
        left = [entry for entry in entries if id(entry) in refused]
        if left:
            route.record_failure(self._clock.monotonic())
        else:
            route.record_success()
        self._on_bypass([entry for entry in entries if id(entry) not in refused])
        for reason in refused.values():
            self._count_reason(reason, 1)
        with self._cond:
            self.direct_batches += _count_batches(entries) - _count_batches(left)
        return left

    def _count_reason(self, reason: str, count: int) -> None:
        with self._cond:
            self.reasons[reason] += count

    def _finish_lines(
        self, parts: list[_LineAppend], places: list[LogPosition], error: Exception | None = None
    ) -> None:
        done: list[_CallerAppend] = []
        with self._cond:
            self._waiting -= sum(part.size for part in parts)
            for part in parts:
                whole = part.append
                whole.pending_lines, whole.error = whole.pending_lines - 1, whole.error or error
                whole.places += places
                if whole.pending_lines == 0:
                    done.append(whole)
        for whole in done:
            if whole.error is not None:
                whole.future.set_exception(whole.error)
            else:
                whole.future.set_result(whole.places)


def _count_batches(entries: Sequence[LogEntry]) -> int:
    """Count the batches, without announcements."""
    return sum(1 for entry in entries if entry.header.id.lane != NO_LANE)
