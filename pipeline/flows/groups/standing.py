"""Which sink of a group is tried next. Pure: the caller brings the time."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.link.timer import backoff

LEAST_S, MOST_S = 0.2, 30.0
_WEIGHT = 0.25


@dataclass(slots=True)
class Standing:
    """Of one sink: whether it may be tried, and how quick it has been."""

    name: str
    failures: int = 0
    """In a row."""
    total_failures: int = 0
    not_before: float = 0.0
    mean_s: float = 0.0
    busy: bool = False
    delivered: int = 0

    def due(self, now: float) -> bool:
        return not self.busy and now >= self.not_before

    def worked(self, seconds: float, now: float, slow_s: float | None = None) -> None:
        """It took something in so many seconds. Slower than `slow_s` it is left alone for a while, like one that
        failed: slow is not dead, but others may be quick."""
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
        """Each time longer, at most MOST_S; the exponent is clamped before it could overflow."""
        self.failures += 1
        self.not_before = now + backoff(self.failures, LEAST_S, MOST_S)


def by_priority(standings: list[Standing], now: float) -> list[Standing]:
    """Those that may be tried, in the order they were named."""
    return [s for s in standings if s.due(now)]


def in_turn(standings: list[Standing], now: float, turn: int) -> list[Standing]:
    """Those that may be tried, beginning with number `turn`."""
    start = turn % len(standings)
    return [s for s in (*standings[start:], *standings[:start]) if s.due(now)]


def least_loaded(standings: list[Standing], now: float, turn: int) -> list[Standing]:
    """Those that may be tried, the quickest of late first; one that was never tried before all others."""
    return sorted(in_turn(standings, now, turn), key=lambda s: s.mean_s)
