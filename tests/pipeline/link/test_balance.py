"""Agents spread over the collectors, and a collector that joins gets its share slowly."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from pipeline.link.collector_choice import JOIN_SPREAD_S, CollectorEndpoint, Collectors

FLEET = 3_000
A, B, C = (CollectorEndpoint(name, 1) for name in "abc")
ALL = {"a": A, "b": B, "c": C}


def picks(fleet: list[Collectors], now: float) -> Counter[CollectorEndpoint | None]:
    return Counter(agent.pick(now) for agent in fleet)


def fleet_of(found: dict[str, CollectorEndpoint]) -> list[Collectors]:
    fleet = [Collectors(f"agent-{n}") for n in range(FLEET)]
    for agent in fleet:
        agent.update(found)
    return fleet


def test_agents_of_a_collector_that_ends_spread_over_the_others() -> None:
    fleet = fleet_of(ALL)
    before = [agent.pick(0.0) for agent in fleet]
    assert all(0.9 < n / (FLEET / 3) < 1.1 for n in Counter(before).values())
    for agent, first in zip(fleet, before, strict=True):
        if first == A:
            agent.note_call(A)
            agent.note_failure(A, 1.0)
    after = [agent.pick(1.0) for agent in fleet]
    assert all(0.9 < n / (FLEET / 2) < 1.1 for n in Counter(after).values()), "both take half of it"
    assert all(now == then for now, then in zip(after, before, strict=True) if then != A), "nobody else moves"


def test_a_collector_that_joins_gets_its_share_slowly() -> None:
    fleet = fleet_of({"a": A, "b": B})
    before = [agent.pick(0.0) for agent in fleet]
    for agent in fleet:
        agent.update(ALL)
    shares = [picks(fleet, JOIN_SPREAD_S * part)[C] for part in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert shares[0] == 0
    steps = [later - earlier for earlier, later in pairwise(shares)]
    assert all(0.7 < step / (FLEET / 12) < 1.3 for step in steps), "as many in each quarter of the time"
    after = [agent.pick(JOIN_SPREAD_S) for agent in fleet]
    assert all(now in (then, C) for now, then in zip(after, before, strict=True))


def test_a_collector_that_joined_is_used_at_once_if_the_others_fail() -> None:
    agent = Collectors("agent-1")
    agent.update({"a": A})
    agent.update({"a": A, "b": B})
    agent.note_call(A)
    agent.note_failure(A, 0.0)
    assert agent.pick(0.1) == B


def test_a_collector_that_restarts_elsewhere_replaces_the_only_one() -> None:
    agent = Collectors("agent-1")
    agent.update({"a": A})
    agent.update({"a": B})
    assert agent.pick(0.0) == B
