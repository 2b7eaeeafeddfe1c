"""Settings for polled variables that configuration may change while an agent runs. One entry each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from artimon.runtime.text import parse_duration, parse_size

SettingParser = Callable[[Any], Any]
"""Converts a written value to the type of the setting. Raises ValueError that shows the correct form."""

_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _parse_or_reject(parse: Callable[[str], int], text: str) -> int:
    """Return -1 for a text that `parse` refuses."""
    try:
        return parse(text)
    except ValueError:
        return -1


def duration(least_ms: int, most_ms: int) -> SettingParser:
    """Return a reader of durations such as "60s", "500ms", "5m" in milliseconds, within bounds."""

    def read(written: Any) -> int:
        value = _parse_or_reject(parse_duration, written) if isinstance(written, str) else -1
        if not least_ms <= value <= most_ms:
            raise ValueError(f'write a duration such as "60s", from {least_ms / 1000:g}s to {most_ms / 1000:g}s')
        return value

    return read


def size(least: int) -> SettingParser:
    """Return a reader of sizes such as "8GiB", "64 MiB" or a number in bytes; K, M, G and T count in 1024s."""

    def read(written: Any) -> int:
        number = isinstance(written, int) and not isinstance(written, bool)
        value = _parse_or_reject(parse_size, str(written)) if number or isinstance(written, str) else -1
        if not least <= value < 2**63:
            raise ValueError(f'write bytes such as "8GiB", at least {least // 1024**2} MiB')
        return value

    return read


def one_of(*words: str) -> SettingParser:
    """Return a reader that accepts one of the words."""

    def read(written: Any) -> str:
        if written not in words or not isinstance(written, str):
            raise ValueError(f"write one of {', '.join(words)}")
        return written

    return read


def groups(written: Any) -> tuple[str, ...]:
    """Read names of groups, the preferred one first."""
    names = [written] if isinstance(written, str) else written
    good = isinstance(names, list | tuple) and 0 < len(names) <= 16 and len(set(map(str, names))) == len(names)
    if not good or not all(isinstance(name, str) and _GROUP.fullmatch(name) for name in names):
        raise ValueError('write names of groups, such as ["rack-7", "default"], the preferred one first; never a host')
    return tuple(names)


PARSERS: Mapping[str, SettingParser] = MappingProxyType(
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
"""Readers by name in the table `metrics`. `Agent._runtime` of an agent and the pollers apply the settings."""

NUMERIC_SETTINGS = frozenset({"poll", "quota", "credits", "backlog"})
"""Settings that an unsigned document may change: each is a number within the bounds of its reader."""
