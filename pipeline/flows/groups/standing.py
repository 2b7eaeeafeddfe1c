"""Order in which the sinks of a group are tried. Pure: the caller brings the time."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.link.timer import backoff

LEAST_S, MOST_S = 0.2, 30.0
_WEIGHT = 0.25


@dataclass(slots=True)
class Standing:
    """Health of one sink: its back-off, and its mean time for a delivery."""

    name: str
    failures: int = 0
    """Failures in a row."""
    total_failures: int = 0
    not_before: float = 0.0
    mean_s: float = 0.0
    busy: bool = False
    delivered: int = 0

    def due(self, now: float) -> bool:
        return not self.busy and now >= self.not_before

    def worked(self, seconds: float, now: float, slow_s: float | None = None) -> None:
        """Record a delivery of so many seconds. Above `slow_s` the sink gets a back-off as after a failure, since
        others may be faster."""
        self.busy = False
        self.delivered += 1
        self.mean_s = seconds if not self.mean_s else self.mean_s + _WEIGHT * (seconds - self.mean_s)
        if slow_s is not None and seconds > slow_s:
            self._rest(now)
        else:
            self.failures, self.not_before = 0, 0.0

    def failed(self, now: float) -> None:
        self.busy = False
        self.total_failures += 1
        self._rest(now)

    def _rest(self, now: float) -> None:
        """Back off, longer each time, at most MOST_S."""
        self.failures += 1
        self.not_before = now + backoff(self.failures, LEAST_S, MOST_S)


def by_priority(standings: list[Standing], now: float) -> list[Standing]:
    """Return the sinks that may be tried, in the order of the configuration."""
    return [s for s in standings if s.due(now)]


def in_turn(standings: list[Standing], now: float, turn: int) -> list[Standing]:
    """Return the sinks that may be tried, beginning with number `turn`."""
    start = turn % len(standings)
    return [s for s in (*standings[start:], *standings[:start]) if s.due(now)]


def least_loaded(standings: list[Standing], now: float, turn: int) -> list[Standing]:
    """Return the sinks that may be tried, the fastest of late first; untried ones before all others."""
    return sorted(in_turn(standings, now, turn), key=lambda s: s.mean_s)
