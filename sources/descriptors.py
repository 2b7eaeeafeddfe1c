"""How many files and connections this process may have open."""

from __future__ import annotations

import resource

SPARE = 512
"""For everything but kept connections: the log, the state, polls under way, threads of clients."""


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
