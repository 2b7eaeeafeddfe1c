"""Groups that hand each delivery to one of their sinks: failover, round-robin, least-loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from artimon.model.clock import Clock
from pipeline.flows.context import Context
from pipeline.flows.event import EventBatch
from pipeline.flows.lifecycle import LifecycleState, ManagedPart, stop_all
from pipeline.flows.options import NoOptions, Options
from pipeline.flows.registry import Component
from pipeline.flows.spi import Figures, Sink, SinkFailed
from pipeline.link.timer import backoff_s

MIN_PAUSE_S, MAX_PAUSE_S = 0.2, 30.0
_WEIGHT = 0.25


@dataclass(slots=True)
class SinkHealth:
    """Health of one sink: its back-off, and its mean time for a delivery."""

    name: str
    failures: int = 0
    """Failures in a row."""
    total_failures: int = 0
    not_before: float = 0.0
    mean_s: float = 0.0
    busy: bool = False
    delivered: int = 0

    def is_due(self, now: float) -> bool:
        return not self.busy and now >= self.not_before

    def record_success(self, seconds: float, now: float, slow_s: float | None = None) -> None:
        """Record the seconds of a delivery. Above `slow_s` the sink gets a back-off as after a failure, since
        others may be faster."""
        self.busy = False
        self.delivered += 1
        self.mean_s = seconds if not self.mean_s else self.mean_s + _WEIGHT * (seconds - self.mean_s)
        if slow_s is not None and seconds > slow_s:
            self._back_off(now)
        else:
            self.failures, self.not_before = 0, 0.0

    def record_failure(self, now: float) -> None:
        self.busy = False
        self.total_failures += 1
        self._back_off(now)

    def _back_off(self, now: float) -> None:
        """Back off, longer each time, at most MOST_S."""
        self.failures += 1
        self.not_before = now + backoff_s(self.failures, MIN_PAUSE_S, MAX_PAUSE_S)


def by_priority(standings: list[SinkHealth], now: float) -> list[SinkHealth]:
    """Return the sinks that may be tried, in the order of the configuration."""
    return [s for s in standings if s.is_due(now)]


def by_turn(standings: list[SinkHealth], now: float, turn: int) -> list[SinkHealth]:
    """Return the sinks that may be tried, beginning with number `turn`."""
    start = turn % len(standings)
    return [s for s in (*standings[start:], *standings[:start]) if s.is_due(now)]


def least_loaded(standings: list[SinkHealth], now: float, turn: int) -> list[SinkHealth]:
    """Return the sinks that may be tried, the fastest in recent deliveries first; untried ones before all others."""
    return sorted(by_turn(standings, now, turn), key=lambda s: s.mean_s)


SinkOrder = Callable[[list[SinkHealth], float, int], list[SinkHealth]]


class ChoiceOptions(Options):
    """`slow_s`: seconds after which a delivery starts a back-off, like a failure (0: never). `start_s`: timeout for
    each sink to start or stop, in seconds."""

    slow_s: float = Field(default=0.0, ge=0)
    start_s: float = Field(default=10.0, gt=0)


class ChoiceGroup:
    """Several sinks behind the interface of one. Each delivery goes to one of them, and to the next if it fails.

    A sink has one call at a time. Locks: `_cond` guards the standings; no delivery under it."""

    def __init__(self, sinks: Mapping[str, Sink], order: SinkOrder, options: ChoiceOptions, clock: Clock) -> None:
        self._sinks, self._order, self._options, self._clock = dict(sinks), order, options, clock
        self._parts = {name: ManagedPart(f"sink {name}", sink.start, sink.stop) for name, sink in sinks.items()}
        self._health = [SinkHealth(name) for name in sinks]
        self._cond = threading.Condition()
        self._turn = 0

    def start(self) -> None:
        """Start all sinks; those that fail are started again on their turn to deliver."""
        for member, standing in zip(self._parts.values(), self._health, strict=True):
            if not member.start(self._options.start_s):
                standing.record_failure(self._clock.monotonic())

    def deliver(self, event_batches: Sequence[EventBatch]) -> None:
        """Deliver to the first sink that takes the event batches. Permanent refusals (retry=False) end the attempt."""
        reasons: dict[str, str] = {}
        while (standing := self._choose(reasons)) is not None:
            began = self._clock.monotonic()
            try:
                self._start_sink(standing.name).deliver(event_batches)
            except SinkFailed as error:
                self._record_success(standing, None if error.retry else standing.mean_s)
                if not error.retry:
                    raise
                reasons[standing.name] = error.reason
            except BaseException:
                self._record_success(standing, None)
                raise
            else:
                self._record_success(standing, self._clock.monotonic() - began)
                return
        raise SinkFailed(self._failure_text(reasons))

    def stop(self, deadline_s: float) -> None:
        """Stop all sinks, continuing after failures. Raises SinkFailed with the problems."""
        if problems := stop_all(list(self._parts.values()), deadline_s / max(1, len(self._parts))):
            raise SinkFailed("; ".join(problems))

    def figures(self) -> Figures:
        with self._cond:
            found = {s.name: (s.delivered, s.failures, s.total_failures, s.mean_s) for s in self._health}
        return {
            "sinks": {
                name: {
                    **self._sinks[name].figures(),
                    "deliveries": delivered,
                    "failures_in_a_row": row,
                    "failures": failures,
                    "mean_ms": round(mean_s * 1000),
                }
                for name, (delivered, row, failures, mean_s) in found.items()
            },
            "problems": [member.problem for member in self._parts.values() if member.problem],
        }

    def _choose(self, tried: Mapping[str, str]) -> SinkHealth | None:
        """Return the next sink, marked as busy; wait while all candidates are busy with other deliveries."""
        with self._cond:
            while True:
                now = self._clock.monotonic()
                fit = [s for s in self._order(self._health, now, self._turn) if s.name not in tried]
                if fit:
                    self._turn = self._health.index(fit[0]) + 1
                    fit[0].busy = True
                    return fit[0]
                if not any(s.busy and s.name not in tried for s in self._health):
                    return None
                self._cond.wait(0.5)

    def _start_sink(self, name: str) -> Sink:
        member = self._parts[name]
        if member.state is not LifecycleState.RUNNING and not member.start(self._options.start_s):
            raise SinkFailed(member.problem)
        return self._sinks[name]

    def _record_success(self, standing: SinkHealth, seconds: float | None) -> None:
        with self._cond:
            now = self._clock.monotonic()
            if seconds is None:
                standing.record_failure(now)
            else:
                standing.record_success(seconds, now, self._options.slow_s or None)
            self._cond.notify_all()

    def _failure_text(self, reasons: Mapping[str, str]) -> str:
        now = self._clock.monotonic()
        with self._cond:
            resting = {
                s.name: f"failed {s.failures} times, tried again in {max(0.0, s.not_before - now):.1f} s"
                for s in self._health
                if s.name not in reasons
            }
        return "no sink took the data: " + "; ".join(f"{name}: {why}" for name, why in {**reasons, **resting}.items())


def _build_group(order: SinkOrder) -> Callable[[ChoiceOptions, Context], Callable[[Mapping[str, Sink]], ChoiceGroup]]:
    """Return a builder that maps options and context to a function from the sinks by name to the group."""
    return lambda options, context: lambda sinks: ChoiceGroup(sinks, order, options, context.clock)


FAILOVER = Component(
    "failover", ChoiceOptions, _build_group(lambda standings, now, _: by_priority(standings, now)), outside={}
)
ROUND_ROBIN = Component("round-robin", ChoiceOptions, _build_group(by_turn), outside={})
LEAST_LOADED = Component("least-loaded", ChoiceOptions, _build_group(least_loaded), outside={})
FAN_OUT = Component("fan-out", NoOptions, lambda options, _: options, outside={})
"""Builds nothing: the channel implements the fan-out, and each sink says whether it is `required`, or how many
`behind_bytes` it may lag."""
