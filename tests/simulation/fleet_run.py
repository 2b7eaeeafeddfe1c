"""Runs of the simulated fleet: a start, a time at rest, faults, and rest again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sources.poll.unit_leases import CLAIMS
from tests.simulation.fleet import PERIOD_S, RECONNECT_S, RECOVERY_S, Fleet, SimAgent, container_networks
from tests.simulation.fleet_before import AgentBefore, simulated_with_older
from tests.simulation.fleet_zookeeper import delete_node
from tests.simulation.scheduler import Violation

JOIN_S = 60.0
WARM_S = 300.0
REST_S = 600.0
"""Duration of the measurement at rest: agents that are not elected look for a slot about once in ten minutes."""
MAX_STEADY = 6.0
MAX_CHANGE = 20.0
STORM = 10.0
OLDER_PART = 0.25
MAX_OLDER = 20
"""Limit of the agents of the version before: each reads all others of its version at every change."""


@dataclass(slots=True)
class FleetOutcome:
    """Result of one run."""

    seed: int
    agents: int
    violation: str = ""
    older: int = 0
    """Agents of the version before at the beginning: in odd seeds."""
    steady_older: float = 0.0
    """Messages of one of these a minute at rest; the other figures are those of present agents."""
    steady: float = 0.0
    """Messages of an agent a minute at rest."""
    start: float = 0.0
    """Messages in the whole fleet for the start of one process."""
    restart: float = 0.0
    container: float = 0.0
    """Messages in the whole fleet for the start of a container with a host key of its own."""
    peak: float = 0.0
    """Greatest messages of an agent in a minute with faults."""
    polls: int = 0
    polls_older: int = 0
    """Those by agents of the version before."""
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)

    @property
    def replay(self) -> str:
        return f"./scripts/simulate --fleet {self.agents} --seed {self.seed} --seeds 1"


def run_fleet(
    seed: int, agents: int, minutes: float = 15.0, trace: Callable[[str], None] | None = None
) -> FleetOutcome:
    """Run one history."""
    outcome = FleetOutcome(seed, agents)
    with simulated_with_older(seed) as fleet:
        run = FleetRun(fleet, outcome, trace or (lambda _text: None))
        try:
            run.run(agents, minutes)
        except Violation as violation:
            outcome.violation = str(violation)
        outcome.polls, outcome.events = fleet.polls, fleet.timeline.events
        outcome.polls_older = fleet.polls_older
    return outcome


def run_rest(seed: int, agents: int) -> float:
    """Return the messages of an agent a minute at rest. An even seed has no agents of the version before. Raises
    Violation."""
    outcome = FleetOutcome(seed, agents)
    with simulated_with_older(seed) as fleet:
        FleetRun(fleet, outcome, lambda _text: None).rest(agents)
    return outcome.steady


class FleetRun:
    """One history of a fleet."""

    def __init__(self, fleet: Fleet, outcome: FleetOutcome, trace: Callable[[str], None]) -> None:
        self._fleet, self._outcome, self._trace = fleet, outcome, trace
        self._timeline, self._chance = fleet.timeline, fleet.timeline.random
        self._next_host = 0
        self._of_older = 0.0
        """Messages of the agents of the version before, in the time that passed last."""

    def run(self, agents: int, minutes: float) -> None:
        """Run all parts. Raises Violation."""
        self.rest(agents)
        self._measure_changes()
        for _ in range(round(minutes)):
            self._minute_of_faults()
        self._fleet.excuse("")
        self._advance(RECOVERY_S + 3 * PERIOD_S)
        self._check_end()

    def rest(self, agents: int) -> None:
        """Start the agents and measure them at rest. Raises Violation."""
        self._populate(agents)
        self._advance(WARM_S)
        self._measure_rest()

    def _populate(self, agents: int) -> None:
        if self._outcome.seed % 2:
            self._outcome.older = max(2, min(MAX_OLDER, round(OLDER_PART * agents)))
            self._fleet.older = {f"h{n + 1:05d}" for n in self._chance.sample(range(agents), self._outcome.older)}
        for n in range(agents):
            self._timeline.at(JOIN_S * n / agents, self._join_new)
        for n in range(max(3, agents // 30)):
            self._fleet.start_process(f"bare{n}")
            self._fleet.start_process("", f"old{n % 7}")
        self._fleet.excuse("", seconds=JOIN_S)
        self._advance(JOIN_S)
        for agent in self._fleet.live_agents():
            self._fleet.start_process(agent.host)

    @property
    def _present(self) -> int:
        """Agents of the present version at the beginning."""
        return self._outcome.agents - self._outcome.older

    def _join_new(self) -> None:
        self._fleet.join(self._new_host())

    def _new_host(self) -> str:
        self._next_host += 1
        return f"h{self._next_host:05d}"

    def _advance(self, seconds: float) -> float:
        """Let time pass, and return the messages of the present agents of the whole fleet meanwhile."""
        before, older = self._fleet.ensemble.messages, self._messages_of_older()
        self._timeline.run(self._timeline.now + seconds)
        self._of_older = self._messages_of_older() - older
        return self._fleet.ensemble.messages - before - self._of_older

    def _messages_of_older(self) -> float:
        """Return the messages of all agents of the version before, also of those that have ended."""
        return sum(one.session.client.messages for one in self._fleet.started if isinstance(one, AgentBefore))

    def _measure_rest(self) -> None:
        messages = self._advance(REST_S)
        older, minutes = self._outcome.older, REST_S / 60
        self._outcome.steady = steady = messages / self._present / minutes
        self._outcome.steady_older = self._of_older / max(1, older) / minutes
        self._trace(f"at rest: {steady:.2f} messages of an agent a minute")
        if steady > MAX_STEADY:
            raise Violation(f"{steady:.2f} messages of an agent a minute at rest: at most {MAX_STEADY:g}")

    def _measure_changes(self) -> None:
        count = 5

        def start() -> None:
            self._fleet.start_process(self._some_agent().host)

        changes = {"start": start, "restart": self._restart, "container": self._start_container}
        for name, act in changes.items():
            messages = 0.0
            for _ in range(count):
                act()
                messages += self._advance(PERIOD_S)
            value = max(0.0, messages / count - self._outcome.steady * self._present)
            setattr(self._outcome, name, value)
        told = ", ".join(f"{name} {getattr(self._outcome, name):.1f}" for name in changes)
        self._trace(f"messages in the fleet: {told}")
        # the rest between two minutes differs by chance: by its square root
        noise = 3 * (self._outcome.steady * self._present / count) ** 0.5
        for name in changes:
            if getattr(self._outcome, name) > MAX_CHANGE + noise:
                raise Violation(f"{getattr(self._outcome, name):.1f} messages in the fleet for one {name}")

    def _minute_of_faults(self) -> None:
        acts: list[Callable[[], None]] = [
            *([self._start_process, self._stop_process, self._join, self._leave, self._kill, self._pause] * 2),
            *(self._restart, self._lose_sessions, self._cut_site, self._change_leader, self._delete_claim),
            self._start_container,
            *([self._change_version] * 4 if self._outcome.older else []),
        ]
        for _ in range(self._chance.randint(1, 4)):
            act = self._chance.choice(acts)
            name = act.__name__.strip("_").replace("_", " ")
            self._outcome.faults[name] = self._outcome.faults.get(name, 0) + 1
            self._trace(f"{self._timeline.now:8.1f} {name}")
            self._timeline.later(self._chance.random() * 55, act)
        each = self._advance(PERIOD_S) / self._present
        self._outcome.peak = max(self._outcome.peak, each)
        if each > STORM * max(1.0, self._outcome.steady):
            raise Violation(f"{each:.1f} messages of an agent in a minute, at rest {self._outcome.steady:.2f}: a storm")

    def _some_agent(self) -> SimAgent:
        return self._chance.choice(self._fleet.live_agents())

    # --- faults

    def _start_process(self) -> None:
        hosts = [self._some_agent().host, f"bare{self._chance.randrange(9)}"]
        if self._chance.random() < 0.3:
            self._fleet.start_process("", f"old{self._chance.randrange(7)}")
        else:
            self._fleet.start_process(self._chance.choice(hosts))

    def _start_container(self) -> None:
        """Start a process whose host key is an address in the network of a host."""
        hosts = [one.host for one in self._fleet.live_agents() if container_networks(one.host)]
        if hosts:
            network = container_networks(self._chance.choice(hosts))[0]
            self._fleet.start_process(str(network[self._chance.randrange(1, 255)]))

    def _stop_process(self) -> None:
        self._fleet.stop_process(self._chance.choice([one for one in self._fleet.processes if one.alive]))

    def _join(self) -> None:
        """A new agent, half of the time on a host that had none."""
        bare = [f"bare{n}" for n in range(9) if f"bare{n}" not in self._fleet.agents]
        self._fleet.join(self._chance.choice([self._new_host(), *bare[:1]]))

    def _leave(self) -> None:
        self._end(self._some_agent(), SimAgent.stop)

    def _kill(self) -> None:
        agent = self._some_agent()
        self._end(agent, SimAgent.kill)
        back = self._chance.uniform(0.5, 40.0)
        self._timeline.later(back, lambda: self._return(agent.host))

    def _restart(self) -> None:
        agent = self._some_agent()
        self._end(agent, SimAgent.stop)
        self._timeline.later(self._chance.uniform(1.0, 8.0), lambda: self._return(agent.host))

    def _change_version(self) -> None:
        """Upgrade or downgrade an agent: half of the time one of each version, so that their share stays."""
        hosts = [one.host for one in self._fleet.live_agents()]
        older = [host for host in hosts if host in self._fleet.older]
        upgrades = len(older) > 1 and (len(older) >= MAX_OLDER or self._chance.random() < 0.5)
        host = self._chance.choice(older if upgrades else [one for one in hosts if one not in older])
        self._fleet.older ^= {host}
        self._end(self._fleet.agents[host], self._chance.choice([SimAgent.stop, SimAgent.kill]))
        self._timeline.later(self._chance.uniform(0.5, 20.0), lambda: self._return(host))

    def _end(self, agent: SimAgent, act: Callable[[SimAgent], None]) -> None:
        self._fleet.excuse_agent(agent)
        act(agent)

    def _return(self, host: str) -> None:
        if not self._fleet.agents[host].alive:
            self._fleet.join(host)

    def _pause(self) -> None:
        agent, seconds = self._some_agent(), self._chance.uniform(1.0, 40.0)
        self._fleet.excuse_agent(agent, seconds)
        agent.pause(seconds)

    def _lose_sessions(self) -> None:
        """Sessions that the ensemble ends although their agents run."""
        for agent in self._some_agents(0.05):
            session = agent.session.client.id
            self._fleet.excuse_agent(agent, RECONNECT_S)
            agent.lose_connection()
            agent.session.client.id = 0
            self._fleet.ensemble.expire(session)

    def _some_agents(self, share: float) -> list[SimAgent]:
        live = [one for one in self._fleet.live_agents() if one.session.client.server is not None]
        return self._chance.sample(live, min(len(live), max(1, round(share * len(live)))))

    def _cut_site(self) -> None:
        self._fleet.cut_site(self._some_agents(0.3), self._chance.uniform(3.0, 60.0))

    def _change_leader(self) -> None:
        if self._fleet.ensemble.up:
            self._fleet.change_leader()

    def _delete_claim(self) -> None:
        """Somebody deletes the claim of an agent by hand."""
        agent = self._some_agent()
        if self._fleet.ensemble.up and f"{CLAIMS}/{agent.host}" in self._fleet.ensemble.tree.nodes:
            self._fleet.excuse_agent(agent)
            self._fleet.ensemble.commit(delete_node(f"{CLAIMS}/{agent.host}"))

    def _check_end(self) -> None:
        """Every process is polled by exactly one agent within the last two periods."""
        missed = [
            one.path
            for one in self._fleet.processes
            if one.alive and self._timeline.now - max(one.polled, one.began) > 2 * PERIOD_S
        ]
        if missed:
            raise Violation(f"{len(missed)} processes are not polled at the end: {missed[:3]}")


def main_result(outcome: FleetOutcome) -> dict[str, Any]:
    """Return the figures of a run."""
    names = (
        "seed",
        "agents",
        "violation",
        "older",
        "steady",
        "steady_older",
        "start",
        "restart",
        "container",
        "peak",
        "polls",
        "events",
        "faults",
        "replay",
    )
    return {name: getattr(outcome, name) for name in names}
