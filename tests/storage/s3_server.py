"""An S3 server in a process of its own, and a proxy before it that loses answers, is slow, or asks for patience."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Literal
from urllib.parse import urlsplit

import requests

from tests.sockets import free_port
from tests.waiting import eventually

BUCKET = "artimon"
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",  # of a server on loopback
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}
Fault = Literal["", "lost", "slow", "refused"]
SLOW_S = 0.2


@contextmanager
def s3_server() -> Iterator[str]:
    """Start the server with one bucket; yields its address."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return requests.put(f"{endpoint}/{BUCKET}", timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    try:
        eventually(answers, "the S3 server answers", 60)
        yield endpoint
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def faulty(endpoint: str, choose: Callable[[str, str], Fault]) -> Iterator[str]:
    """Start a proxy that treats each request as `choose(method, path)` says; yields its address."""
    server = urlsplit(endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = choose(self.command, self.path)
            if fault == "slow":
                time.sleep(SLOW_S)
            if fault == "refused":
                self.send_response(503)
                text = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                return
            connection = http.client.HTTPConnection(server, timeout=20)
            connection.request(self.command, self.path, body or None, dict(self.headers))
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            if fault == "lost":
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length", "server", "date"):
                    self.send_header(name, value)
            size = answer.headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", size or str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


def random_faults(seed: int, share: float) -> Callable[[str, str], Fault]:
    """Return a choice that gives a fault to a share of the requests; a lost answer to writes only."""
    random, lock = Random(seed), threading.Lock()

    def choose(method: str, _path: str) -> Fault:
        with lock:
            if random.random() >= share:
                return ""
            return random.choice(["lost", "slow", "refused"] if method in ("PUT", "POST") else ["slow", "refused"])

    return choose
