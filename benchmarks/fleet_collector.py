"""Agents on one collector: real connections to a real collector process with Kafka, from agents that only send.

`fleet.collector.agents`: agents that the collector serves, each with one connection, a call that waits for news and
`--calls` batches a minute at random times; a call that fails makes the part fail. `fleet.collector.agents.p99`:
milliseconds from a batch to its offset in Kafka. `fleet.collector.agents.memory`: resident KiB of the collector for a
connection at rest. `fleet.collector.agents.cpu`: its cores.

python -m benchmarks.fleet_collector [--agents N] [--calls N] [--seconds S]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import tempfile
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from artimon.model.batch import BatchId, BatchKind, Samples
from artimon.model.batch_codec import assemble, encode_samples, parse_header
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.process_setup import raise_limit
from artimon.stack.stack import Stack
from benchmarks.carrying.servers import Collectors
from benchmarks.common import Parts, emit
from benchmarks.limits import ECHO, echo_ms, emit_limit
from bookkeeper.rpc.thrift_messages import decode_reply, encode_call
from pipeline.link.client_connection import ClientConnection, connect
from pipeline.link.idl import OPEN_METHOD, collector_idl

AGENTS, SECONDS, BASE_PORT = 5_000, 45.0, 25_800
CALLS_A_MINUTE = 8.0
"""A host with seven processes and its own variables, each a batch a minute."""
SERIES = 1_500
LANES = 4
CONNECTS_AT_ONCE = 64
SETTLE_S = 5.0
CALL_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Outcome:
    """Times of the calls in milliseconds, and the first failure."""

    times_ms: list[float] = field(default_factory=list)
    failure: str = ""


class LightAgent:
    """Agent without a log: one connection, a call that waits for news, batches of one body."""

    def __init__(self, name: str, body: bytes, pause_s: float, outcome: Outcome) -> None:
        self._name, self._body, self._pause_s, self._outcome = name, body, pause_s, outcome
        self._numbers = count(1)
        self._sequence = [0] * LANES
        self._connection: ClientConnection | None = None

    async def connect(self, port: int) -> None:
        self._connection = await connect("127.0.0.1", port, None)
        await self._call(OPEN_METHOD, self._name)

    async def watch(self) -> None:
        """Wait for news until cancelled."""
        acks: dict[str, int] = {}
        digest = 0
        while True:
            notice = await self._call("watch", collector_idl().Known(acks, "", 0, [], digest))
            acks.update({one.topic_id: one.version for one in notice.acks.changed})
            digest = notice.digest

    async def send(self, until: float) -> None:
        """Send batches at random times."""
        pause_s = self._pause_s
        at = SYSTEM_CLOCK.monotonic() + random.uniform(0.0, pause_s)
        while at < until:
            await asyncio.sleep(at - SYSTEM_CLOCK.monotonic())
            began = SYSTEM_CLOCK.monotonic()
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    (answer,) = await self._call("send", [self._batch()])
            except Exception as error:
                self._outcome.failure = f"{self._name}: {error!r}"
                return
            self._outcome.times_ms.append((SYSTEM_CLOCK.monotonic() - began) * 1000)
            if not answer.ok:
                self._outcome.failure = f"{self._name}: {answer.reason}"
            at += pause_s * random.uniform(0.5, 1.5)

    def _batch(self) -> bytes:
        lane = random.randrange(LANES)
        id, self._sequence[lane] = BatchId(self._name, 1, lane, self._sequence[lane]), self._sequence[lane] + 1
        now_ms = SYSTEM_CLOCK.now_ms()
        return assemble(BatchKind.SAMPLES, id, self._name, bytes(16), 1, now_ms, SERIES, 0, "default", self._body).data

    async def _call(self, method: str, argument: object) -> Any:
        assert self._connection is not None
        service, number = collector_idl().Collector, next(self._numbers)
        await self._connection.reserve()
        try:
            frame = await self._connection.call(number, encode_call(service, method, (argument,), number))
        finally:
            self._connection.release()
        answer = decode_reply(service, method, frame, number)
        if method == OPEN_METHOD:
            self._connection.raise_limit(answer.calls)
        return answer


def body_of() -> bytes:
    """Return the encoded body of a batch of SERIES samples."""
    generator = np.random.default_rng(7)
    rows = generator.integers(0, 2**63, SERIES).astype(np.uint64)
    values = generator.integers(0, 1_000_000, SERIES)
    samples = Samples.of([(int(row), 1_000, 1, int(value)) for row, value in zip(rows, values, strict=True)])
    data = encode_samples(BatchId("x", 1, 0, 0), "x", bytes(16), 1, 1, "default", samples).data
    return bytes(data[parse_header(data).body_at :])


async def measure(agents: int, calls_a_minute: float, seconds: float, port: int, process: psutil.Process) -> None:
    """Connect the agents, and print the figures."""
    outcome, body, places = Outcome(), body_of(), asyncio.Semaphore(CONNECTS_AT_ONCE)
    fleet = [LightAgent(f"a{n:05d}", body, 60.0 / calls_a_minute, outcome) for n in range(agents)]

    async def connect_one(agent: LightAgent) -> None:
        async with places:
            await agent.connect(port)

    before = process.memory_info().rss
    await asyncio.gather(*(connect_one(agent) for agent in fleet))
    watching = [asyncio.create_task(agent.watch()) for agent in fleet]
    try:
        await asyncio.sleep(SETTLE_S)
        at_rest = process.memory_info().rss
        used, began = sum(process.cpu_times()[:2]), SYSTEM_CLOCK.monotonic()
        await asyncio.gather(*(agent.send(began + seconds) for agent in fleet))
        took = SYSTEM_CLOCK.monotonic() - began
        cores = (sum(process.cpu_times()[:2]) - used) / took
        lost = [task for task in watching if task.done()]
        if outcome.failure or lost:
            raise RuntimeError(outcome.failure or f"{len(lost)} connections were lost: {lost[0].exception()!r}")
        calls = len(outcome.times_ms)
        emit("fleet.collector.agents", agents, f"agents on one collector, {calls / took:.0f} calls/s")
        p99, least = float(np.quantile(outcome.times_ms, 0.99)), 2 * await asyncio.to_thread(echo_ms, len(body))
        emit("fleet.collector.agents.p99", p99, "ms from a batch to its offset")
        what = f"ms ({ECHO}, twice: to the collector and to Kafka, median, one at a time)"
        emit_limit("fleet.collector.agents.p99", p99, least, what, more=False)
        emit("fleet.collector.agents.memory", (at_rest - before) / 1024 / agents, "KiB resident a connection at rest")
        emit("fleet.collector.agents.cpu", cores, "cores of the collector")
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


def run(
    agents: int, calls_a_minute: float = CALLS_A_MINUTE, seconds: float = SECONDS, base_port: int = BASE_PORT
) -> None:
    """Start the servers, and measure."""
    possible = raise_limit(256)
    if possible < agents:
        raise RuntimeError(f"{agents} connections need a higher limit of open files than {possible} (ulimit -Hn)")
    with (
        tempfile.TemporaryDirectory() as place,
        Stack(Path(place) / "stack", ["zookeeper", "kafka"], base_port=base_port) as stack,
        Collectors(stack, Path(place), 1) as collectors,
        contextlib.suppress(asyncio.CancelledError),
    ):
        health = json.loads((Path(place) / "collector-0.json").read_text())
        asyncio.run(measure(agents, calls_a_minute, seconds, health["figures"]["port"], collectors.processes()[0]))


def main() -> None:
    """Run the benchmark."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.fleet_collector", description=__doc__, formatter_class=form)
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--calls", type=float, default=CALLS_A_MINUTE, help="batches of an agent a minute")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    options, parts = parser.parse_args(), Parts()
    parts.run("fleet.collector.agents", lambda: run(options.agents, options.calls, options.seconds, options.base_port))
    parts.finish()


if __name__ == "__main__":
    main()
