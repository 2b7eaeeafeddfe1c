"""Distribution of the time from log to ack, and the lag of each source. Pure, bounded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_SOURCES = 64
"""Most sources with a figure of their own; the rest counts as OTHER."""
OTHER_SOURCES = "other"
_EDGES_MS = tuple(round(2 ** (n / 4)) for n in range(12, 84))
"""Bucket bounds from 8 ms to 20 days, each 19 % above the one before."""


@dataclass(slots=True)
class DelayHistogram:
    """Histogram of waiting times since the process began: count, sum and quantiles with an error of at most a fifth."""

    count: int = 0
    total_ms: int = 0
    _counts: list[int] = field(default_factory=lambda: [0] * (len(_EDGES_MS) + 1))

    def add(self, wait_ms: int, count: int = 1) -> None:
        """Count `count` batches that waited `wait_ms`."""
        self.count += count
        self.total_ms += wait_ms * count
        self._counts[bisect_left(_EDGES_MS, wait_ms)] += count

    def quantile_ms(self, part: float) -> int:
        """Return the upper bound of the bucket that holds this quantile; 0 if nothing was counted."""
        left = part * self.count
        for place, number in enumerate(self._counts):
            left -= number
            if number and left <= 0:
                return _EDGES_MS[min(place, len(_EDGES_MS) - 1)]
        return 0


@dataclass(slots=True)
class DeliveryDelays:
    """Ack times and source lag of one agent."""

    acked: DelayHistogram = field(default_factory=DelayHistogram)
    """Time from accepted to acked."""
    lag_ms: dict[str, int] = field(default_factory=dict)
    """Age of the newest acked batch by source, from its poll time to its ack."""

    def record_acks(self, done: Iterable[tuple[str, int, int]], now_ms: int) -> None:
        """Record acked batches, given as (source, poll time, log time)."""
        for source, poll_ms, logged_ms in done:
            self.acked.add(max(0, now_ms - logged_ms))
            name = source if source in self.lag_ms or len(self.lag_ms) < MAX_SOURCES else OTHER_SOURCES
            self.lag_ms[name] = max(0, now_ms - poll_ms)

    def figures(self) -> dict[str, object]:
        """Figures for health."""
        return {
            "ack_waits": self.acked.count,
            "ack_waits_ms": self.acked.total_ms,
            "ack_wait_p50_ms": self.acked.quantile_ms(0.5),
            "ack_wait_p99_ms": self.acked.quantile_ms(0.99),
            "source_lag_ms": dict(self.lag_ms),
        }
