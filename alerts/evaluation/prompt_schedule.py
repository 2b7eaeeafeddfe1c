"""Schedule of the rules with an interval below a minute: they are evaluated when samples arrive. Pure."""

from __future__ import annotations

from collections.abc import Iterable

MIN_SPACING_MS = 1_000
SPACINGS = 10
"""Maximum number of evaluations in an interval."""
MAX_LOAD = 4
"""Idle time after an evaluation, as a multiple of its duration."""


class PromptSchedule:
    """Times of the last evaluations by interval. Belongs to the engine's thread."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        """Interval in ms -> time of the last evaluation, and samples applied then."""
        self._duration_ms = 0.0

    @property
    def last_ms(self) -> int:
        """Time of the newest evaluation; 0: none."""
        return max((time_ms for time_ms, _ in self._last.values()), default=0)

    def may_begin(self, intervals: Iterable[int], now_ms: int) -> bool:
        """Return True if an interval would be due if samples had arrived."""
        return any(self._spaced(one, now_ms) for one in intervals)

    def due(self, intervals: Iterable[int], now_ms: int, applied: int) -> frozenset[int]:
        """Return the intervals that are due: they have passed, or samples arrived and the least time between two
        evaluations has passed. `applied`: number of samples that the shards applied."""
        return frozenset(
            one
            for one in intervals
            if self._spaced(one, now_ms) and (self._applied(one) != applied or now_ms - self._time_ms(one) >= one)
        )

    def note(self, intervals: Iterable[int], now_ms: int, applied: int, duration_ms: float) -> None:
        """Note an evaluation."""
        self._last |= dict.fromkeys(intervals, (now_ms, applied))
        self._duration_ms = duration_ms

    def _spaced(self, interval_ms: int, now_ms: int) -> bool:
        """True if the least time between two evaluations has passed, or the clock went back."""
        spacing_ms = max(MIN_SPACING_MS, interval_ms // SPACINGS, min(interval_ms, MAX_LOAD * self._duration_ms))
        return not 0 <= now_ms - self._time_ms(interval_ms) < spacing_ms

    def _time_ms(self, interval_ms: int) -> int:
        return self._last.get(interval_ms, (-interval_ms, -1))[0]

    def _applied(self, interval_ms: int) -> int:
        return self._last.get(interval_ms, (0, -1))[1]
