"""Restarts of dead runners, and detection of stuck ones. Pure: the caller brings the time."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.link.timer import backoff

RESTART_LEAST_S = 0.1
RESTART_MOST_S = 30.0
_CALM_S = 60.0
"""Seconds without a death after which the count of deaths in a row starts anew."""


@dataclass(slots=True)
class Restarts:
    """Restart back-off of one runner. `deaths` counts all, `row` those in a row."""

    deaths: int = 0
    row: int = 0
    not_before: float = 0.0
    _died_at: float | None = None

    def died(self, now: float) -> None:
        """Record an unexpected end of the thread."""
        if self._died_at is not None and now - self._died_at > _CALM_S:
            self.row = 0
        self.deaths, self.row, self._died_at = self.deaths + 1, self.row + 1, now
        self.not_before = now + backoff(self.row, RESTART_LEAST_S, RESTART_MOST_S)

    def due(self, now: float) -> bool:
        return now >= self.not_before


@dataclass(slots=True)
class Progress:
    """Progress of one runner: the time since it is busy, and stall alarms."""

    stall_s: float
    busy_since: float | None = None
    """Time at which work began or last reported progress; None while it waits for work."""
    alarms: int = 0
    _alarmed: bool = False

    def busy(self, now: float) -> None:
        self.busy_since, self._alarmed = now, False

    def idle(self) -> None:
        self.busy_since, self._alarmed = None, False

    def went_on(self, now: float) -> None:
        """Record that long work is making progress."""
        if self.busy_since is not None:
            self.busy_since, self._alarmed = now, False

    def stuck_s(self, now: float) -> float:
        """Return the seconds without progress if they exceed `stall_s`, else 0. Counts each stall as one alarm."""
        if self.busy_since is None or now - self.busy_since <= self.stall_s:
            return 0.0
        if not self._alarmed:
            self._alarmed, self.alarms = True, self.alarms + 1
        return now - self.busy_since
