"""What the last calls of programs held, so that a number that is used again for something else is noticed: the channel
knows identities alone, and would drop it as a repeat."""

from __future__ import annotations

import threading
from collections import OrderedDict

REMEMBERED = 100_000
"""Calls of all programs together; about 20 MiB."""


class NumberUsed(ValueError):
    """A program has used this number before, for other events."""


class Calls:
    """Digests by program and number, those of the last calls. Thread-safe."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most, self._lock = most, threading.Lock()
        self._digests: OrderedDict[tuple[int, int], int] = OrderedDict()

    def claim(self, program: int, number: int, digest: int) -> bool:
        """A call comes; whether it is the first of its number, as far as is remembered. Raises NumberUsed."""
        with self._lock:
            known = self._digests.get((program, number))
            if known is None:
                self._digests[program, number] = digest
                if len(self._digests) > self._most:
                    self._digests.popitem(last=False)
            elif known != digest:
                raise NumberUsed(f"number {number} was used before for other events: give each call one of its own")
            return known is None

    def release(self, program: int, number: int) -> None:
        """Nothing of that call was kept: its number is free."""
        with self._lock:
            self._digests.pop((program, number), None)
