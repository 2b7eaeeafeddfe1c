"""Rate limit of an agent's backlog, so that old batches do not delay new ones. Pure.

Batches that waited for more than a period are backlog and go at `rate`; new batches go at once. While sent batches do
not reach the table within most of a period, the backlog slows to a trickle: then the table is behind, and more data in
Kafka would only delay new data.
"""

from __future__ import annotations

from dataclasses import dataclass

MiB = 1024 * 1024
BACKLOG_RATE = 32 * MiB
BACKLOG_AGE_MS = 60_000
TRICKLE_AFTER_S = 45.0
_TRICKLE_SHARE = 1 / 16
_AVERAGE_S = 30.0


@dataclass(slots=True)
class BacklogLimiter:
    """Token bucket for the bytes of the backlog. It fills at `rate` bytes a second (0: no limit), but at least at twice
    the rate of new data, so that a backlog always ends. It holds the tokens of one second."""

    rate: float = BACKLOG_RATE
    period_ms: int = BACKLOG_AGE_MS
    hold_s: float = TRICKLE_AFTER_S
    is_trickling: bool = False
    """True if the backlog only trickled when `room` was last called."""
    _tokens: float = 0.0
    _refilled_at: float | None = None
    _new_rate: float = 0.0
    """Average bytes a second of new data."""

    def available(self, now: float, waiting_s: float) -> int:
        """Return the bytes of the backlog that may go now. `waiting_s`: wait of the oldest sent batch for its ack."""
        if not self.rate:
            return 1 << 62
        self.is_trickling = waiting_s > self.hold_s
        passed = 0.0 if self._refilled_at is None else max(0.0, now - self._refilled_at)
        self._new_rate *= max(0.0, 1 - passed / _AVERAGE_S)
        speed = self._rate_now()
        if self._refilled_at is None:
            self._tokens = speed
        self._refilled_at = now
        self._tokens = min(speed, self._tokens + passed * speed)
        return int(self._tokens)

    def consume(self, size: int) -> None:
        """Take the tokens of a group of the backlog. A group larger than the tokens left is paid for afterwards."""
        self._tokens -= size

    def count_new(self, size: int) -> None:
        """Count accepted bytes of new data."""
        self._new_rate += size / _AVERAGE_S

    def until_token_s(self) -> float:
        """Return the seconds until there is a token again."""
        return max(0.0, (1 - self._tokens) / self._rate_now()) if self.rate else 0.0

    def _rate_now(self) -> float:
        return max(self.rate, 2 * self._new_rate) * (_TRICKLE_SHARE if self.is_trickling else 1.0)
