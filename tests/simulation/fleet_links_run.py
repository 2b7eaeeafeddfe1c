"""Runs of agents, collectors and control plane: rest, the end of a collector, pushed configuration, faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.control.control_tree import config_path, scope_of
from pipeline.link.collector_choice import JOIN_SPREAD_S
from pipeline.link.config_changes import CHANGES_PATH, ConfigChanges
from tests.simulation.fleet_links import GROUP, SETTING, FleetLinks, LinkedAgent, SimCollector, linked
from tests.simulation.fleet_zookeeper import create_node, set_node
from tests.simulation.scheduler import Violation

JOIN_S, WARM_S, REST_S = 60.0, 120.0, 300.0
AGENTS_PER_COLLECTOR = 1_250
STORM = 10.0
LARGE = 1_000
"""Agents above which a run has one minute with faults: it takes about 20 ms of CPU an agent."""
MAX_FAULTY = 30.0
"""Messages, and calls, of an agent in a minute with several faults: without any collector it calls every 0.5 to 5 s."""
MAX_STEADY = 6.0
SETTLE_S = 120.0
"""Time after a change of the collectors until the agents are balanced: session, calls that wait, back-off."""
APPLY_S = 30.0
"""Time within which every agent applies a pushed configuration."""
APPLY_OLD_S = 60.0
"""The same while a collector or a server of ZooKeeper is of an older version, or was just lost."""
CATCH_UP_S = 360.0
"""The same after faults, in which notices were lost: ZooKeeper is read every 300 s at least."""
MAX_PUSH = 15.0
MAX_OLDER = 200
"""Limit of the agents of the version before, each of which causes more messages than ten others."""
FIRST_VALUE = 1 << 20


@dataclass(slots=True)
class LinksOutcome:
    """Result of one run; messages are those of an agent a minute."""

    seed: int
    agents: int
    violation: str = ""
    zookeeper: float = 0.0
    """Messages of ZooKeeper at rest."""
    calls: float = 0.0
    """Calls to collectors at rest."""
    older: float = 0.0
    """Messages of an agent of the version before at rest; all other figures are those of present agents."""
    end_zookeeper: float = 0.0
    """Messages of ZooKeeper in the minute after the end of a collector."""
    end_connects: float = 0.0
    """Connections of each agent of a collector that ended, in the minute after."""
    balance: float = 0.0
    """Agents of the fullest collector, in units of the mean, greatest value."""
    push_s: float = 0.0
    """Time until the last agent had applied a pushed configuration."""
    push: float = 0.0
    """Messages of ZooKeeper for it, of an agent."""
    peak: float = 0.0
    """Messages of ZooKeeper and calls, greatest minute with faults."""

    @property
    def replay(self) -> str:
        return f"./scripts/simulate --fleet {self.agents} --seed {self.seed} --seeds 1"


def run_links(
    seed: int, agents: int, minutes: int | None = None, trace: Callable[[str], None] = lambda _text: None
) -> LinksOutcome:
    """Run one history. `minutes` with faults: by default fewer for a large fleet."""
    minutes = (4 if agents <= LARGE else 1) if minutes is None else minutes
    outcome = LinksOutcome(seed, agents)
    with linked(seed) as links:
        try:
            LinksRun(links, outcome, trace).run(agents, minutes)
        except Violation as violation:
            outcome.violation = str(violation)
    return outcome


class LinksRun:
    """One history. In odd seeds one collector and a quarter of the agents begin in the version before; a collector that
    ends may return in the other version."""

    def __init__(self, links: FleetLinks, outcome: LinksOutcome, trace: Callable[[str], None]) -> None:
        self._links, self._outcome, self._trace = links, outcome, trace
        self._timeline, self._chance = links.timeline, links.timeline.random
        self._mixed = bool(outcome.seed % 2)
        self._pushed, self._changes = 0, ConfigChanges("sim")
        self._pushes = 0
        """Pushes in the last minute with faults."""

    def run(self, agents: int, minutes: int) -> None:
        """Run all parts. Raises Violation."""
        self._populate(agents)
        self._advance(WARM_S)
        self._measure_rest()
        self._push_and_check(APPLY_OLD_S if self._mixed else APPLY_S)
        self._end_collector()
        for _ in range(minutes):
            self._minute_of_faults()
        self._push()
        self._advance(CATCH_UP_S)
        self._check_applied()
        self._advance(JOIN_SPREAD_S + SETTLE_S - CATCH_UP_S)
        self._check_balance("after the faults")

    def _populate(self, agents: int) -> None:
        count = max(3, round(agents / AGENTS_PER_COLLECTOR))
        for n in range(count):
            collector = SimCollector(self._links, f"c{n}", self._mixed and n == 0)
            self._links.collectors[collector.name] = collector
            collector.start()
        self._advance(1.0)
        for n in range(agents):
            agent = LinkedAgent(self._links, f"a{n:05d}", self._mixed and n % 4 == 0 and n < 4 * MAX_OLDER)
            self._links.agents.append(agent)
            self._timeline.later(JOIN_S * n / agents, agent.start)
        self._advance(JOIN_S)

    def _advance(self, seconds: float) -> tuple[float, float, float]:
        """Let time pass; return messages of ZooKeeper, calls and connections of present agents meanwhile."""
        links = self._links
        before = links.ensemble.messages - self._messages_of_older(), links.calls, links.connects
        self._timeline.run(self._timeline.now + seconds)
        after = links.ensemble.messages - self._messages_of_older(), links.calls, links.connects
        messages, calls, connects = (float(b - a) for a, b in zip(before, after, strict=True))
        return messages, calls, connects

    def _messages_of_older(self) -> int:
        return sum(one.zookeeper.messages for one in self._links.agents if one.is_old)

    @property
    def _present(self) -> int:
        """Agents of the present version."""
        return sum(not one.is_old for one in self._links.agents)

    def _measure_rest(self) -> None:
        older = self._messages_of_older()
        messages, calls, connects = self._advance(REST_S)
        each = self._present * REST_S / 60
        if self._mixed:
            self._outcome.older = (
                (self._messages_of_older() - older) * 60 / REST_S / (len(self._links.agents) - self._present)
            )
        self._outcome.zookeeper, self._outcome.calls = messages / each, calls / each
        self._trace(f"at rest: {messages / each:.2f} messages, {calls / each:.2f} calls of an agent a minute")
        if messages / each > MAX_STEADY or calls / each > MAX_STEADY:
            raise Violation(f"at rest {messages / each:.2f} messages, {calls / each:.2f} calls of an agent a minute")
        if connects and not self._mixed:
            raise Violation(f"{connects:g} connections were opened at rest")
        self._check_balance("at rest")

    def _check_balance(self, when: str) -> None:
        counts = self._links.balance()
        mean = self._outcome.agents / len(counts)
        ratio = max(counts.values()) / mean
        self._outcome.balance = max(self._outcome.balance, ratio)
        self._trace(f"balance {when}: {dict(counts)}")
        # by chance the fullest of a few collectors has some standard deviations more than the mean
        most = max(1.5 if mean >= AGENTS_PER_COLLECTOR / 2 else 0.0, 1 + 4 / mean**0.5)
        if sum(counts.values()) < self._outcome.agents:
            raise Violation(f"{self._outcome.agents - sum(counts.values())} agents have no collector {when}")
        if ratio > most or min(counts.values()) < mean * (2 - most):
            raise Violation(f"agents of the collectors {when}: {dict(counts)}")

    # --- a collector ends and returns

    def _end_collector(self) -> None:
        collector = self._chance.choice(list(self._links.collectors.values()))
        agents = max(1, self._links.balance()[collector.name])
        collector.kill()
        for minute in range(round(SETTLE_S / 60)):
            messages, calls, connects = self._advance(60.0)
            self._check_storm(f"minute {minute} after the end of a collector", messages, calls)
            self._outcome.end_zookeeper = max(self._outcome.end_zookeeper, messages / self._present)
            self._outcome.end_connects = max(self._outcome.end_connects, connects / agents)
            if connects > STORM * agents:
                raise Violation(f"{connects:g} connections in a minute after a collector of {agents} agents ended")
        self._check_balance("after the end of a collector")
        collector.start()
        messages, calls, _ = self._advance(JOIN_SPREAD_S + SETTLE_S)
        self._check_storm("after its return", *(one * 60 / (JOIN_SPREAD_S + SETTLE_S) for one in (messages, calls)))
        self._check_balance("after its return")

    def _check_storm(self, when: str, messages: float, calls: float) -> None:
        agents, rest = self._present, self._outcome
        self._outcome.peak = max(self._outcome.peak, (messages + calls) / agents)
        if messages / agents > STORM * max(1.0, rest.zookeeper) or calls / agents > STORM * max(1.0, rest.calls):
            told = f"{messages / agents:.1f} messages and {calls / agents:.1f} calls of an agent"
            raise Violation(f"{told} {when}: a storm")

    # --- configuration

    def _push(self) -> None:
        """Do what `artimon config push` does, in its order."""
        self._pushed += 1
        scope, commit = scope_of(group=GROUP), self._links.ensemble.commit
        path, nodes = config_path(scope), self._links.ensemble.tree.nodes
        document = {"metrics": {SETTING: FIRST_VALUE + self._pushed}}
        content = {"document": document, "made_ms": 1, "by": "operator", "note": "", "source": None}
        pointer = json.dumps({"lineage": "sim", "number": self._pushed}).encode()
        self._changes = self._changes.with_change(scope)
        if path not in nodes:
            commit(create_node(path, b'{"lineage": "sim", "number": 0}', 0, True))
            commit(create_node(CHANGES_PATH, ConfigChanges("sim").to_json(), 0, True))
        commit(create_node(f"{path}/{self._pushed:010d}", json.dumps(content).encode(), 0, True))
        commit(set_node(path, pointer))
        commit(set_node(CHANGES_PATH, self._changes.to_json()))

    def _behind(self) -> list[LinkedAgent]:
        return [one for one in self._links.agents if one.applied != FIRST_VALUE + self._pushed]

    def _push_and_check(self, within_s: float) -> None:
        """Push twice: the first agents of a new group create nothing that the second push needs."""
        for _ in range(2):
            self._push()
            began, messages = self._timeline.now, 0.0
            while self._behind() and self._timeline.now < began + within_s:
                messages += self._advance(1.0)[0]
            took = self._timeline.now - began
            self._check_applied()
            rest = self._outcome.zookeeper * self._present * took / 60
            self._outcome.push_s = max(self._outcome.push_s, took)
            self._outcome.push = max(self._outcome.push, (messages - rest) / self._present)
            if self._outcome.push > MAX_PUSH:
                raise Violation(f"{self._outcome.push:.1f} messages of an agent for one push")
            self._advance(60.0)

    def _check_applied(self) -> None:
        behind = self._behind()
        if behind:
            names = [one.name for one in behind[:3]]
            raise Violation(f"{len(behind)} agents have not applied the configuration pushed last: {names}")

    # --- faults

    def _minute_of_faults(self) -> None:
        act = self._chance.choice([self._change_leader, self._cut_site, self._end_all, self._end_one])
        self._trace(f"{self._timeline.now:8.1f} {act.__name__.strip('_')}")
        self._timeline.later(self._chance.random() * 20, act)
        pushes = self._chance.randint(0, 1) if self._links.ensemble.up else 0
        for _ in range(pushes):
            self._push()
        messages, calls, _ = self._advance(60.0)
        # who was cut off in the minute before reads what was pushed then
        reads, self._pushes = (pushes + self._pushes) * MAX_PUSH * self._present, pushes
        self._outcome.peak = max(self._outcome.peak, (messages + calls) / self._present)
        if max(messages - reads, calls) > MAX_FAULTY * self._present:
            told = f"{messages / self._present:.1f} messages and {calls / self._present:.1f} calls"
            raise Violation(f"{told} of an agent in a minute with faults: a storm")

    def _change_leader(self) -> None:
        if self._links.ensemble.up:
            self._links.change_leader(self._chance.uniform(0.5, 4.0))

    def _cut_site(self) -> None:
        cut = self._chance.sample(self._links.agents, max(1, len(self._links.agents) // 3))
        for agent in cut:
            agent.cut(True)
        self._timeline.later(self._chance.uniform(3.0, 60.0), lambda: [agent.cut(False) for agent in cut])  # type: ignore[arg-type,func-returns-value]

    def _end_one(self) -> None:
        self._end([self._chance.choice(list(self._links.collectors.values()))])

    def _end_all(self) -> None:
        self._end(list(self._links.collectors.values()))

    def _end(self, collectors: list[SimCollector]) -> None:
        """End collectors, and start them again within a minute."""
        for collector in collectors:
            if collector.alive:
                collector.kill()
                collector.is_old ^= self._mixed and self._chance.random() < 0.5  # it returns upgraded or downgraded
                self._timeline.later(self._chance.uniform(1.0, 40.0), collector.start)
