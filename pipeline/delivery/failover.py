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
from pipeline.collectors import Endpoint
from pipeline.connections import CALL_FAILURES, Connections, send
from pipeline.log.log import Entry, Log, LogFailed
from pipeline.log.records import Place
from pipeline.sender import Sender
from pipeline.timer import backoff
from pipeline.tracker import GROUP_BYTES, GROUP_COUNT, Answer

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
        connections = Connections()
        while True:
            with self._cond:
                self._cond.wait_for(lambda: self._queues[lane] or self._stop, _IDLE_S)
                if self._stop and not self._queues[lane]:
                    break
                parts = self._take(lane)
            if parts:
                try:
                    self._deliver(lane, parts, connections)
                except Exception as error:  # who waits must be told, and the lane must go on
                    log.exception("lane %d", lane)
                    self._settle(parts, [], SinkRefused(f"a defect of the program: {error!r}"))
        connections.close()

    def _take(self, lane: int) -> list[_Part]:
        """Under `_cond`: what goes in one call."""
        parts: list[_Part] = []
        size = count = 0
        queue = self._queues[lane]
        while queue:
            size, count = size + queue[0].size, count + len(queue[0].entries)
            if parts and (size > GROUP_BYTES or count > GROUP_COUNT):
                break
            parts.append(queue.popleft())
        return parts

    def _deliver(self, lane: int, parts: list[_Part], connections: Connections) -> None:
        entries = [entry for part in parts for entry in part.entries]
        left = self._straight(lane, entries, connections)
        if not left:
            self._settle(parts, [])
            return
        try:
            places = self._log.append(left).result(_LOG_S)
        except (SinkRefused, LogFailed, TimeoutError) as error:
            self._settle(parts, [], error)
            return
        with self._cond:
            self.logged_batches += sum(1 for entry in left if entry.header.id.lane != NO_LANE)
        self._settle(parts, places)

    def _straight(self, lane: int, entries: list[Entry], connections: Connections) -> list[Entry]:
        """Try a collector; what no broker has said to hold."""
        now, route = self._clock.monotonic(), self._routes[lane]
        first = entries[0].header.id
        lane_id = LaneId(first.agent, first.epoch, first.lane)
        endpoint = None if self._stop else self._sender.endpoint()
        if endpoint is None or not route.direct(now, not self._sender.idle(lane_id), True):
            self._because("no collector" if endpoint is None else "behind what the log holds", len(entries))
            return entries
        answers = self._ask(connections, endpoint, [entry.payload for entry in entries])
        if answers is None:
            route.failed(self._clock.monotonic())
            self._because("no answer", len(entries))
            return entries
        left = []
        for entry, answer in zip(entries, answers, strict=True):
            if answer.position is None or answer.position.durable_later:
                self._because(answer.reason.split(":", 1)[0] or "not durable yet", 1)
                left.append(entry)
        if left:
            route.failed(self._clock.monotonic())
        else:
            route.worked()
        with self._cond:
            self.direct_batches += sum(1 for e in entries if e.header.id.lane != NO_LANE) - sum(
                1 for e in left if e.header.id.lane != NO_LANE
            )
        return left

    def _ask(self, connections: Connections, endpoint: Endpoint, messages: list[bytes]) -> list[Answer] | None:
        """One call; None if it was not answered in time."""
        try:
            return send(connections.to(endpoint, self._sender.known), messages, CALL_S)
        except CALL_FAILURES as error:
            log.warning("collector %s:%d: %s", endpoint.host, endpoint.port, error)
            self._sender.unreached(endpoint)
            return None

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
