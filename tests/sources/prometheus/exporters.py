"""Real exporters and a real Prometheus for tests, and a server that returns a fixed page."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from artimon.runtime.settings import child_environment
from tests.programs import require
from tests.sockets import free_port
from tests.waiting import LIMIT_S, eventually

Labels = frozenset[tuple[str, str]]


def get(url: str, accept: str = "*/*") -> tuple[bytes, str]:
    """Return body and content type."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=60) as answer:
        return answer.read(), answer.headers.get("Content-Type", "")


@contextlib.contextmanager
def serving(name: str, arguments: list[str], ready: str) -> Iterator[None]:
    """Run a Debian program; return once `ready` answers."""
    program = require(name)
    command = [str(program.path), *arguments]
    process = subprocess.Popen(
        command,
        env=child_environment(program.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def answers() -> bool:
        assert process.poll() is None, f"{command} ended with {process.returncode}"
        with contextlib.suppress(OSError):
            get(ready)
            return True
        return False

    try:
        eventually(answers, f"{name} at {ready}")
        yield
    finally:
        process.terminate()
        process.wait(timeout=LIMIT_S)


@contextlib.contextmanager
def node_exporter(textfiles: Path) -> Iterator[str]:
    """host:port of a node_exporter that reads `textfiles` too."""
    address = f"127.0.0.1:{free_port()}"
    arguments = [f"--web.listen-address={address}", f"--collector.textfile.directory={textfiles}"]
    with serving("node-exporter", arguments, f"http://{address}/"):
        yield address


class Prometheus:
    """A server that scrapes once a second what its configuration names."""

    def __init__(self, address: str) -> None:
        self.address = address

    def series(self, selector: str) -> dict[tuple[str, Labels], float]:
        """Return name and labels -> newest value."""
        body, _ = get(f"http://{self.address}/api/v1/query?query={quote(selector)}")
        found = {}
        for one in json.loads(body)["data"]["result"]:
            labels = dict(one["metric"])
            found[labels.pop("__name__", ""), frozenset(labels.items())] = float(one["value"][1])
        return found


@contextlib.contextmanager
def prometheus(
    folder: Path, config: dict[str, Any], address: str = "", options: Sequence[str] = ()
) -> Iterator[Prometheus]:
    """Run a Prometheus with that configuration (JSON is YAML)."""
    address = address or f"127.0.0.1:{free_port()}"
    file = folder / "prometheus.yml"
    file.write_text(json.dumps({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, **config}))
    arguments = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with serving("prometheus", [*arguments, *options], f"http://{address}/-/ready"):
        yield Prometheus(address)


@contextlib.contextmanager
def page(body: bytes, kind: str) -> Iterator[str]:
    """Serve `body` on every request; yield host:port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
