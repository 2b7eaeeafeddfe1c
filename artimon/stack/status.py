"""Report of `artimon status`: the state of every part and the progress of the samples, hop by hop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.health import Health, read_health
from artimon.runtime.lag_limits import GRACE_S
from artimon.runtime.text import format_utc
from artimon.stack import hop_limits as lag
from artimon.stack.child_process import same_process, session_rss
from artimon.stack.part_runner import Phase
from artimon.stack.stack_state import PartState, running_state


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One part: state by its supervisor, resources, figures of its own health file. Sizes in MiB, ages in seconds."""

    name: str
    state: str
    healthy: bool
    pid: int
    restarts: int
    rss_mb: int
    memory_mb: int
    uptime_s: float
    ports: Mapping[str, int]
    problem: str
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a sample's path. `count` is None if unknown; the lag in ms is defined by each hop."""

    name: str
    count: int | None
    unit: str
    lag_ms: int | None
    detail: str
    healthy: bool
    reason: str = ""
    """Reason for an unhealthy hop, from artimon/stack/hop_limits.py; "" if it is healthy."""


@dataclass(frozen=True, slots=True)
class StackStatus:
    """Status of a stack. `healthy`: all parts and hops are healthy and there are no problems. Warnings leave it
    healthy: they need no action now."""

    data: str
    healthy: bool
    supervisor_pid: int
    rss_mb: int
    addresses: Mapping[str, str]
    parts: list[PartStatus]
    hops: list[Hop]
    problems: list[str]
    warnings: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


def read_status(data: Path, clock: Clock = SYSTEM_CLOCK) -> StackStatus:
    """Read the status of the stack on `data`. Raises NotRunningError."""
    state = running_state(data)
    healths = {part.name: read_health(data / "health" / f"{part.name}.json") for part in state.parts}
    rss = session_rss([part.pid for part in state.parts if part.pid])
    now_s = clock.now_ms() / 1000
    parts = [_part_status(part, healths[part.name], rss.get(part.pid, 0), now_s) for part in state.parts]
    figures = {part.name: part.figures for part in parts}
    hops = build_hops(figures, {part.name: part.uptime_s for part in parts}, clock)
    problems = [f"{part.name}: {part.problem or part.state}" for part in parts if part.problem or not part.healthy]
    problems += [f"{hop.name}: {hop.reason}" for hop in hops if not hop.healthy]
    problems += _collect_texts(figures, "problems")
    return StackStatus(
        data=str(data),
        healthy=not problems,
        supervisor_pid=state.pid,
        rss_mb=sum(part.rss_mb for part in parts),
        addresses=state.addresses,
        parts=parts,
        hops=hops,
        problems=problems,
        warnings=_collect_texts(figures, "warnings"),
    )


def _collect_texts(figures: Mapping[str, Mapping[str, Any]], kind: str) -> list[str]:
    """Collect texts of one kind ("problems", "warnings") from the figures of all parts."""
    return [f"{name}: {text}" for name, values in figures.items() for text in values.get(kind, [])]


def _part_status(part: PartState, health: Health | None, rss: int, now_s: float) -> PartStatus:
    running = bool(part.pid) and same_process(part.pid, part.started)
    return PartStatus(
        name=part.name,
        state=part.state if running or not part.pid else "dead",
        healthy=running and part.state == Phase.HEALTHY,
        pid=part.pid,
        restarts=part.restarts,
        rss_mb=rss // (1024 * 1024),
        memory_mb=part.memory_mb,
        uptime_s=round(max(0.0, now_s - part.started), 1) if part.pid else 0.0,
        ports=part.ports,
        problem=part.problem or ("" if health is None else health.problem),
        figures={} if health is None else health.figures,
    )


def build_hops(
    figures: Mapping[str, Mapping[str, Any]],
    uptimes: Mapping[str, float] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[Hop]:
    """Return the hops of the existing parts, in the order of a sample's path; `figures` by part.

    `uptimes` in seconds by part: hops of parts younger than GRACE_S are healthy. A part without an uptime is old."""
    known, now_ms = uptimes or {}, clock.now_ms()
    settled = {name for name in figures if known.get(name, GRACE_S) >= GRACE_S}
    hops: list[Hop] = []
    agent, spark = figures.get("agent") or {}, figures.get("spark") or {}
    raw, buckets = spark.get("raw") or {}, spark.get("buckets") or {}
    if "agent" in figures:
        hops.append(_agent_hop(agent, lag.agent_reason(agent, raw) if "agent" in settled else ""))
    for name, values in _figures_by_prefix(figures, "collector-"):
        silent = lag.collector_reason(values, agent, now_ms) if {name, "agent"} <= settled else ""
        hops.append(_collector_hop(name, values, silent))
    if "spark" in figures:
        late = "spark" in settled
        young = [name.removeprefix("shard-") for name in figures.keys() - settled]
        hops.append(_raw_hop(raw, lag.raw_reason(raw) if late else ""))
        hops.append(_buckets_hop(buckets, lag.buckets_reason(buckets, young) if late else ""))
    if "compactor" in figures:
        compactor = figures["compactor"]
        hops.append(_compactor_hop(compactor, lag.compactor_reason(compactor) if "compactor" in settled else ""))
    for name, values in _figures_by_prefix(figures, "shard-"):
        hops.append(_shard_hop(name, values, lag.shard_reason(values) if name in settled else "", now_ms))
    if pair := (figures.get("alerts") or {}).get("pair"):
        hops.append(_alerts_hop(figures["alerts"], pair, now_ms))
    return hops


def _figures_by_prefix(figures: Mapping[str, Mapping[str, Any]], prefix: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, values) for name, values in figures.items() if name.startswith(prefix)]


def _agent_hop(figures: Mapping[str, Any], reason: str) -> Hop:
    up, down = figures.get("endpoints_up", 0), figures.get("endpoints_down", 0)
    refused = sum((figures.get("refused") or {}).values())
    detail = f"{figures.get('pending_batches', 0)} batches not acked; {up} endpoints up, {down} down"
    if refused:
        detail += f"; {refused} refused"
    lag_ms = figures.get("oldest_unacked_ms")
    return Hop("agent: accepted", figures.get("accepted_samples"), "samples", lag_ms, detail, not reason, reason)


def _collector_hop(name: str, figures: Mapping[str, Any], reason: str) -> Hop:
    nacks = {why: count for why, count in (figures.get("nacks") or {}).items() if count}
    detail = ", ".join(f"{count} nacks {why}" for why, count in nacks.items()) or "no nacks"
    kafka = figures.get("kafka") or {}
    if kafka.get("quota_bytes") and "bytes" in kafka:
        detail += f"; Kafka holds {kafka['bytes'] / 2**20:.0f} of {kafka['quota_bytes'] / 2**20:.0f} MiB"
    return Hop(f"{name}: to Kafka", figures.get("batches"), "batches", None, detail, not reason, reason)


def _offsets_behind(reached: Mapping[str, int], ends: Mapping[str, int]) -> int:
    return sum(max(0, end - int(reached.get(partition, 0))) for partition, end in ends.items())


def _raw_hop(raw: Mapping[str, Any], reason: str) -> Hop:
    behind = _offsets_behind(raw.get("until") or {}, raw.get("log_end") or {})
    detail = f"version {raw.get('version', '?')}, {behind} batches of Kafka to go"
    if raw.get("duplicates") or raw.get("dead_letters"):
        detail += f"; {raw.get('duplicates', 0)} repeats, {raw.get('dead_letters', 0)} dead letters"
    return Hop("spark: raw table", raw.get("rows"), "rows", raw.get("lag_ms"), detail, not reason, reason)


def _buckets_hop(buckets: Mapping[str, Any], reason: str) -> Hop:
    lagging = buckets.get("lagging") or []
    detail = f"shards behind: {', '.join(map(str, lagging))}" if lagging else "all shards follow"
    lag_ms = buckets.get("lag_ms")
    return Hop("spark: to the shards", buckets.get("ranges"), "ranges", lag_ms, detail, not reason, reason)


def _compactor_hop(figures: Mapping[str, Any], reason: str) -> Hop:
    live, waiting = figures.get("live") or {}, figures.get("waiting", 0)
    detail = f"{waiting} to go; {live.get('files', 0)} files"
    detail += f", at most {live.get('closed_hour', 0)} in a closed hour, {live.get('day', 0)} in a day"
    if figures.get("alarms"):
        detail += f"; {figures['alarms']} alarms"
    return Hop(
        "compactor: hours, days", figures.get("jobs"), "jobs", figures.get("behind_ms"), detail, not reason, reason
    )


def _alerts_hop(figures: Mapping[str, Any], pair: Mapping[str, Any], now_ms: int) -> Hop:
    """Return the evaluation of rules by a pair of engines. Its problems are those of the part."""
    leader, last_ms = pair.get("leader"), figures.get("last_ms")
    detail = f"{leader} leads since {format_utc(pair.get('since_ms', 0))}" if leader else "no engine leads"
    detail += f"; engines of {pair.get('name')}: {', '.join(pair.get('engines') or ()) or 'none'}"
    age_ms = max(0, now_ms - int(last_ms)) if last_ms else None
    return Hop("alerts: evaluated", figures.get("evaluations"), "times", age_ms, detail, True)


def _shard_hop(name: str, figures: Mapping[str, Any], reason: str, now_ms: int) -> Hop:
    newest = figures.get("newest_sample_ms")
    detail = f"{figures.get('series', 0)} series"
    if "vshards_wanted" in figures:
        detail += f", {figures.get('vshards_ready', 0)} of {figures['vshards_wanted']} virtual shards"
    for word in ("late", "future", "conflicts"):
        if figures.get(word):
            detail += f", {figures[word]} {word}"
    if figures.get("offsets_lacking"):
        detail += f"; lacks {figures['offsets_lacking']} offsets, deleted by Kafka before they were read"
    if figures.get("refilling"):
        detail += "; refilling from Kafka, its answers are partial"
    age_ms = max(0, now_ms - int(newest)) if newest else None
    return Hop(f"{name}: in memory", figures.get("applied"), "samples", age_ms, detail, not reason, reason)
