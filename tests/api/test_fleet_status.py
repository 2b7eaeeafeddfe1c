"""State of the processes of a cluster, read from their self metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from artimon.api.fleet_status import ClusterStatus, FleetStatus, ProcessStatus, read_fleet
from artimon.api.timed_call import TimedCall
from artimon.cli.process_wiring import api_status
from artimon.model.clock import ManualClock
from artimon.model.values import Kind
from tests.api.serving import EDGE, NOW, minutes
from tests.query_dsl.plain_store import MINUTE, PlainStore


class Cluster:
    """A store with the self metrics of processes."""

    def __init__(self) -> None:
        self.store = PlainStore()

    def add(
        self, role: str, host: str, *, up: int = 1, last: int = 0, version: str = "1.0", ended: int = 0, **figures: int
    ) -> None:
        """Add a process; `figures` are self metrics, with __ for dots."""
        labels = {"context": "artimon", "host": host, "instance": f"{role}-0"}
        polls = minutes([1] * 10 if up else [1] * 5 + [0] * 5, last)
        self.store.add("artimon.endpoint.up", labels, polls, Kind.GAUGE, ended=ended)
        known = {"process__ok": 1, "process__uptime__ms": 600_000, "process__resident__bytes": 64 << 20, **figures}
        if up:
            for name, value in known.items():
                full = f"artimon.{name.replace('__', '.')}"
                self.store.add(full, labels, minutes([0, value], last), Kind.GAUGE, ended=ended)
            told = {**labels, "role": role, "version": version}
            self.store.add("artimon.process.version", told, minutes([1, 1], last), Kind.GAUGE, ended=ended)

    def status(self) -> FleetStatus:
        return read_fleet(self.store, NOW)

    def one(self) -> ProcessStatus:
        (found,) = self.status().processes
        return found


def test_each_process_says_role_version_memory_and_uptime() -> None:
    cluster = Cluster()
    cluster.add("agent", "h1")
    cluster.store.add("artimon.endpoint.up", {"context": "shop", "host": "h1", "instance": "0"}, minutes([0]))
    expected = ProcessStatus("agent", "h1", "agent-0", "1.0", "up", "", EDGE - 1, 600_000, 64 << 20)
    assert cluster.one() == expected
    assert cluster.status().problems == cluster.status().warnings == []


@pytest.mark.parametrize(
    ("figures", "state", "problem"),
    [
        ({"up": 0}, "missing", "does not answer its agent for 240 s"),
        ({"last": 8}, "silent", "no agent reports on it"),
        ({"process__ok": 0}, "failing", "says that it does not work"),
        ({"agent__unsent__ms": 31_000}, "failing", "no collector took its oldest batch for 31 s"),
        ({"agent__unacked__ms": 151_000}, "failing", "is not acked for 151 s"),
        ({"shard__refilling": 7}, "failing", "7 batches to go: its answers are partial"),
        ({"kafka__full": 1}, "failing", "Kafka is full"),
        ({"agent__unacked__ms": 149_000}, "up", ""),
        ({"agent__unsent__ms": 90_000, "process__uptime__ms": 59_000}, "up", ""),
    ],
)
def test_problems_of_a_process(figures: dict[str, Any], state: str, problem: str) -> None:
    cluster = Cluster()
    cluster.add("agent", "h1", **figures)
    assert (cluster.one().state, problem in cluster.one().problem) == (state, True)
    assert bool(cluster.status().problems) == bool(problem)


def test_a_process_that_left_in_order_is_not_listed() -> None:
    cluster = Cluster()
    cluster.add("agent", "h1")
    cluster.add("agent", "h2", last=3, ended=EDGE - MINUTE)
    assert [one.host for one in cluster.status().processes] == ["h1"]


def test_problems_come_first_and_lists_are_bounded() -> None:
    cluster = Cluster()
    for i in range(130):
        cluster.add("agent", f"h{i:03}", up=int(i < 10))
    found = cluster.status()
    assert [one.host for one in found.processes][:2] == ["h010", "h011"]
    assert (len(found.problems), found.problems[-1]) == (101, "and 20 more")
    told = found.to_json(limit=20)
    assert (len(told["processes"]), told["truncated"]) == (20, True)
    assert told["roles"] == {"agent": {"missing": 120, "up": 10}}
    json.dumps(told)


def test_different_versions_are_a_warning() -> None:
    cluster = Cluster()
    cluster.add("agent", "h1")
    cluster.add("agent", "h2", version="1.1")
    cluster.add("shard", "h3", version="1.1")
    assert cluster.status().warnings == ["versions differ: 1.0 (1), 1.1 (2)"]
    assert cluster.status().problems == []


def test_without_a_report_the_cluster_is_not_healthy() -> None:
    assert Cluster().status().problems == [
        "no process of Artimon has reported in the last hour: does an agent run on their hosts?"
    ]


def test_without_a_local_stack_the_status_is_that_of_the_cluster(tmp_path: Path) -> None:
    cluster, clock = Cluster(), ManualClock(NOW)
    cluster.add("agent", "h1", up=0)
    told = api_status(TimedCall("the shards", lambda: ClusterStatus({"0": {}}, cluster.status()), clock), tmp_path)
    assert (told["healthy"], told["shards"]) == (False, {"0": {}})
    assert told["problems"] == ["agent-0 on h1: does not answer its agent for 240 s"]
    assert told["fleet"]["processes"][0]["state"] == "missing"

    def fails() -> ClusterStatus:
        raise OSError("no shard answers")

    told = api_status(TimedCall("the shards", fails, clock), tmp_path)
    assert (told["healthy"], told["problems"]) == (False, ["the shards: no shard answers"])
