"""State of every process of Artimon in a cluster, from their self metrics and from the polls of the agents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from artimon.api.endpoint_states import BUCKETS, MAX_SILENT_BUCKETS, UP, EndpointState, endpoint_states, select_newest
from artimon.model.clock import Clock
from artimon.model.select import NAME, Buckets, Matcher, SelectError, Store
from artimon.runtime.lag_limits import (
    ACK_AGE_MS,
    COMPACTION_AGE_MS,
    FILE_OVERDUE_MS,
    GRACE_S,
    INTERVALS,
    OPEN_HOURS,
    RAW_INTERVAL_MS,
    RAW_LAG_MS,
    SHARD_LAG_MS,
    STORE_WAIT_MS,
    UNSENT_AGE_MS,
)
from artimon.runtime.self_metrics_endpoint import CONTEXT
from varstore.cluster.varstore_client import VarstoreClient

OK, UPTIME, VERSION = "artimon.process.ok", "artimon.process.uptime.ms", "artimon.process.version"
RESIDENT = "artimon.process.resident.bytes"
FRESH_S = 15.0
"""Age in seconds at which the processes are read again: their figures change once a minute."""
SERIES = 1_000_000
"""Limit of the series that are read: 20,000 processes have fewer."""
SILENT_BUCKETS = 72
"""Buckets of the coarsest level, three days, in which an agent has reported that is listed as silent."""
PROBLEMS = 100
"""Limit of the problems that are listed; their number is not limited."""


@dataclass(frozen=True, slots=True)
class LagLimit:
    """Limit of a figure; `text` is the problem of a greater value, which takes the place of `{}`."""

    most: int
    text: str
    unit_ms: bool = True


LIMITS: Mapping[str, LagLimit] = MappingProxyType(
    {
        "artimon.agent.unsent.ms": LagLimit(UNSENT_AGE_MS, "no collector took its oldest batch for {}"),
        "artimon.agent.unacked.ms": LagLimit(
            INTERVALS * RAW_INTERVAL_MS + ACK_AGE_MS, "its oldest batch is not acked for {}"
        ),
        "artimon.agent.problems": LagLimit(0, "reports {} problems: see its log", unit_ms=False),
        "artimon.collector.wait.ms": LagLimit(STORE_WAIT_MS, "its store kept a call waiting for {}"),
        "artimon.collector.files.overdue.ms": LagLimit(FILE_OVERDUE_MS, "its oldest file should be closed since {}"),
        "artimon.kafka.full": LagLimit(0, "Kafka is full: data waits in the logs of the agents", unit_ms=False),
        "artimon.spark.lag.ms": LagLimit(RAW_LAG_MS, "Kafka waits for the raw table for {}"),
        "artimon.spark.buckets.lag.ms": LagLimit(SHARD_LAG_MS, "Kafka waits for the shards for {}"),
        "artimon.compactor.givenup": LagLimit(0, "has given up {} hours or days: see its log", unit_ms=False),
        "artimon.compactor.behind.ms": LagLimit(COMPACTION_AGE_MS, "its oldest job waits for {}"),
        "artimon.compactor.live.openhours": LagLimit(
            OPEN_HOURS, "has {} open hours: the raw table does not mark them as complete", unit_ms=False
        ),
        "artimon.shard.vshards.lacking": LagLimit(
            0, "lacks data of {} virtual shards, which Kafka deleted unread: its answers are partial", unit_ms=False
        ),
        "artimon.shard.lag.ms": LagLimit(SHARD_LAG_MS, "is behind Kafka for {}"),
        "artimon.shard.refilling": LagLimit(
            0, "refills from Kafka, {} batches to go: its answers are partial", unit_ms=False
        ),
        "artimon.alerts.problems": LagLimit(0, "reports {} problems: see its log", unit_ms=False),
    }
)
"""Figures that say that a process lags."""
FIGURES = (OK, UPTIME, VERSION, RESIDENT, *LIMITS)


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process. `state`: "up", "failing" (it says so, or lags), "missing" (does not answer its agent), "silent" (no
    agent reported on it lately). Times in epoch ms; `resident_bytes` None if it is not known; `lag_ms`: the greatest
    lag that it reports, None if its role has none."""

    role: str
    host: str
    instance: str
    version: str
    state: str
    problem: str
    seen_ms: int
    uptime_ms: int | None
    resident_bytes: int | None
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FleetPage:
    """Part of the list of processes: those of a role, a state and a host, "" for all, that have every word of `text` in
    instance, host, version or problem; upper and lower case are the same."""

    role: str = ""
    state: str = ""
    host: str = ""
    offset: int = 0
    limit: int = 1_000
    text: str = ""

    def fits(self, one: ProcessStatus) -> bool:
        if self.role not in ("", one.role) or self.state not in ("", one.state) or self.host not in ("", one.host):
            return False
        text = f"{one.instance} {one.host} {one.version} {one.problem}".lower()
        return all(word in text for word in self.text.lower().split())


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """All processes, those with problems first, by role, host and instance."""

    processes: list[ProcessStatus]
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Reason why the processes are not known."""

    @property
    def problems(self) -> list[str]:
        """One line a process with a problem, at most PROBLEMS; or why nothing is known."""
        if self.problem:
            return [self.problem]
        if not self.processes:
            return ["no process of Artimon has reported in the last hour: does an agent run on their hosts?"]
        found = [f"{_name(one)}: {one.problem}" for one in self.processes if one.problem]
        return found[:PROBLEMS] + ([f"and {len(found) - PROBLEMS} more"] if len(found) > PROBLEMS else [])

    @property
    def warnings(self) -> list[str]:
        """Differences between processes that need no action now."""
        versions = Counter(one.version for one in self.processes if one.version and one.state != "missing")
        told = ", ".join(f"{version} ({count})" for version, count in sorted(versions.items()))
        return [f"versions differ: {told}"] if len(versions) > 1 else []

    def roles(self) -> dict[str, dict[str, int]]:
        """Return the number of processes by role and state."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for one in self.processes:
            counts[one.role][one.state] += 1
        return {role: dict(states) for role, states in sorted(counts.items())}

    def versions(self) -> dict[str, dict[str, int]]:
        """Return the number of processes by role and version. Processes that report no version are left out."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for one in self.processes:
            if one.version:
                counts[one.role][one.version] += 1
        return {role: dict(sorted(versions.items())) for role, versions in sorted(counts.items())}

    def to_json(self, limit: int = 1_000, page: FleetPage | None = None) -> dict[str, Any]:
        """Return a JSON object with a page of at most `limit` processes, and the numbers of all of them."""
        page = page or FleetPage(limit=limit)
        fits = [one for one in self.processes if page.fits(one)]
        shown = fits[page.offset : page.offset + page.limit]
        return {
            "healthy": not self.problems,
            "processes": [asdict(one) for one in shown],
            "found": len(fits),
            "truncated": len(fits) > page.offset + len(shown),
            "roles": self.roles(),
            "versions": self.versions(),
            "problems": self.problems,
            "warnings": self.warnings,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Status of each shard by its id, from the shards themselves, and of all processes."""

    shards: dict[str, dict[str, Any]]
    fleet: FleetStatus


class ClusterReader:
    """Reads the status of the shards at each call, and that of the processes once in FRESH_S. One thread at a time."""

    def __init__(self, store: VarstoreClient, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._fleet = FleetStatus([])
        self._read_at: float | None = None

    def read(self) -> ClusterStatus:
        """Ask the shards. If they do not answer, the list of processes is empty and has a `problem`."""
        shards, now = self._store.statuses(), self._clock.monotonic()
        if self._read_at is None or now - self._read_at >= FRESH_S:
            try:
                self._fleet, self._read_at = read_fleet(self._store, self._clock.now_ms()), now
            except (SelectError, OSError) as problem:
                self._fleet = FleetStatus([], problem=f"the state of the processes is not known: {problem}")
                self._read_at = None
        return ClusterStatus(shards, self._fleet)


def read_fleet(store: Store, now_ms: int) -> FleetStatus:
    """Read the status of all processes from the finest level of `store`. Raises SelectError."""
    ours = Matcher("context", "=", CONTEXT)
    polled = select_newest(store, (Matcher(NAME, "=", UP), ours), now_ms, BUCKETS, SERIES)
    endpoints = endpoint_states(polled)
    endpoints += _silent_agents(store, endpoints, now_ms)
    names = "|".join(name.replace(".", r"\.") for name in FIGURES)
    found = select_newest(store, (Matcher(NAME, "=~", names), ours), now_ms, MAX_SILENT_BUCKETS, SERIES)
    figures = _newest_figures(found)
    processes = [_status(state, figures[_key(state.labels)], now_ms) for state in endpoints]
    processes.sort(key=lambda one: (not one.problem, one.role, one.host, one.instance))
    return FleetStatus(processes, tuple(dict.fromkeys((*polled.notes, *found.notes))))


def _silent_agents(store: Store, listed: Iterable[EndpointState], now_ms: int) -> list[EndpointState]:
    """Return the agents that no longer report and are older than the finest level keeps: one in each host is expected
    until it leaves in order, while the names of other processes may be new at each start."""
    agents = (Matcher(NAME, "=", UP), Matcher("context", "=", CONTEXT), Matcher("instance", "=~", "agent(-.*)?"))
    level = len(store.levels()) - 1
    found = endpoint_states(select_newest(store, agents, now_ms, SILENT_BUCKETS, SERIES, level))
    known = {(one.host, one.instance) for one in listed}
    return [replace(one, up=None, since_ms=None) for one in found if (one.host, one.instance) not in known]


def _key(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("host", ""), labels.get("instance", "")


def _newest_figures(found: Buckets) -> defaultdict[tuple[str, str], dict[str, Any]]:
    """Return the newest figures of each process. The version is the pair (role, version); a figure without a recent
    sample is left out, and of several series of a name the greatest value counts."""
    recent = found.statistics["count"] > 0
    places = recent.shape[1] - 1 - np.argmax(recent[:, ::-1], axis=1)
    last = found.statistics["last"]
    figures: defaultdict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for i in np.flatnonzero(recent.any(axis=1)).tolist():
        one, value = found.series[i], int(last[i, places[i]])
        of = figures[_key(one.labels)]
        if one.name == VERSION:
            of[VERSION] = one.labels.get("role", ""), one.labels.get("version", "")
        else:
            of[one.name] = max(value, of.get(one.name, value))
    return figures


def _status(endpoint: EndpointState, figures: Mapping[str, Any], now_ms: int) -> ProcessStatus:
    role, version = figures.get(VERSION) or (endpoint.instance.partition("-")[0], "")
    state, problem = _state(endpoint, figures, now_ms)
    return ProcessStatus(
        role,
        endpoint.host,
        endpoint.instance,
        version,
        state,
        problem,
        endpoint.time_ms,
        figures.get(UPTIME),
        figures.get(RESIDENT),
        max((figures[name] for name, limit in LIMITS.items() if limit.unit_ms and name in figures), default=None),
    )


def _state(endpoint: EndpointState, figures: Mapping[str, Any], now_ms: int) -> tuple[str, str]:
    """Return the state of a process and its problem, "" if it has none."""
    if endpoint.up is False:
        since = "" if endpoint.since_ms is None else f" for {_seconds(now_ms - endpoint.since_ms)}"
        return "missing", f"does not answer its agent{since}"
    if endpoint.up is None:
        return "silent", "no agent reports on it: its own agent is gone, or its samples do not arrive"
    if figures.get(OK) == 0:
        return "failing", "says that it does not work: see its log"
    if figures.get(UPTIME, 0) < GRACE_S * 1000:
        return "up", ""
    lags = [(name, limit) for name, limit in LIMITS.items() if figures.get(name, 0) > limit.most]
    for name, limit in lags:
        value = figures[name]
        return "failing", limit.text.format(_seconds(value) if limit.unit_ms else value)
    return "up", ""


def _name(one: ProcessStatus) -> str:
    return f"{one.instance} on {one.host}" if one.host else one.instance


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.0f} s"
