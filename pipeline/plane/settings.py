"""The settings of the way of polled variables that configuration may change while an agent runs. One entry each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

Reader = Callable[[Any], Any]
"""From what was written to a value of the setting's own type. Raises ValueError that says what to write."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|min|h)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_SIZE = re.compile(r"(\d+)\s*(|[KMGT])i?B?", re.IGNORECASE)
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def duration(least_ms: int, most_ms: int) -> Reader:
    """Milliseconds of "60s", "500ms", "5m", within bounds."""

    def read(written: Any) -> int:
        found = _DURATION.fullmatch(written.strip()) if isinstance(written, str) else None
        value = round(float(found[1]) * _UNITS_MS[found[2]]) if found else -1
        if not least_ms <= value <= most_ms:
            raise ValueError(f'write a duration such as "60s", from {least_ms / 1000:g}s to {most_ms / 1000:g}s')
        return value

    return read


def size(least: int) -> Reader:
    """Bytes of "8GiB", "64 MiB" or a number; K, M, G and T count in 1024s."""

    def read(written: Any) -> int:
        number = isinstance(written, int) and not isinstance(written, bool)
        found = _SIZE.fullmatch(str(written).strip()) if number or isinstance(written, str) else None
        value = int(found[1]) * 1024 ** " KMGT".index((found[2] or " ")[0].upper()) if found else -1
        if not least <= value < 2**63:
            raise ValueError(f'write bytes such as "8GiB", at least {least // 1024**2} MiB')
        return value

    return read


def one_of(*words: str) -> Reader:
    """One of the words."""

    def read(written: Any) -> str:
        if written not in words or not isinstance(written, str):
            raise ValueError(f"write one of {', '.join(words)}")
        return written

    return read


def groups(written: Any) -> tuple[str, ...]:
    """Names of groups, the preferred one first."""
    names = [written] if isinstance(written, str) else written
    good = isinstance(names, list | tuple) and 0 < len(names) <= 16 and len(set(map(str, names))) == len(names)
    if not good or not all(isinstance(name, str) and _GROUP.fullmatch(name) for name in names):
        raise ValueError('write names of groups, such as ["rack-7", "default"], the preferred one first; never a host')
    return tuple(names)


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "poll": duration(1000, 3_600_000),
        "level": one_of("kafka", "hdfs"),
        "delivery": one_of("end-to-end", "disk-failover", "best-effort"),
        "quota": size(16 * 1024**2),
        "credits": size(1024**2),
        "backlog": size(1024**2),
        "collectors": groups,
        "collectors_mode": one_of("failover", "round-robin", "least-loaded"),
    }
)
"""By the name in the table `metrics`. Who applies each: `Agent._runtime` in pipeline/agent.py, and whoever polls."""

NUMBERS = frozenset({"poll", "quota", "credits", "backlog"})
"""Settings that an unsigned document may change: each is a number within the bounds of its reader."""
