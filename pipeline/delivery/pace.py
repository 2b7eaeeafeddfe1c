"""How fast an agent sends what has waited long, so that a backlog does not hold up what is new. Pure.

What waited for more than a period is a backlog, and goes at `rate`; what is new goes at once. While what was sent is
not in the table within most of a period, the backlog only trickles: then it is the table that is behind, and more in
Kafka would only make new data wait longer there.
"""

from __future__ import annotations

from dataclasses import dataclass

MiB = 1024 * 1024
RATE = 32 * MiB
PERIOD_MS = 60_000
HOLD_S = 45.0
_TRICKLE = 1 / 16
_AVERAGE_S = 30.0


@dataclass(slots=True)
class Pacing:
    """A bucket of bytes that fills at `rate` bytes a second (0: no limit), at least at twice the rate at which new data
    comes, so that a backlog always ends; it holds what comes in a second."""

    rate: float = RATE
    period_ms: int = PERIOD_MS
    hold_s: float = HOLD_S
    held: bool = False
    """Whether the backlog only trickles, by the last look."""
    _tokens: float = 0.0
    _at: float | None = None
    _accepted: float = 0.0
    """Bytes a second that came lately."""

    def room(self, now: float, waiting_s: float) -> int:
        """Bytes of the backlog that may go now. `waiting_s`: how long the oldest sent batch has waited for its ack."""
        if not self.rate:
            return 1 << 62
        self.held = waiting_s > self.hold_s
        passed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._accepted *= max(0.0, 1 - passed / _AVERAGE_S)
        speed = self._speed()
        if self._at is None:
            self._tokens = speed
        self._at = now
        self._tokens = min(speed, self._tokens + passed * speed)
        return int(self._tokens)

    def spent(self, size: int) -> None:
        """So many bytes of the backlog go. A group that is larger than what was left is paid for afterwards."""
        self._tokens -= size

    def came(self, size: int) -> None:
        """New data was accepted."""
        self._accepted += size / _AVERAGE_S

    def wait_s(self) -> float:
        """Seconds until there is room again."""
        return max(0.0, (1 - self._tokens) / self._speed()) if self.rate else 0.0

    def _speed(self) -> float:
        return max(self.rate, 2 * self._accepted) * (_TRICKLE if self.held else 1.0)
