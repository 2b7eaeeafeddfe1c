"""What one API process allows: every answer that refuses names the limit and its value."""

from __future__ import annotations

from dataclasses import dataclass

KiB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    query_bytes: int = 16 * KiB
    body_bytes: int = 64 * KiB
    header_bytes: int = 64 * KiB
    """Request line and headers together."""
    series: int = 20_000
    """Series that one selector of a query may match."""
    cells_read: int = 1_000_000
    """Series times buckets that one fetch may make room for, windows included."""
    cells_answered: int = 500_000
    """Series times buckets of an answer."""
    found: int = 10_000
    """Series that /api/find lists."""
    query_s: float = 20.0
    """From the start of an evaluation to 504."""
    running: int = 4
    """Evaluations at once; one past its time counts until its thread is really free."""
    waiting: int = 64
    wait_s: float = 5.0
    """How long a request waits for its turn before 503."""
    body_s: float = 10.0
    header_s: float = 5.0
    """From the opening of a connection, or the first byte of its next request, to the end of the headers."""
    idle_s: float = 15.0
    """Between two requests of a connection."""
    write_s: float = 30.0
    """How long a client may leave an answer unread."""
    connections: int = 256
