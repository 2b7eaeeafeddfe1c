"""Adaptive timeout of calls, and exponential back-off. Pure: the caller brings durations."""

from __future__ import annotations

from dataclasses import dataclass

_FACTOR = 4.0
_MAX_DOUBLINGS = 16


@dataclass(slots=True)
class AdaptiveTimer:
    """Timeout from measured response times (mean plus four deviations, like TCP's); each timeout doubles it.

    Invariant: least <= deadline() <= most, seconds."""

    min_s: float = 5.0
    max_s: float = 60.0
    mean: float = 0.0
    deviation: float = 0.0
    timeouts: int = 0

    def deadline(self, least: float | None = None) -> float:
        """Return the next timeout in seconds. `least` replaces the timer's own; the invariant holds for it."""
        base = max(self.min_s if least is None else least, self.mean + _FACTOR * self.deviation)
        return min(self.max_s, base * 2.0 ** min(self.timeouts, _MAX_DOUBLINGS))

    def record_answer(self, seconds: float) -> None:
        """Record a response time in seconds."""
        self.timeouts = 0
        if self.mean == 0.0:
            self.mean, self.deviation = seconds, seconds / 2
            return
        self.deviation += (abs(seconds - self.mean) - self.deviation) / 4
        self.mean += (seconds - self.mean) / 8

    def record_timeout(self) -> None:
        self.timeouts += 1


def backoff_s(failures: int, least: float = 0.1, most: float = 10.0) -> float:
    """Return the pause in seconds after this many failures in a row: doubled each time, clamped against overflow."""
    if failures <= 0:
        return 0.0
    return min(most, least * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
