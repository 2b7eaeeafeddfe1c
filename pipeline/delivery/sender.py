"""Threads that send batches from the log to a collector and record the answers in the log."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from artimon.model.ack_state import AckDecision
from artimon.model.batch import BatchId
from artimon.model.clock import Clock
from artimon.model.ranges import LaneId
from pipeline.delivery.backlog_limiter import BacklogLimiter
from pipeline.delivery.send_planner import (
    LogNote,
    PlannedCall,
    SendPlanner,
    notes_of_released,
    notes_of_sent,
    restore_tracker,
)
from pipeline.delivery.tracker import LaneCall, TrackedBatch, Tracker
from pipeline.link.collector_choice import CollectorEndpoint, CollectorMode
from pipeline.link.collector_client import CallResult, CollectorCallError, CollectorClient
from pipeline.link.link_connections import LinkCall
from pipeline.wal.file_system import is_temporary
from pipeline.wal.log import LogEntry, WriteAheadLog
from pipeline.wal.recovery import Recovery
from pipeline.wal.segments import CorruptRecordError
from pipeline.wal.state_records import LogPosition

log = logging.getLogger(__name__)

CALL_S = 10.0
"""Seconds that a source may wait for a collector before its batch goes into the log."""
_MIN_CALL_S = 1.0


class _EndedCall(NamedTuple):
    """Call that has its answers, or none."""

    call: PlannedCall
    begun: LinkCall


class Sender:
    """Drives `SendPlanner`, which makes all decisions: takes groups, sends them, records the results in the log.

    Locks: `_cond` guards `_planner`, the tracker included, and `_ended`; no I/O under it. The log has its own lock and
    is never called under `_cond`. Threads: one reads batches and begins calls, one records the answers. The number of
    calls in progress is bounded by the lanes and by the credit.
    """

    def __init__(
        self,
        wal: WriteAheadLog,
        tracker: Tracker,
        agent: str,
        clock: Clock,
        pacing: BacklogLimiter | None = None,
        cond: threading.Condition | None = None,
    ) -> None:
        """`cond`: shared by several senders if batches move between their trackers."""
        self._log, self._tracker, self._clock = wal, tracker, clock
        self._planner = SendPlanner.for_agent(tracker, agent, pacing=pacing)
        self._cond = cond or threading.Condition()
        self.client = CollectorClient(self._planner.link, clock, self._cond)
        """Client of the same collectors, for batches that are not in the log."""
        self._stop = False
        self._ended: deque[_EndedCall] = deque()
        runs = {"send": self._run, "answers": self._record_answers}
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in runs.items()]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stop sending. A call that hangs is abandoned."""
        with self._cond:
            self._stop = True
            self._cond.notify_all()
        deadline = self._clock.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - self._clock.monotonic()))
        self.client.close()

    def restore(self, found: Recovery, now_ms: int, ack_on_sent: bool) -> list[tuple[BatchId, LogPosition]]:
        """Restore the tracker from a log, see `pipeline.delivery.send_planner.restore_tracker`."""
        with self._cond:
            return restore_tracker(self._tracker, found, now_ms, ack_on_sent)

    def add_logged(self, placed: Sequence[tuple[LogEntry, LogPosition]]) -> None:
        """Add batches that are durable now and may be sent."""
        now_ms = self._clock.now_ms()
        with self._cond:
            self._planner.add_logged(((entry.header, place) for entry, place in placed), now_ms)
            self._cond.notify_all()

    def update_collectors(self, found: dict[str, CollectorEndpoint]) -> None:
        """Take over the collectors that ZooKeeper lists."""
        self.client.update(found)

    def set_paused(self, held: bool) -> None:
        """Begin no call while held; calls on their way end normally."""
        with self._cond:
            self._planner.paused = held
            self._cond.notify_all()

    def set_groups(self, groups: tuple[str, ...], mode: CollectorMode) -> None:
        """Set the collector groups to use, the preferred one first; () for all."""
        with self._cond:
            self._planner.collectors.prefer(groups, mode)
            self._cond.notify_all()

    def set_limits(self, credits: int, backlog: float) -> None:
        """Limit the bytes in flight to a collector, and the bytes a second of the backlog (0: no limit)."""
        with self._cond:
            self._planner.link.credits.most, self._planner.limiter.rate = credits, backlog
            self._cond.notify_all()

    def set_level(self, ack_on_sent: bool) -> None:
        """Set the ack level: `kafka` acks what Kafka has, sent batches at once; else published states ack."""
        with self._cond:
            done = self._tracker.set_ack_on_sent(ack_on_sent)
        self._release_done(done)

    def unacked(self) -> list[Any]:
        """Return the batches that wait for acks (artimon.model.ack_state.SentBatch)."""
        with self._cond:
            return self._tracker.unacked()

    def apply_verdict(self, verdict: AckDecision[BatchId]) -> None:
        """Apply the verdict on the published ack states."""
        for key, evidence in verdict.resend:
            log.warning("batch %s is sent again: %s", key, evidence)
        with self._cond:
            done = self._tracker.apply_verdict(verdict)
            self._cond.notify_all()
        self._release_done(done)

    def stop_sending(self, places: Iterable[LogPosition]) -> set[LogPosition]:
        """Stop sending these batches; return the places of those that Kafka has confirmed."""
        with self._cond:
            return self._tracker.stop_sending(places)

    @property
    def may_call(self) -> bool:
        """True if sending is not held and a collector may be called now."""
        with self._cond:
            return not self._planner.paused and self._planner.collectors.pick(self._clock.monotonic()) is not None

    def is_idle(self, lane: LaneId) -> bool:
        """True if the log holds no unsent batch of a lane."""
        with self._cond:
            return self._tracker.is_idle(lane)

    @property
    def buffer_full_reason(self) -> str:
        """Reason of a collector while Kafka's quota is used up, "" while there is room."""
        with self._cond:
            return self._planner.slow_start.reason

    def figures(self) -> dict[str, Any]:
        """Counts for health."""
        with self._cond:
            now_ms = self._clock.now_ms()
            oldest, unsent = self._tracker.oldest_ms(), self._tracker.oldest_unsent_ms()
            link = self._planner.link
            return {
                "pending_batches": self._tracker.pending,
                "unsent_batches": self._tracker.unsent_count,
                "sent_batches": self._tracker.sent_count,
                "acked_batches": self._tracker.acked_count,
                "resent_batches": self._tracker.resent_count,
                "carried_bytes": link.carried_bytes,
                "damaged_batches": self._planner.damaged_count,
                "nacks": dict(self._tracker.nacks),
                "buffer_full": self._planner.slow_start.reason,
                "oldest_unacked_ms": 0 if oldest is None else max(0, now_ms - oldest),
                "oldest_unsent_ms": 0 if unsent is None else max(0, now_ms - unsent),
                "calls": link.calls,
                "calls_unanswered": dict(link.unanswered_calls),
                "collectors_slow": link.slow_count,
                "flying_bytes": link.bytes_in_flight,
                "backlog_held": self._planner.limiter.is_trickling,
                **self._planner.delays.figures(),
                "collectors": len(link.collectors),
                "collectors_up": link.collectors.count_healthy(),
            }

    def _run(self) -> None:
        while not self._stop:
            group = self._next()
            if group is not None:
                try:
                    self._send(group)
                except Exception:  # a thread that dies would silently reduce the throughput
                    log.exception("sender: cannot send a group of lane %s", group.lane)
                    with self._cond:
                        self._planner.call_failed(group, self._clock.monotonic())

    def _next(self) -> LaneCall | None:
        with self._cond:
            if self._stop:
                return None
            group = self._planner.next_call(self._clock.monotonic(), self._clock.now_ms())
            if isinstance(group, LaneCall):
                return group
            self._cond.wait(group)
            return None

    def _send(self, group: LaneCall) -> None:
        messages, bad = self._read(group)
        if bad:
            self._drop_unreadable(group, bad)
            return
        with self._cond:
            call = self._planner.begin(group, self._clock.monotonic())
        if call is None:
            return
        if refusal := self._prepare(call):
            self._end(call, CallResult(None, reached=False, failure=refusal))
            return
        endpoint, deadline_s = call.reservation.endpoint, call.reservation.deadline_s
        begun = self.client.begin_call(endpoint, "send", messages, deadline_s)
        begun.future.add_done_callback(lambda _: self._add_ended(_EndedCall(call, begun)))

    def _prepare(self, _call: PlannedCall) -> str:
        """Prepare a call before it is sent; return a reason not to send it, else ""."""
        return ""

    def _add_ended(self, ended: _EndedCall) -> None:
        with self._cond:
            self._ended.append(ended)
            self._cond.notify_all()

    def _record_answers(self) -> None:
        while True:
            with self._cond:
                while not self._ended and not self._stop:
                    self._cond.wait()
                if not self._ended:
                    return
                ended = self._ended.popleft()
            try:
                self._end(ended.call, self.client.result(ended.begun, len(ended.call.group.items)))
            except Exception:
                log.exception("sender: the answers to a group of lane %s", ended.call.group.lane)
                with self._cond:
                    self._planner.call_failed(ended.call.group, self._clock.monotonic())
                    self._cond.notify_all()

    def _end(self, call: PlannedCall, heard: CallResult) -> None:
        """Apply the end of a call, and record it in the log."""
        with self._cond:
            now = self._clock.monotonic()
            if heard.failure:
                self._planner.call_unanswered(call, now, heard.timed_out, heard.reached)
            else:
                outcome = self._planner.apply_answers(call, heard.value, now)
            self._cond.notify_all()
        if heard.failure:
            return
        if outcome.quarantined:
            self._log.quarantine_batches((item.place, reason) for item, reason in outcome.quarantined)
        self._write_notes(notes_of_sent(outcome.sent))
        self._release_done(outcome.done)

    def _drop_unreadable(self, group: LaneCall, bad: Sequence[TrackedBatch]) -> None:
        with self._cond:
            lost = self._planner.drop_unreadable(group, bad, self._clock.monotonic())
            self._cond.notify_all()
        for item in lost:
            log.error("batch %s is lost: it can no longer be read from the disk", item.id)
        self._log.quarantine_bytes([item.place for item in lost])

    def _read(self, group: LaneCall) -> tuple[list[bytes], list[TrackedBatch]]:
        """Return the messages, and the items that the disk no longer returns. Raises OSError for transient errors."""
        messages, bad = [], []
        for item in group.items:
            try:
                messages.append(self._log.read(item.place))
            except (CorruptRecordError, OSError) as error:
                if is_temporary(error):
                    raise
                log.warning("batch %s cannot be read: %s", item.id, error)
                bad.append(item)
        return messages, bad

    def _write_notes(self, notes: Iterable[LogNote]) -> None:
        for type_, payloads in notes:
            self._log.append_notes(type_, payloads)

    def _release_done(self, done: list[TrackedBatch]) -> None:
        """Release batches in the log that are acked or need no ack."""
        if not done:
            return
        with self._cond:
            self._planner.record_acks(done, self._clock.now_ms())
        self._write_notes(notes_of_released(done))
        self._log.release([item.place for item in done])


class CollectorRoute:
    """Way of disk failover past the log, straight to a collector: calls the collectors of the sender that drains the
    log, with its credits and deadlines."""

    def __init__(self, sender: Sender, clock: Clock) -> None:
        self._sender, self._clock = sender, clock

    @property
    def is_reachable(self) -> bool:
        return self._sender.may_call

    def has_backlog(self, entries: Sequence[LogEntry]) -> bool:
        """As in Way; the entries are of one lane."""
        first = entries[0].header.id
        return not self._sender.is_idle(LaneId(first.agent, first.epoch, first.lane))

    def send(self, entries: Sequence[LogEntry]) -> list[tuple[LogEntry, str]]:
        """Send until all are answered or a call fails; return the entries not delivered, with reasons."""
        left: list[tuple[LogEntry, str]] = []
        at, until = 0, self._clock.monotonic() + CALL_S
        while at < len(entries) and not left:
            within_s = max(_MIN_CALL_S, until - self._clock.monotonic())
            try:
                answers = self._sender.client.send([entry.payload for entry in entries[at:]], within_s).answers
            except CollectorCallError:
                break
            for entry, answer in zip(entries[at:], answers, strict=False):
                if answer.position is None or answer.position.is_future:
                    left.append((entry, answer.reason.split(":", 1)[0] or "not durable yet"))
            at += len(answers)
        reason = left[0][1] if left else "no answer"
        return [*left, *((entry, reason) for entry in entries[at:])]
