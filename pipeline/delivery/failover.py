"""Disk failover: batches go straight to a collector while that works, and into the log only when it does not. What the
log holds of a lane goes first, so a lane stays in order. Nothing is acked end to end."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from artimon.model.batch import NO_LANE
from artimon.model.clock import Clock
from artimon.model.protocols import SinkRefused
from artimon.model.ranges import LaneId
from pipeline.collector_client import NotSent
from pipeline.link import CALL_BYTES, CALL_COUNT
from pipeline.log.log import Entry, Log, LogFailed
from pipeline.log.records import Place
from pipeline.sender import Sender
from pipeline.timer import backoff

log = logging.getLogger(__name__)

CALL_S = 10.0
"""How long a source may wait for a collector before its batch goes into the log."""
WAITING_BYTES = 64 * 1024 * 1024
_LOG_S = 60.0
_IDLE_S = 1.0


@dataclass(slots=True)
class Route:
    """Whether a lane's next batches go straight to a collector. Pure.

    They do not while the log still holds something of the lane, and for a while after a collector failed, longer each
    time: the log takes them at once, and its sender notices when collectors are back."""

    failures: int = 0
    not_before: float = 0.0

    def direct(self, now: float, backlog: bool, reachable: bool) -> bool:
        return reachable and not backlog and now >= self.not_before

    def failed(self, now: float) -> None:
        self.failures += 1
        self.not_before = now + backoff(self.failures, 0.5, 30.0)

    def worked(self) -> None:
        self.failures, self.not_before = 0, 0.0


@dataclass(slots=True, eq=False)
class _Part:
    """Entries of one lane that one caller handed over."""

    entries: list[Entry]
    size: int
    whole: _Whole


@dataclass(slots=True, eq=False)
class _Whole:
    """One caller. Done once all its parts are; with the first error, if there is one."""

    future: Future[list[Place]]
    parts: int
    places: list[Place] = field(default_factory=list)
    error: Exception | None = None


class FailoverLog:
    """Stands before a log, for its intake. Locks: `_cond` guards the queues; no I/O under it. Threads: one a lane, as
    lanes come up, so that a lane whose call hangs holds up no other."""

    def __init__(self, wal: Log, sender: Sender, clock: Clock) -> None:
        self._log, self._sender, self._clock = wal, sender, clock
        self._cond = threading.Condition()
        self._queues: dict[int, deque[_Part]] = {}
        self._routes: dict[int, Route] = {}
        self._waiting = 0
        self._stop = False
        self.direct_batches = self.logged_batches = 0
        self.reasons: Counter[str] = Counter()
        """Why batches went into the log."""

    # --- as the intake sees a log

    def append(self, entries: Sequence[Entry], beyond_quota: bool = False) -> Future[list[Place]]:
        """Accept all of `entries` or none: with a collector's broker, or durable in the log. Raises SinkRefused."""
        if beyond_quota:
            return self._log.append(entries, True)
        lanes: dict[int, list[Entry]] = {}
        for entry in entries:
            lanes.setdefault(entry.header.id.lane, []).append(entry)
        size = sum(len(entry.payload) for entry in entries)
        with self._cond:
            if self._stop:
                raise SinkRefused("the agent ends")
            if self._waiting and self._waiting + size > WAITING_BYTES:
                raise SinkRefused(f"collectors and disk are too slow: {self._waiting} bytes wait in memory")
            self._waiting += size
            whole = _Whole(Future(), len(lanes))
            whole.future.set_running_or_notify_cancel()
            for lane, own in lanes.items():
                self._enqueue(lane, _Part(own, sum(len(entry.payload) for entry in own), whole))
            self._cond.notify_all()
        return whole.future

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @property
    def keep_segments(self) -> bool:
        return self._log.keep_segments

    @keep_segments.setter
    def keep_segments(self, keep: bool) -> None:
        self._log.keep_segments = keep

    # ---

    def stop(self) -> None:
        """Take nothing more; what waits goes into the log."""
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

    def _enqueue(self, lane: int, part: _Part) -> None:
        """Under `_cond`."""
        if lane not in self._queues:
            self._queues[lane], self._routes[lane] = deque(), Route()
            threading.Thread(target=self._run, args=(lane,), name=f"direct {lane}", daemon=True).start()
        self._queues[lane].append(part)

    def _run(self, lane: int) -> None:
        while True:
            with self._cond:
                self._cond.wait_for(lambda: self._queues[lane] or self._stop, _IDLE_S)
                if self._stop and not self._queues[lane]:
                    return
                parts = self._take(lane)
            if parts:
                try:
                    self._deliver(lane, parts)
                except Exception as error:  # who waits must be told, and the lane must go on
                    log.exception("lane %d", lane)
                    self._settle(parts, [], SinkRefused(f"a defect of the program: {error!r}"))

    def _take(self, lane: int) -> list[_Part]:
        """Under `_cond`: what goes in one call."""
        parts: list[_Part] = []
        size = count = 0
        queue = self._queues[lane]
        while queue:
            size, count = size + queue[0].size, count + len(queue[0].entries)
            if parts and (size > CALL_BYTES or count > CALL_COUNT):
                break
            parts.append(queue.popleft())
        return parts

    def _deliver(self, lane: int, parts: list[_Part]) -> None:
        entries = [entry for part in parts for entry in part.entries]
        left = self._straight(lane, entries)
        if not left:
            self._settle(parts, [])
            return
        try:
            places = self._log.append(left).result(_LOG_S)
        except (SinkRefused, LogFailed, TimeoutError) as error:
            self._settle(parts, [], error)
            return
        with self._cond:
            self.logged_batches += _batches(left)
        self._settle(parts, places)

    def _straight(self, lane: int, entries: list[Entry]) -> list[Entry]:
        """Try a collector; what no broker has said to hold."""
        now, route = self._clock.monotonic(), self._routes[lane]
        first = entries[0].header.id
        backlog = not self._sender.idle(LaneId(first.agent, first.epoch, first.lane))
        reachable = not self._stop and self._sender.may_call
        if not route.direct(now, backlog, reachable):
            self._because("behind what the log holds" if reachable else "no collector", len(entries))
            return entries
        left = self._send(entries)
        if left:
            route.failed(self._clock.monotonic())
        else:
            route.worked()
        with self._cond:
            self.direct_batches += _batches(entries) - _batches(left)
        return left

    def _send(self, entries: list[Entry]) -> list[Entry]:
        """Call until all of them were answered, or some were not taken; what no broker has said to hold."""
        left: list[Entry] = []
        at, until = 0, self._clock.monotonic() + CALL_S
        while at < len(entries) and not left:
            within_s = max(1.0, until - self._clock.monotonic())
            try:
                answers = self._sender.client.send([entry.payload for entry in entries[at:]], within_s).answers
            except NotSent:
                self._because("no answer", len(entries) - at)
                break
            for entry, answer in zip(entries[at:], answers, strict=False):
                if answer.position is None or answer.position.durable_later:
                    self._because(answer.reason.split(":", 1)[0] or "not durable yet", 1)
                    left.append(entry)
            at += len(answers)
        return [*left, *entries[at:]]

    def _because(self, reason: str, count: int) -> None:
        with self._cond:
            self.reasons[reason] += count

    def _settle(self, parts: list[_Part], places: list[Place], error: Exception | None = None) -> None:
        done: list[_Whole] = []
        with self._cond:
            self._waiting -= sum(part.size for part in parts)
            for part in parts:
                whole = part.whole
                whole.parts, whole.error = whole.parts - 1, whole.error or error
                whole.places += places
                if whole.parts == 0:
                    done.append(whole)
        for whole in done:
            if whole.error is not None:
                whole.future.set_exception(whole.error)
            else:
                whole.future.set_result(whole.places)


def _batches(entries: Sequence[Entry]) -> int:
    """Count batches; announcements are left out."""
    return sum(1 for entry in entries if entry.header.id.lane != NO_LANE)
