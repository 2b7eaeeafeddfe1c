"""How long to wait for an answer, and how long after a failure. Pure: the caller brings durations."""

from __future__ import annotations

from dataclasses import dataclass

_FACTOR = 4.0
_MAX_DOUBLINGS = 16


@dataclass(slots=True)
class AdaptiveTimer:
    """A deadline that follows measured answer times (mean plus four deviations, like TCP's); each miss doubles it.

    Invariant: least <= deadline() <= most, seconds."""

    least: float = 5.0
    most: float = 60.0
    mean: float = 0.0
    deviation: float = 0.0
    missed: int = 0

    def deadline(self, least: float | None = None) -> float:
        """Seconds to wait for the next answer; `least` instead of the timer's own: the invariant holds for it."""
        base = max(self.least if least is None else least, self.mean + _FACTOR * self.deviation)
        return min(self.most, base * 2.0 ** min(self.missed, _MAX_DOUBLINGS))

    def answered(self, seconds: float) -> None:
        """An answer came after `seconds`."""
        self.missed = 0
        if self.mean == 0.0:
            self.mean, self.deviation = seconds, seconds / 2
            return
        self.deviation += (abs(seconds - self.mean) - self.deviation) / 4
        self.mean += (seconds - self.mean) / 8

    def timed_out(self) -> None:
        """No answer came in time."""
        self.missed += 1


def backoff(failures: int, least: float = 0.1, most: float = 10.0) -> float:
    """Seconds to wait after so many failures in a row: doubling, clamped before it overflows, never 0."""
    if failures <= 0:
        return 0.0
    return min(most, least * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
