"""Engine of a world with its API, and requests to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alerts.api.engine_server import EngineServer
from alerts.api.handlers import AlertHandlers
from tests.alerts.worlds import World


@dataclass
class ApiClient:
    """Requests to `address`, host:port."""

    address: str
    headers: dict[str, str] = field(default_factory=lambda: {"X-Artimon-Author": "ana"})

    def ask(self, path: str, body: Any = None, method: str = "") -> Any:
        """Return the answer; (status, text) if it is an error."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        request = urllib.request.Request(f"http://{self.address}{path}", data, headers, method=method or None)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@contextmanager
def api_of(world: World, host: str = "127.0.0.1", token: Path | None = None) -> Iterator[ApiClient]:
    """Serve the API of the world's engine."""
    handlers = AlertHandlers(world.engine, world.database, world.clock, world.page)
    server = EngineServer(handlers, host, token=token)
    server.start()
    try:
        yield ApiClient(server.address)
    finally:
        server.stop()


def time_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def silence(
    world: World, minutes: int = 60, author: str = "ana", comment: str = "work", **labels: str
) -> dict[str, Any]:
    """Body of a silence from now on; values are equal, or regular expressions after `~`."""
    now_ms = world.clock.now_ms()
    matchers = [
        {"name": name, "value": value.removeprefix("~"), "isRegex": value.startswith("~"), "isEqual": True}
        for name, value in labels.items()
    ]
    return {
        "matchers": matchers,
        "startsAt": time_text(now_ms),
        "endsAt": time_text(now_ms + minutes * 60_000),
        "createdBy": author,
        "comment": comment,
    }
