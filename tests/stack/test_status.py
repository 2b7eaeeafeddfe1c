"""Summary of the parts' figures in `artimon status`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import typer

from artimon.cli.commands.machine import status as status_command
from artimon.model.clock import ManualClock
from artimon.runtime.health import HealthFile
from artimon.stack.child_process import start_time
from artimon.stack.part_runner import Phase
from artimon.stack.stack_errors import NotRunningError
from artimon.stack.stack_state import PartState, StackState, write_state
from artimon.stack.status import build_hops, read_status
from artimon.stack.status_view import show

FIGURES: dict[str, dict[str, Any]] = {
    "zookeeper": {},
    "agent": {
        "accepted_samples": 1200,
        "pending_batches": 3,
        "oldest_unacked_ms": 1500,
        "endpoints_up": 4,
        "refused": {"twin": 1},
    },
    "collector-0": {"batches": 12, "nacks": {"buffer full": 2}},
    "spark": {
        "raw": {"version": 7, "rows": 1000, "until": {"0": 5, "1": 7}, "log_end": {"0": 8, "1": 7}, "lag_ms": 20_000},
        "buckets": {"ranges": 9, "lag_ms": 900, "lagging": ["1"], "lagging_ms": {"1": 40_000}},
    },
    "shard-0": {"series": 40, "applied": 600, "late": 2},
}


def test_hops_stand_in_the_order_of_a_sample() -> None:
    hops = {hop.name: hop for hop in build_hops(FIGURES)}
    assert list(hops) == [
        "agent: accepted",
        "collector-0: to Kafka",
        "spark: raw table",
        "spark: to the shards",
        "shard-0: in memory",
    ]
    assert hops["agent: accepted"].count == 1200
    assert "1 refused" in hops["agent: accepted"].detail
    assert "2 nacks buffer full" in hops["collector-0: to Kafka"].detail
    assert "3 batches of Kafka to go" in hops["spark: raw table"].detail
    assert not hops["spark: to the shards"].healthy
    assert "1 for 40 s" in hops["spark: to the shards"].reason
    assert "2 late" in hops["shard-0: in memory"].detail


def test_parts_that_said_nothing_yet_are_unknown_not_zero() -> None:
    hops = build_hops({"agent": {}, "spark": {}, "shard-0": {}})
    assert [hop.count for hop in hops] == [None, None, None, None]


def test_a_late_hop_makes_the_stack_unhealthy_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over the files that a stack leaves: two parts that run for ten minutes, one of them late."""
    pid, started = os.getpid(), start_time(os.getpid())
    parts = [PartState(name, Phase.HEALTHY.value, pid, started) for name in ("agent", "spark")]
    write_state(tmp_path, StackState(pid, started, {}, {}, parts))
    HealthFile(tmp_path / "health" / "agent.json", "agent").write(warnings=["shop/host/0 ended without notice 9 s ago"])
    HealthFile(tmp_path / "health" / "spark.json", "spark").write(raw={"lag_ms": 500_000}, buckets={})
    begun = ManualClock(round(started * 1000))
    assert read_status(tmp_path, begun).healthy, "a process that has just begun may be late"
    begun.advance(600_000)
    status = read_status(tmp_path, begun)
    assert not status.healthy
    assert status.problems == ["spark: raw table: Kafka waits for the raw table for 500 s, at most 120 s"]
    assert status.warnings == ["agent: shop/host/0 ended without notice 9 s ago"]
    show(status)
    assert "! spark: raw table: Kafka waits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "health", "verdict", "code"),
    [
        ("healthy", {}, "healthy; 1 parts", 0),
        ("healthy", {"warnings": ["agent of root"]}, "healthy, 1 warning; 1 parts", 0),
        ("healthy", {"problem": "not registered in ZooKeeper"}, "NOT healthy, 1 problem; 1 parts", 1),
        ("healthy", {"problems": ["no snapshot", "disk full"]}, "NOT healthy, 2 problems; 1 parts", 1),
        ("healthy", {"problems": ["x"], "warnings": ["y", "z"]}, "NOT healthy, 1 problem, 2 warnings; 1 parts", 1),
        ("starting", {}, "NOT healthy, 1 problem; 1 parts", 1),
    ],
)
def test_the_verdict_follows_from_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, health: dict[str, Any], verdict: str, code: int
) -> None:
    pid, started = os.getpid(), start_time(os.getpid())
    write_state(tmp_path, StackState(pid, started, {}, {}, [PartState("agent", state, pid, started)]))
    HealthFile(tmp_path / "health" / "agent.json", "agent").write(**health)
    with pytest.raises(typer.Exit) as ended:
        status_command(tmp_path)
    shown = capsys.readouterr().out.splitlines()
    assert ended.value.exit_code == code
    assert shown[-1].startswith(verdict)
    counts = [sum(line.startswith(mark) for line in shown) for mark in ("! agent: ", "warning: agent: ")]
    assert (counts[0] > 0) == bool(code)
    assert counts[1] == len(health.get("warnings", ()))


def test_no_stack_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match="artimon up"):
        read_status(tmp_path)


@pytest.mark.stack
def test_status_of_a_real_stack(kafka_stack: object, capsys: pytest.CaptureFixture[str]) -> None:
    from artimon.stack.stack import Stack

    assert isinstance(kafka_stack, Stack)
    status = read_status(kafka_stack.data)
    (kafka,) = status.parts
    assert kafka.healthy
    assert kafka.rss_mb > 50
    assert status.healthy
    assert status.to_json()["parts"][0]["ports"] == dict(kafka.ports)
    show(status)
    shown = capsys.readouterr().out
    assert "healthy; 1 parts" in shown
    assert "\x1b" not in shown  # no colour off a terminal
