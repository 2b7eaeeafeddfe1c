"""Programs that count and end in order at any moment, an agent that is killed, stopped and started at any moment: the
log has what was counted, once. Another seed: ARTIMON_SEED=7 pytest tests/sources/final/test_random.py"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.bookkeeper.polling import REPOSITORY
from tests.sources.final.agent import ledger
from tests.sources.final.world import Row, increase_of
from tests.sources.helpers import HOST, Application
from tests.waiting import LIMIT_S, until

pytestmark = pytest.mark.stack
STEPS = 9


class Play:
    """Programs and an agent. `counted`: sum of the counts of each context."""

    def __init__(self, tree: str, place: Path, seed: int) -> None:
        self.tree, self.place, self.random = tree, place, random.Random(seed)
        self.dropin = place / "dropin"
        (self.dropin / "final").mkdir(parents=True)
        (self.dropin / "final").chmod(0o1777)
        self.counted: Counter[str] = Counter()
        self._apps: dict[str, Application] = {}
        self._ends: list[asyncio.Task[None]] = []
        self._agent: subprocess.Popen[bytes] | None = None

    async def count(self, context: str) -> None:
        if context not in self._apps:
            self._apps[context] = Application(self.tree, context, self.place / "run", dropin=self.dropin)
        amount = self.random.randint(1, 1_000)
        await self._apps[context].do(f"add n {amount}")
        self.counted[context] += amount

    def end(self, context: str) -> None:
        """End a program in order without waiting."""
        app = self._apps.pop(context, None)
        if app is not None:
            self._ends.append(asyncio.create_task(app.leave()))

    async def all_ended(self) -> None:
        for context in list(self._apps):
            self.end(context)
        await asyncio.gather(*self._ends)

    def start_agent(self) -> None:
        if self._agent is None:
            command = [sys.executable, "-m", "tests.sources.final.polling", str(self.place), self.tree]
            self._agent = subprocess.Popen(command, cwd=REPOSITORY)

    async def stop_agent(self, how: signal.Signals) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.send_signal(how)
            await asyncio.to_thread(agent.wait, LIMIT_S)

    async def step(self) -> None:
        """Do one random action."""
        context = self.random.choice(["a", "b"])
        match self.random.randrange(6):
            case 0 | 1:
                await self.count(context)
            case 2:
                await self.count(context)
                self.end(context)
            case 3:
                self.start_agent()
            case 4:
                await self.stop_agent(signal.SIGKILL)
            case 5:
                await self.stop_agent(signal.SIGTERM)
        await asyncio.sleep(self.random.uniform(0.0, 2.5))


@pytest.mark.timeout(500)
def test_what_ends_in_order_loses_nothing(tree: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("ARTIMON_SEED") or 1)

    async def run() -> Play:
        play = Play(tree, tmp_path, seed)
        try:
            for _ in range(STEPS):
                await play.step()
            await play.stop_agent(play.random.choice([signal.SIGKILL, signal.SIGTERM]))
        finally:
            await play.all_ended()
        play.start_agent()
        await until(lambda: not list((play.dropin / "final").glob("*.final")), "all files are taken")
        await play.stop_agent(signal.SIGTERM)
        return play

    play = asyncio.run(run())
    found: dict[tuple[str, int], list[Row]] = {}
    for source, print_, time_ms, birth_ms, value in ledger(tmp_path):
        found.setdefault((source, print_), []).append((time_ms, birth_ms, value))
    for context, counted in play.counted.items():
        by_series = {key: increase_of(rows) for key, rows in found.items() if key[0].startswith(f"{context}/{HOST}/")}
        assert sum(by_series.values()) == counted, f"seed {seed}: {by_series}, {found}"
