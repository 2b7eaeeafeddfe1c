"""Faults of a cluster: a rolling upgrade; hosts cut off, killed, stopped; a broker's disk lost; a node of YARN gone."""

from __future__ import annotations

import json
import random
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
    """Seconds from the end of a fault until every part is healthy, and until data flows and both APIs answer."""

    name: str
    healthy_s: float
    flowing_s: float

    def __str__(self) -> str:
        return f"{self.name}: every part healthy after {self.healthy_s:.0f} s, data flows after {self.flowing_s:.0f} s"


class ClusterFaults:
    """Injects faults one after another, each once the one before is over and everything has recovered."""

    def __init__(self, cluster: LocalCluster, seed: int, hold_s: float, kinds: Sequence[str] = KINDS) -> None:
        """`hold_s`: duration of a fault; `kinds`: those to inject."""
        self._cluster, self._random, self._hold_s = cluster, random.Random(seed), hold_s
        self._kinds = kinds
        self.recoveries: list[Recovery] = []

    def run(self, seconds: float) -> None:
        """Inject one fault of each kind, then others of hosts until `seconds` are over."""
        until = SYSTEM_CLOCK.monotonic() + seconds
        first = self._once()
        for number, fault in enumerate(chain(first, self._others())):
            if number >= len(first) and SYSTEM_CLOCK.monotonic() > until:
                return
            check_disk(self._cluster.stack.data)
            self._suffer(fault)

    def _once(self) -> list[Fault]:
        """One of each kind: a host of its own for each."""
        one, two, three = self._random.sample(self._cluster.hosts, HOSTS)
        every = (self._upgrade(), self._cut(one), self._kill(two), self._stop(three), self._disk(), self._node())
        return [fault for kind, fault in zip(KINDS, every, strict=True) if kind in self._kinds]

    def _others(self) -> Iterator[Fault]:
        """Every fault of every host in a random order, for ever; none if no kind of them is wanted."""
        makers = {"cut": self._cut, "kill": self._kill, "stop": self._stop}
        faults = [make(host) for kind, make in makers.items() if kind in self._kinds for host in self._cluster.hosts]
        while faults:
            yield from self._random.sample(faults, len(faults))

    def _suffer(self, fault: Fault) -> None:
        print(f"# {fault.name}", flush=True)
        fault.inject()
        began, append = SYSTEM_CLOCK.monotonic(), self._append()
        self._cluster.stack.wait_healthy(RECOVERY_S)
        healthy = SYSTEM_CLOCK.monotonic() - began
        eventually(lambda: self._flows(append), f"data flows after: {fault.name}", RECOVERY_S, 0.5)
        self.recoveries.append(Recovery(fault.name, healthy, SYSTEM_CLOCK.monotonic() - began))
        print(f"# {self.recoveries[-1]}", flush=True)

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
