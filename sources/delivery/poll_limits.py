"""Places that the polls of an agent share, and how many files and connections its process may have open."""

from __future__ import annotations

import asyncio
import resource

_LARGE_AT_ONCE = 8
SPARE = 512
"""For everything but kept connections: the log, the state, polls under way, threads of clients."""


class PollLimits:
    """What all polls of a source share: places for polls under way, for large answers in memory, and for connections
    that are kept from one poll to the next (`most_kept`; beyond that each poll makes one)."""

    def __init__(self, concurrency: int, most_kept: int = 20_000) -> None:
        self.most_kept, self.kept = most_kept, 0
        self._healthy = asyncio.Semaphore(concurrency)
        self._failing = asyncio.Semaphore(max(1, concurrency // 4))
        self.large = asyncio.Semaphore(_LARGE_AT_ONCE)

    def place(self, failing: bool) -> asyncio.Semaphore:
        """Endpoints that hang use up the places of their own kind only."""
        return self._failing if failing else self._healthy


def raise_limit() -> int:
    """Use what the system allows instead of what it starts a process with (often 1,024); how many connections may be
    kept then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # an unlimited hard limit, where the kernel has one of its own
            pass
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(0, soft - SPARE)
