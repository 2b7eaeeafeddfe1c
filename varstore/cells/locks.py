"""Fair locks: a thread that takes one in a loop cannot starve the others."""

from __future__ import annotations

import threading
from types import TracebackType


class FairLock:
    """Mutex for threads that take it repeatedly: a waiting thread gets it before the last holder gets it again.

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


class FairSemaphore:
    """Fair semaphore of `at_once` threads: a waiting thread gets a permit before the last holder gets another.

    Invariant: `_turn` is only held while waiting for `_free`. Order: `_turn`, then `_free`, then locks that the work
    itself takes."""

    def __init__(self, at_once: int) -> None:
        self._turn, self._free = threading.Lock(), threading.BoundedSemaphore(at_once)

    def __enter__(self) -> None:
        with self._turn:
            self._free.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free.release()
