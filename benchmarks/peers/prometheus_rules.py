"""Prometheus evaluates a group of rules over series that it scrapes from this process."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.peers.process import ask, serving
from benchmarks.peers.series import PeerFailed
from scripts.programs import Program

INTERVAL_S = 5
"""Period of scrapes and of evaluations."""
WARM_S = 40.0
"""Time until the windows of five scrapes are full."""
LEAST, ROUNDS = 1, 2
"""Evaluations that are measured: as many as end in time."""
LIMIT_S = 150.0


def evaluation_seconds(
    program: Program, folder: Path, port: int, series: Callable[[int], str], rules: Sequence[Mapping[str, Any]]
) -> float:
    """Return the median seconds of an evaluation of one group. `series`: the text of scrape n. Raises PeerFailed."""
    folder.mkdir(parents=True)
    (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "bench", "rules": list(rules)}]}))
    with _scraped(series) as target:
        config = {
            "global": {"scrape_interval": f"{INTERVAL_S}s", "evaluation_interval": f"{INTERVAL_S}s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "bench", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        url = f"http://127.0.0.1:{port}"
        options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        options += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        with serving(program, options, f"{url}/-/ready", folder / "log.txt"):
            return statistics.median(_evaluations(url))


def _evaluations(url: str) -> list[float]:
    """Return the seconds of evaluations of the group, without the one that runs at WARM_S. Raises PeerFailed."""
    began, found, last = time.monotonic(), list[float](), ""
    while len(found) < ROUNDS and (passed_s := time.monotonic() - began) < LIMIT_S:
        group = json.loads(ask(f"{url}/api/v1/rules?type=alert"))["data"]["groups"][0]
        if passed_s > WARM_S and group["lastEvaluation"] != last:
            bad = [rule["lastError"] for rule in group["rules"] if rule.get("lastError")]
            if bad:
                raise PeerFailed(f"{len(bad)} rules failed: {bad[0]}")
            if last:
                found.append(float(group["evaluationTime"]))
            last = group["lastEvaluation"]
        time.sleep(INTERVAL_S / 2)
    if len(found) < LEAST:
        raise PeerFailed(f"Prometheus evaluated {len(found)} times in {LIMIT_S - WARM_S:.0f} s")
    return found


@contextmanager
def _scraped(series: Callable[[int], str]) -> Iterator[str]:
    """Serve the text of each scrape at an address, which it yields."""
    scrapes = iter(range(1 << 30))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = series(next(scrapes)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="scraped", daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
