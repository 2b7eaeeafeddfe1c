"""Time from a bad value to the message about it. Applications are polled every 10 s by the agent of a whole stack. Each
of their variables becomes bad once, at a random time; a rule with `interval: 10s` watches it and tells a webhook of its
own, because a receiver gets a limited number of messages.

`alerts.delay.*`: time from the poll that reads the bad value, as the application notes it, to the request of the
webhook.
`alerts.delay.p99@engine`: the same from the time at which the memory store shows the value.

    artimon bench alerts_delay [--minutes 2] [--applications 8]
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
VARIABLES = 12
"""Variables of an application."""
LOOK_S = 0.1
KNOWN_S = 180.0
SETTLE_S = 65.0
"""Time for the engine to read the rule file, with the next minute."""
DRAIN_S = 60.0
RULE = """
  - name: bad-{key}
    expr: fetch('bench.state{{key="{key}"}}')
    threshold: "< 1"
    interval: 10s
    missing: keep
    receivers: [hook-{key}]
"""


class DelayError(RuntimeError):
    """A bad value that no message told."""


def keys_of(number: int) -> list[str]:
    """Return the values of the label `key` of an application's variables."""
    return [f"{number}-{at}" for at in range(VARIABLES)]


def rule_file(port: int, count: int) -> str:
    """Return a rule and a receiver for each variable."""
    keys = [key for number in range(count) for key in keys_of(number)]
    receivers = "".join(f'  hook-{key}: {{webhook: ["http://127.0.0.1:{port}/{key}"]}}\n' for key in keys)
    return f"receivers:\n{receivers}rules:{''.join(RULE.format(key=key) for key in keys)}"


# ---- the application, a process of its own


def serve_application(number: int) -> None:
    """Publish the variables. A line of the input is the time in seconds within which they become bad; the time of the
    first poll of each bad value is printed. The end of the input ends the process."""
    chance, bad_at = random.Random(number), dict[str, float]()
    told: set[str] = set()

    def publish(key: str) -> None:
        def state() -> int:
            is_bad = key in bad_at and time.monotonic() >= bad_at[key]
            if is_bad and key not in told:
                told.add(key)
                print(json.dumps({"key": key, "polled_ms": SYSTEM_CLOCK.now_ms()}), flush=True)
            return int(not is_bad)

        bookkeeper.callback(VARIABLE, {"key": key}, state, "integer")

    for key in keys_of(number):
        publish(key)
    for line in sys.stdin:
        began = time.monotonic()
        bad_at.update({key: began + chance.uniform(0, float(line)) for key in keys_of(number)})


@contextmanager
def applications(count: int, zookeeper: str, polled: dict[str, int]) -> Iterator[Callable[[float], None]]:
    """Run the applications and yield a function that lets their variables become bad within a time in seconds. `polled`
    gets the poll time of each bad value."""
    processes: list[subprocess.Popen[str]] = []
    for number in range(count):
        command = [sys.executable, "-m", "benchmarks.alerts_delay", "--application", str(number)]
        named = {"ARTIMON_ZOOKEEPER": zookeeper, "ARTIMON_CONTEXT": f"bench-{number}"}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=child_environment(named), stdin=pipe, stdout=pipe, text=True)
        processes.append(process)

        def read(process: subprocess.Popen[str] = process) -> None:
            assert process.stdout is not None
            for line in process.stdout:
                told = json.loads(line)
                polled[told["key"]] = int(told["polled_ms"])

        threading.Thread(target=read, daemon=True).start()

    def begin(seconds: float) -> None:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()

    try:
        yield begin
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---- the receiver and the memory store


@contextmanager
def webhook(told: dict[str, int]) -> Iterator[int]:
    """Serve the webhooks and yield their port; `told` gets the arrival of the first message by path."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.setdefault(self.path.strip("/"), SYSTEM_CLOCK.now_ms())
            self.rfile.read(int(self.headers["Content-Length"]))
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
    """Notes when the memory store first shows each variable, and each bad value."""

    def __init__(self, store: VarstoreClient) -> None:
        self._store = store
        self.known: set[str] = set()
        self.shown: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            with suppress(SelectError):
                self._read()

    def _read(self) -> None:
        grid = Grid(bucket_end(SYSTEM_CLOCK.now_ms(), MINUTE_MS), MINUTE_MS, 1)
        found = self._store.select(SelectRequest((Matcher(NAME, "=", VARIABLE),), grid, ("last", "count")))
        now_ms = SYSTEM_CLOCK.now_ms()
        counts, last = found.statistics["count"][:, 0].tolist(), found.statistics["last"][:, 0].tolist()
        for series, count, value in zip(found.series, counts, last, strict=True):
            if count:
                self.known.add(series.labels["key"])
                if value < 1:
                    self.shown.setdefault(series.labels["key"], now_ms)


# ---- measurement


def measure(stack: Stack, minutes: float, count: int) -> None:
    """Run the applications and print the lines. Raises DelayError."""
    polled, told = dict[str, int](), dict[str, int]()
    total = count * VARIABLES
    with webhook(told) as port, VarstoreClient(stack.zookeeper) as store:
        (stack.data / "alerts" / "rules" / "bench.yaml").write_text(rule_file(port, count))
        watcher = Watcher(store)
        with applications(count, stack.zookeeper, polled) as begin:
            _until(lambda: len(watcher.known) == total, "the variables are known", KNOWN_S)
            time.sleep(SETTLE_S)
            begin(minutes * 60)
            _until(lambda: len(told) == total and len(polled) == total, "all are told", minutes * 60 + DRAIN_S)
        watcher.stop()
    whole = [(told[key] - polled[key]) / 1000 for key in polled]
    engine = [max(0, told[key] - watcher.shown[key]) / 1000 for key in polled if key in watcher.shown]
    unit = f"s ({len(whole)} bad values, polls every {POLL_S} s)"
    emit("alerts.delay.p50", float(np.percentile(whole, 50)), unit)
    emit("alerts.delay.p99", float(np.percentile(whole, 99)), unit)
    emit("alerts.delay.p99@engine", float(np.percentile(engine, 99)), unit)


def _until(done: Callable[[], bool], what: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise DelayError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.2)


def main() -> None:
    """Run the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="artimon bench alerts_delay", description=__doc__, formatter_class=form)
    parser.add_argument("--minutes", type=float, default=2.0)
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
