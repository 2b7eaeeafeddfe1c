"""Durations as Prometheus reads and prints them. Pure."""

from __future__ import annotations

import re

_UNITS_MS = {"y": 31_536_000_000, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_WHOLE = ("y", "w")
"""Units that are printed only if nothing remains."""
_DURATION = re.compile("0|" + "".join(rf"(?:([0-9]{{1,12}}){unit})?" for unit in _UNITS_MS))


def parse_prometheus_duration(text: str) -> int:
    """Return the milliseconds of a text such as 1h30m. Raises ValueError.

    >>> parse_prometheus_duration("1m30s")
    90000
    """
    found = _DURATION.fullmatch(text)
    if not text or not found:
        raise ValueError(f"{text!r:.80}: want a duration such as 30s or 1h30m")
    return sum(int(number or 0) * size for number, size in zip(found.groups(), _UNITS_MS.values(), strict=True))


def print_prometheus_duration(ms: int) -> str:
    """Return the text of milliseconds.

    >>> print_prometheus_duration(5_400_000)
    '1h30m'
    """
    parts = []
    for unit, size in _UNITS_MS.items():
        if ms >= size and not (unit in _WHOLE and ms % size):
            parts.append(f"{ms // size}{unit}")
            ms %= size
    return "".join(parts) or "0s"
