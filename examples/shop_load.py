"""Visitors for examples/shop.py: each looks around, takes some things and mostly pays. Standard library and bookkeeper.

    python examples/shop_load.py --rate 20 --users 8 --seconds 60

Prints what it saw as one line of JSON when it ends.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from time import monotonic
from urllib.parse import urlsplit

import bookkeeper

TIMEOUT_S = 10.0
GOODS = 12


class Pace:
    """At most `rate` requests a second of all visitors together, without catching up after a pause. `_lock` guards
    `_next`."""

    def __init__(self, rate: float) -> None:
        self._gap, self._lock, self._next = 1 / rate, threading.Lock(), monotonic()

    def wait(self, stop: threading.Event) -> bool:
        """Wait for one's turn; False when all shall end."""
        with self._lock:
            now = monotonic()
            turn = max(self._next, now)
            self._next = turn + self._gap
        return not stop.wait(turn - now)


class Seen:
    """Totals that all visitors saw; `_lock` guards them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, what: str, which: str) -> None:
        """One more."""
        with self._lock:
            self._counts[what, which] += 1

    def summary(self) -> dict[str, dict[str, int]]:
        """Responses by "route status", failures by error, visits by outcome."""
        with self._lock:
            counts = sorted(self._counts.items())
        return {
            what: {which: count for (kind, which), count in counts if kind == what}
            for what in ("responses", "failures", "visits")
        }


class Visitor(threading.Thread):
    """One visitor after the other, with a cookie each, until `stop`."""

    def __init__(self, url: str, seed: str, pace: Pace, seen: Seen, stop: threading.Event) -> None:
        super().__init__(name="visitor", daemon=True)
        self._address, self._random = urlsplit(url), random.Random(seed)
        self._pace, self._seen, self._stop_event = pace, seen, stop

    def run(self) -> None:
        while not self._stop_event.is_set():
            outcome = self._visit()
            if outcome:
                self._seen.add("visits", outcome)
                bookkeeper.add_to_integer_var("shop.visits", {"outcome": outcome}, 1)

    def _visit(self) -> str:
        """Outcome; "" if it was interrupted."""
        connection = http.client.HTTPConnection(
            self._address.hostname or "127.0.0.1", self._address.port or 80, timeout=TIMEOUT_S
        )
        cookie, status = "", 0
        try:
            for method, route, path, form in self._steps():
                if not self._pace.wait(self._stop_event):
                    return ""
                status, cookie = self._ask(connection, method, path, form, cookie)
                self._seen.add("responses", f"{route} {status}")
                if status >= 500:
                    break
        except (OSError, http.client.HTTPException) as problem:
            self._seen.add("failures", type(problem).__name__)
            return "failed"
        finally:
            connection.close()
        if status >= 500:
            return "annoyed"
        return "bought" if route == "/checkout" and status == 200 else "left"

    def _steps(self) -> Iterator[tuple[str, str, str, str]]:
        """(method, route, path, form) of one visit."""
        yield "GET", "/", "/", ""
        taken = 0
        for _ in range(self._random.randint(1, 4)):
            product = self._random.randrange(GOODS)
            path = "/product/old" if self._random.random() < 0.01 else f"/product/{product}"
            yield "GET", "/product/<id>", path, ""
            if self._random.random() < 0.5:
                taken += 1
                yield "POST", "/cart", "/cart", f"product={product}"
        if taken:
            yield "GET", "/cart", "/cart", ""
            if self._random.random() < 0.7:
                yield "POST", "/checkout", "/checkout", ""

    @staticmethod
    def _ask(connection: http.client.HTTPConnection, method: str, path: str, form: str, cookie: str) -> tuple[int, str]:
        headers = {"Cookie": cookie} if cookie else {}
        if form:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, form or None, headers)
        answer = connection.getresponse()
        answer.read(1_000_000)
        return answer.status, cookie or answer.headers.get("Set-Cookie", "").partition(";")[0]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Visitors for examples/shop.py.")
    parser.add_argument("--url", default="http://127.0.0.1:8790")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second, all visitors together")
    parser.add_argument("--users", type=int, default=8, help="visitors at once")
    parser.add_argument("--seconds", type=float, help="end after so long (else with Ctrl-C or SIGTERM)")
    parser.add_argument("--seed", type=int, default=0, help="the same visits each time")
    chosen = parser.parse_args(arguments)
    if not 0 < chosen.rate <= 10_000 or not 1 <= chosen.users <= 200:
        parser.error("use a rate from 0 to 10000 and 1 to 200 users")
    if urlsplit(chosen.url).scheme != "http":
        parser.error("--url begins with http://")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    pace, seen = Pace(chosen.rate), Seen()
    visitors = [Visitor(chosen.url, f"{chosen.seed}/{i}", pace, seen, stop) for i in range(chosen.users)]
    for visitor in visitors:
        visitor.start()
    stop.wait(chosen.seconds)
    stop.set()
    for visitor in visitors:
        visitor.join(2 * TIMEOUT_S)
    print(json.dumps(seen.summary()), flush=True)


if __name__ == "__main__":
    main()
