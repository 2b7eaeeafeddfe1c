"""Pages of real exporters, recorded and served again with a time of their own: one minute later at each request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import numpy as np

from benchmarks.peers.series import PeerSeries
from bookkeeper import Bookkeeper, exposition
from tests.query_dsl.promql.fleet import COUNT, START_MS, STEP_MS, Fleet
from tests.sources.prometheus.exporters import get

Pages = Mapping[str, Sequence[bytes]]
MINUTE_MS, LOOKBACK_MS = 60_000, 300_000
OFFSET_MS = 7_300
"""Time of a page after a minute: no sample lies on the edge of a window."""


class Shop:
    """A program whose variables change by chance."""

    def __init__(self, seed: int) -> None:
        self._dice, self._book = Random(seed), Bookkeeper(online=False)
        self._wait = {
            route: self._book.histogram("shop.wait.seconds", {"route": route}, bounds=(0.1, 0.5, 2.5)) for route in "ab"
        }
        self._server = exposition.serve(book=self._book)

    @property
    def address(self) -> str:
        return f"{self._server.host}:{self._server.port}"

    def stop(self) -> None:
        self._server.stop()

    def serve_orders(self) -> None:
        dice, book = self._dice, self._book
        for route in "ab":
            for outcome in ("done", "failed"):
                book.add_to_integer_var("shop.orders.placed", {"route": route, "outcome": outcome}, dice.randrange(9))
            for _ in range(dice.randrange(9)):
                self._wait[route].observe(dice.expovariate(2))
            book.set_integer_var("shop.queue.length", {"route": route}, dice.randrange(40))
        book.set_double_var("shop.temperature", {}, dice.uniform(19, 22))


def timed(page: bytes, time_ms: int) -> bytes:
    """Return a page whose samples have a time."""
    time = b" %d" % time_ms
    lines = page.splitlines()
    return b"\n".join(line if line.startswith(b"#") or not line else line + time for line in lines) + b"\n"


def fleet_pages(seed: int, count: int) -> list[bytes]:
    """Return pages of the synthetic fleet, which keep its gaps: the newest `count` minutes of its series. A series that
    ended does not come back: Prometheus 2 extrapolates a counter that begins near zero further than Prometheus 3."""
    pages: list[list[str]] = [[] for _ in range(count)]
    for one in Fleet(seed).series():
        last_ms = int(one.times_ms[0])
        for time_ms, value in zip(one.times_ms.tolist(), one.texts(), strict=True):
            if time_ms - last_ms > LOOKBACK_MS:
                break
            last_ms = time_ms
            page, rest = divmod((time_ms - START_MS) // STEP_MS - (COUNT - 2 * count), MINUTE_MS // STEP_MS)
            if page >= 0 and not rest:
                pages[page].append(_line(one, value))
    return ["\n".join(lines).encode() for lines in pages]


def _line(one: PeerSeries, value: str) -> str:
    labels = ",".join(f"{name}={json.dumps(text)}" for name, text in one.labels.items())
    return f"{one.name}{{{labels}}} {value}"


def record(addresses: Mapping[str, str], shop: Shop, count: int, pause_s: float) -> dict[str, list[bytes]]:
    """Return `count` pages of each target, all of a turn taken after something happened."""
    pages: dict[str, list[bytes]] = {name: [] for name in addresses}
    for _ in range(count):
        shop.serve_orders()
        for name, address in addresses.items():
            pages[name].append(get(f"http://{address}/metrics")[0])
        get(f"http://{addresses['prometheus']}/api/v1/query?query=up")
        threading.Event().wait(pause_s)
    return pages


class Replay:
    """Server of the pages as /NAME, with the times of the last minutes before `end_ms`; 503 until it has them."""

    def __init__(self, end_ms: int) -> None:
        self.port, self._end_ms = 0, end_ms
        self._pages: dict[str, Iterator[bytes]] = {}
        self._lock = threading.Lock()
        self.left: dict[str, int] = {}
        """Pages by target that were not asked for."""

    def show(self, pages: Pages) -> None:
        with self._lock:
            self.left = {name: len(found) for name, found in pages.items()}
            self._pages = {name: self._timed(name, found) for name, found in pages.items()}

    def times_ms(self, count: int) -> list[int]:
        first = self._end_ms - count * MINUTE_MS + OFFSET_MS
        return (first + MINUTE_MS * np.arange(count)).tolist()

    def _timed(self, name: str, pages: Sequence[bytes]) -> Iterator[bytes]:
        for time_ms, page in zip(self.times_ms(len(pages)), pages, strict=True):
            self.left[name] -= 1
            yield timed(page, time_ms)

    def next(self, name: str) -> bytes | None:
        with self._lock:
            return next(self._pages[name], b"") if name in self._pages else None


@contextmanager
def replaying(end_ms: int) -> Iterator[Replay]:
    replay = Replay(end_ms)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = replay.next(self.path.strip("/"))
            self.send_response(503 if body is None else 200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        replay.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield replay
        server.shutdown()
