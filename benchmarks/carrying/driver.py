"""Agent process: seals its share of the batches, waits for "go", appends them to its log at full speed or at a pace,
and reports when the last one was acked. Orders and report are one line of JSON each."""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from artimon.model.batch import PollResult
from benchmarks.carrying.bodies import Bodies, entry, readdress, samples_in, write
from benchmarks.loads.samples import SERIES_A_SOURCE
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.wal.state_records import LogPosition

_GROUP = 32
_POLLERS = 4
_AHEAD = 8
"""Groups of batches that wait for fsync at the same time."""
_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders of a driver. `mode`: "encoded", or "polled": values are encoded while measured. `pace`: batches a second,
    0 for no limit."""

    name: str
    data: str
    zookeeper: str
    bodies: str
    share: int
    of: int
    mode: str = "encoded"
    pace: float = 0.0
    level: str = "kafka"
    ahead: int = _AHEAD


@dataclass(slots=True)
class Report:
    """Measurements of a driver. Times are monotonic and valid across processes of the machine."""

    began: float
    ended: float
    batches: int
    samples: int
    bytes: int
    cpu_s: float
    resident_mb: float
    """Anonymous memory, without mapped files."""
    latencies_ms: list[float]
    """1,001 quantiles of the time from accepted to acked."""
    accepted_s: float = 0.0
    """Seconds until the log had the last batch."""
    resent: int = 0


class Watch:
    """Times at which each batch became durable and at which the log released it."""

    def __init__(self, agent: Agent) -> None:
        self.accepted: dict[LogPosition, float] = {}
        self.acked: dict[LogPosition, float] = {}
        self._release = agent.log.release
        setattr(agent.log, "release", self._released)  # noqa: B010

    def durable(self, future: Future[list[LogPosition]]) -> None:
        """Callback for the log's answer."""
        now = time.monotonic()
        self.accepted.update(dict.fromkeys(future.result(), now))

    def _released(self, places: Iterable[LogPosition]) -> None:
        now, places = time.monotonic(), list(places)
        self.acked.update(dict.fromkeys(places, now))
        self._release(places)

    def quantiles_ms(self) -> list[float]:
        waited = [max(0.0, self.acked[place] - at) for place, at in self.accepted.items() if place in self.acked]
        return [round(float(q) * 1000, 3) for q in np.quantile(waited, np.linspace(0, 1, 1001))] if waited else []


def _until(done: Any, what: str, deadline_s: float = _DEADLINE_S) -> None:
    until = time.monotonic() + deadline_s
    while not done():
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not within {deadline_s:.0f} s")
        time.sleep(0.01)


def _groups(bodies: Bodies, size: int) -> Iterator[list[int]]:
    for first in range(0, len(bodies), size):
        yield list(range(first, min(first + size, len(bodies))))


def _hand_over(agent: Agent, bodies: Bodies, watch: Watch, orders: Orders) -> None:
    """Append all batches to the log; return once all are durable."""
    flying: deque[Future[list[LogPosition]]] = deque()
    began, size = time.monotonic(), 1 if orders.pace else _GROUP
    for number, group in enumerate(_groups(bodies, size)):
        if orders.pace:
            time.sleep(max(0.0, began + number / orders.pace - time.monotonic()))
        future = agent.log.append([entry(bodies[index]) for index in group])
        future.add_done_callback(watch.durable)
        flying.append(future)
        while len(flying) >= orders.ahead:
            flying.popleft().result(60)
    while flying:
        flying.popleft().result(60)


def _poll(agent: Agent, polls: list[PollResult]) -> None:
    """Append as sources do: many polls a call, in several threads, of which some wait for fsync."""
    groups = deque(polls[at : at + _GROUP] for at in range(0, len(polls), _GROUP))

    def hand_over() -> None:
        while groups:
            try:
                group = groups.popleft()
            except IndexError:
                return
            agent.wal_sink.accept_now(group)

    threads = [threading.Thread(target=hand_over) for _ in range(_POLLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _own_memory_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    """Read the orders from the first argument, wait for "go" on standard input, print the report."""
    orders = Orders(**json.loads(sys.argv[1]))
    data = Path(orders.data)
    agent = Agent(AgentConfig(orders.name, data, orders.zookeeper, orders.level))  # type: ignore[arg-type]
    list(agent.sink.replay())
    agent.start()
    watch = Watch(agent)
    every = Bodies(Path(orders.bodies))
    mine = range(orders.share, len(every), orders.of)
    polls, sealed = [], every
    if orders.mode == "polled":
        for index in mine:
            source, samples = samples_in(every[index])
            polls.append(PollResult(source, bytes(16), 1, int(samples.time_ms[0]), samples))
    else:
        numbers = agent.log.next_sequences
        data.mkdir(parents=True, exist_ok=True)
        sealed = write(data / "batches.bin", (readdress(every[i], orders.name, agent.log.epoch, numbers) for i in mine))
    _until(lambda: agent.figures()["collectors_up"] > 0, "a collector is known")
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu = time.monotonic(), _cpu_s()
    if polls:
        _poll(agent, polls)
    else:
        _hand_over(agent, sealed, watch, orders)
    accepted = time.monotonic() - began
    _until(lambda: len(watch.acked) >= len(mine), "all are acked")
    ended, cpu = time.monotonic(), _cpu_s() - cpu
    memory, figures = _own_memory_mb(), agent.figures()
    count = sum(len(p.samples) for p in polls) or SERIES_A_SOURCE * len(sealed)
    size = agent.wal_sink.bytes or sealed.bytes
    resent = figures["sent_batches"] - len(mine)
    agent.stop()
    quantiles = watch.quantiles_ms()
    report = Report(began, ended, len(mine), count, size, cpu, memory, quantiles, accepted, resent)
    print(json.dumps(asdict(report)), flush=True)


if __name__ == "__main__":
    main()
