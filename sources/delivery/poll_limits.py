"""Concurrency limits of an agent's polls, and the limit of open files and connections of its process."""

from __future__ import annotations

import asyncio
import resource

_LARGE_AT_ONCE = 8
SPARE = 512
"""File descriptors reserved for everything but kept connections: log, state, running polls, client threads."""


class PollLimits:
    """Limits shared by all polls: running polls, large answers in memory, and connections kept open between polls
    (`most_kept`; beyond it each poll opens a new one)."""

    def __init__(self, concurrency: int, most_kept: int = 20_000) -> None:
        self.most_kept, self.kept = most_kept, 0
        self._healthy = asyncio.Semaphore(concurrency)
        self._failing = asyncio.Semaphore(max(1, concurrency // 4))
        self.large = asyncio.Semaphore(_LARGE_AT_ONCE)

    def place(self, failing: bool) -> asyncio.Semaphore:
        """Return the semaphore of healthy or failing endpoints, so that hanging ones do not block the others."""
        return self._failing if failing else self._healthy


def raise_limit() -> int:
    """Raise the soft limit of open files (often 1,024) to the hard limit. Return the connections that may be kept."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # the hard limit is unlimited, but the kernel has its own maximum
            pass
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(0, soft - SPARE)
