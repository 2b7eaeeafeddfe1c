"""Memory that a process may use: limits of queries and capacities follow from it."""

from __future__ import annotations

import resource
from pathlib import Path

MEMORY_SHARE = 0.8
"""Default share of the machine's memory that a process may use."""
QUERY_SHARE, USER_SHARE = 8, 4
"""Part of that memory which one query may fill: in a server that runs several, in the process of one user."""
SERIES_BYTES, SAMPLE_BYTES, ROW_BYTES = 8_192, 24, 256
"""Bytes of a series with its labels and text, of a raw sample, each with the arrays of their evaluation, and of a
sample in an answer of the history, as a frame."""
LEAST_SERIES = 100_000
"""Limit of the series of a query on a machine with little memory, and the default."""


def memory_limit(machine_bytes: int = 0) -> int:
    """Return the bytes that a process may use: a share of the memory of the machine, or of its control group or its
    address space (RLIMIT_AS) if one of these is smaller. `machine_bytes` 0: read from /proc."""
    found = [machine_bytes or _machine_bytes(), *_group_bytes()]
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY:
        found.append(soft)
    return int(min(found) * MEMORY_SHARE)


def query_memory(share: int, memory_bytes: int = 0) -> int:
    """Return the bytes that one query may fill. `memory_bytes`: memory of the process; 0: measured."""
    return (memory_bytes or memory_limit()) // share


def user_series(memory_bytes: int = 0) -> int:
    """Return the most series of one query in the process of one user."""
    return max(LEAST_SERIES, query_memory(USER_SHARE, memory_bytes) // SERIES_BYTES)


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
