"""How much an agent may send while Kafka is full: one message now and then, and after the first that is taken more and
more. Pure: no I/O, no clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pipeline.link.link import CALL_COUNT
from pipeline.link.timer import backoff

LEAST_S, MOST_S = 0.5, 15.0


@dataclass(slots=True)
class Probing:
    """`window` None: nothing is held back. Else at most so many batches go at once, in one call of all lanes, and none
    before `not_before`."""

    reason: str = ""
    """What the collector said last; "" once it has taken a probe."""
    window: int | None = None
    not_before: float = 0.0
    refusals: int = 0
    _random: random.Random = field(default_factory=random.Random)

    def allowed(self, now: float, flying: bool) -> int | None:
        """Batches of samples that may go in the next call; None: as many as fit. `flying`: a probe is on its way."""
        if self.window is None:
            return None
        return 0 if flying or self.not_before > now else self.window

    def refused(self, reason: str, now: float, probe: bool) -> None:
        """Kafka is full. Answers to calls that were on their way already (no probes) say nothing new."""
        if probe or self.window is None:
            self.refusals += 1
            pause = backoff(self.refusals, LEAST_S, MOST_S) * self._random.uniform(0.5, 1.5)
            self.not_before = now + pause  # agents that were refused at once do not come back at once
        self.reason, self.window = reason, 1

    def taken(self) -> None:
        """Kafka took all of a probe."""
        if self.window is None:
            return
        self.reason, self.refusals, self.not_before = "", 0, 0.0
        self.window *= 2
        if self.window > CALL_COUNT:
            self.window = None
