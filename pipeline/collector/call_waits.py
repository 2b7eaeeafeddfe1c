"""Waits of the calls that a collector holds for its store."""

from __future__ import annotations

import itertools
import threading

from artimon.model.clock import Clock

WINDOW_S = 60.0
"""Seconds of a window, an interval of polls: a wait that is over before the next poll is still reported."""


class CallWaits:
    """Longest wait of this window and of the one before; calls that still wait are included. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, float] = {}
        """Beginning of each call in progress, oldest first."""
        self._window, self._longest_s, self._before_s = 0, 0.0, 0.0

    def begin(self) -> int:
        """Return the number of a call that begins; `end` must follow."""
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = self._clock.monotonic()
            return number

    def end(self, number: int) -> None:
        """Count the wait of a call. Another end of the same call is ignored."""
        with self._lock:
            began = self._waiting.pop(number, None)
            if began is not None:
                self._turn()
                self._longest_s = max(self._longest_s, self._clock.monotonic() - began)

    @property
    def longest_ms(self) -> int:
        with self._lock:
            self._turn()
            oldest = next(iter(self._waiting.values()), None)
            waits = 0.0 if oldest is None else self._clock.monotonic() - oldest
            return round(max(waits, self._longest_s, self._before_s) * 1000)

    def _turn(self) -> None:
        """Begin another window if it is time. Under `_lock`."""
        window = int(self._clock.monotonic() / WINDOW_S)
        if window != self._window:
            self._before_s = self._longest_s if window == self._window + 1 else 0.0
            self._window, self._longest_s = window, 0.0
