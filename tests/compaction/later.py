"""The system's clock, set ahead: a process that was stopped for long."""

from __future__ import annotations

import threading

from artimon.model.clock import SYSTEM_CLOCK


class Later:
    """The system's clock, so many seconds on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + round(self.seconds * 1000)

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic() + self.seconds

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return SYSTEM_CLOCK.wait(stop, seconds)
