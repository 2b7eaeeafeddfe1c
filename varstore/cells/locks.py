"""A lock that a loop cannot starve others of."""

from __future__ import annotations

import threading
from types import TracebackType


class FairLock:
    """A mutex for threads that take it again and again: who waits gets it before the last holder gets it back.

    Invariant: `_turn` is only held while waiting for `_held`, so at most one waits for `_held` and the others queue
    behind it. Order: `_turn`, then `_held`."""

    def __init__(self) -> None:
        self._turn, self._held = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._turn:
            self._held.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.release()


class Turns:
    """Lets `at_once` threads work at a time; who waits gets its turn before the last worker gets the next one.

    Invariant: `_turn` is only held while waiting for `_free`. Order: `_turn`, then `_free`; nothing else is taken
    before either is given back, but what the work itself takes."""

    def __init__(self, at_once: int) -> None:
        self._turn, self._free = threading.Lock(), threading.BoundedSemaphore(at_once)

    def __enter__(self) -> None:
        with self._turn:
            self._free.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free.release()
