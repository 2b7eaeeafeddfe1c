"""Digests of the last calls, which detect a number that a program reuses for other events: the channel compares
identities only, and would drop such a call as a repeat."""

from __future__ import annotations

import threading
from collections import OrderedDict

REMEMBERED = 100_000
"""Calls of all programs together; about 20 MiB."""


class NumberUsed(ValueError):
    """The program has used this number before, for other events."""


class Calls:
    """Digests of the last calls by program and number. Thread-safe."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most, self._lock = most, threading.Lock()
        self._digests: OrderedDict[tuple[int, int], int] = OrderedDict()

    def claim(self, program: int, number: int, digest: int) -> bool:
        """Record a call; True if it is the first known with its number. Raises NumberUsed."""
        with self._lock:
            known = self._digests.get((program, number))
            if known is None:
                self._digests[program, number] = digest
                if len(self._digests) > self._most:
                    self._digests.popitem(last=False)
            elif known != digest:
                raise NumberUsed(f"number {number} was used before for other events: use a new number for each call")
            return known is None

    def release(self, program: int, number: int) -> None:
        """Free the number of a call of which nothing was kept."""
        with self._lock:
            self._digests.pop((program, number), None)
