"""Clock protocol, the system clock, and a manual clock for tests.

Sample times are epoch milliseconds of the system clock. Waits and timers use the monotonic clock: a jump of the wall
clock never extends a deadline.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock, monotonic clock and wait."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return the monotonic clock in seconds; it never goes back."""
        ...

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait at most `seconds` for `stop`; return True if it is set."""
        ...


class SystemClock:
    """Clock of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.wait(max(0.0, seconds))


class ManualClock:
    """Clock that moves only by `advance`; `wait` advances it instead of waiting."""

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
        """Move the clock by `ms` milliseconds (back if negative)."""
        self._now_ms += ms


SYSTEM_CLOCK: Clock = SystemClock()
