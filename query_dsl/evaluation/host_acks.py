"""States of silent hosts by the acks of their agents: the data is late, the agent is gone, or the host reports nothing.

An agent knows up to which time the data that it polled is acked. Its own variables tell it, with the data of the host;
its node in ZooKeeper tells it on another way, which works while no data arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import re2

from artimon.model.grid import Grid
from artimon.model.select import NAME, Matcher, SelectError, SelectRequest, Store
from query_dsl.results.expected_points import PLACE, Completeness, HostPoints
from query_dsl.tree.query_errors import QueryError

UNACKED = "artimon.agent.unacked.ms"
"""Variable of an agent: age of its oldest batch that is not acked."""
BUCKETS = 60
MAX_AGENTS = 1_000
FRESH_MS = 240_000
"""Age of a report after which nothing is known of its agent: agents report once a minute."""
PERIOD_MS = 60_000
"""Usual interval of polls: what was polled later than this after the last sample has no newer one."""

LATE = "late"
"""The agent polls, and what it polled since the last sample is not acked, or not yet in memory."""
STOPPED = "stopped"
"""The agent polls, and what it polled is acked and in memory: the series are not reported."""
GONE = "agent gone"
"""The agent has no node in ZooKeeper: the host is off, or its agent is."""
UNHEARD = "agent silent"
"""Nothing is heard of the agent either."""

LiveAgents = Callable[[Collection[str]], Mapping[str, Mapping[str, Any]] | None]
"""Returns the reports in the nodes of those agents that are live, by name; None if ZooKeeper does not answer."""


@dataclass(frozen=True, slots=True)
class AgentReport:
    """Time of an agent's last report, and time up to which what it polled is acked; 0 if unknown."""

    time_ms: int
    acked_ms: int = 0


def add_host_states(found: Completeness, store: Store, now_ms: int, live: LiveAgents | None = None) -> Completeness:
    """Return a certificate with the states of its silent hosts, as far as `store` and `live` know their agents."""
    if not found.silent:
        return found
    try:
        heard = _read_reports(store, [one.name for one in found.silent], now_ms)
    except (SelectError, QueryError):
        return found
    names = {name for reports in heard.values() for agent in reports for name in _agent_names(agent)}
    nodes = live(names) if live is not None and names else None
    stated = [_stated(one, heard.get(one.name, {}), nodes, now_ms) for one in found.silent]
    return replace(found, silent=tuple(stated))


def state_of(since_ms: int, heard: AgentReport, live: AgentReport | None, now_ms: int) -> str:
    """Return the state of a host that is silent since `since_ms`. `heard`: newest report in memory; `live`: the one in
    ZooKeeper, None if it is not known."""
    newest = heard if live is None or live.time_ms < heard.time_ms else live
    if newest.time_ms < now_ms - FRESH_MS:
        return UNHEARD
    if newest.acked_ms <= since_ms + PERIOD_MS or heard.time_ms < newest.acked_ms - FRESH_MS:
        return LATE
    return STOPPED


def _stated(
    host: HostPoints,
    heard: Mapping[str, AgentReport],
    nodes: Mapping[str, Mapping[str, Any]] | None,
    now_ms: int,
) -> HostPoints:
    """Return a host with its state; that of its agent that was heard last, if it has several."""
    if not heard:
        return host
    agent, newest = max(heard.items(), key=lambda one: one[1].time_ms)
    node = next((nodes[name] for name in _agent_names(agent) if name in nodes), None) if nodes is not None else None
    live = None if node is None else _parse_node(node)
    acked_ms = max(newest.acked_ms, live.acked_ms if live else 0)
    state = GONE if nodes is not None and node is None else state_of(host.since_ms, newest, live, now_ms)
    return replace(host, state=state, acked_ms=acked_ms)


def _read_reports(store: Store, hosts: Iterable[str], now_ms: int) -> dict[str, dict[str, AgentReport]]:
    """Return the newest report in memory of each agent, by its host and its instance. Raises SelectError."""
    step_ms, kept = store.levels()[0]
    wanted = Matcher(NAME, "=", UNACKED), Matcher(PLACE, "=~", "|".join(map(re2.escape, hosts)))
    grid = Grid(-(-now_ms // step_ms) * step_ms, step_ms, min(BUCKETS, kept))
    found = store.select(SelectRequest(wanted, grid, ("last", "last_time", "count"), MAX_AGENTS))
    here = np.asarray(found.statistics["count"]) > 0
    reports: dict[str, dict[str, AgentReport]] = {}
    for i, one in enumerate(found.series):
        places = np.flatnonzero(here[i])
        if len(places):
            time_ms = int(found.statistics["last_time"][i, places[-1]])
            report = AgentReport(time_ms, time_ms - int(found.statistics["last"][i, places[-1]]))
        else:
            report = AgentReport(int(found.newest_ms[i]))
        reports.setdefault(one.labels[PLACE], {})[one.labels.get("instance", "")] = report
    return reports


def _agent_names(instance: str) -> tuple[str, str]:
    """Return the names that the agent of an instance may have (`instance_of` in artimon/runtime)."""
    return instance, instance.removeprefix("agent-")


def _parse_node(node: Mapping[str, Any]) -> AgentReport | None:
    """Return the report in an agent's node; None if a foreign program wrote it."""
    figures = node.get("figures")
    time_ms = node.get("time_ms")
    unacked_ms = figures.get("oldest_unacked_ms") if isinstance(figures, Mapping) else None
    if not isinstance(time_ms, int) or not isinstance(unacked_ms, int):
        return None
    return AgentReport(time_ms, time_ms - unacked_ms)
