"""Operations of a fleet of agents on ZooKeeper: real agents on a real server, whose own record of requests is counted.

`fleet.zookeeper.steady@N`: reads and writes of one agent a minute, of N agents at rest; each has a batch that waits for
its ack while the acks change every 10 s. An agent has one session; its pings are not counted. Many agents share a
process: all of an agent that talks to ZooKeeper, its transport and its log, without polls. `@Nprocesses`: the same of N
processes of `artimon agent`. `@Nsimulated`: the same of N agents of the simulation, whose acks never change
(tests/simulation/fleet_run.py: the classes of the coordination in virtual time).
`fleet.zookeeper.restart@N`: reads, writes and watch events in the whole fleet for the restart of one agent,
`fleet.zookeeper.process@N` for the start of one process. Sessions' own messages are not counted.
Without `@N`: at the largest N. The fleets of all sizes run at the same time, each in a tree of its own.
`fleet.append.state`: see benchmarks/fleet_append.py.
`fleet.collector.agents*`: agents on one collector, see benchmarks.fleet_collector.

python -m benchmarks.fleet [--agents N,N] [--processes N] [--simulated N] [--seconds S]     S: 60 or more
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import multiprocessing
import random
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Watch

from artimon.model.ack_state import AckState, PartitionState, Position
from artimon.model.batch import PollResult, Samples
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.process_setup import raise_limit
from artimon.runtime.zookeeper_client import EphemeralNode, close_client, zookeeper_client, zookeeper_session
from artimon.stack.stack import Stack
from benchmarks import fleet_append, fleet_collector
from benchmarks.common import Parts, emit
from benchmarks.loads.agent_processes import AgentProcesses
from benchmarks.loads.zookeeper_requests import NotingServer, RequestLog
from bookkeeper.process.ephemeral_node import EndpointRegistration
from bookkeeper.process.host_key import HOSTS
from pipeline.collector.collector import Collector
from pipeline.collector.collector_process import CollectorConfig, server_of
from pipeline.collector.kafka_writer import KafkaMessage, TopicDescription
from pipeline.collector.notice_board import NoticeBoard
from pipeline.control.control_plane import READ_INTERVAL_S
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.link.collector_choice import COLLECTORS_PATH
from sources.poll.host_coordinator import HostCoordinator
from sources.poll.lease_units import Network
from sources.poll.zookeeper_session import ZooKeeperSession
from tests.simulation.fleet_run import run_rest

SIZES, PROCESSES, SIMULATED = "50,200,800", 50, 10_000
SIMULATED_SEED = 2
"""An even seed, without agents of the version before."""
SECONDS = 120.0
"""Duration of a measurement at rest."""
CHECK_S = 60.0
"""Pause between two checks of an agent at rest, and so the shortest duration: a shorter one may contain none."""
SETTLE_S = 15.0
ACKS_S = 10.0
CHANGES = 4
CHANGE_S = 12.0
"""Seconds for the effects of one change: the session of an agent that stops in order ends at once."""
REACTION_S = 2.0
"""Seconds after a watch event in which the requests of a client count as its consequence."""
AGENTS_OF_PROCESS = 100
SWITCH_S = 0.5
"""Switch interval of Python's threads: an agent has 13, and with the default of 5 ms all that wait for their turn wake
so often that from some 500 agents on the kernel does nothing else, until sessions expire."""
ANSWER_S = 600.0
TOPIC_ID = "T"
SAMPLES = Samples.of([(1, 1_000, 1, 1)])
UNIT = "operations/agent/min"


class MessageCount:
    """Counts the requests and the watch events of all clients of this process that a change causes: all of clients that
    were not there at rest, watch events of the others, what a client asks soon after one, and the next read of its
    path."""

    def __init__(self) -> None:
        self.caused = 0
        self._at_rest: set[int] = set()
        """Clients that make the usual requests of a fleet at rest."""
        self._reacts_until: dict[int, float] = {}
        self._changed: set[tuple[int, str]] = set()
        """Clients, and paths whose watch fired, until they are read."""

    def forget(self, client: KazooClient) -> None:
        """Count all that this client does from now on."""
        self._at_rest.discard(id(client))

    def learn(self, client: KazooClient) -> None:
        """Take a client for one that is at rest."""
        self._at_rest.add(id(client))

    def _request(self, client: KazooClient, path: str) -> None:
        if path == client.chroot:
            return  # it proves a session, as a ping does
        is_answer = (id(client), path) in self._changed
        self._changed.discard((id(client), path))
        reacts = is_answer or SYSTEM_CLOCK.monotonic() < self._reacts_until.get(id(client), 0.0)
        self.caused += reacts or id(client) not in self._at_rest

    def _event(self, client: KazooClient, path: str) -> None:
        self._reacts_until[id(client)] = SYSTEM_CLOCK.monotonic() + REACTION_S
        self._changed.add((id(client), path))
        self.caused += 1

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        call, event = KazooClient._call, ConnectionHandler._read_watch_event

        def counted_call(client: Any, request: Any, answer: Any) -> Any:
            self._request(client, getattr(request, "path", ""))
            return call(client, request, answer)

        def counted_event(handler: Any, buffer: Any, offset: int) -> Any:
            self._event(handler.client, Watch.deserialize(buffer, offset)[0].path)
            return event(handler, buffer, offset)

        KazooClient._call, ConnectionHandler._read_watch_event = counted_call, counted_event
        try:
            yield
        finally:
            KazooClient._call, ConnectionHandler._read_watch_event = call, event


class FleetAgent:
    """Everything of one agent that talks to ZooKeeper, and its transport."""

    def __init__(
        self,
        name: str,
        folder: Path,
        zookeeper: str,
        loop: asyncio.AbstractEventLoop,
        networks: Sequence[Network] = (),
    ) -> None:
        """`networks`: those of its containers."""
        self.name = name
        self._session, self._loop = ZooKeeperSession(zookeeper), loop
        config = AgentConfig(name, folder / name, zookeeper, lanes=1)
        self.agent = Agent(config, zookeeper=self._session.client)
        self._coordinator = HostCoordinator(
            self._session,
            name,
            lambda: (name,),
            networks,
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
        threading.Thread(target=self._endpoint.run, daemon=True).start()
        self._session.start()
        self.agent.start()
        self._coordinator.start(self._loop)

    def poll(self) -> None:
        """Put one batch into the log; it waits for its ack."""
        self.agent.wal_sink.accept_now([PollResult("source", bytes(16), 1, SYSTEM_CLOCK.now_ms(), SAMPLES)])

    def settle(self) -> None:
        """Read the configuration next at any time of the interval, as an agent does that has run for long."""
        self.agent.plane._read_due = SYSTEM_CLOCK.monotonic() + random.uniform(0, READ_INTERVAL_S)

    @property
    def client(self) -> KazooClient:
        """Client of the only session."""
        return self._session.client

    @property
    def held(self) -> int:
        """Number of host keys that it polls."""
        return self._coordinator.counts()["held"]

    def stop(self) -> None:
        self._endpoint.stop()
        self._coordinator.stop()
        self.agent.stop()
        self._session.stop()


def process_of(
    host: str, zookeeper: str, session: KazooClient | None = None, is_first: bool = False
) -> EndpointRegistration:
    """Return the registration of a process on a host, with a session of its own or that of the agent. `is_first`: in a
    container, whose address is a host key of its own."""
    path = f"{HOSTS}/{host}/bench:127.0.0.1:1:{uuid.uuid4()}"
    return EndpointRegistration(zookeeper, path, b"{}", session=session, is_first=is_first)


class Broker:
    """Target of a collector's writes that gives each batch the same offset."""

    def describe_topic(self, name: str) -> TopicDescription:
        return TopicDescription("bench", name, uuid.UUID(int=1), {0: 0}, SYSTEM_CLOCK.monotonic())

    def write(self, messages: Sequence[KafkaMessage]) -> list[Position | str]:
        return [Position("bench", TOPIC_ID, 0, 10) for _ in messages]


@contextlib.contextmanager
def collector(zookeeper: str) -> Iterator[KazooClient]:
    """Serve one collector, and publish acks as the raw query does; yields the client of both."""
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
        yield client
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

    def settle(self) -> None:
        for one in self.agents:
            one.settle()

    def restart(self, n: int, pause_s: float = 0.0) -> None:
        """Replace an agent by a new one on its folder, after a pause."""
        self.agents[n].stop()
        time.sleep(pause_s)
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
    """Process with a part of the fleet."""

    def __init__(self, names: Sequence[str], folder: Path, zookeeper: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=hold_agents, args=(theirs, names, folder, zookeeper), daemon=True)
        self._process.start()

    def wait(self) -> int:
        """Return the next answer: messages caused by changes; the first one once the agents run."""
        if not self._pipe.poll(ANSWER_S):
            raise TimeoutError(f"a process of the fleet does not answer within {ANSWER_S:.0f} s")
        return int(self._pipe.recv())

    def begin(self, act: str = "count", n: int = 0) -> None:
        """Ask for the count, or for a change of agent `n`; `wait` has the answer."""
        self._pipe.send((act, n))

    def kill(self) -> None:
        """End without order: nothing of the fleet is needed any more."""
        self._process.kill()
        self._process.join()


def hold_agents(pipe: Connection, names: Sequence[str], folder: Path, zookeeper: str) -> None:
    """Run agents, and answer each request with the count, until this process is killed."""
    raise_limit(0)
    sys.setswitchinterval(SWITCH_S)

    async def run() -> None:
        count, fleet = MessageCount(), Fleet(names, folder, zookeeper, asyncio.get_running_loop())
        await asyncio.to_thread(fleet.start)
        while not all(one.held for one in fleet.agents):
            await asyncio.sleep(1.0)
        with count.counting():
            for one in fleet.agents:
                count.learn(one.client)
            pipe.send(count.caused)
            while True:
                act, n = await asyncio.to_thread(pipe.recv)
                if act == "learn":
                    count.learn(fleet.agents[n].client)
                elif act == "settle":
                    fleet.settle()
                elif act != "count":
                    count.forget(fleet.agents[n].client)
                    await asyncio.to_thread(getattr(fleet, act), n)
                pipe.send(count.caused)

    asyncio.run(run())


class WholeFleet:
    """Context manager: agents of one tree, in several processes."""

    def __init__(self, size: int, folder: Path, zookeeper: str) -> None:
        self.size, self._folder, self._zookeeper = size, folder, zookeeper
        self._processes: list[FleetProcess] = []

    def __enter__(self) -> Self:
        names = [f"a{n:05d}" for n in range(self.size)]
        try:
            for at in range(0, self.size, AGENTS_OF_PROCESS):  # agents of a real fleet do not start within one second
                share = names[at : at + AGENTS_OF_PROCESS]
                self._processes.append(FleetProcess(share, self._folder, self._zookeeper))
                self._processes[-1].wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._processes:
            one.kill()

    def caused(self, act: str = "count") -> int:
        """Return the messages caused by changes so far, of all agents; `act`: another request to each process."""
        for one in self._processes:
            one.begin(act)
        return sum(one.wait() for one in self._processes)

    def begin(self, act: str, n: int) -> None:
        """Begin a change of one of the last agents: the first ones are the elected ones."""
        self._processes[-1].begin(act, -n)

    def wait(self) -> None:
        """Wait until the change is made."""
        self._processes[-1].wait()


def measure(sizes: Sequence[int], processes: int, seconds: float, place: Path, stack: Stack) -> None:
    """Start the agents, and print their operations at rest and at changes."""
    requests, others = RequestLog(NotingServer.log(stack.context)), set[int]()
    with ExitStack() as ended:

        def tree(name: str) -> str:
            with zookeeper_session(stack.zookeeper, 30) as client:
                client.ensure_path(f"/{name}")
            others.add(ended.enter_context(collector(f"{stack.zookeeper}/{name}")).client_id[0])
            return f"{stack.zookeeper}/{name}"

        fleets = [
            ended.enter_context(WholeFleet(size, place / str(size), tree(f"fleet{size}"))) for size in sorted(sizes)
        ]
        if processes:
            ended.enter_context(AgentProcesses(processes, place / "processes", tree("processes")))
        time.sleep(SETTLE_S)
        for fleet in fleets:
            fleet.caused("settle")
        requests.take()
        before = {fleet: fleet.caused() for fleet in fleets}
        time.sleep(seconds)
        counts = Counter[str]()
        for (name, session), count in requests.take().items():
            counts[name] += count if session not in others else 0
        at_rest = {fleet: (fleet.caused() - before[fleet]) / seconds for fleet in fleets}
        if processes:
            emit(f"fleet.zookeeper.steady@{processes}processes", counts["processes"] / processes * 60 / seconds, UNIT)
        for fleet in fleets:
            emit_variants("steady", fleet, fleets, counts[f"fleet{fleet.size}"] / fleet.size * 60 / seconds, UNIT)
        for act in ("restart", "process"):
            for fleet, caused in change(fleets, act, at_rest).items():
                emit_variants(act, fleet, fleets, caused, "messages")


def emit_variants(name: str, fleet: WholeFleet, fleets: Sequence[WholeFleet], value: float, unit: str) -> None:
    """Print a figure by the number of agents, and without it for the largest fleet."""
    emit(f"fleet.zookeeper.{name}@{fleet.size}", value, unit)
    if fleet is fleets[-1]:
        emit(f"fleet.zookeeper.{name}", value, unit)


def change(fleets: Sequence[WholeFleet], act: str, at_rest: dict[WholeFleet, float]) -> dict[WholeFleet, float]:
    """Return the messages that one change causes in each fleet, without those of a fleet at rest (a second)."""
    before, began = {fleet: fleet.caused() for fleet in fleets}, SYSTEM_CLOCK.monotonic()
    for n in range(1, CHANGES + 1):
        for step in (act, "learn"):
            for fleet in fleets:
                fleet.begin(step, n)
            for fleet in fleets:
                fleet.wait()
            time.sleep(CHANGE_S if step == act else 0.0)
    caused, took = {fleet: fleet.caused() for fleet in fleets}, SYSTEM_CLOCK.monotonic() - began
    return {fleet: max(0.0, caused[fleet] - before[fleet] - at_rest[fleet] * took) / CHANGES for fleet in fleets}


def simulate(agents: int) -> None:
    """Print the operations of an agent of a simulated fleet at rest. Raises Violation."""
    logging.disable(logging.CRITICAL)  # errors of the simulated ZooKeeper are expected
    try:
        emit(f"fleet.zookeeper.steady@{agents}simulated", run_rest(SIMULATED_SEED, agents), UNIT)
    finally:
        logging.disable(logging.NOTSET)


def main() -> None:
    """Run the benchmark."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.fleet", description=__doc__, formatter_class=form)
    parser.add_argument("--agents", default=SIZES, help="numbers of agents, comma separated")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="number of `artimon agent` processes")
    parser.add_argument("--simulated", type=int, default=SIMULATED, help="agents of the simulation, 0 for none")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="duration at rest")
    parser.add_argument("--collector-agents", type=int, default=fleet_collector.AGENTS, help="0: leave that part out")
    options, parts = parser.parse_args(), Parts()
    if not options.seconds >= CHECK_S:
        parser.error(
            f"--seconds {options.seconds:g}: use {CHECK_S:g} or more, as an agent at rest checks every {CHECK_S:g} s"
        )
    sizes = [int(text) for text in options.agents.split(",")]
    parts.run("fleet.append.state", fleet_append.measure)
    if options.simulated:
        parts.run(f"fleet.zookeeper.steady@{options.simulated}simulated", partial(simulate, options.simulated))
    raise_limit(0)
    with tempfile.TemporaryDirectory() as folder:
        place, stack = Path(folder), Stack(Path(folder) / "stack", ["zookeeper"], base_port=25_000)
        stack.parts = [NotingServer()]
        with stack:
            run = partial(measure, sizes, options.processes, options.seconds, place, stack)
            parts.run("fleet.zookeeper.steady", run)
    if options.collector_agents:
        collectors = partial(fleet_collector.run, options.collector_agents)
        parts.run("fleet.collector.agents", collectors)
    parts.finish()


if __name__ == "__main__":
    main()
