"""Client of the API of an alert engine: for commands, and for the other engines of a pair."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

TIMEOUT_S = 30.0
FORWARDED_HEADER = "X-Artimon-Forwarded"
MAX_ANSWER_BYTES = 512 * 1024 * 1024


class EngineError(RuntimeError):
    """Refusal of the engine, or engine that cannot be asked. `status`: of HTTP, 0 without an answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class EngineClient:
    """Client of the API of an engine at host:port."""

    address: str
    author: str
    token: str = ""
    timeout_s: float = TIMEOUT_S
    forwards: bool = False
    """True for the request of a client that another engine passes on: it is not passed on again."""

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Return the answer. Raises EngineError."""
        headers = {"Content-Type": "application/json", "X-Artimon-Author": self.author.encode().decode("latin-1")}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.forwards:
            headers[FORWARDED_HEADER] = "1"
        given = {name: value for name, value in query.items() if value not in (None, [])}
        connection = http.client.HTTPConnection(self.address, timeout=self.timeout_s)
        try:
            target = f"{path}?{urlencode(given, doseq=True)}" if given else path
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER_BYTES)
            found = json.loads(text) if text else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EngineError(
                f"the engine at {self.address} does not answer: {type(error).__name__}: {error}"
            ) from error
        finally:
            connection.close()
        if answer.status != 200:
            raise EngineError(str(found)[:1_000], answer.status)
        return found
