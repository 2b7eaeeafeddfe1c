"""Error answers of HTTP servers: a status and a text that says what is wrong, where and what to do."""

from __future__ import annotations

import json


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
