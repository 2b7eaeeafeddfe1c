"""State of the processes of a cluster, read from their self metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from artimon.api.fleet_status import (
    FRESH_S,
    ClusterReader,
    ClusterStatus,
    FleetPage,
    FleetStatus,
    ProcessStatus,
    read_fleet,
)
from artimon.api.timed_call import TimedCall
from artimon.cli import app
from artimon.cli.process_wiring import api_status
from artimon.model.clock import ManualClock
from artimon.model.values import Kind
from artimon.runtime.self_metrics_endpoint import instance_of
from tests.api.serving import EDGE, NOW, minutes, served
from tests.query_dsl.plain_store import MINUTE, PlainStore


class Cluster:
    """A store with the self metrics of processes."""

    def __init__(self) -> None:
        self.store = PlainStore()

    def add(
        self,
        role: str,
        host: str,
        *,
        up: int = 1,
        last: int = 0,
        version: str = "1.0",
        ended: int = 0,
        id: str = "0",
        **figures: int,
    ) -> None:
        """Add a process; `figures` are self metrics, with __ for dots."""
        labels = {"context": "artimon", "host": host, "instance": instance_of(role, id)}
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
        ({"shard__vshards__lacking": 3}, "failing", "lacks data of 3 virtual shards"),
        ({"compactor__givenup": 1}, "failing", "has given up 1 hours or days"),
        ({"compactor__live__openhours": 7}, "failing", "has 7 open hours"),
        ({"compactor__live__openhours": 6}, "up", ""),
        ({"kafka__full": 1}, "failing", "Kafka is full"),
        ({"collector__wait__ms": 5_001}, "failing", "its store kept a call waiting for 5 s"),
        ({"collector__files__overdue__ms": 61_000}, "failing", "its oldest file should be closed since 61 s"),
        ({"collector__wait__ms": 4_000, "collector__files__open__ms": 90_000}, "up", ""),
        ({"agent__unacked__ms": 149_000}, "up", ""),
        ({"agent__unsent__ms": 90_000, "process__uptime__ms": 59_000}, "up", ""),
    ],
)
def test_problems_of_a_process(figures: dict[str, Any], state: str, problem: str) -> None:
    cluster = Cluster()
    cluster.add("agent", "h1", **figures)
    assert (cluster.one().state, problem in cluster.one().problem) == (state, True)
    assert bool(cluster.status().problems) == bool(problem)


@pytest.mark.parametrize("role", ["agent", "collector", "shard", "spark", "compactor", "api", "mail", "alerts"])
def test_a_missing_process_is_named_beside_another_of_its_role_and_host(role: str) -> None:
    cluster = Cluster()
    cluster.add(role, "h1", id="one-a", up=0)
    cluster.add(role, "h1", id="one-b")
    missing, running = cluster.status().processes
    assert (missing.role, missing.instance, missing.state) == (role, f"{role}-one-a", "missing")
    assert (running.role, running.instance, running.state) == (role, f"{role}-one-b", "up")
    assert cluster.status().problems == [f"{role}-one-a on h1: does not answer its agent for 240 s"]


def test_the_lag_of_a_process_is_the_greatest_that_it_reports() -> None:
    cluster = Cluster()
    cluster.add("agent", "h1", agent__unsent__ms=2_000, agent__unacked__ms=70_000, agent__problems=0)
    assert (cluster.one().lag_ms, cluster.one().state) == (70_000, "up")


def test_a_process_that_left_in_order_is_not_listed() -> None:
    cluster = Cluster()
    cluster.add("agent", "h1")
    cluster.add("agent", "h2", last=3, ended=EDGE - MINUTE)
    assert [one.host for one in cluster.status().processes] == ["h1"]


def test_an_agent_that_is_silent_for_longer_than_an_hour_is_listed_for_three_days() -> None:
    cluster = Cluster()
    cluster.add("agent", "h1")
    cluster.add("agent", "h2", id="lost", last=26 * 60)
    cluster.add("agent", "h3", id="forgotten", last=80 * 60)
    cluster.add("agent", "h4", id="drained", last=26 * 60, ended=EDGE - 25 * 60 * MINUTE)
    cluster.add("api", "h5", id="one-of-many", last=26 * 60)
    lost, running = cluster.status().processes
    assert (lost.instance, lost.state, lost.seen_ms) == ("agent-lost", "silent", EDGE - 26 * 60 * MINUTE - 1)
    assert (running.instance, running.state) == ("agent-0", "up")
    assert len(cluster.status().problems) == 1


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


# --- a fleet


def fleet(agents: int) -> FleetStatus:
    """Return the status of a cluster with agents, the last three of which have a problem, and some other processes."""
    found = [("agent", f"h{at:04}", "missing" if at >= agents - 3 else "up") for at in range(agents)]
    found += [(role, "h0000", "up") for role in ("collector", "shard", "spark", "compactor", "api", "alerts")]
    made = [
        ProcessStatus(role, host, f"{role}-0", "1.1" if at % 2 else "1.0", state, "gone" * (state != "up"), 1, 2, 3)
        for at, (role, host, state) in enumerate(found)
    ]
    return FleetStatus(sorted(made, key=lambda one: (not one.problem, one.role, one.host, one.instance)))


def test_the_list_of_a_fleet_comes_in_pages() -> None:
    whole = fleet(3_000)
    page = whole.to_json(page=FleetPage(role="agent", state="up", offset=2_900, limit=200))
    assert (page["found"], len(page["processes"]), page["truncated"]) == (2_997, 97, False)
    assert page["roles"]["agent"] == {"missing": 3, "up": 2_997}
    assert page["versions"]["agent"] == {"1.0": 1_500, "1.1": 1_500}
    (one,) = whole.to_json(page=FleetPage(role="agent", host="h0007"))["processes"]
    assert one["instance"] == "agent-0"
    assert whole.to_json(page=FleetPage(text="AGENT h299 gone"))["found"] == 3
    assert whole.to_json(page=FleetPage(text="agent h299 1.1 nothing"))["found"] == 0
    seen = [
        process["host"]
        for offset in range(0, 3_000, 500)
        for process in whole.to_json(page=FleetPage(role="agent", offset=offset, limit=500))["processes"]
    ]
    assert len(set(seen)) == 3_000


def test_the_api_pages_the_processes() -> None:
    whole = fleet(3_000)
    with served(status=lambda page: {"healthy": True, "fleet": whole.to_json(page=page)}) as client:
        found = client.get("/api/status").json["fleet"]
        assert (len(found["processes"]), found["truncated"], found["found"]) == (1_000, True, 3_006)
        found = client.get("/api/status", filter="h2998").json["fleet"]
        assert [one["host"] for one in found["processes"]] == ["h2998"]
        found = client.get("/api/status", role="agent", state="missing", limit=2, offset=2).json["fleet"]
        assert [one["host"] for one in found["processes"]] == ["h2999"]
        assert client.send("GET", "/api/status?limit=10001").status == 413


def test_the_processes_are_read_once_for_all_requests() -> None:
    """The shards are asked at each call, the processes only once in FRESH_S."""
    cluster, clock = Cluster(), ManualClock(NOW)
    cluster.add("agent", "h1")

    class Counting:
        selects = statuses_asked = 0

        def statuses(self) -> dict[str, Any]:
            self.statuses_asked += 1
            return {"0": {}}

        def levels(self) -> Any:
            return cluster.store.levels()

        def select(self, request: Any) -> Any:
            self.selects += 1
            return cluster.store.select(request)

    store = Counting()
    reader = ClusterReader(store, clock)  # type: ignore[arg-type]
    for _ in range(20):
        assert len(reader.read().fleet.processes) == 1
    assert (store.selects, store.statuses_asked) == (3, 20)
    clock.advance(round(FRESH_S * 1000))
    reader.read()
    assert store.selects == 6


def shown(monkeypatch: pytest.MonkeyPatch, found: FleetStatus, *options: str) -> tuple[int, list[str]]:
    """Return exit code and lines of `artimon status --cluster`."""

    class NoStore:
        def __init__(self, *_: object) -> None:
            """Take what a client takes."""

        def __enter__(self) -> NoStore:
            return self

        def __exit__(self, *_: object) -> None:
            """Close nothing."""

    monkeypatch.setattr("varstore.cluster.varstore_client.VarstoreClient", NoStore)
    monkeypatch.setattr("artimon.api.fleet_status.read_fleet", lambda *_: found)
    monkeypatch.setattr("artimon.cli.commands.machine.CONNECT_S", 0.1)
    result = CliRunner().invoke(app, ["status", "--cluster", "--zookeeper", "127.0.0.1:1", *options])
    return result.exit_code, result.stdout.splitlines()


def test_the_command_prints_a_summary_and_the_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = shown(monkeypatch, fleet(3_000))
    assert code == 1
    assert len(lines) < 20
    text = "\n".join(lines)
    assert "2,997" in text
    assert "1.0 (1,500), 1.1 (1,500)" in text
    assert all(f"h299{at}" in text for at in (7, 8, 9))
    assert lines[-1] == "NOT healthy; 3,006 processes"
    _, lines = shown(monkeypatch, fleet(30), "--all")
    assert len(lines) > 36


def test_many_exceptions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = FleetStatus([ProcessStatus("agent", f"h{at}", "a", "1", "silent", "p", 1, 2, 3) for at in range(3_000)])
    code, lines = shown(monkeypatch, broken)
    assert (code, len(lines) < 120) == (1, True)
    assert "… and 2,900 more: `--all` lists every process, `--json` too" in lines
