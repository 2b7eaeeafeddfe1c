"""Parsers of user input: durations, sizes, addresses, names of processes; suggestions for misspelled names. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal

from bookkeeper.process.addresses import split_host_port

UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(min|ms|[wdhms])")
_DURATION = re.compile(f"(?:{_PART.pattern})+")
_SIZE = re.compile(r"([0-9]{1,19})\s*(|[KMGT]i?)B?", re.IGNORECASE)
MAX_NAME = 200


def parse_duration(text: str) -> int:
    """Parse "60s", "500ms", "1.5m" or "1h30m" to milliseconds; "min" is "m". Raises ValueError.

    >>> parse_duration("1h30m")
    5400000
    """
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError(f"{text!r:.80} is not a duration: write a number and a unit of ms s m h d w, such as 60s")
    parts = _PART.findall(text)
    return round(sum(Decimal(number) * UNITS_MS["m" if unit == "min" else unit] for number, unit in parts))


def parse_period(text: str) -> int:
    """Parse a duration of at least a second to milliseconds. Raises ValueError."""
    period_ms = parse_duration(text)
    if period_ms < 1000:
        raise ValueError(f"{text} is too short: use at least 1s")
    return period_ms


def format_utc(ms: int) -> str:
    """Format a time in epoch milliseconds for people, in UTC, to the second.

    >>> format_utc(1_800_000_000_000)
    '2027-01-15T08:00:00Z'
    """
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_duration(ms: int) -> str:
    """Return the shortest text that `parse_duration` reads as `ms`."""
    parts: list[str] = []
    for unit, size in UNITS_MS.items():
        if ms >= size:
            parts.append(f"{ms // size}{unit}")
            ms %= size
    return "".join(parts) or "0s"


def parse_size(text: str) -> int:
    """Parse "20 GiB", "64M" or "1048576" to bytes; K, M, G and T are binary. Raises ValueError.

    >>> parse_size("64 MiB")
    67108864
    """
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r:.80} is not a size: write bytes, such as 20GiB")
    return int(found[1]) << 10 * " KMGT".index((found[2] or " ")[0].upper())


def parse_address(text: str) -> tuple[str, int]:
    """Split host:port into host, without brackets, and port. Raises ValueError.

    >>> parse_address("[::1]:2181")
    ('::1', 2181)
    """
    host, port = split_host_port(text, 0)
    if not host or not port:
        raise ValueError(f"{text!r:.200} is not an address: write host:port, IPv6 in brackets")
    return host, port


def parse_process_name(text: str) -> str:
    """Return `text` if it is valid as the name of a process, which also names a znode and files. Raises ValueError."""
    if not text or len(text) > MAX_NAME or text in {".", ".."} or not text.isprintable() or set(text) & set("/, "):
        raise ValueError(f"{text!r} cannot be a name: use 1 to {MAX_NAME} letters, digits, dots, - and _")
    return text


def parse_process_names(text: str) -> tuple[str, ...]:
    """Parse names of processes, separated by commas. Raises ValueError."""
    return tuple(map(parse_process_name, text.split(",")))


def closest_names(word: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return the known names with a spelling close to `word`, best first."""
    return difflib.get_close_matches(word, list(known), limit, 0.6)


def near_names(word: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return the known names with a spelling close to `word`, best first; if there are none, those that contain it."""
    pool = list(known)
    found = closest_names(word, pool, limit)
    if not found and len(word) >= 3:
        found = [name for name in pool if word.lower() in name.lower()][:limit]
    return found


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: similar names, else all known ones."""
    names = list(known)
    if found := near_names(word, names):
        return f"; did you mean {' or '.join(found)}?"
    return f"; there are {', '.join(names)}" if names else ""


def printable(text: str) -> str:
    """Escape non-printable characters: labels are untrusted and could control a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
