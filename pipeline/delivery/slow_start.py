"""Slow start after Kafka was full: probes of one message, then of twice as many after each that is taken. Pure: no I/O,
no clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pipeline.link.collector_link import MAX_CALL_MESSAGES
from pipeline.link.timer import backoff_s

MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 15.0


@dataclass(slots=True)
class SlowStart:
    """Window of batches while Kafka is full. `window` None: no limit. Otherwise one call of all lanes at a time carries
    at most `window` batches, and none begins before `not_before`."""

    reason: str = ""
    """Last reason of the collector; "" once it has taken a probe."""
    window: int | None = None
    not_before: float = 0.0
    refusals: int = 0
    _random: random.Random = field(default_factory=random.Random)

    def window_now(self, now: float, flying: bool) -> int | None:
        """Return the batches of samples allowed in the next call; None: as many as fit. `flying`: a probe is in
        flight."""
        if self.window is None:
            return None
        return 0 if flying or self.not_before > now else self.window

    def record_refusal(self, reason: str, now: float, probe: bool) -> None:
        """Shrink the window: Kafka is full. Calls begun before (no probes) do not lengthen the pause."""
        if probe or self.window is None:
            self.refusals += 1
            pause = backoff_s(self.refusals, MIN_PAUSE_S, MAX_PAUSE_S) * self._random.uniform(0.5, 1.5)
            self.not_before = now + pause  # jitter: agents refused together must not return together
        self.reason, self.window = reason, 1

    def record_accepted(self) -> None:
        """Double the window: Kafka took a whole probe."""
        if self.window is None:
            return
        self.reason, self.refusals, self.not_before = "", 0, 0.0
        self.window *= 2
        if self.window > MAX_CALL_MESSAGES:
            self.window = None
