"""Backlog of an hour at 1.5 million samples a minute, sent while polling continues: time until the table and the shards
hold it, and the lag of live data meanwhile.

The logs of four agents are filled first; then the agents are restarted, live data first, with the backlog paced.
Live polls come at the phases of the product, all within the first ten seconds of each minute.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.hash_routing import DEFAULT_LANES, lane_of
from artimon.stack.stack import Stack
from benchmarks.common import emit
from benchmarks.lag import AGENTS, BASE, MINUTE_S, LagError, Poller, Waiting, next_minute, watch
from benchmarks.loads.samples import MINUTE_MS, SERIES_A_SOURCE, Source, capacity_of_two
from benchmarks.loads.visible import Visible
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from sources.base.schedule import phase_ms

AGO_MS = 300_000
"""Age of the newest backlog in ms: separates the backlog from live data."""
RATE = 2.6 * 1024 * 1024
"""Bytes a second of each agent's backlog: four agents together use what Spark and the shards can do on two cores."""
LIVE_MINUTES, LIVE_PART = 3.0, 3
"""Minutes of live polls: at most these, and this part of those of the backlog."""
DEADLINE_S = 900.0
_POLLS = 50


class Backlogged(Poller):
    """Agent whose log holds unsent polls."""

    def fill(self, minutes: int, end_ms: int) -> int:
        """Fill the log with polls of every source, one a minute at its phase, until `end_ms`; return the number of
        batches. The agent is not started."""
        batches = 0
        end_ms = end_ms // MINUTE_MS * MINUTE_MS
        for minute in range(minutes):
            begin_ms = end_ms - (minutes - minute) * MINUTE_MS
            for first in range(0, len(self._sources), _POLLS):
                chosen = self._sources[first : first + _POLLS]
                times = [begin_ms + phase_ms(source.name, MINUTE_MS) for source in chosen]
                polled = [
                    PollResult(source.name, source.endpoint, source.birth_ms, at, source.poll(at))
                    for source, at in zip(chosen, times, strict=True)
                ]
                for one in polled:
                    self._waiting.add(self.name, lane_of(one.source, DEFAULT_LANES), one.poll_ms)
                self.agent.wal_sink.accept_now(polled)
                batches += len(polled)
        return batches

    def reopen(self, folder: Path, zookeeper: str) -> None:
        """Restart the agent on its log, whose batches count as old."""
        self.agent.stop()
        config = AgentConfig(self.name, folder / self.name, zookeeper, live_first=True, backlog_rate=RATE)
        self.agent = Agent(config)
        self.agent.start()


def run(folder: Path, sources: int, minutes: int, base_port: int) -> None:
    """Start a stack and print the lines."""
    capacity = capacity_of_two(sources)
    stack = Stack(folder / "stack", [*BASE, "spark"], base_port=base_port, options={"capacity": str(capacity)})
    try:
        stack.start()
        stack.wait_healthy(900.0)
        _measure(stack, folder, sources, minutes)
    finally:
        stack.stop()
        shutil.rmtree(folder / "stack", ignore_errors=True)


def _measure(stack: Stack, folder: Path, sources: int, minutes: int) -> None:
    now = SYSTEM_CLOCK.now_ms()
    generator = np.random.default_rng(7)
    made = [Source(i, generator, now - (minutes + 6) * MINUTE_MS) for i in range(sources)]
    waiting, ended = Waiting(), threading.Event()
    pollers = [Backlogged(n, made[n::AGENTS], folder, stack.zookeeper, waiting) for n in range(AGENTS)]
    began = time.monotonic()
    batches = sum(poller.fill(minutes, now - AGO_MS) for poller in pollers)
    took = time.monotonic() - began
    _say(f"{batches * SERIES_A_SOURCE:,} samples in the logs of {AGENTS} agents, in {took:.0f} s")
    visible = Visible(stack.zookeeper, stack.kafka)
    visible.start()
    threading.Thread(target=watch, args=(stack.hdfs, waiting, ended), daemon=True).start()
    minute, live_minutes = next_minute(), min(LIVE_MINUTES, minutes / LIVE_PART)
    time.sleep(max(0.0, minute - 1.0 - time.monotonic()))
    begin = time.monotonic()
    for poller in pollers:
        poller.reopen(folder, stack.zookeeper)
    live = [threading.Thread(target=p.run, args=(live_minutes, minute), daemon=True) for p in pollers]
    try:
        for thread in live:
            thread.start()
        times = _when(
            begin,
            {
                "buckets": lambda: _old(visible.lags) >= batches,
                "hdfs": lambda: _old(waiting.lags) >= batches,
            },
        )
        for thread in live:
            thread.join(live_minutes * MINUTE_S + 60)
        _when(begin, {"live": lambda: len(visible.lags) >= waiting.batches})
    finally:
        ended.set()
        visible.stop()
        for poller in pollers:
            poller.agent.stop()
    _show(times, visible.lags, f"{minutes} minutes of backlog, {batches * SERIES_A_SOURCE:,} samples,")


def _show(times: dict[str, float], found: list[tuple[int, int]], backlog: str) -> None:
    for name, seconds in times.items():
        emit(
            f"transport.backlog.{name}",
            seconds,
            f"s until all of {backlog} are there",
        )
    lags = np.array([lag for _, lag in found if lag < AGO_MS]) / 1000
    unit = "s from a live poll to the shards; polls within the first 10 s of each minute"
    for name, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        emit(f"transport.backlog.live.{name}", float(np.percentile(lags, percent)), unit)


def _old(lags: list[tuple[int, int]]) -> int:
    return sum(lag >= AGO_MS for _, lag in list(lags))


def _when(begin: float, done: dict[str, Callable[[], bool]]) -> dict[str, float]:
    """Wait for each condition; return the seconds since `begin` for each. Raises LagError."""
    found: dict[str, float] = {}
    while len(found) < len(done):
        for name, check in done.items():
            if name not in found and check():
                found[name] = time.monotonic() - begin
        if time.monotonic() - begin > DEADLINE_S:
            raise LagError(f"{', '.join(done.keys() - found.keys())}: not within {DEADLINE_S:.0f} s")
        time.sleep(0.5)
    return found


def _say(text: str) -> None:
    print(f"# {text}", file=sys.stderr, flush=True)
