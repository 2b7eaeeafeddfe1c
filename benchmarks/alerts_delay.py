"""Time from a bad value to the message about it. Applications are polled every 10 s by the agent of a whole stack; a rule
with `interval: 10s` watches one variable of each and tells a webhook.

Every application is good and bad in turns of random length. `alerts.delay.*`: time from the poll that reads the first bad
value, as the application notes it, to the request of the webhook. `alerts.delay.p99@engine`: the same from the time at
which the memory store shows the value, within the period of its queries.

    artimon bench alerts_delay [--minutes 3] [--applications 8]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

import bookkeeper
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.grid import Grid, bucket_end
from artimon.model.select import NAME, Matcher, SelectError, SelectRequest
from artimon.runtime.settings import child_environment
from artimon.stack.stack import Stack
from benchmarks.common import emit
from varstore.cluster.varstore_client import VarstoreClient

PARTS = ("zookeeper", "kafka", "hdfs", "shards", "spark", "collector-0", "agent", "alerts")
BASE_PORT = 35_100
VARIABLE = "bench.state"
MINUTE_MS = 60_000
POLL_S = 10
LEAST_TURN_S, MOST_TURN_S = 22.0, 32.0
"""Length of a good or bad turn: at least two polls, so that each is seen."""
LOOK_S = 0.1
KNOWN_S = 180.0
DRAIN_S = 60.0
RULES = """
receivers:
  hook: {{webhook: ["http://127.0.0.1:{port}/"]}}
rules:
  - name: bad
    expr: fetch('bench.state')
    threshold: "< 1"
    interval: 10s
    missing: keep
    receivers: [hook]
"""


class DelayError(RuntimeError):
    """A bad turn that no message told."""


# ---- the application, a process of its own


def serve_application(number: int) -> None:
    """Publish the variable and print the time of the first poll of each bad turn, until the input ends."""
    chance, turns = random.Random(number), [time.monotonic() + LEAST_TURN_S]
    told = False

    def state() -> int:
        nonlocal told
        while turns[-1] < time.monotonic():
            turns.append(turns[-1] + chance.uniform(LEAST_TURN_S, MOST_TURN_S))
        is_bad = len(turns) % 2 == 0
        if is_bad and not told:
            print(json.dumps({"application": str(number), "polled_ms": SYSTEM_CLOCK.now_ms()}), flush=True)
        told = is_bad
        return int(not is_bad)

    bookkeeper.callback(VARIABLE, {"application": str(number)}, state, "integer")
    sys.stdin.read()


@contextmanager
def applications(count: int, zookeeper: str, polled: list[tuple[str, int]]) -> Iterator[None]:
    """Run the applications; `polled` gets the name and the poll time of each bad turn."""
    processes = []
    for number in range(count):
        command = [sys.executable, "-m", "benchmarks.alerts_delay", "--application", str(number)]
        named = {"ARTIMON_ZOOKEEPER": zookeeper, "ARTIMON_CONTEXT": f"bench-{number}"}
        process = subprocess.Popen(
            command, env=child_environment(named), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)

        def read(process: subprocess.Popen[str] = process) -> None:
            assert process.stdout is not None
            for line in process.stdout:
                told = json.loads(line)
                polled.append((told["application"], int(told["polled_ms"])))

        threading.Thread(target=read, daemon=True).start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---- the receiver and the memory store


@contextmanager
def webhook(told: dict[tuple[str, int], int]) -> Iterator[int]:
    """Serve a webhook and yield its port; `told` gets the arrival of the first message on each firing, by application
    and time of the firing."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            now_ms = SYSTEM_CLOCK.now_ms()
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in body["alerts"]:
                if alert["status"] == "firing":
                    began = round(datetime.fromisoformat(alert["startsAt"]).timestamp() * 1000)
                    told.setdefault((alert["labels"]["application"], began), now_ms)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class Watcher:
    """Notes when the memory store first shows each bad turn. `shown`: application and time."""

    def __init__(self, store: VarstoreClient) -> None:
        self._store, self._bad = store, dict[str, bool]()
        self.shown: list[tuple[str, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def known(self) -> int:
        """Number of applications that the store shows."""
        return len(self._bad)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                for name, is_bad in self._read().items():
                    if is_bad and not self._bad.get(name, False):
                        self.shown.append((name, SYSTEM_CLOCK.now_ms()))
                    self._bad[name] = is_bad
            except SelectError:
                continue

    def _read(self) -> Mapping[str, bool]:
        grid = Grid(bucket_end(SYSTEM_CLOCK.now_ms(), MINUTE_MS), MINUTE_MS, 2)
        found = self._store.select(SelectRequest((Matcher(NAME, "=", VARIABLE),), grid, ("last", "count")))
        counts, last = found.statistics["count"], found.statistics["last"]
        values: dict[str, bool] = {}
        for row, series in enumerate(found.series):
            column = 1 if counts[row, 1] else 0
            if counts[row, column]:
                values[series.labels["application"]] = int(last[row, column]) < 1
        return values


# ---- measurement


def delays(
    polled: list[tuple[str, int]], told: Mapping[tuple[str, int], int], shown: list[tuple[str, int]]
) -> tuple[list[float], list[float]]:
    """Return the seconds from each poll to its message, and those from the memory store. Raises DelayError."""
    whole, engine = [], []
    for name, polled_ms in polled:
        arrivals = [
            at for (who, began), at in told.items() if who == name and at >= polled_ms and began >= polled_ms - 1000
        ]
        if not arrivals:
            raise DelayError(f"no message told the bad value of application {name}, polled at {polled_ms}")
        arrival = min(arrivals)
        whole.append((arrival - polled_ms) / 1000)
        seen = [at for who, at in shown if who == name and polled_ms <= at]
        if seen:
            engine.append(max(0, arrival - min(seen)) / 1000)
    return whole, engine


def measure(stack: Stack, minutes: float, count: int) -> None:
    """Run the applications and print the lines."""
    polled: list[tuple[str, int]] = []
    told: dict[tuple[str, int], int] = {}
    with webhook(told) as port, VarstoreClient(stack.zookeeper) as store:
        (stack.data / "alerts" / "rules" / "bench.yaml").write_text(RULES.format(port=port))
        watcher = Watcher(store)
        with applications(count, stack.zookeeper, polled):
            until = time.monotonic() + KNOWN_S
            while watcher.known < count or not told:
                if time.monotonic() > until:
                    raise DelayError(f"{watcher.known} of {count} applications are known after {KNOWN_S:.0f} s")
                time.sleep(0.5)
            began_ms = SYSTEM_CLOCK.now_ms()
            time.sleep(minutes * 60)
            ended_ms = SYSTEM_CLOCK.now_ms()
            time.sleep(min(DRAIN_S, LEAST_TURN_S))
        watcher.stop()
    counted = [one for one in polled if began_ms <= one[1] < ended_ms]
    whole, engine = delays(counted, told, watcher.shown)
    unit = f"s ({len(whole)} bad values, polls every {POLL_S} s)"
    emit("alerts.delay.p50", float(np.percentile(whole, 50)), unit)
    emit("alerts.delay.p99", float(np.percentile(whole, 99)), unit)
    emit("alerts.delay.p99@engine", float(np.percentile(engine, 99)), unit)


def main() -> None:
    """Run the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="artimon bench alerts_delay", description=__doc__, formatter_class=form)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--applications", type=int, default=8)
    parser.add_argument("--application", type=int, default=-1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.application >= 0:
        serve_application(options.application)
        return
    folder = Path(tempfile.mkdtemp(prefix="artimon-delay-"))
    try:
        with Stack(folder, PARTS, base_port=BASE_PORT, options={"poll": f"{POLL_S}s"}) as stack:
            measure(stack, options.minutes, options.applications)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
