"""Threads that carry what is in the log to a collector, and note what it answered."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from thriftpy2.thrift import TException

from artimon.model.batch import NO_LANE, BatchId
from artimon.model.clock import Clock
from bookkeeper.framed import CallTimeout, FramedClient, FramedError
from pipeline.acks import Position, Verdict
from pipeline.collectors import Collectors, Endpoint
from pipeline.framing import RecordType
from pipeline.idl import collector_idl
from pipeline.probing import Probing
from pipeline.records import Place, encode_acked, encode_forgotten, encode_sent
from pipeline.segments import CorruptRecord
from pipeline.timer import AdaptiveTimer
from pipeline.tracker import GROUP_COUNT, Answer, Group, Item, Tracker
from pipeline.wal import Entry, Log

log = logging.getLogger(__name__)

_IDLE_S = 1.0
_EXTRA_THREADS = 2
_LEAST_DEADLINE_S = 15.0
"""Above the time that a collector gives Kafka (pipeline/broker.py), so that its own answer comes first."""


class Sender:
    """Drives the tracker: takes groups, sends them, tells the log.

    Locks: `_cond` guards the tracker, the collectors and the timer; no I/O under it. The log has its own lock and is
    never called under `_cond`. Threads: one a lane and two more, so that a lane whose call hangs holds up no other.
    """

    def __init__(self, wal: Log, tracker: Tracker, agent: str, lanes: int, clock: Clock) -> None:
        self._log, self._tracker, self._agent, self._clock = wal, tracker, agent, clock
        self.collectors = Collectors(agent)
        self._timer = AdaptiveTimer(least=_LEAST_DEADLINE_S)
        self._probing = Probing()
        self._probe: Group | None = None
        """The call that asks whether Kafka has room again."""
        self._cond = threading.Condition()
        self._stop = False
        self.damaged = 0
        """Batches that were accepted and that the disk no longer gives back."""
        self.carried_bytes = 0
        """Payload of all calls since start, whether answered or not: what is sent again counts again."""
        self._threads = [
            threading.Thread(target=self._run, name=f"send {n}", daemon=True) for n in range(lanes + _EXTRA_THREADS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Send nothing more. A call that hangs is left behind (its thread is a daemon)."""
        with self._cond:
            self._stop = True
            self._cond.notify_all()
        deadline = self._clock.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - self._clock.monotonic()))

    def logged(self, placed: Sequence[tuple[Entry, Place]]) -> None:
        """These are durable now and may go."""
        now_ms = self._clock.now_ms()
        with self._cond:
            for entry, place in placed:
                self._tracker.add(entry.header, place, now_ms)
            self._cond.notify_all()

    def update_collectors(self, found: dict[str, Endpoint]) -> None:
        """What ZooKeeper lists."""
        with self._cond:
            self.collectors.update(found)
            self._cond.notify_all()

    def sent(self) -> list[Any]:
        """What waits for acks (pipeline.acks.Sent)."""
        with self._cond:
            return self._tracker.sent()

    def judged(self, verdict: Verdict[BatchId]) -> None:
        """Apply what followed from the published ack states."""
        for key, evidence in verdict.resend:
            log.warning("batch %s is sent again: %s", key, evidence)
        with self._cond:
            done = self._tracker.judged(verdict)
            self._cond.notify_all()
        self._forget(done)

    @property
    def buffer_full(self) -> str:
        """What a collector said of Kafka's quota, "" while there is room."""
        with self._cond:
            return self._probing.reason

    def figures(self) -> dict[str, Any]:
        """Counts for health."""
        with self._cond:
            now_ms = self._clock.now_ms()
            oldest, unsent = self._tracker.oldest_ms(), self._tracker.oldest_unsent_ms()
            return {
                "pending_batches": self._tracker.pending,
                "unsent_batches": self._tracker.unsent,
                "sent_batches": self._tracker.sent_count,
                "acked_batches": self._tracker.acked_count,
                "resent_batches": self._tracker.resent_count,
                "carried_bytes": self.carried_bytes,
                "damaged_batches": self.damaged,
                "nacks": dict(self._tracker.nacks),
                "buffer_full": self._probing.reason,
                "oldest_unacked_ms": 0 if oldest is None else max(0, now_ms - oldest),
                "oldest_unsent_ms": 0 if unsent is None else max(0, now_ms - unsent),
                "collectors": len(self.collectors),
                "collectors_up": self.collectors.up(),
            }

    def _run(self) -> None:
        clients: dict[Endpoint, FramedClient] = {}
        while not self._stop:
            group = self._next()
            if group is not None:
                try:
                    self._send(group, clients)
                except Exception:  # a thread that dies would silently narrow the way
                    log.exception("sender: group of %s", group.lane)
                    with self._cond:
                        self._tracker.failed(group, self._clock.monotonic())
                        self._learn(group, ())
        for client in clients.values():
            client.close()

    def _next(self) -> Group | None:
        with self._cond:
            if self._stop:
                return None
            now = self._clock.monotonic()
            window = self._probing.allowed(now, self._probe is not None)
            if self.collectors.pick(now) is not None:
                group = self._tracker.take(now, GROUP_COUNT if window is None else window)
                if group is not None:
                    if window is not None and group.lane.lane != NO_LANE:
                        self._probe = group
                    return group
            due = self._tracker.next_due(samples=window != 0)
            if window == 0 and self._probe is None:
                due = self._probing.not_before if due is None else min(due, self._probing.not_before)
            wait = _IDLE_S if due is None else min(_IDLE_S, max(0.02, due - now))
            self._cond.wait(wait)
            return None

    def _learn(self, group: Group, answers: Sequence[Answer]) -> None:
        """Under `_cond`: what the end of a call says of Kafka's room. Announcements are never refused for
        want of it."""
        probe = group is self._probe
        if probe:
            self._probe = None
        full = next((answer.reason for answer in answers if answer.full), "")
        if full:
            self._probing.refused(full, self._clock.monotonic(), probe)
        elif probe and answers and all(answer.position is not None for answer in answers):
            self._probing.taken()

    def _send(self, group: Group, clients: dict[Endpoint, FramedClient]) -> None:
        messages, bad = self._read(group)
        now = self._clock.monotonic()
        with self._cond:
            if bad:
                self.damaged += len(bad)
                self._tracker.lost(group, bad)
                self._learn(group, ())
                self._cond.notify_all()
                return
            endpoint = self.collectors.pick(now)
            if endpoint is None:
                self._tracker.failed(group, now)
                self._learn(group, ())
                return
            deadline = self._timer.deadline()
            self.carried_bytes += sum(map(len, messages))
        answers = self._call(_client(clients, endpoint), endpoint, messages, deadline)
        if answers is None:
            with self._cond:
                self._tracker.failed(group, self._clock.monotonic())
                self._learn(group, ())
            return
        with self._cond:
            outcome = self._tracker.answered(group, answers, self._clock.monotonic())
            self._learn(group, answers)
            self._cond.notify_all()
        self._note_sent(outcome.sent)
        self._forget(outcome.done)

    def _read(self, group: Group) -> tuple[list[bytes], list[Item]]:
        messages, bad = [], []
        for item in group.items:
            try:
                messages.append(self._log.read(item.place))
            except (CorruptRecord, OSError) as error:
                log.error("batch %s is lost: %s", item.id, error)
                bad.append(item)
        return messages, bad

    def _call(
        self, client: FramedClient, endpoint: Endpoint, messages: list[bytes], deadline: float
    ) -> list[Answer] | None:
        """One call; None if there is no answer."""
        began = self._clock.monotonic()
        try:
            answers = [_answer(raw) for raw in client.call("send", messages, timeout=deadline)]
            if len(answers) != len(messages):
                raise FramedError(f"{len(answers)} answers to {len(messages)} messages")
        except (FramedError, TException, OSError) as error:
            log.warning("collector %s:%d: %s", endpoint.host, endpoint.port, error)
            with self._cond:
                self.collectors.failed(endpoint, self._clock.monotonic())
                if isinstance(error, CallTimeout):
                    self._timer.timed_out()
            return None
        with self._cond:
            self.collectors.worked(endpoint)
            self._timer.answered(self._clock.monotonic() - began)
        return answers

    def _note_sent(self, items: list[Item]) -> None:
        by_agent: dict[str, list[tuple[BatchId, Position]]] = {}
        for item in items:
            if item.position is not None:
                by_agent.setdefault(item.id.agent, []).append((item.id, item.position))
        for agent, sent in by_agent.items():
            self._log.note(RecordType.SENT, encode_sent(agent, sent))

    def _forget(self, done: list[Item]) -> None:
        """Nobody needs these from us any more."""
        batches = [item.id for item in done if not item.is_series]
        announcements = [item.place for item in done if item.is_series]
        self._log.note(RecordType.ACKED, encode_acked(batches))
        self._log.note(RecordType.FORGOTTEN, encode_forgotten(announcements))
        self._log.release([item.place for item in done])


def _client(clients: dict[Endpoint, FramedClient], endpoint: Endpoint) -> FramedClient:
    client = clients.get(endpoint)
    if client is None:
        client = clients[endpoint] = FramedClient(collector_idl().Collector, endpoint.host, endpoint.port)
    return client


def _answer(raw: Any) -> Answer:
    if raw.ok:
        epoch = -1 if raw.leader_epoch is None else raw.leader_epoch
        return Answer(Position(raw.cluster, raw.topic_id, raw.partition, raw.offset, epoch))
    reason = raw.reason or "no reason given"
    return Answer(None, reason, ours=reason.startswith("damaged:"))
