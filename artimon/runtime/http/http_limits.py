"""Limits of an HTTP server, named in the errors that enforce them."""

from __future__ import annotations

from dataclasses import dataclass

KiB = 1024


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits; sizes in bytes, times in seconds."""

    body_bytes: int = 64 * KiB
    header_bytes: int = 64 * KiB
    """Request line and headers together."""
    body_s: float = 10.0
    header_s: float = 5.0
    """Time from the opening of a connection, or the first byte of its next request, to the end of the headers."""
    idle_s: float = 15.0
    """Time between two requests of a connection."""
    write_s: float = 30.0
    """Time for which a client may leave an answer unread."""
    answer_s: float = 120.0
    """Time for reading a complete answer, from the first write that the client delays."""
    connections: int = 256
