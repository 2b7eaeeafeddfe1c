"""Memory that a process may use: limits of queries and capacities follow from it."""

from __future__ import annotations

import resource
from pathlib import Path

MEMORY_SHARE = 0.8
"""Default share of the machine's memory that a process may use."""


def memory_limit(machine_bytes: int = 0) -> int:
    """Return the bytes that a process may use: a share of the memory of the machine, or of its control group or its
    address space (RLIMIT_AS) if one of these is smaller. `machine_bytes` 0: read from /proc."""
    found = [machine_bytes or _machine_bytes(), *_group_bytes()]
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY:
        found.append(soft)
    return int(min(found) * MEMORY_SHARE)


def _machine_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 1 << 62  # unknown memory: no limit


def _group_bytes() -> list[int]:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return [int(text)]
    return []
