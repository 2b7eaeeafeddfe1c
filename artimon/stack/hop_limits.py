"""Limits of the lag of each hop, for `artimon status`, and the messages when one is exceeded.

An idle stack is healthy. The lag of a process does not count in its first minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from artimon.runtime.lag_limits import (
    ACK_AGE_MS,
    COMPACTION_AGE_MS,
    COMPACTOR_FAILING_MS,
    INTERVALS,
    OPEN_HOURS,
    RAW_INTERVAL_MS,
    RAW_LAG_MS,
    SHARD_LAG_MS,
    UNSENT_AGE_MS,
)

Figures = Mapping[str, Any]


def agent_reason(agent: Figures, raw: Figures) -> str:
    """Return why the agent's hop is unhealthy (batches reach no collector, or acks are late), "" if it is healthy."""
    unsent_ms, unacked_ms = _ms(agent, "oldest_unsent_ms"), _ms(agent, "oldest_unacked_ms")
    if unsent_ms > UNSENT_AGE_MS:
        return f"no collector took the oldest of {agent.get('unsent_batches', '?')} batches for {_seconds(unsent_ms)}"
    limit_ms = ACK_AGE_MS if agent.get("level") == "kafka" else INTERVALS * _interval_ms(raw) + ACK_AGE_MS
    if unacked_ms > limit_ms:
        waiting = agent.get("pending_batches", "?")
        return f"the oldest of {waiting} batches is not acked for {_seconds(unacked_ms)}, at most {_seconds(limit_ms)}"
    return ""


def collector_reason(collector: Figures, agent: Figures, now_ms: int) -> str:
    """Return why a collector's hop is unhealthy (Kafka is full, or it is silent while batches wait), or ""."""
    kafka = collector.get("kafka") or {}
    if kafka.get("full"):
        used = f"{kafka.get('bytes')} of {kafka.get('quota_bytes')} bytes"
        return f"Kafka is full, {used}: data waits in the agents' logs"
    if _ms(agent, "oldest_unsent_ms") <= UNSENT_AGE_MS:
        return ""
    answered_ms = _ms(collector, "last_answer_ms")
    silent_ms = now_ms - answered_ms
    if answered_ms and silent_ms <= UNSENT_AGE_MS:
        return ""
    since = f"for {_seconds(silent_ms)}" if answered_ms else "since its start"
    return f"{agent.get('unsent_batches', '?')} batches wait and it has sent no answer {since}"


def raw_reason(raw: Figures) -> str:
    """Return why the hop to the raw table is unhealthy, or ""."""
    limit_ms = max(RAW_LAG_MS, INTERVALS * _interval_ms(raw) + SHARD_LAG_MS)
    return _late(raw, limit_ms, "Kafka waits for the raw table")


def buckets_reason(buckets: Figures, young: Iterable[str]) -> str:
    """Return why the hop to the shards is unhealthy, or ""; `young` are the ids of shards in their grace period."""
    excused = set(young)
    behind = {
        id_: ms for id_, ms in (buckets.get("lagging_ms") or {}).items() if id_ not in excused and ms > SHARD_LAG_MS
    }
    if behind:
        told = ", ".join(f"{id_} for {_seconds(ms)}" for id_, ms in sorted(behind.items()))
        return f"shards are behind the others: {told}, at most {_seconds(SHARD_LAG_MS)}"
    return _late(buckets, SHARD_LAG_MS, "Kafka waits for the shards")


def shard_reason(shard: Figures) -> str:
    """Return why a shard's hop is unhealthy, or ""."""
    if lacking := shard.get("vshards_lacking"):
        return f"{lacking} virtual shards lack data that Kafka deleted before they read it: their answers are partial"
    missing = shard.get("refilling")
    return f"refilling from Kafka, {missing} batches to go: its answers are partial" if missing else ""


def compactor_reason(figures: Figures) -> str:
    """Return why the hop to compacted files is unhealthy, or ""."""
    problems = figures.get("problems") or ["?"]
    if _ms(figures, "failing_ms") > COMPACTOR_FAILING_MS:
        return f"the compactor has failed for {_seconds(_ms(figures, 'failing_ms'))}: {problems[0]}"
    if given_up := _ms(figures, "given_up"):
        return f"{given_up} hours or days are given up: {problems[-1]}"
    if (behind_ms := _ms(figures, "behind_ms")) > COMPACTION_AGE_MS:
        limit = f"at most {COMPACTION_AGE_MS / 3_600_000:.0f} h"
        return f"{figures.get('waiting', '?')} jobs wait, the oldest for {behind_ms / 3_600_000:.1f} h, {limit}"
    if (hours := int((figures.get("live") or {}).get("open_hours") or 0)) > OPEN_HOURS:
        return f"{hours} hours are open, at most {OPEN_HOURS}: the raw table does not mark them as complete"
    return ""


def _late(figures: Figures, limit_ms: int, what: str) -> str:
    lag_ms = _ms(figures, "lag_ms")
    return f"{what} for {_seconds(lag_ms)}, at most {_seconds(limit_ms)}" if lag_ms > limit_ms else ""


def _interval_ms(raw: Figures) -> int:
    return _ms(raw, "interval_ms") or RAW_INTERVAL_MS


def _ms(figures: Figures, name: str) -> int:
    return int(figures.get(name) or 0)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.0f} s"
