"""The load of the fault tests: real agents that accept fresh batches at a steady rate, and a ledger beside their logs.

python -m tests.faults.load --zookeeper HOST:PORT --data FOLDER --rate SAMPLES --health FILE [...]. The file
`<data>/produce` says by "1" that it shall accept more; otherwise it only carries on what the logs hold.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.protocols import SinkRefusedError
from artimon.runtime.health import HealthFile
from artimon.runtime.process_setup import install_signal_handlers
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from tests.faults.batches import Source, make_sources, worth
from tests.faults.ledger import LedgerWriter, Noted

log = logging.getLogger("load")
MOST_BEHIND_S = 3.0
"""What could not be accepted for longer is not made up for."""
REFUSED_PAUSE_S = 0.25
PRODUCE = "produce"


class Producer:
    """One agent and the thread that gives it batches of its sources in turn."""

    def __init__(self, number: int, options: argparse.Namespace, stop: threading.Event) -> None:
        name = f"{options.prefix}-{number}"
        data = options.data / name
        data.mkdir(parents=True, exist_ok=True)
        quota = options.quota_mb * 1024 * 1024 // options.agents
        self.agent = Agent(AgentConfig(name, data, options.zookeeper, quota_bytes=quota))
        self._sources = make_sources(f"{options.prefix}{number}", options.sources // options.agents, options.series)
        self._interval_s = options.series * options.agents / options.rate
        self._ledger = LedgerWriter(options.data / f"{name}.ledger", f"{os.getpid()}-{SYSTEM_CLOCK.now_ms()}")
        self._switch, self._stop = options.data / PRODUCE, stop
        self.blocked_s = self.producing_s = 0.0
        self.refusals = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self.agent.start()
        self._thread.start()

    def end(self) -> None:
        """End the batches in flight; the rest stays in the log."""
        self._thread.join(30.0)
        self.agent.stop()

    def _run(self) -> None:
        try:
            self._produce()
        except BaseException:  # without its ledger a load is worth nothing: the next life goes on
            log.exception("load")
            os._exit(1)

    def _produce(self) -> None:
        turn, clock = 0, SYSTEM_CLOCK
        due = began = clock.monotonic()
        while not self._stop.is_set():
            if not self._wanted():
                clock.wait(self._stop, 0.1)
                due = began = clock.monotonic()
                continue
            self._give(self._sources[turn % len(self._sources)])
            turn += 1
            now = clock.monotonic()
            self.producing_s, began = self.producing_s + now - began, now
            due = max(due + self._interval_s, now - MOST_BEHIND_S)
            if due > now:
                clock.wait(self._stop, due - now)

    def _give(self, source: Source) -> None:
        polled = source.poll(SYSTEM_CLOCK.now_ms())
        at = int(polled.samples.time_ms[0])
        number = self._ledger.begin(Noted(source.name, at, worth(polled.samples)))
        while not self._accepted(polled):
            if self._stop.is_set():
                return  # noted as begun only, and not in the log
        self._ledger.done(number)

    def _accepted(self, polled: PollResult) -> bool:
        began = SYSTEM_CLOCK.monotonic()
        try:
            self.agent.wal_sink.accept_now([polled])
        except SinkRefusedError:  # nothing was kept: the source waits
            self.refusals += 1
            SYSTEM_CLOCK.wait(self._stop, REFUSED_PAUSE_S)
            self.blocked_s += SYSTEM_CLOCK.monotonic() - began
            return False
        return True

    def _wanted(self) -> bool:
        try:
            return bool(self._switch.read_text() == "1")
        except OSError:
            return False


def summed(producers: list[Producer]) -> dict[str, Any]:
    """Figures of all agents as one."""
    total: Counter[str] = Counter()
    nacks: Counter[str] = Counter()
    problems: list[str] = []
    oldest = 0
    for producer in producers:
        figures = producer.agent.figures()
        total.update({name: value for name, value in figures.items() if isinstance(value, int)})
        nacks.update(figures["nacks"])
        problems += figures["problems"]
        oldest = max(oldest, figures["oldest_unacked_ms"])
    return {
        **total,
        "oldest_unacked_ms": oldest,
        "nacks": dict(nacks),
        "problems": problems,
        "refusals": sum(p.refusals for p in producers),
        "blocked_s": round(sum(p.blocked_s for p in producers) / len(producers), 1),
        "producing_s": round(sum(p.producing_s for p in producers) / len(producers), 1),
    }


def main(arguments: list[str]) -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--health", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=300_000.0, help="samples a second")
    parser.add_argument("--sources", type=int, default=120)
    parser.add_argument("--series", type=int, default=5_000, help="of each source")
    parser.add_argument("--agents", type=int, default=3, help="agents of this process")
    parser.add_argument("--prefix", default="load", help="of the names of agents and sources")
    parser.add_argument("--quota-mb", type=int, default=8192, help="of the logs together")
    options = parser.parse_args(arguments)
    stop = install_signal_handlers()
    producers = [Producer(n, options, stop) for n in range(options.agents)]
    health = HealthFile(options.health, "load")
    for producer in producers:
        producer.start()
    while not SYSTEM_CLOCK.wait(stop, 0.5):
        health.write("ok", "", **summed(producers))
    for producer in producers:
        producer.end()


if __name__ == "__main__":
    main(sys.argv[1:])
