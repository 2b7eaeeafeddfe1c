"""Bytes that a server holds for calls that are on their way."""

from __future__ import annotations

import threading


class Holding:
    """At most `most` bytes; a call that is larger is let in alone. Thread-safe.

    Invariant: `bytes` is what was taken and not given back."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Whether there is room for so many more; `give_back` must follow then."""
        with self._lock:
            if self.bytes and self.bytes + size > self._most:
                return False
            self.bytes += size
            return True

    def give_back(self, size: int) -> None:
        """The call has its answer."""
        with self._lock:
            self.bytes -= size
