"""Faults of a cluster: a rolling upgrade; hosts cut off, killed, stopped; a broker's disk lost; a node of YARN gone."""

from __future__ import annotations

import json
import random
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.kafka_part import broker_name
from artimon.stack.stack_part import numbered_name
from tests.cluster.cluster_hosts import ClusterHost
from tests.cluster.cluster_parts import HOSTS
from tests.cluster.local_cluster import LocalCluster
from tests.faults.world import check_disk
from tests.waiting import eventually

KINDS = ("upgrade", "cut", "kill", "stop", "disk", "node")
"""In this order: the others meet the present version."""
HOLD_S = 20.0
"""Duration of a fault. Ten and the recoveries that docs/reliability.md lists, without the upgrade, take 14 minutes."""
RECOVERY_S = 900.0
"""Limit of a recovery; on a busy machine a JVM takes minutes to start."""
FRESH_MS = 75_000
"""The oldest batch that is not acked is younger than that once data flows again: two appends, at half a minute each
(pipeline/spark/append_pace.py), and the time that they take on a busy machine."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`inject` brings the fault about and undoes it again."""

    name: str
    inject: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from the end of a fault until every part is healthy, and until data flows and both APIs answer: None if
    the next fault of the same host came before."""

    name: str
    healthy_s: float
    flowing_s: float | None = None

    def __str__(self) -> str:
        flowing = "" if self.flowing_s is None else f", data flows after {self.flowing_s:.0f} s"
        return f"{self.name}: every part healthy after {self.healthy_s:.0f} s{flowing}"


class ClusterFaults:
    """Injects faults in turns, one after another: the next fault of a turn once every part is healthy, the next turn
    once data flows."""

    def __init__(self, cluster: LocalCluster, seed: int, hold_s: float = HOLD_S, kinds: Sequence[str] = KINDS) -> None:
        """`hold_s`: duration of a fault; `kinds`: those to inject."""
        self._cluster, self._random, self._hold_s = cluster, random.Random(seed), hold_s
        self._kinds = kinds
        self.recoveries: list[Recovery] = []

    def run(self, seconds: float) -> None:
        """Inject the first turns wholly, then faults of hosts until `seconds` are over."""
        until = SYSTEM_CLOCK.monotonic() + seconds
        first = self.first_turns()
        for number, turn in enumerate(chain(first, ([fault] for fault in self._others()))):
            if number >= len(first) and SYSTEM_CLOCK.monotonic() > until:
                return
            check_disk(self._cluster.stack.data)
            self._suffer(turn)

    def first_turns(self) -> list[list[Fault]]:
        """Return the upgrade, a turn for each host with its faults, disk and node. Each kind is the last of a turn
        once, so that data has to flow after it."""
        makers = self._host_makers()
        hosts = self._random.sample(self._cluster.hosts, HOSTS)
        turns = [[make(host) for make in [*makers[n:], *makers[:n]]] for n, host in enumerate(hosts)] if makers else []
        before = [[self._upgrade()]] if "upgrade" in self._kinds else []
        after = [[make()] for kind, make in (("disk", self._disk), ("node", self._node)) if kind in self._kinds]
        return [*before, *turns, *after]

    def _host_makers(self) -> list[Callable[[ClusterHost], Fault]]:
        makers = {"cut": self._cut, "kill": self._kill, "stop": self._stop}
        return [make for kind, make in makers.items() if kind in self._kinds]

    def _others(self) -> Iterator[Fault]:
        """Every fault of every host in a random order, for ever; none if no kind of them is wanted."""
        faults = [make(host) for make in self._host_makers() for host in self._cluster.hosts]
        while faults:
            yield from self._random.sample(faults, len(faults))

    def _suffer(self, turn: Sequence[Fault]) -> None:
        for number, fault in enumerate(turn, 1):
            print(f"# {fault.name}", flush=True)
            fault.inject()
            began, append = SYSTEM_CLOCK.monotonic(), self._append()
            self._cluster.stack.wait_healthy(RECOVERY_S)
            recovery = Recovery(fault.name, SYSTEM_CLOCK.monotonic() - began)
            if number == len(turn):
                eventually(partial(self._flows, append), f"data flows after: {fault.name}", RECOVERY_S, 0.5)
                recovery = replace(recovery, flowing_s=SYSTEM_CLOCK.monotonic() - began)
            self.recoveries.append(recovery)
            print(f"# {recovery}", flush=True)

    def _hold(self) -> None:
        SYSTEM_CLOCK.wait(threading.Event(), self._hold_s)

    def _append(self) -> int:
        return int(self._cluster.figures("spark").get("raw", {}).get("append", 0))

    def _flows(self, append: int) -> bool:
        agents = [self._cluster.figures(numbered_name("load", n)) for n in range(1, HOSTS + 1)]
        acked = all(0 <= figures.get("oldest_unacked_ms", FRESH_MS) < FRESH_MS for figures in agents)
        return acked and self._append() > append and all(map(answers, self._apis()))

    def _apis(self) -> list[str]:
        context = self._cluster.stack.context
        return [context.address(f"{numbered_name('api', n)}.http") for n in (1, 2)]

    def _cut(self, host: ClusterHost) -> Fault:
        def inject() -> None:
            host.cut()
            self._hold()
            host.heal()

        return Fault(f"{host.name} cut off for {self._hold_s:.0f} s", inject)

    def _kill(self, host: ClusterHost) -> Fault:
        def inject() -> None:
            self._cluster.kill_host(host)
            self._hold()
            self._cluster.start_host(host)

        return Fault(f"{host.name} killed, away for {self._hold_s:.0f} s", inject)

    def _stop(self, host: ClusterHost) -> Fault:
        def inject() -> None:
            host.signal(signal.SIGSTOP)
            self._hold()
            host.signal(signal.SIGCONT)

        return Fault(f"{host.name} stopped for {self._hold_s:.0f} s", inject)

    def _disk(self) -> Fault:
        name = broker_name(self._random.randint(1, HOSTS))
        return Fault(f"the disk of {name} lost", lambda: self._cluster.lose_disk(name))

    def _node(self) -> Fault:
        name = numbered_name("nodemanager", self._random.randint(1, HOSTS))

        def inject() -> None:
            self._cluster.kill_node(name)
            self._hold()
            self._cluster.stack.start_part(name)

        return Fault(f"{name} and its containers gone for {self._hold_s:.0f} s", inject)

    def _upgrade(self) -> Fault:
        """Restart every part of ours, role by role, each once the one before is healthy; brokers and servers too. What
        ran the version before then runs the present one."""

        def inject() -> None:
            for part in self._cluster.rolling_order():
                self._cluster.upgrade(part)
                self._cluster.stack.wait_healthy(RECOVERY_S, [part])

        before = self._cluster.version
        return Fault(f"every process {f'upgraded from {before}' if before else 'restarted'}, one after another", inject)


def answers(address: str) -> bool:
    """Return True if an API answers a query over the newest minutes wholly."""
    url = f"http://{address}/api/query?q=fetch(%27load.value%27).range(%275m%27).count(by=[])"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.loads(answer.read(1 << 20))
    except (OSError, urllib.error.URLError, ValueError):
        return False
    return not found.get("partial") and bool(found.get("series"))
