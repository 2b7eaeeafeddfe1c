"""Byte budget shared by many threads: a FIFO queue of threads waits until others release their bytes."""

from __future__ import annotations

import threading
from collections import deque


class ByteBudget:
    """Budget of `limit` bytes. Thread-safe. A single request above the limit is granted once nothing else is taken.

    Invariant: `used` <= max(limit, the largest single request)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._cond = threading.Condition()
        self._queue: deque[object] = deque()

    def reserve(self, size: int, timeout: float) -> bool:
        """Reserve `size` bytes; False if they were not free within `timeout` seconds."""
        ticket = object()
        with self._cond:
            self._queue.append(ticket)
            try:
                if not self._cond.wait_for(lambda: self._is_next(ticket, size), timeout):
                    return False
                self.used += size
                return True
            finally:
                self._queue.remove(ticket)
                self._cond.notify_all()

    def release(self, size: int) -> None:
        """Release `size` bytes."""
        with self._cond:
            self.used -= size
            self._cond.notify_all()

    @property
    def waiting(self) -> int:
        """Number of waiting threads."""
        return len(self._queue)

    def _is_next(self, ticket: object, size: int) -> bool:
        return self._queue[0] is ticket and (not self.used or self.used + size <= self.limit)
