"""Byte budget of an event loop: requests wait in the order of arrival until others release their bytes."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class BudgetWaiter(Protocol):
    """Connection whose large frame waits for memory."""

    def grant(self) -> None: ...


class FrameBudget:
    """Budget of `limit` bytes; used by one thread. A single request above the limit is granted once nothing else is
    taken. Invariant: `used` <= max(limit, the largest single request)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[BudgetWaiter, int]] = deque()

    def take(self, waiter: BudgetWaiter, size: int) -> bool:
        """Reserve `size` bytes; False if they are not free: then `waiter.grant()` is called once they are."""
        if not self._waiting and self._fits(size):
            self.used += size
            return True
        self._waiting.append((waiter, size))
        return False

    def release(self, size: int) -> None:
        """Release bytes, and grant them to those that wait."""
        self.used -= size
        while self._waiting and self._fits(self._waiting[0][1]):
            waiter, wanted = self._waiting.popleft()
            self.used += wanted
            waiter.grant()

    def cancel(self, waiter: BudgetWaiter) -> None:
        """Forget a waiter that has gone."""
        self._waiting = deque(one for one in self._waiting if one[0] is not waiter)
        self.release(0)

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return len(self._waiting)

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self.limit
