"""Limit on the bytes of the calls in flight at a server."""

from __future__ import annotations

import threading


class Holding:
    """Byte budget of at most `most` bytes; a larger call is admitted when it is alone. Thread-safe.

    Invariant: `bytes` is the sum of the bytes taken and not given back."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Reserve `size` bytes and return True, or return False if they do not fit. After True call `give_back`."""
        with self._lock:
            if self.bytes and self.bytes + size > self._most:
                return False
            self.bytes += size
            return True

    def give_back(self, size: int) -> None:
        """Release the bytes of a call that has its answer."""
        with self._lock:
            self.bytes -= size
