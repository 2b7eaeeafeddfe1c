"""Operations of a fleet of agents on ZooKeeper: real agents without processes of their own, on a real server.

`fleet.zookeeper.steady@N`: reads and writes of one agent a minute, of N agents at rest; each has a batch that waits for
its ack while the acks change every 10 s. An agent has one session; its pings are not counted.
`fleet.zookeeper.restart@N`: reads, writes and watch events in the whole fleet for the restart of one agent,
`fleet.zookeeper.process@N` for the start of one process. Sessions' own messages are not counted.
Without `@N`: at the largest N.
`fleet.append.state`: see benchmarks/fleet_append.py.
`fleet.collector.agents*`: agents on one collector, see benchmarks.fleet_collector.

python -m benchmarks.fleet [--agents N,N] [--seconds S]     S: 60 or more
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

from artimon.model.ack_state import AckState, PartitionState, Position
from artimon.model.batch import PollResult, Samples
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.process_setup import raise_limit
from artimon.runtime.zookeeper_client import EphemeralNode, close_client, zookeeper_client, zookeeper_session
from artimon.stack.stack import Stack
from benchmarks import fleet_append, fleet_collector
from benchmarks.common import Parts, emit
from bookkeeper.process.ephemeral_node import EndpointRegistration
from bookkeeper.process.host_key import HOSTS
from pipeline.collector.collector import Collector
from pipeline.collector.collector_process import CollectorConfig, server_of
from pipeline.collector.kafka_writer import KafkaMessage, TopicDescription
from pipeline.collector.notice_board import NoticeBoard
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.link.collector_choice import COLLECTORS_PATH
from sources.poll.host_coordinator import HostCoordinator
from sources.poll.zookeeper_session import ZooKeeperSession

SIZES = "50,200"
SECONDS = 120.0
"""Duration of a measurement at rest. Checks that are made every 300 s are counted by chance."""
CHECK_S = 60.0
"""Pause between two checks of an agent at rest, and so the shortest duration: a shorter one may contain none."""
SETTLE_S = 15.0
ACKS_S = 10.0
CHANGES = 5
CHANGE_S = 12.0
"""Seconds for the effects of one change: the session of an agent that stops in order ends at once."""
REACTION_S = 2.0
"""Seconds after a watch event in which the requests of a client count as its consequence."""
AGENTS_OF_PROCESS = 100
ANSWER_S = 600.0
TOPIC_ID = "T"
SAMPLES = Samples.of([(1, 1_000, 1, 1)])
UNIT = "operations/agent/min"


class OperationCount:
    """Counts the requests and the watch events of all clients of this process, and those that a change causes: all of
    clients that were not there at rest, watch events of the others, and what a client asks soon after one."""

    def __init__(self) -> None:
        self.requests = self.caused = 0
        self._at_rest: set[int] = set()
        """Clients that make the usual requests of a fleet at rest."""
        self._reacts_until: dict[int, float] = {}

    def forget(self, client: KazooClient) -> None:
        """Count all that this client does from now on."""
        self._at_rest.discard(id(client))

    def learn(self, client: KazooClient) -> None:
        """Take a client for one that is at rest."""
        self._at_rest.add(id(client))

    def _request(self, client: KazooClient) -> None:
        now = SYSTEM_CLOCK.monotonic()
        self.requests += 1
        self.caused += id(client) not in self._at_rest or now < self._reacts_until.get(id(client), 0.0)

    def _event(self, client: KazooClient) -> None:
        self._reacts_until[id(client)] = SYSTEM_CLOCK.monotonic() + REACTION_S
        self.caused += 1

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        call, event = KazooClient._call, ConnectionHandler._read_watch_event

        def counted_call(client: Any, request: Any, answer: Any) -> Any:
            self._request(client)
            return call(client, request, answer)

        def counted_event(handler: Any, *arguments: Any) -> Any:
            self._event(handler.client)
            return event(handler, *arguments)

        KazooClient._call, ConnectionHandler._read_watch_event = counted_call, counted_event
        try:
            yield
        finally:
            KazooClient._call, ConnectionHandler._read_watch_event = call, event


class FleetAgent:
    """Everything of one agent that talks to ZooKeeper, and its transport."""

    def __init__(self, name: str, folder: Path, zookeeper: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._session, self._loop = ZooKeeperSession(zookeeper), loop
        config = AgentConfig(name, folder / name, zookeeper, lanes=1)
        self.agent = Agent(config, zookeeper=self._session.client)
        self._coordinator = HostCoordinator(
            self._session,
            name,
            lambda: (name,),
            (),
            listed=lambda _listing: None,
            assigned=self._give_up,
            grace_s=15.0,
            reconcile_s=CHECK_S,
        )
        self._endpoint = process_of(name, zookeeper, self._session.client)

    def _give_up(self, _mine: frozenset[str], leaving: frozenset[str]) -> None:
        for unit in leaving:
            self._coordinator.released(unit)

    def start(self) -> None:
        self._session.start()
        self.agent.start()
        self._coordinator.start(self._loop)
        threading.Thread(target=self._endpoint.run, daemon=True).start()

    def poll(self) -> None:
        """Put one batch into the log; it waits for its ack."""
        self.agent.wal_sink.accept_now([PollResult("source", bytes(16), 1, SYSTEM_CLOCK.now_ms(), SAMPLES)])

    @property
    def client(self) -> KazooClient:
        """Client of the only session."""
        return self._session.client

    @property
    def holds(self) -> bool:
        return self._coordinator.counts()["held"] > 0

    def stop(self) -> None:
        self._endpoint.stop()
        self._coordinator.stop()
        self.agent.stop()
        self._session.stop()


def process_of(host: str, zookeeper: str, session: KazooClient | None = None) -> EndpointRegistration:
    """Return the registration of a process on a host, with a session of its own or that of the agent."""
    path = f"{HOSTS}/{host}/bench:127.0.0.1:1:{uuid.uuid4()}"
    return EndpointRegistration(zookeeper, path, b"{}", session=session)


class Broker:
    """Target of a collector's writes that gives each batch the same offset."""

    def describe_topic(self, name: str) -> TopicDescription:
        return TopicDescription("bench", name, uuid.UUID(int=1), {0: 0}, SYSTEM_CLOCK.monotonic())

    def write(self, messages: Sequence[KafkaMessage]) -> list[Position | str]:
        return [Position("bench", TOPIC_ID, 0, 10) for _ in messages]


@contextlib.contextmanager
def collector(zookeeper: str) -> Iterator[None]:
    """Serve one collector, and publish acks as the raw query does."""
    client, stop = zookeeper_client(zookeeper), threading.Event()
    client.start(30)
    board = NoticeBoard(client, SYSTEM_CLOCK)
    server = server_of(Collector(Broker()), CollectorConfig("bench", "", ""), board=board)
    data = json.dumps({"host": "127.0.0.1", "port": server.start()}).encode()
    node = EphemeralNode(client, f"{COLLECTORS_PATH}/bench", data)
    client.ensure_path(f"{ACKS_PATH}/{TOPIC_ID}")

    def publish() -> None:
        while not stop.is_set():
            partitions = {0: PartitionState(5, 0, 100)}
            state = AckState("bench", "artimon.samples", TOPIC_ID, SYSTEM_CLOCK.now_ms(), partitions)
            client.set(f"{ACKS_PATH}/{TOPIC_ID}", state.to_json())
            for _ in range(round(ACKS_S)):
                board.expire()
                stop.wait(1.0)

    node.start()
    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    board.start()
    try:
        yield
    finally:
        stop.set()
        publisher.join(ACKS_S)
        node.stop()
        board.stop()
        server.stop(0.1)
        close_client(client)


class Fleet:
    """Agents of one process, and what is done to them."""

    def __init__(self, names: Sequence[str], folder: Path, zookeeper: str, loop: asyncio.AbstractEventLoop) -> None:
        self._folder, self._zookeeper, self._loop = folder, zookeeper, loop
        self.agents = [self._make(name) for name in names]
        self._processes: list[EndpointRegistration] = []

    def _make(self, name: str) -> FleetAgent:
        return FleetAgent(name, self._folder, self._zookeeper, self._loop)

    def start(self) -> None:
        for one in self.agents:
            one.start()
            one.poll()

    def restart(self, n: int) -> None:
        """Replace an agent by a new one on its folder."""
        self.agents[n].stop()
        self.agents[n] = self._make(self.agents[n].name)
        self.agents[n].start()

    def process(self, n: int) -> None:
        """Start a process on the host of an agent."""
        self._processes.append(process_of(self.agents[n].name, self._zookeeper))
        threading.Thread(target=self._processes[-1].run, daemon=True).start()

    def stop(self) -> None:
        for process in self._processes:
            process.stop()
        for one in self.agents:
            one.stop()


class FleetProcess:
    """Process with a part of the fleet: an interpreter keeps some hundreds of agents at most in time."""

    def __init__(self, names: Sequence[str], folder: Path, zookeeper: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=hold_agents, args=(theirs, names, folder, zookeeper), daemon=True)
        self._process.start()

    def wait(self) -> tuple[int, int]:
        """Return the next answer: requests, and messages caused by changes; the first one once the agents run."""
        if not self._pipe.poll(ANSWER_S):
            raise TimeoutError(f"a process of the fleet does not answer within {ANSWER_S:.0f} s")
        requests, caused = self._pipe.recv()
        return requests, caused

    def ask(self, act: str = "count", n: int = 0) -> tuple[int, int]:
        """Make a change to agent `n`, if any, and return the counts."""
        self._pipe.send((act, n))
        return self.wait()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.join(ANSWER_S)
        self._process.kill()


def hold_agents(pipe: Connection, names: Sequence[str], folder: Path, zookeeper: str) -> None:
    """Run agents until the pipe says None; answer each request with counts."""
    raise_limit(0)

    async def run() -> None:
        count, fleet = OperationCount(), Fleet(names, folder, zookeeper, asyncio.get_running_loop())
        try:
            await asyncio.to_thread(fleet.start)
            while not all(one.holds for one in fleet.agents):
                await asyncio.sleep(1.0)
            with count.counting():
                for one in fleet.agents:
                    count.learn(one.client)
                pipe.send((count.requests, count.caused))
                while (request := await asyncio.to_thread(pipe.recv)) is not None:
                    act, n = request
                    if act == "learn":
                        count.learn(fleet.agents[n].client)
                    elif act != "count":
                        count.forget(fleet.agents[n].client)
                        await asyncio.to_thread(getattr(fleet, act), n)
                    pipe.send((count.requests, count.caused))
        finally:
            await asyncio.to_thread(fleet.stop)

    asyncio.run(run())


def emit_variants(name: str, size: int, largest: bool, value: float, unit: str) -> None:
    """Print a figure by the number of agents, and without it for the largest fleet."""
    emit(f"fleet.zookeeper.{name}@{size}", value, unit)
    if largest:
        emit(f"fleet.zookeeper.{name}", value, unit)


def measure(size: int, seconds: float, folder: Path, zookeeper: str, largest: bool) -> None:
    """Start the agents, and print their operations at rest and at changes."""
    names = [f"a{n:05d}" for n in range(size)]
    shares = [names[at : at + AGENTS_OF_PROCESS] for at in range(0, size, AGENTS_OF_PROCESS)]
    processes: list[FleetProcess] = []
    try:
        for share in shares:  # one after the other: agents of a real fleet do not start within one second
            processes.append(FleetProcess(share, folder, zookeeper))
            processes[-1].wait()
        time.sleep(SETTLE_S)
        requests_before, caused_before = totals(processes)
        time.sleep(seconds)
        requests, caused = totals(processes)
        emit_variants("steady", size, largest, (requests - requests_before) / size * 60 / seconds, UNIT)
        at_rest = (caused - caused_before) / seconds
        for act in ("restart", "process"):
            emit_variants(act, size, largest, change(processes, act, at_rest), "messages")
    finally:
        for one in processes:
            one.stop()


def totals(processes: Sequence[FleetProcess]) -> tuple[int, int]:
    """Return requests, and messages caused by changes, of all agents."""
    counts = [one.ask() for one in processes]
    return sum(requests for requests, _ in counts), sum(caused for _, caused in counts)


def change(processes: Sequence[FleetProcess], act: str, at_rest: float) -> float:
    """Return the messages that one change causes, without those of a fleet at rest (a second)."""
    before, began = totals(processes)[1], SYSTEM_CLOCK.monotonic()
    for n in range(1, CHANGES + 1):  # of the last agents: the first ones are the elected ones
        processes[-1].ask(act, -n)
        time.sleep(CHANGE_S)
        processes[-1].ask("learn", -n)
    caused = totals(processes)[1] - before
    return max(0.0, caused - at_rest * (SYSTEM_CLOCK.monotonic() - began)) / CHANGES


def main() -> None:
    """Run the benchmark."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.fleet", description=__doc__, formatter_class=form)
    parser.add_argument("--agents", default=SIZES, help="numbers of agents, comma separated")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="duration at rest")
    parser.add_argument("--collector-agents", type=int, default=fleet_collector.AGENTS, help="0: leave that part out")
    options, parts = parser.parse_args(), Parts()
    if not options.seconds >= CHECK_S:
        parser.error(
            f"--seconds {options.seconds:g}: use {CHECK_S:g} or more, as an agent at rest checks every {CHECK_S:g} s"
        )
    sizes = [int(text) for text in options.agents.split(",")]
    parts.run("fleet.append.state", fleet_append.measure)
    with tempfile.TemporaryDirectory() as place, Stack(Path(place) / "stack", ["zookeeper"], base_port=25_000) as stack:
        for size in sizes:
            with zookeeper_session(stack.zookeeper, 30) as client:
                client.ensure_path(f"/fleet{size}")
            tree, folder = f"{stack.zookeeper}/fleet{size}", Path(place) / str(size)
            with collector(tree):
                run = partial(measure, size, options.seconds, folder, tree, size == max(sizes))
                parts.run(f"fleet.zookeeper.steady@{size}", run)
    if options.collector_agents:
        collectors = partial(fleet_collector.run, options.collector_agents)
        parts.run("fleet.collector.agents", collectors)
    parts.finish()


if __name__ == "__main__":
    main()
