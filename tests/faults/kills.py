"""Kills processes of a stack at random, and keeps count."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import psutil

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.stack_errors import NotHealthyError
from pipeline.spark.spark_session import DAEMON
from tests.faults.world import World, check_disk
from tests.waiting import eventually

KINDS = (
    *("datanode", "namenode", "kafka", "driver", "jvm", "worker"),
    *("collector-0", "collector-1", "compactor", "shard-0", "load"),
)
"""Parts, and of the Spark application its driver, its JVM or one of its Python workers. "load": the agents."""
PAUSED = ("datanode", "namenode", "kafka", "collector-0", "zookeeper")
"""Stopped with SIGSTOP for a while as well: slow, not dead."""
ALL = (*KINDS, *(f"asleep {part}" for part in PAUSED))
HEALTHY_S = 180.0
PAUSE_S = (3.0, 15.0)
ASLEEP_S = (5.0, 25.0)


class Killer:
    """`run` kills or stops one process after the other, each once the one before is healthy again and a random pause
    over."""

    def __init__(self, world: World, seed: int, kinds: Sequence[str] = ALL) -> None:
        self._world, self._random = world, random.Random(seed)
        self._kinds = kinds
        self.kills: Counter[str] = Counter()
        self.recovery_s: dict[str, list[float]] = defaultdict(list)

    def run(self, seconds: float) -> None:
        """Every kind in a random order, then again."""
        until = SYSTEM_CLOCK.monotonic() + seconds
        for kind in self._order():
            if SYSTEM_CLOCK.monotonic() > until:
                return
            self.kill(kind)
            check_disk(self._world.stack.data)
            SYSTEM_CLOCK.wait(threading.Event(), self._random.uniform(*PAUSE_S))

    def kill(self, kind: str) -> None:
        """Kill one or let it sleep, wait until its part is healthy."""
        began = SYSTEM_CLOCK.monotonic()
        part = "spark" if kind in ("driver", "jvm", "worker") else kind.removeprefix("asleep ")
        if kind in ("jvm", "worker"):
            if not self._kill_child(kind):
                return
        elif kind.startswith("asleep "):
            self._let_sleep(part)
        else:
            self._world.stack.kill(part)
        self.kills[kind] += 1
        self._wait_healthy(part)
        self.recovery_s[kind].append(round(SYSTEM_CLOCK.monotonic() - began, 1))
        print(f"# {kind}: healthy after {self.recovery_s[kind][-1]} s, {self._state()}", flush=True)

    def summary(self) -> str:
        """Kills by kind, and the longest time to be healthy again."""
        return ", ".join(f"{kind} {n} ({max(self.recovery_s[kind])} s)" for kind, n in sorted(self.kills.items()))

    def _order(self) -> Iterator[str]:
        while True:
            yield from self._random.sample(self._kinds, len(self._kinds))

    def _wait_healthy(self, part: str) -> None:
        try:
            self._world.stack.wait_healthy(HEALTHY_S, [part])
        except NotHealthyError as problem:
            raise AssertionError(f"after a kill: {problem}") from problem

    def _let_sleep(self, part: str) -> None:
        stack = self._world.stack
        stack.kill(part, signal.SIGSTOP)
        try:
            SYSTEM_CLOCK.wait(threading.Event(), self._random.uniform(*ASLEEP_S))
        finally:
            stack.kill(part, signal.SIGCONT)

    def _kill_child(self, kind: str) -> bool:
        """The JVM or a Python worker of the driver; False if there is none now. A driver without its JVM ends."""
        driver, pid = self._world.stack.pid("spark"), self._victim(kind)
        if pid:
            os.kill(pid, signal.SIGKILL)
        if pid and kind == "jvm":
            eventually(lambda: self._world.stack.pid("spark") != driver, "the driver ends", HEALTHY_S)
        return bool(pid)

    def _victim(self, kind: str) -> int:
        found = []
        for process in _children(self._world.stack.pid("spark")):
            try:
                words = " ".join(process.cmdline())
            except psutil.Error:
                continue
            daemon = any(name in words for name in ("pyspark.daemon", "pyspark/daemon", DAEMON))
            if daemon if kind == "worker" else "org.apache.spark.deploy" in words:
                found.append(process.pid)
        return self._random.choice(sorted(found)) if found else 0

    def _state(self) -> str:
        load, raw = self._world.figures("load"), self._world.figures("spark").get("raw", {})
        return (
            f"accepted {load.get('accepted_samples', 0):,}, pending {load.get('pending_batches', 0):,},"
            f" append {raw.get('append', 0)}, rows {raw.get('rows', 0):,}"
        )


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True) if pid else []
    except psutil.Error:
        return []
