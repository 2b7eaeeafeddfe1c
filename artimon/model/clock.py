"""Time, as the rest of the platform may see it: one small protocol, the system's clock, and a clock that tests move.

Sample times are epoch milliseconds of the system clock; waiting and timers use the monotonic one, so that a jump of the
wall clock never stretches a deadline.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What a part needs to know of time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait at most `seconds` for `stop`; True when it was set."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.wait(max(0.0, seconds))


class ManualClock:
    """A clock that stands still until told to move; `wait` moves it instead of waiting."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.advance(int(seconds * 1000))
        return stop.is_set()

    def advance(self, ms: int) -> None:
        """Move the clock by `ms` milliseconds (back, if negative)."""
        self._now_ms += ms


SYSTEM_CLOCK: Clock = SystemClock()
