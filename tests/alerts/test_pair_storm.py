"""Random kills, stops and cuts of a pair of engines while hosts fail and receivers lose answers.

ARTIMON_PAIR_MINUTES (default 60) limits the duration, ARTIMON_PAIR_FAULTS (default 200) the number of faults."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.alerts.pair_world import Ledger, PairEngine, PairWorld, balance, receivers
from tests.seeds import drawn, run_seed
from tests.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.slow]
MINUTES = float(os.environ.get("ARTIMON_PAIR_MINUTES", "60"))
FAULTS = int(os.environ.get("ARTIMON_PAIR_FAULTS", "200"))


class Storm:
    """Injects faults; `heal` ends those that last."""

    def __init__(self, world: PairWorld, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self.counts: Counter[str] = Counter()

    def strike(self) -> None:
        """One fault, or two at once, for some seconds."""
        victims = self._rng.choice([[0], [0], [0], [1], [0, 1]])
        leader = next((one for one in self._world.engines if one.alive and one.leads), self._world.engines[0])
        order = [leader, self._world.other(leader)]
        healers = [self._injected(order[n], "leader" if n == 0 else "follower") for n in victims]
        self.wait(self._rng.uniform(0.2, 9.0))
        for heal in healers:
            heal()
        self.wait(self._rng.uniform(0.0, 6.0))

    def _injected(self, engine: PairEngine, role: str) -> Callable[[], None]:
        kind = self._rng.choice(["kill", "kill", "stop", "cut both", "cut zookeeper", "cut kafka", "end"])
        self.counts[f"{kind} {role}"] += 1
        print(f"minute {self._world.minute():.1f}: {kind} {role} {engine.id}", flush=True)
        if kind == "kill":
            engine.kill()
            return engine.start
        if kind == "end":
            engine.end()
            return engine.start
        if kind == "stop":
            engine.stop()
            return engine.go_on
        proxies = [engine.to_zookeeper] if kind != "cut kafka" else []
        proxies += [engine.to_kafka] if kind != "cut zookeeper" else []
        for proxy in proxies:
            proxy.cut()

        def mend() -> None:
            for proxy in proxies:
                proxy.mend()

        return mend

    def wait(self, seconds: float) -> None:
        until, pause = time.monotonic() + seconds, threading.Event()
        while (left := until - time.monotonic()) > 0:
            self._world.watch()
            pause.wait(min(0.3, left))


@pytest.mark.timeout(round(MINUTES * 60 + 1_200))
def test_random_faults(tmp_path: Path, zookeeper: str, kafka: str) -> None:
    print(f"seed {run_seed()}, {MINUTES:g} minutes")
    rng = random.Random(drawn("pair storm"))
    ledger = Ledger(random.Random(drawn("pair answers")), lossy=0.15)
    minutes = round((MINUTES + 15) * 60 / 2)
    with receivers(ledger) as (smtp, web):
        world = PairWorld(tmp_path, zookeeper, kafka, smtp, web, hosts=8, period=20, minutes=minutes, quiet=minutes)
        try:
            for one in world.engines:
                one.start()
            world.leader()
            storm = Storm(world, rng)
            begin, deadline = world.minute() + 1, time.monotonic() + MINUTES * 60
            while time.monotonic() < deadline and storm.counts.total() < FAULTS:
                storm.strike()
            until = world.minute()
            world.leader()
            world.until_minute(until + 5)
            world.engines[0].end()
            last = world.leader(but=world.engines[0])
            world.until_minute(world.minute() + 3)
            eventually(lambda: last.leads and last.figures["mail"]["pending"] == 0, "the outbox is empty")
            last.end()
            found = balance(world, ledger, begin, until)
        finally:
            world.close()
    print(dict(storm.counts), f"{storm.counts.total()} faults, {ledger.lost_answers} lost answers", found)
    assert (found.missed, found.twice, found.unknown, found.unsent) == ([], [], [], [])
    assert found.incidents > 2 * found.unseen
