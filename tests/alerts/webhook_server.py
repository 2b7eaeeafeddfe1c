"""HTTP server that keeps the bodies of webhooks, and answers with chosen codes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class WebhookServer:
    """Bodies by path in order of arrival. `codes`: answers of the next requests, 200 after them."""

    port: int = 0
    bodies: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def webhook_server() -> Iterator[WebhookServer]:
    """Serve on a free port."""
    kept = WebhookServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            code = kept.codes.pop(0) if kept.codes else 200
            if code == 200:
                kept.bodies.append((self.path, body))
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
