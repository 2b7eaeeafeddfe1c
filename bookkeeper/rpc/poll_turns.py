"""Turns of pollers: one agent at a time polls this process, even if several agents claim it."""

from __future__ import annotations

import threading
from time import monotonic

MAX_MEMO = 192 * 1024


class PollTurns:
    """Arbiter between pollers: keeps the name of the last poller and its memo for the next one.

    Agents assign processes by leases in ZooKeeper. An agent cut off from ZooKeeper cannot know whether another one has
    taken over. It sends its patience instead, and the process, which both can reach, decides.

    Locks: `_lock` guards all fields; nothing is called under it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name = ""
        self._polled_at = 0.0
        self._memo = b""

    def take(self, name: str, patience_ms: int, memo: bytes | None) -> tuple[str, bytes | None]:
        """Return the poller that has the turn, and the previous poller's memo if `name` has just taken over.

        `name` gets the turn unless another one polled within the last `patience_ms`. `memo` replaces the stored one."""
        now = monotonic()
        with self._lock:
            other = self._name not in ("", name)
            if other and (now - self._polled_at) * 1000 < patience_ms:
                return self._name, None
            left = self._memo if other else None
            self._name, self._polled_at = name, now
            if memo is not None:
                self._memo = memo if len(memo) <= MAX_MEMO else b""
            return name, left

    def last(self) -> tuple[str, bytes]:
        """Name of the last poller ("" without one), and its memo."""
        with self._lock:
            return self._name, self._memo
