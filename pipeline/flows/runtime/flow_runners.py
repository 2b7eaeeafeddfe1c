"""Threads that drive sources and sinks, their restarts, and the detection of stuck ones."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass

from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.flows.event import EventBatch
from pipeline.flows.runtime.sink_quarantine import SinkQuarantine
from pipeline.flows.spi import (
    ChannelFailed,
    ChannelFull,
    ChannelReader,
    Figures,
    PollableSource,
    Put,
    Sink,
    SinkFailed,
    Take,
    WakeableReader,
)
from pipeline.link.timer import backoff_s

log = logging.getLogger(__name__)

TAKE_WAIT_S = 0.5
"""Longest wait of a take in seconds. Data wakes a take, as does the stop of most flows; this bounds the stop for
channels that cannot be woken."""
MIN_RETRY_S, MAX_RETRY_S = 0.05, 10.0
MIN_RESTART_S = 0.1
MAX_RESTART_S = 30.0
_RESET_AFTER_S = 60.0
"""Seconds without a death after which the count of deaths in a row starts anew."""


@dataclass(slots=True)
class RestartBackoff:
    """Restart back-off of one runner. `deaths` counts all deaths, `in_a_row` the consecutive ones."""

    deaths: int = 0
    in_a_row: int = 0
    not_before: float = 0.0
    _died_at: float | None = None

    def record_death(self, now: float) -> None:
        """Record an unexpected end of the thread."""
        if self._died_at is not None and now - self._died_at > _RESET_AFTER_S:
            self.in_a_row = 0
        self.deaths, self.in_a_row, self._died_at = self.deaths + 1, self.in_a_row + 1, now
        self.not_before = now + backoff_s(self.in_a_row, MIN_RESTART_S, MAX_RESTART_S)

    def is_due(self, now: float) -> bool:
        return now >= self.not_before


@dataclass(slots=True)
class StallDetector:
    """Progress of one runner: the time since it is busy, and stall alarms."""

    stall_s: float
    busy_since: float | None = None
    """Time at which work began or last reported progress; None while it waits for work."""
    alarms: int = 0
    _alarmed: bool = False

    def begin(self, now: float) -> None:
        self.busy_since, self._alarmed = now, False

    def end(self) -> None:
        self.busy_since, self._alarmed = None, False

    def advanced(self, now: float) -> None:
        """Record that long work is making progress."""
        if self.busy_since is not None:
            self.busy_since, self._alarmed = now, False

    def stalled_s(self, now: float) -> float:
        """Return the seconds without progress if they exceed `stall_s`, else 0. Counts each stall as one alarm."""
        if self.busy_since is None or now - self.busy_since <= self.stall_s:
            return 0.0
        if not self._alarmed:
            self._alarmed, self.alarms = True, self.alarms + 1
        return now - self.busy_since


class Runner:
    """Thread that calls `_turn` until it is stopped. If it dies, `watch` starts another."""

    def __init__(self, name: str, stall_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name, self._clock = name, clock
        self.stall_detector, self.restarts = StallDetector(stall_s), RestartBackoff()
        self._stop = threading.Event()
        self._paused = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        self._spawn()

    def stop(self, deadline_s: float) -> None:
        """Raises TimeoutError if the thread is still busy; it does nothing more after its current call."""
        self._stop.set()
        self._wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, deadline_s))
            if thread.is_alive():
                raise TimeoutError(f"{self.name} is still busy after {deadline_s:g} s: abandoned")

    def pause(self) -> None:
        """Begin no work until `resume`."""
        self._paused.set()

    def resume(self) -> None:
        self._paused.clear()
        self._wake()

    def restart_if_dead(self) -> str:
        """Restart the thread if it died and its back-off is over; return a message for the operator or ""."""
        now = self._clock.monotonic()
        if self._stop.is_set() or self._thread is None:
            return ""
        if not self._thread.is_alive():
            if self.restarts.is_due(now):
                self._restart(now)
            return f"{self.name} died {self.restarts.deaths} times and is restarted; see the log"
        stuck = self.stall_detector.stalled_s(now)
        return f"{self.name} has made no progress for {stuck:.0f} s" if stuck else ""

    def figures(self) -> Figures:
        return {"deaths": self.restarts.deaths, "alarms": self.stall_detector.alarms, "paused": self._paused.is_set()}

    def _turn(self) -> None:
        """Do one piece of work, waiting at most about a second for it."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Interrupt the wait of `_turn`."""

    def _restart(self, now: float) -> None:
        self.stall_detector.end()
        self.restarts.record_death(now)
        log.error("%s: its thread has died; another one is started (number %d)", self.name, self.restarts.deaths)
        self._spawn()

    def _spawn(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._paused.is_set():
                self._clock.wait(self._stop, 0.1)
                continue
            self._turn()


class SinkRunner(Runner):
    """Takes from a channel, delivers to a sink, commits after the delivery."""

    def __init__(
        self,
        name: str,
        reader: ChannelReader,
        sink: Sink,
        batch: int,
        rejected: SinkQuarantine,
        stall_s: float,
        clock: Clock,
    ) -> None:
        super().__init__(name, stall_s, clock)
        self._reader, self._sink, self._batch, self._sink_quarantine = reader, sink, batch, rejected
        self.failures: Counter[str] = Counter()
        self.failures_in_a_row = 0
        """Failures in a row."""
        self._one_by_one_left = 0
        """Number of event batches that are still taken one by one, to find the one that the sink refuses."""
        self.event_batches = 0
        self.last_ms = 0
        self.problem = ""

    def figures(self) -> Figures:
        return {
            **super().figures(),
            "delivered": self.event_batches,
            "last_delivery_ms": self.last_ms,
            "failures": dict(self.failures),
            "failing": self.problem,
            "rejected": self._sink_quarantine.count,
        }

    def _turn(self) -> None:
        try:
            take = self._reader.take(1 if self._one_by_one_left else self._batch, TAKE_WAIT_S)
        except ChannelFailed as error:
            self._failed(str(error), "channel")
            return
        if self._paused.is_set() or self._stop.is_set():  # since the wait began
            take.rollback()
            return
        if not take:
            return
        self.stall_detector.begin(self._clock.monotonic())
        try:
            self._deliver(take)
        finally:
            take.rollback()  # no effect after a commit
            self.stall_detector.end()

    def _wake(self) -> None:
        if isinstance(self._reader, WakeableReader):
            self._reader.wake()

    def _deliver(self, take: Take) -> None:
        try:
            self._sink.deliver(take.event_batches)
        except SinkFailed as error:
            if error.retry or (
                len(take.event_batches) == 1 and not self._quarantine(take.event_batches[0], error.reason)
            ):
                take.rollback()
                self._failed(error.reason, "sink")
                return
            if len(take.event_batches) > 1:  # a permanent refusal: find the event batch at fault
                take.rollback()
                self._one_by_one_left = len(take.event_batches)
                return
        except Exception as error:  # a defect of the sink; the next try may work
            log.exception("%s: deliver", self.name)
            take.rollback()
            self._failed(f"{type(error).__name__}: {error}", "bug")
            return
        self._commit(take)

    def _commit(self, take: Take) -> None:
        try:
            take.commit()
        except ChannelFailed as error:
            self._failed(str(error), "commit")
            return
        self._one_by_one_left = max(0, self._one_by_one_left - 1)
        self.failures_in_a_row, self.problem = 0, ""
        self.event_batches += len(take.event_batches)
        self.last_ms = self._clock.now_ms()

    def _quarantine(self, event_batch: EventBatch, reason: str) -> bool:
        try:
            self._sink_quarantine.add(event_batch, reason)
        except OSError as error:
            log.error("%s: %s cannot be quarantined: %s", self.name, event_batch.id, error)
            return False
        log.error("%s: %s is quarantined: %s", self.name, event_batch.id, reason)
        return True

    def _failed(self, problem: str, kind: str) -> None:
        """Log a new problem, count it, and back off."""
        if problem != self.problem:
            log.warning("%s: %s", self.name, problem)
        self.problem = problem
        self.failures_in_a_row += 1
        self.failures[kind] += 1
        self.stall_detector.end()
        self._clock.wait(self._stop, backoff_s(self.failures_in_a_row, MIN_RETRY_S, MAX_RETRY_S))


class SourceRunner(Runner):
    """Starts and stops a source, and calls its `poll`: at once while it finds data, otherwise on wake-up or after
    `idle_s`, which never grows."""

    def __init__(
        self, name: str, source: PollableSource, put: Put, idle_s: float, stall_s: float, clock: Clock
    ) -> None:
        super().__init__(name, stall_s, clock)
        self._source, self._put, self._idle_s = source, put, idle_s
        self._there = threading.Event()
        self.failures_in_a_row = 0
        self.refused: Counter[str] = Counter()
        self.problem = ""

    def start(self) -> None:
        self._source.start()
        super().start()

    def stop(self, deadline_s: float) -> None:
        """Stop the source, even after a TimeoutError of its thread."""
        try:
            super().stop(deadline_s / 2)
        finally:
            self._source.stop(deadline_s / 2)

    def wake(self) -> None:
        """Let the source be polled now."""
        self._there.set()

    def figures(self) -> Figures:
        return {**super().figures(), "refused": dict(self.refused), "failing": self.problem}

    def _turn(self) -> None:
        self._there.clear()
        if self._stop.is_set():  # the clear above may have removed the wake-up of `stop`
            return
        self.stall_detector.begin(self._clock.monotonic())
        try:
            more = self._source.poll(self._put)
            self.failures_in_a_row, self.problem = 0, ""
        except (ChannelFull, ChannelFailed) as error:
            full = isinstance(error, ChannelFull)
            self.refused["full" if full else "failed"] += 1
            self._failed(str(error), full)
            return
        except Exception as error:
            log.exception("%s: poll", self.name)
            self.refused["bug"] += 1
            self._failed(f"{type(error).__name__}: {error}")
            return
        finally:
            self.stall_detector.end()
        if not more:
            self._clock.wait(self._there, self._idle_s)

    def _wake(self) -> None:
        self._there.set()

    def _failed(self, problem: str, waited: bool = False) -> None:
        """`waited`: the put has already waited for room, so retry soon."""
        if problem != self.problem:
            log.warning("%s: %s", self.name, problem)
        self.problem = problem
        self.failures_in_a_row += 1
        self._clock.wait(
            self._stop, MIN_RETRY_S if waited else backoff_s(self.failures_in_a_row, MIN_RETRY_S, MAX_RETRY_S)
        )
