"""Engine of a pair in a process of its own, over hosts that fail by a plan, in a time that passes faster:
`python -m tests.alerts.pair_engine CONFIG`, a JSON file as PairEngine writes it."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alerts.engine_process import AlertsConfig, run_alerts
from alerts.receivers.mail import load_settings
from tests.query_dsl.plain_store import PlainStore

MINUTE = 60_000
START = 1_800_000_000_000


class FastClock:
    """Clock of all engines of a test: since `zero` (epoch s) `speed` times faster than the real one."""

    def __init__(self, zero: float, speed: float) -> None:
        self._zero, self._speed = zero, speed

    def now_ms(self) -> int:
        return START + round((time.time() - self._zero) * self._speed * 1000)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.wait(min(seconds, 0.05))


def down(host: int, minute: int, period: int) -> bool:
    """Plan: each host is down for half of a period, each with a phase of its own."""
    return ((minute + 7 * host) // (period // 2)) % 2 == 1


def planned_store(hosts: int, minutes: int, period: int, quiet: int) -> PlainStore:
    """Every minute of every host; from minute `quiet` on all are up."""
    made = PlainStore()
    for host in range(hosts):
        points = [
            (START + minute * MINUTE - 10_000, int(minute >= quiet or not down(host, minute, period)))
            for minute in range(1, minutes)
        ]
        made.add("up", {"host": f"h{host}"}, points)
    return made


def through_proxy(ways: Mapping[int, int]) -> None:
    """Connect to other ports in place of these: Kafka tells its clients its own address."""

    class Rerouted(socket.socket):
        def connect(self, address: Any) -> None:
            super().connect(_way(address))

        def connect_ex(self, address: Any) -> int:
            return super().connect_ex(_way(address))

    def _way(address: Any) -> Any:
        if isinstance(address, tuple) and address[1] in ways:
            return ("127.0.0.1", ways[address[1]], *address[2:])
        return address

    socket.socket = Rerouted  # type: ignore[misc]


def main(file: Path) -> None:
    """Run until SIGTERM."""
    given = json.loads(file.read_text())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.ERROR)
    through_proxy({int(port): way for port, way in given["ways"].items()})
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    folder = Path(given["folder"])
    config = AlertsConfig(
        given["zookeeper"],
        Path(given["rules"]),
        folder / "data",
        {"mail": load_settings(given["smtp"], "artimon@example.org")},
        id=given["id"],
        health=folder / "health.json",
        pair=given["pair"],
        kafka=given["kafka"],
        topic_prefix=given["prefix"],
        lease_ms=given["lease_ms"],
    )
    store = planned_store(*given["plan"])
    run_alerts(config, stop, clock=FastClock(given["zero"], given["speed"]), memory_store=store)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
