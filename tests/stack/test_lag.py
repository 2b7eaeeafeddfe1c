"""Lateness of a hop in `artimon status`: when it is reported, and when not."""

from __future__ import annotations

from typing import Any

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime import lag_limits as limits
from artimon.stack.status import Hop, build_hops

OLD = 10 * limits.GRACE_S
IDLE: dict[str, dict[str, Any]] = {
    "agent": {
        "accepted_samples": 10,
        "pending_batches": 0,
        "unsent_batches": 0,
        "oldest_unacked_ms": 0,
        "oldest_unsent_ms": 0,
        "level": "hdfs",
    },
    "collector-0": {"batches": 1, "nacks": {}, "last_answer_ms": 1_000},  # years ago
    "spark": {
        "raw": {"rows": 10, "lag_ms": 0, "interval_ms": 30_000},
        "buckets": {"ranges": 1, "lag_ms": 0, "lagging": [], "lagging_ms": {}},
    },
    "compactor": {"jobs": 3, "waiting": 0, "behind_ms": 0, "given_up": 0, "live": {"files": 4, "open_hours": 1}},
    "shard-0": {"series": 1, "applied": 10, "newest_sample_ms": 1_000, "refilling": 0},
}


def hops(uptime_s: float = OLD, **changed: dict[str, Any]) -> dict[str, Hop]:
    """The hops of an idle stack in which some figures are others; `_` in a part's name stands for `-`."""
    figures = {name: {**values} for name, values in IDLE.items()}
    for name, values in changed.items():
        part = figures[name.replace("_", "-")]
        for key, value in values.items():
            part[key] = {**part[key], **value} if isinstance(value, dict) and key in part else value
    return {hop.name: hop for hop in build_hops(figures, dict.fromkeys(figures, uptime_s))}


def late(found: dict[str, Hop]) -> dict[str, str]:
    assert all(hop.healthy == (not hop.reason) for hop in found.values())
    return {name: hop.reason for name, hop in found.items() if hop.reason}


def test_an_idle_stack_is_healthy_however_long_it_idles() -> None:
    assert late(hops()) == {}


CASES: list[Any] = [
    pytest.param({"agent": {"oldest_unacked_ms": 150_000}}, "", id="as late as three appends may be"),
    pytest.param(
        {"agent": {"oldest_unacked_ms": 151_000, "pending_batches": 7}},
        "agent: accepted: the oldest of 7 batches is not acked for 151 s, at most 150 s",
        id="acks stay away",
    ),
    pytest.param(
        {"agent": {"oldest_unacked_ms": 61_000, "level": "kafka"}},
        "agent: accepted: the oldest of 0 batches is not acked for 61 s, at most 60 s",
        id="level kafka waits for no append",
    ),
    pytest.param(
        {"agent": {"oldest_unacked_ms": 151_000}, "spark": {"raw": {"interval_ms": 60_000}}}, "", id="a slower append"
    ),
    pytest.param({"spark": {"raw": {"lag_ms": 120_000}}}, "", id="raw in time"),
    pytest.param(
        {"spark": {"raw": {"lag_ms": 121_000}}},
        "spark: raw table: Kafka waits for the raw table for 121 s, at most 120 s",
        id="raw late",
    ),
    pytest.param({"spark": {"buckets": {"lag_ms": 30_000}}}, "", id="buckets in time"),
    pytest.param(
        {"spark": {"buckets": {"lag_ms": 31_000}}},
        "spark: to the shards: Kafka waits for the shards for 31 s, at most 30 s",
        id="buckets late",
    ),
    pytest.param({"spark": {"buckets": {"lagging": ["0"], "lagging_ms": {"0": 29_000}}}}, "", id="a shard catches up"),
    pytest.param(
        {"spark": {"buckets": {"lagging": ["0"], "lagging_ms": {"0": 31_000}}}},
        "spark: to the shards: shards are behind the others: 0 for 31 s, at most 30 s",
        id="a shard stays behind",
    ),
    pytest.param({"compactor": {"behind_ms": 3 * 3_600_000, "waiting": 4}}, "", id="compaction in time"),
    pytest.param(
        {"compactor": {"behind_ms": 4 * 3_600_000, "waiting": 4}},
        "compactor: hours, days: 4 jobs wait, the oldest for 4.0 h, at most 3 h",
        id="compaction behind",
    ),
    pytest.param(
        {"compactor": {"given_up": 1, "problems": ["2026-11-18T03, keep default: a file is gone"]}},
        "compactor: hours, days: 1 hours or days are given up: 2026-11-18T03, keep default: a file is gone",
        id="compaction given up",
    ),
    pytest.param(
        {"compactor": {"failing_ms": 301_000, "problems": ["the NameNode is not reachable"]}},
        "compactor: hours, days: the compactor has failed for 301 s: the NameNode is not reachable",
        id="compaction fails",
    ),
    pytest.param(
        {"compactor": {"live": {"open_hours": 7}}},
        "compactor: hours, days: 7 hours are open, at most 6: the raw table does not mark them as complete",
        id="hours do not close",
    ),
    pytest.param(
        {"shard_0": {"refilling": 12}},
        "shard-0: in memory: refilling from Kafka, 12 batches to go: its answers are partial",
        id="a shard refills",
    ),
    pytest.param(
        {"shard_0": {"vshards_lacking": 64}},
        "shard-0: in memory: 64 virtual shards lack data that Kafka deleted before they read it: "
        "their answers are partial",
        id="a shard lacks what nobody sends again",
    ),
]


@pytest.mark.parametrize(("changed", "reason"), CASES)
def test_limits(changed: dict[str, Any], reason: str) -> None:
    found = late(hops(**changed))
    assert [f"{name}: {why}" for name, why in found.items()] == ([reason] if reason else [])


@pytest.mark.parametrize(("changed", "_reason"), CASES)
def test_nothing_is_late_in_the_first_minute(changed: dict[str, Any], _reason: str) -> None:
    assert late(hops(limits.GRACE_S - 1, **changed)) == {}


def test_batches_that_no_collector_takes() -> None:
    found = late(hops(agent={"oldest_unsent_ms": 31_000, "unsent_batches": 4, "oldest_unacked_ms": 31_000}))
    assert found["agent: accepted"] == "no collector took the oldest of 4 batches for 31 s"
    assert "4 batches wait and it has sent no answer for" in found["collector-0: to Kafka"]


def test_a_collector_that_answers_is_not_blamed() -> None:
    just_now = SYSTEM_CLOCK.now_ms() - 1_000
    found = late(hops(agent={"oldest_unsent_ms": 31_000}, collector_0={"last_answer_ms": just_now}))
    assert set(found) == {"agent: accepted"}


def test_a_collector_that_never_answered() -> None:
    found = late(hops(agent={"oldest_unsent_ms": 31_000}, collector_0={"last_answer_ms": 0}))
    assert found["collector-0: to Kafka"].endswith("it has sent no answer since its start")


def test_a_young_shard_may_be_behind_while_spark_is_old() -> None:
    figures = {**IDLE, "spark": {"raw": {}, "buckets": {"lagging": ["0"], "lagging_ms": {"0": 50_000}}}}
    uptimes = {**dict.fromkeys(figures, OLD), "shard-0": 5.0}
    assert all(hop.healthy for hop in build_hops(figures, uptimes))


def test_parts_that_said_nothing_are_not_late() -> None:
    nothing: dict[str, dict[str, Any]] = {name: {} for name in IDLE}
    assert all(hop.healthy for hop in build_hops(nothing, dict.fromkeys(nothing, OLD)))
