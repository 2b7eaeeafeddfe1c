"""A number of bytes that many threads share: who wants some waits, first come first served, until others give back."""

from __future__ import annotations

import threading
from collections import deque


class Budget:
    """`limit` bytes. Thread-safe. A single want above the limit is met once nothing else is taken.

    Invariant: `used` <= max(limit, the largest single want)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._cond = threading.Condition()
        self._queue: deque[object] = deque()

    def take(self, size: int, timeout: float) -> bool:
        """True once `size` bytes are ours; False if they were not within `timeout` seconds."""
        ticket = object()
        with self._cond:
            self._queue.append(ticket)
            try:
                if not self._cond.wait_for(lambda: self._turn(ticket, size), timeout):
                    return False
                self.used += size
                return True
            finally:
                self._queue.remove(ticket)
                self._cond.notify_all()

    def give(self, size: int) -> None:
        """They are not needed any longer."""
        with self._cond:
            self.used -= size
            self._cond.notify_all()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    def _turn(self, ticket: object, size: int) -> bool:
        return self._queue[0] is ticket and (not self.used or self.used + size <= self.limit)
