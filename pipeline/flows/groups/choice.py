"""Groups that hand each delivery to one of their sinks: failover, round-robin, least-loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from pydantic import Field

from artimon.model.clock import Clock
from pipeline.flows.context import Context
from pipeline.flows.event import Parcel
from pipeline.flows.groups.standing import Standing, by_priority, in_turn, least_loaded
from pipeline.flows.lifecycle import Member, State, stop_all
from pipeline.flows.options import Options
from pipeline.flows.registry import Component
from pipeline.flows.spi import Figures, Sink, SinkFailed

Order = Callable[[list[Standing], float, int], list[Standing]]


class ChoiceOptions(Options):
    """`slow_s`: a sink that took longer is left alone for a while, as if it had failed (0: never). `start_s`: time for
    each of its sinks to start or stop."""

    slow_s: float = Field(default=0.0, ge=0)
    start_s: float = Field(default=10.0, gt=0)


class ChoiceGroup:
    """Several sinks that look like one; each delivery goes to one of them, to the next one if it fails.

    A sink has one call at a time. Locks: `_cond` guards the standings; nobody delivers under it."""

    def __init__(self, sinks: Mapping[str, Sink], order: Order, options: ChoiceOptions, clock: Clock) -> None:
        self._sinks, self._order, self._options, self._clock = dict(sinks), order, options, clock
        self._members = {name: Member(f"sink {name}", sink.start, sink.stop) for name, sink in sinks.items()}
        self._standings = [Standing(name) for name in sinks]
        self._cond = threading.Condition()
        self._turn = 0

    def start(self) -> None:
        """Those that do not start are tried again when their turn comes to deliver."""
        for member, standing in zip(self._members.values(), self._standings, strict=True):
            if not member.start(self._options.start_s):
                standing.failed(self._clock.monotonic())

    def deliver(self, parcels: Sequence[Parcel]) -> None:
        """To the first that takes them. What no sink will ever take (retry=False) is not tried on the next."""
        reasons: dict[str, str] = {}
        while (standing := self._choose(reasons)) is not None:
            began = self._clock.monotonic()
            try:
                self._started(standing.name).deliver(parcels)
            except SinkFailed as error:
                self._settle(standing, None if error.retry else standing.mean_s)
                if not error.retry:
                    raise
                reasons[standing.name] = error.reason
            except BaseException:
                self._settle(standing, None)
                raise
            else:
                self._settle(standing, self._clock.monotonic() - began)
                return
        raise SinkFailed(self._why(reasons))

    def stop(self, deadline_s: float) -> None:
        """Stops all of them, going on past failures; raises SinkFailed with what went wrong."""
        if problems := stop_all(list(self._members.values()), deadline_s / max(1, len(self._members))):
            raise SinkFailed("; ".join(problems))

    def figures(self) -> Figures:
        with self._cond:
            found = {s.name: (s.delivered, s.failures, s.total_failures, s.mean_s) for s in self._standings}
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
            "problems": [member.problem for member in self._members.values() if member.problem],
        }

    def _choose(self, tried: Mapping[str, str]) -> Standing | None:
        """The next one, marked as busy; waits while all that could be tried are busy with other deliveries."""
        with self._cond:
            while True:
                now = self._clock.monotonic()
                fit = [s for s in self._order(self._standings, now, self._turn) if s.name not in tried]
                if fit:
                    self._turn = self._standings.index(fit[0]) + 1
                    fit[0].busy = True
                    return fit[0]
                if not any(s.busy and s.name not in tried for s in self._standings):
                    return None
                self._cond.wait(0.5)

    def _started(self, name: str) -> Sink:
        member = self._members[name]
        if member.state is not State.RUNNING and not member.start(self._options.start_s):
            raise SinkFailed(member.problem)
        return self._sinks[name]

    def _settle(self, standing: Standing, seconds: float | None) -> None:
        with self._cond:
            now = self._clock.monotonic()
            if seconds is None:
                standing.failed(now)
            else:
                standing.worked(seconds, now, self._options.slow_s or None)
            self._cond.notify_all()

    def _why(self, reasons: Mapping[str, str]) -> str:
        now = self._clock.monotonic()
        with self._cond:
            resting = {
                s.name: f"failed {s.failures} times, tried again in {max(0.0, s.not_before - now):.1f} s"
                for s in self._standings
                if s.name not in reasons
            }
        return "no sink took it: " + "; ".join(f"{name}: {why}" for name, why in {**reasons, **resting}.items())


class FanOutOptions(Options):
    """Each sink says itself whether it is `required` and how many `behind_bytes` it may be behind if not."""


def _choice(order: Order) -> Callable[[ChoiceOptions, Context], Callable[[Mapping[str, Sink]], ChoiceGroup]]:
    """Builder of a group: it returns a function from the sinks by name to the group."""
    return lambda options, context: lambda sinks: ChoiceGroup(sinks, order, options, context.clock)


FAILOVER = Component(
    "failover", ChoiceOptions, _choice(lambda standings, now, _: by_priority(standings, now)), outside={}
)
ROUND_ROBIN = Component("round-robin", ChoiceOptions, _choice(in_turn), outside={})
LEAST_LOADED = Component("least-loaded", ChoiceOptions, _choice(least_loaded), outside={})
FAN_OUT = Component("fan-out", FanOutOptions, lambda options, _: options, outside={})
"""Nothing is built: a fan-out is the business of the channel."""
