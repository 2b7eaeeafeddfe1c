"""Sessions of a large fleet on one ensemble of three ZooKeeper servers: real connections that keep a session, a node
and a watch each, as agents do, and ping it.

`fleet.zookeeper.sessions`: sessions that were all alive at the end; one that was lost makes the part fail.
`.connect`: seconds until all had a session and their nodes. `.p99`: milliseconds of a read by one of them, while all
ping. `.cpu`: cores of the three servers. `.memory`: resident KiB of the servers for a session.

python -m benchmarks.fleet_sessions [--sessions N] [--seconds S]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import re
import struct
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from kazoo.protocol.serialization import Connect, Create, GetChildren, GetData, PingInstance
from kazoo.security import OPEN_ACL_UNSAFE

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.process_setup import raise_limit
from artimon.runtime.zookeeper_client import zookeeper_session
from artimon.stack.stack import Stack
from artimon.stack.stack_part import tcp_request
from artimon.stack.zookeeper_part import ZooKeeperPart
from benchmarks.common import Parts, emit

SESSIONS, SECONDS, BASE_PORT = 30_000, 60.0, 25_900
SERVERS, CLIENTS = 3, 2
"""The sessions are divided among client processes, so that none needs more open files than usual hard limits allow."""
TIMEOUT_S = 10.0
"""Session timeout of agents; a client pings three times in it."""
CONNECTS_AT_ONCE = 128
READS = 50.0
"""Reads a second of one client process."""
ADDRESSES = 8
"""Local addresses of a client process: ZooKeeper limits the connections of an address."""
PING_PARTS = 50
ANSWER_S = 60.0
OPEN_S = 600.0
_CONNECTIONS = re.compile(r"zk_num_alive_connections\s+(\d+)")
_PING, _EVENT = -2, -1
_PING_FRAME = struct.pack("!iii", 8, _PING, PingInstance.type)
_TREE = "/sessions"


class EnsembleServer(ZooKeeperPart):
    """Server with the heap of a fleet."""

    heap_mb = 512
    memory_mb = 900


@dataclass(slots=True)
class Outcome:
    """Times of the reads in milliseconds, and sessions that were lost."""

    times_ms: list[float] = field(default_factory=list)
    lost: int = 0


class LightSession(asyncio.Protocol):
    """One connection with a session. Answers are read while one is awaited, and dropped otherwise."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lost = False
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            return
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + struct.unpack_from("!i", self._buffer)[0]
            if len(self._buffer) < end:
                return
            frame, self._buffer = self._buffer[4:end], self._buffer[end:]
            if struct.unpack_from("!i", frame)[0] not in (_PING, _EVENT):
                if not self._answer.done():
                    self._answer.set_result(frame)
                self._answer, self._buffer = None, b""
                return

    def connection_lost(self, _problem: Exception | None) -> None:
        self.lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"{self.name}: the server closed the connection"))

    async def open(self) -> None:
        """Create the node of the host and of the agent, and watch the host."""
        told = await self._call(bytes(Connect(0, 0, round(TIMEOUT_S * 1000), 0, bytes(16), False).serialize()))
        if struct.unpack_from("!ii", told)[1] <= 0:
            raise RuntimeError("the server gave no session")
        host = f"{_TREE}/{self.name}"
        requests = (Create(host, b"", OPEN_ACL_UNSAFE, 0), Create(f"{host}/agent", b"{}", OPEN_ACL_UNSAFE, 1))
        for request in (*requests, GetChildren(host, True)):
            error = struct.unpack_from("!iqi", await self._request(request))[2]
            if error:
                raise RuntimeError(f"{host}: error {error} of ZooKeeper")

    async def read(self) -> float:
        """Read the node of the agent; return the milliseconds."""
        began = SYSTEM_CLOCK.monotonic()
        await self._request(GetData(f"{_TREE}/{self.name}/agent", False))
        return (SYSTEM_CLOCK.monotonic() - began) * 1000

    def ping(self) -> None:
        if self._transport is not None and not self.lost:
            self._transport.write(_PING_FRAME)

    async def _request(self, request: Any) -> bytes:
        return await self._call(struct.pack("!ii", 1, request.type) + bytes(request.serialize()))

    async def _call(self, data: bytes) -> bytes:
        assert self._transport is not None
        if self.lost:
            raise ConnectionError(f"{self.name}: the session was lost")
        self._answer = answer = asyncio.get_running_loop().create_future()
        self._transport.write(struct.pack("!i", len(data)) + data)
        async with asyncio.timeout(ANSWER_S):
            told: bytes = await answer
            return told


async def hold_sessions(place: int, sessions: int, ports: Sequence[int], pipe: Connection) -> None:
    """Open the sessions, say so, hold them for the seconds that the other end asks for, and send the outcome."""
    random.seed(place)
    loop, several, outcome = asyncio.get_running_loop(), asyncio.Semaphore(CONNECTS_AT_ONCE), Outcome()
    all_: list[LightSession] = []

    async def start(number: int) -> None:
        async with several:
            local = (f"127.0.{place + 1}.{number % ADDRESSES + 1}", 0)
            made = partial(LightSession, f"h{place}-{number:05d}")
            _, one = await loop.create_connection(made, "127.0.0.1", ports[number % len(ports)], local_addr=local)
            await one.open()
            all_.append(one)

    pings = asyncio.create_task(_ping_all(all_))
    await asyncio.gather(*map(start, range(sessions)))
    pipe.send("open")
    seconds = await asyncio.to_thread(pipe.recv)
    until = SYSTEM_CLOCK.monotonic() + seconds
    while SYSTEM_CLOCK.monotonic() < until:
        await asyncio.sleep(1 / READS)
        outcome.times_ms.append(await random.choice(all_).read())
    outcome.lost = sum(one.lost for one in all_)
    pipe.send(outcome)
    pings.cancel()


async def _ping_all(sessions: list[LightSession]) -> None:
    """Ping each session three times in its timeout, spread over that time, and late ones at once."""
    began, done = SYSTEM_CLOCK.monotonic(), 0
    while True:
        due = int((SYSTEM_CLOCK.monotonic() - began) / (TIMEOUT_S / 3) * PING_PARTS)
        for part in range(max(done, due - PING_PARTS), due):
            for one in sessions[part % PING_PARTS :: PING_PARTS]:
                one.ping()
        done = due
        await asyncio.sleep(TIMEOUT_S / 3 / PING_PARTS)


def _client(place: int, sessions: int, ports: Sequence[int], pipe: Connection) -> None:
    raise_limit(0)
    asyncio.run(hold_sessions(place, sessions, ports, pipe))


class Ensemble:
    """Servers of a running stack, and what they use."""

    def __init__(self, stack: Stack) -> None:
        self.addresses = stack.zookeeper.split(",")
        children = psutil.Process().children(recursive=True)
        self._servers = [
            one for one in children if any("org.apache.zookeeper.server" in part for part in one.cmdline())
        ]
        if len(self._servers) != SERVERS:
            raise RuntimeError(f"{len(self._servers)} servers of ZooKeeper run, not {SERVERS}")

    @property
    def ports(self) -> list[int]:
        return [int(address.rpartition(":")[2]) for address in self.addresses]

    @property
    def resident(self) -> int:
        """Bytes."""
        return sum(one.memory_info().rss for one in self._servers)

    @property
    def cpu_s(self) -> float:
        return sum(sum(one.cpu_times()[:2]) for one in self._servers)

    def connections(self) -> int:
        """Return the connections of clients that the servers hold."""
        answers = [tcp_request(address, b"mntr", enough=1 << 20).decode() for address in self.addresses]
        return sum(int(count) for text in answers for count in _CONNECTIONS.findall(text))


def run(sessions: int, seconds: float, base_port: int = BASE_PORT) -> None:
    """Start the ensemble and the clients, and print the figures."""
    possible = raise_limit(256)
    if possible < max(sessions // CLIENTS, sessions // SERVERS):
        raise RuntimeError(f"{sessions} sessions need a higher limit of open files than {possible} (ulimit -Hn)")
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder) / "stack", ["zookeeper"], base_port=base_port)
        stack.parts = [EnsembleServer(n, SERVERS) for n in range(1, SERVERS + 1)]
        with stack:
            with zookeeper_session(stack.zookeeper, 30) as client:
                client.ensure_path(_TREE)
            _measure(Ensemble(stack), sessions // CLIENTS, seconds)


def _measure(ensemble: Ensemble, share: int, seconds: float) -> None:
    """Start the client processes, measure and stop them; `share`: sessions of each."""
    spawn = multiprocessing.get_context("spawn")
    before, began = ensemble.resident, SYSTEM_CLOCK.monotonic()
    with ExitStack() as ended:
        pipes = []
        for place in range(CLIENTS):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_client, args=(place, share, ensemble.ports, theirs), daemon=True)
            process.start()
            ended.callback(process.join)
            ended.callback(process.kill)
            pipes.append(ours)
        for pipe in pipes:
            if not pipe.poll(OPEN_S) or pipe.recv() != "open":
                raise TimeoutError(f"the sessions were not opened within {OPEN_S:.0f} s")
        _emit(ensemble, pipes, SYSTEM_CLOCK.monotonic() - began, before, seconds)


def _emit(ensemble: Ensemble, pipes: Sequence[Connection], opened_s: float, before: int, seconds: float) -> None:
    used, began, held = ensemble.cpu_s, SYSTEM_CLOCK.monotonic(), ensemble.connections()
    for pipe in pipes:
        pipe.send(seconds)
    outcomes: list[Outcome] = []
    for pipe in pipes:
        if not pipe.poll(seconds + 2 * ANSWER_S):
            raise TimeoutError("a client process does not end")
        outcomes.append(pipe.recv())
    cores = (ensemble.cpu_s - used) / (SYSTEM_CLOCK.monotonic() - began)
    lost = sum(one.lost for one in outcomes)
    if lost:
        raise RuntimeError(f"{lost} sessions were lost")
    times = [time for one in outcomes for time in one.times_ms]
    held_unit = f"sessions on {SERVERS} servers, timeout {TIMEOUT_S:.0f} s, none lost"
    emit("fleet.zookeeper.sessions", held, held_unit)
    emit("fleet.zookeeper.sessions.connect", opened_s, "s until all had a session and their nodes")
    emit("fleet.zookeeper.sessions.p99", float(np.quantile(times, 0.99)), "ms of a read while all ping")
    emit("fleet.zookeeper.sessions.cpu", cores, "cores of the servers")
    memory = (ensemble.resident - before) / 1024 / held
    emit("fleet.zookeeper.sessions.memory", memory, "KiB resident of the servers for a session")


def main() -> None:
    """Run the benchmark."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.fleet_sessions", description=__doc__, formatter_class=form)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    options, parts = parser.parse_args(), Parts()
    parts.run("fleet.zookeeper.sessions", lambda: run(options.sessions, options.seconds, options.base_port))
    parts.finish()


if __name__ == "__main__":
    main()
