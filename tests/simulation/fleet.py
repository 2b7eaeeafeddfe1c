"""Fleet of simulated hosts: the product's coordination of agents, on a simulated ensemble, in virtual time.

`HostCoordinator` with `AgentElection`, `UnitLeases` and `RegisteredProcesses` are those of the product. Simulated are
ZooKeeper, the thread that runs a coordinator, and the poll itself: a process counts as polled by each agent that has
its unit and holds the lease at its phase of the period.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any
from unittest import mock

from bookkeeper.process.host_key import HOSTS
from sources.base.endpoint_address import EndpointAddress
from sources.poll import agent_election, host_coordinator
from sources.poll.host_coordinator import HostCoordinator
from sources.poll.lease_units import CONTEXTS
from sources.poll.zookeeper_session import TRUSTED_PART
from tests.simulation.fleet_clock import Timeline
from tests.simulation.fleet_zookeeper import Ensemble, Session, create_node, delete_node
from tests.simulation.scheduler import Violation

PERIOD_S, GRACE_S, RECONCILE_S, SESSION_S = 60.0, 15.0, 60.0, 10.0
RECONNECT_S = 5.0
"""Greatest pause between two attempts to connect (`zookeeper_session.PAUSE_S`)."""
RECOVERY_S = SESSION_S + GRACE_S + 2 * RECONNECT_S + agent_election.MAX_CLAIMS_DELAY_S
"""Time after a fault after which the two periods begin: expiry, grace period, connection, changes handled together."""


NETWORKED = 8
"""Each so many-th host has a network of containers, which have host keys of their own."""


def container_networks(host: str) -> tuple[IPv4Network, ...]:
    """Return the network of the containers of a host; () without one."""
    number = int(host[1:]) if host[1:].isdigit() else 1
    return () if number % NETWORKED else (IPv4Network(f"10.{number >> 8}.{number & 255}.0/24"),)


class SimSession:
    """ZooKeeperSession of an agent, as its coordinator sees it."""

    hosts = "simulated"
    timeout_s = SESSION_S

    def __init__(self, ensemble: Ensemble) -> None:
        self._timeline = ensemble.timeline
        self.client = Session(ensemble, SESSION_S)
        self.connected = False
        self.ended_sessions = self.connections = 0
        self.told: list[Callable[[], None]] = []
        self._heard: float | None = None
        """Time of the last answered ping, while the server does not answer."""

    @property
    def trusted(self) -> bool:
        return self.connected and (self._heard is None or self._timeline.now - self._heard < TRUSTED_PART * SESSION_S)

    def confirm(self) -> None:
        """Pings confirm the session."""

    def revive(self) -> None:
        """The loop of the client does not end."""

    def connect(self) -> None:
        """Connect; a new session tells that the one before has ended."""
        fresh = self.client.connect()
        self.ended_sessions += fresh and self.connections > 0
        self.connected, self._heard = True, None
        self.connections += 1

    def cut(self) -> None:
        """Lose the server without notice."""
        unheard = self._timeline.random.random() * SESSION_S / 3
        self._heard = self._timeline.now - unheard
        self.client.disconnect(unheard)


class SimCoordinator(HostCoordinator):
    """HostCoordinator whose callbacks arrive at once."""

    alive = True

    def _in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        if self.alive:
            call(*arguments)

    @property
    def woken(self) -> bool:
        return self._wake.is_set()

    @property
    def next_pass(self) -> float:
        return self._next_pass


class SimAgent:
    """One agent: the loop around its coordinator, and what it polls."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host, self._timeline = fleet, host, fleet.timeline
        self.session = SimSession(fleet.ensemble)
        self.coordinator: Any = self._coordinator()
        self.processes: dict[str, frozenset[EndpointAddress]] = {}
        self.units: frozenset[str] = frozenset()
        self.leaving: frozenset[str] = frozenset()
        self.alive, self.linked, self.paused_until = True, True, 0.0
        self._busy, self._turn_at, self._free_at = False, float("inf"), 0.0

    def _coordinator(self) -> Any:
        return SimCoordinator(
            self.session,  # type: ignore[arg-type]
            self.host,
            lambda: (self.host,),
            container_networks(self.host),
            listed=self._on_listed,
            assigned=self._on_assigned,
            grace_s=GRACE_S,
            reconcile_s=RECONCILE_S,
        )

    def start(self) -> None:
        """Connect and begin."""
        self._connect()

    def _connect(self) -> None:
        if not self.alive or self.session.client.server is not None:
            return
        if not self.linked or not self.fleet.ensemble.up or self.paused_until > self._timeline.now:
            self._timeline.later(self._timeline.random.uniform(0.2, RECONNECT_S), self._connect)
            return
        self.session.connect()
        self.wake()

    def lose_connection(self, notice_s: float = 0.0) -> None:
        """Lose the server; the client notices after `notice_s`."""
        self.session.cut()
        self._timeline.later(notice_s, self._notice)

    def _notice(self) -> None:
        if self.alive and self.session.client.server is None:
            self.session.connected = False
            self.session.client.drop_watchers()
            self.wake()
            self._timeline.later(self._timeline.random.uniform(0.1, RECONNECT_S), self._connect)

    def pause(self, seconds: float) -> None:
        """Stop the process for a time (SIGSTOP); its connection breaks when it goes on."""
        self.paused_until = self._timeline.now + seconds
        self.session.cut()
        self._timeline.later(seconds + self._timeline.random.random(), self._notice)

    def kill(self) -> None:
        """End without notice: the session expires after its timeout."""
        self._end()
        self.session.cut()

    def stop(self) -> None:
        """End in order."""
        self._end()
        self.session.client.close()

    def _end(self) -> None:
        self.alive = self.coordinator.alive = False
        for unit in self.units | self.leaving:
            self.fleet.pollers[unit].discard(self)

    # --- the thread of the coordinator

    def wake(self) -> None:
        """Plan a turn as soon as one may begin."""
        if not self._busy:
            self._plan(max(self._timeline.now, self._free_at))

    def _plan(self, at: float) -> None:
        if at < self._turn_at:
            self._turn_at = at
            self._timeline.at(at, lambda: self._begin(at))

    def _begin(self, at: float) -> None:
        if at != self._turn_at or not self.alive:
            return
        self._turn_at = float("inf")
        if self.paused_until > self._timeline.now:
            self._plan(self.paused_until)
        else:
            self._busy = True
            self._timeline.begin(self._take_turn)

    def _take_turn(self) -> None:
        pause = self.coordinator._turn()
        self._busy = False
        self._free_at = self._timeline.now + pause
        if self.coordinator.woken:
            self._plan(self._free_at)
        elif self.session.connected:
            self._plan(max(self._free_at, self.coordinator.next_pass))

    def told(self) -> None:
        """Something arrived from ZooKeeper."""
        if self.coordinator.woken:
            self.wake()

    # --- callbacks of the coordinator

    def _on_listed(self, listing: Any) -> None:
        self.processes.update(listing)

    def _on_assigned(self, mine: frozenset[str], leaving: frozenset[str]) -> None:
        for unit in (self.units | self.leaving) - mine - leaving:
            self.fleet.pollers[unit].discard(self)
        for unit in mine | leaving:
            self.fleet.pollers.setdefault(unit, set()).add(self)
        for unit in leaving - self.leaving:
            self._timeline.later(self._timeline.random.random() * 2, lambda unit=unit: self._release(unit))  # type: ignore[misc]
        self.units, self.leaving = mine, leaving

    def _release(self, unit: str) -> None:
        if self.alive and unit in self.leaving:
            self.fleet.pollers[unit].discard(self)
            self.coordinator.released(unit)
            self.wake()

    def polls(self, process: EndpointAddress) -> bool:
        """Return True if this agent polls the process now."""
        return (
            self.alive
            and self.paused_until <= self._timeline.now
            and process in self.processes.get(process.unit, ())
            and bool(self.coordinator.holds_lease(process.unit))
        )


@dataclass(eq=False, slots=True)
class SimProcess:
    """A process with a registration."""

    address: EndpointAddress
    path: str
    session: int
    began: float
    alive: bool = True
    polled: float = field(default=float("-inf"))


class Fleet:
    """Hosts with and without an agent, processes on them, and the promises."""

    def __init__(self, seed: int) -> None:
        self.timeline = Timeline(seed)
        self.ensemble = Ensemble(self.timeline)
        self.agents: dict[str, SimAgent] = {}
        self.started: list[SimAgent] = []
        self.processes: list[SimProcess] = []
        self.pollers: dict[str, set[SimAgent]] = {}
        """Unit -> agents that poll it or are about to give it up."""
        self.excused: dict[str, float] = {}
        """Unit -> time of the last fault that concerns it; "" for all."""
        self.polls = self.polls_older = 0
        self.older: set[str] = set()
        """Hosts whose agent is of the version before when it starts next."""
        self.agent_before: Callable[[Fleet, str], SimAgent] = SimAgent
        for path in (HOSTS, CONTEXTS):
            self.ensemble.commit(create_node(f"{path}/x", b"", 0, True))
            self.ensemble.commit(delete_node(f"{path}/x"))

    def join(self, host: str) -> SimAgent:
        """Start an agent on a host."""
        make = self.agent_before if host in self.older else SimAgent
        self.agents[host] = agent = make(self, host)
        self.started.append(agent)
        client = agent.session.client
        client.arrived = agent.told
        self.excuse(host)
        agent.start()
        return agent

    def start_process(self, host: str, context: str = "") -> SimProcess:
        """Start a process on a host; with a context, one of the version before, which registers by context."""
        name = uuid.UUID(int=self.timeline.random.getrandbits(128), version=4)
        number = self.timeline.random.randrange(1 << 24)
        ip = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        address = EndpointAddress(context or "app", ip, 1, name.bytes, "" if context else host)
        path = f"{CONTEXTS}/{context}/{ip}:1:{name}" if context else f"{HOSTS}/{host}/app:{ip}:1:{name}"
        process = SimProcess(address, path, self.ensemble.new_session(), self.timeline.now)
        self.ensemble.messages += 2 if path.rpartition("/")[0] in self.ensemble.tree.nodes else 3
        self.ensemble.commit(create_node(path, b"{}", process.session, True))
        self.processes.append(process)
        self._plan_poll(process, self.timeline.random.random() * PERIOD_S)
        return process

    def stop_process(self, process: SimProcess) -> None:
        """End a process in order."""
        process.alive = False
        self.ensemble.expire(process.session)

    def excuse(self, *units: str, seconds: float = 0.0) -> None:
        """Note a fault: units whose processes may miss polls until `seconds` from now, and the time to recover."""
        until = self.timeline.now + seconds
        for unit in units:
            self.excused[unit] = max(until, self.excused.get(unit, 0.0))

    def excuse_agent(self, agent: SimAgent, seconds: float = 0.0) -> None:
        """Note a fault of an agent: its units and its host."""
        self.excuse(agent.host, *agent.units, *agent.leaving, seconds=seconds)

    def _plan_poll(self, process: SimProcess, delay_s: float) -> None:
        self.timeline.later(delay_s, lambda: self._poll(process))

    def _poll(self, process: SimProcess) -> None:
        if not process.alive:
            return
        unit, now = process.address.unit, self.timeline.now
        polling = [agent.host for agent in self.pollers.get(unit, ()) if agent.polls(process.address)]
        if len(polling) > 1:
            raise Violation(f"{process.path} is polled by {sorted(polling)} at {now:.1f} s")
        if polling:
            process.polled = now
            self.polls += 1
            self.polls_older += not isinstance(self.agents[polling[0]].coordinator, SimCoordinator)
        excused = max(self.excused.get("", 0.0), self.excused.get(unit, 0.0)) + RECOVERY_S
        if now - max(process.polled, process.began, excused) > 2 * PERIOD_S:
            holders = sorted(agent.host for agent in self.pollers.get(unit, ()))
            raise Violation(f"{process.path} was not polled for two periods at {now:.1f} s; assigned to {holders}")
        self._plan_poll(process, PERIOD_S)

    # --- faults of the ensemble

    def change_leader(self) -> None:
        """Elect a new leader: all connections end, no request is answered meanwhile."""
        self.ensemble.up = False
        took = self.timeline.random.uniform(0.5, 4.0)
        self.excuse("", seconds=took)
        for agent in self.live_agents():
            if agent.session.client.server is not None:
                agent.lose_connection()

        def elected() -> None:
            self.ensemble.up = True

        self.timeline.later(took, elected)

    def cut_site(self, agents: list[SimAgent], seconds: float) -> None:
        """Cut these agents off from ZooKeeper for a time."""
        for agent in agents:
            self.excuse_agent(agent, seconds + RECONNECT_S)
            agent.linked = False
            agent.lose_connection(self.timeline.random.uniform(SESSION_S / 3, 2 * SESSION_S / 3))

        def heal() -> None:
            for agent in agents:
                agent.linked = True

        self.timeline.later(seconds, heal)

    def live_agents(self) -> list[SimAgent]:
        return [agent for agent in self.agents.values() if agent.alive]


@contextmanager
def simulated(seed: int) -> Iterator[Fleet]:
    """Return a fleet without agents; the modules of the product take time and chance from it."""
    fleet = Fleet(seed)
    with ExitStack() as stack:
        for module in (agent_election, host_coordinator):
            stack.enter_context(mock.patch.object(module, "monotonic", fleet.timeline.monotonic))
        chance = random.Random(seed)
        stack.enter_context(mock.patch.object(agent_election, "random", chance))
        yield fleet
