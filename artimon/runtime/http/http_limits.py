"""Limits of an HTTP server, named in the errors that enforce them, and error answers: a status and a text that says
what is wrong, where and what to do."""

from __future__ import annotations

import json
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


class HttpError(Exception):
    """Answer other than 200. `position`, `length`: characters of a parameter, if a part of it is wrong."""

    position: int | None = None
    length: int | None = None

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message

    def body(self) -> bytes:
        """Return the JSON body, in ASCII, because UTF-8 cannot encode lone surrogates."""
        error = {"message": self.message, "position": self.position, "length": self.length}
        return json.dumps({"error": error}).encode()
