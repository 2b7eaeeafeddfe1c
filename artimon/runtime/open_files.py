"""Limit of open files of this process."""

from __future__ import annotations

import resource


def raise_limit(spare: int) -> int:
    """Raise the soft limit of open files (often 1,024) to the hard limit. Return the connections that may be kept, with
    `spare` descriptors for everything else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # the hard limit is unlimited, but the kernel has its own maximum
            pass
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(1, soft - spare)
