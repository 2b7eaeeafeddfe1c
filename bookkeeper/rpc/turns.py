"""Turns of pollers: one agent at a time polls this process, whatever agents believe of each other."""

from __future__ import annotations

import threading
from time import monotonic

MAX_MEMO = 192 * 1024


class Turns:
    """The last poller, and what it left for the next one.

    Agents share out processes by leases in ZooKeeper. One that is cut off from ZooKeeper cannot know whether another
    has taken over; it says so by its patience, and the process, which both can reach, decides.

    Locks: `_lock` guards all fields; nothing is called under it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name = ""
        self._at = 0.0
        self._memo = b""

    def take(self, name: str, patience_ms: int, memo: bytes | None) -> tuple[str, bytes | None]:
        """Who polls from now on, and the memo of the poller before if the one that asks has just come in its place.

        It comes unless another one asked within the last `patience_ms`. `memo` is kept until the next one is given."""
        now = monotonic()
        with self._lock:
            other = self._name not in ("", name)
            if other and (now - self._at) * 1000 < patience_ms:
                return self._name, None
            left = self._memo if other else None
            self._name, self._at = name, now
            if memo is not None:
                self._memo = memo if len(memo) <= MAX_MEMO else b""
            return name, left

    def last(self) -> tuple[str, bytes]:
        """Name of the last poller, "" without one, and the memo that it left."""
        with self._lock:
            return self._name, self._memo
