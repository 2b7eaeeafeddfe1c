"""Artimon's processes are endpoints like any other: their variables arrive, are right, and survive kills."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from artimon.api.fleet_status import read_fleet
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.grid import bucket_end
from artimon.runtime.health import read_health
from artimon.runtime.self_metrics import PROCESS
from artimon.stack.artimon_parts import ArtimonPart
from artimon.stack.stack import Stack
from query_dsl import Matrix, evaluate, parse, parse_selector
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

INSTANCES = {"agent-local", "collector-0", "spark", "shard-0", "shard-1", "api"}
SETTLED_MS = 20_000
"""The open bucket is asked for as if it had been settled."""


def asked(store: VarstoreClient, text: str) -> Matrix:
    """The answer for the minutes up to the open one."""
    now = bucket_end(SYSTEM_CLOCK.now_ms(), 60_000)
    return evaluate(parse(text.format(span=f".between({now - 300_000}, {now})")), store, now + SETTLED_MS)


def newest(store: VarstoreClient, text: str) -> dict[str, Any]:
    """The last value of each series, by instance."""
    return {labels["instance"]: value for labels, _, value in asked(store, text).points() if value is not None}


def figures(stack: Stack, part: str) -> dict[str, Any]:
    health = read_health(stack.context.health(part))
    return dict(health.figures) if health else {}


@pytest.fixture
def known(store: VarstoreClient) -> VarstoreClient:
    """Every process has been polled."""

    def instances() -> set[str]:
        found = store.find(parse_selector("artimon.process.uptime.ms").matchers)
        return {dict(series.labels).get("instance", "") for series in found}

    eventually(lambda: instances() >= INSTANCES)
    eventually(lambda: newest(store, "fetch('artimon.process.uptime.ms'){span}").keys() >= INSTANCES)
    return store


def test_each_process_speaks_for_itself_under_the_labels_of_its_host(known: VarstoreClient) -> None:
    found = known.find(parse_selector("artimon.process.*").matchers, 1_000)
    (host,) = {dict(one.labels)["host"] for one in known.find(parse_selector("host.cpu.ms").matchers)}
    assert {(labels["context"], labels["host"]) for labels in map(dict, (one.labels for one in found))} == {
        ("artimon", host)
    }
    names = set(known.names())
    assert {own.name for own in PROCESS} <= names
    assert {
        "artimon.agent.batches.accepted",
        "artimon.collector.bytes",
        "artimon.spark.lag.ms",
        "artimon.shard.series",
        "artimon.api.requests",
    } <= names
    assert not known.find(parse_selector('bookkeeper.refused{context="artimon"}').matchers)


def test_the_status_of_the_cluster_lists_every_process(known: VarstoreClient) -> None:
    eventually(lambda: {one.instance for one in read_fleet(known, SYSTEM_CLOCK.now_ms()).processes} >= INSTANCES)

    def running() -> bool:
        found = {one.instance: one for one in read_fleet(known, SYSTEM_CLOCK.now_ms()).processes}
        told = [found[name] for name in INSTANCES]
        return all(one.version and one.host and one.resident_bytes and one.state == "up" for one in told)

    eventually(running, pause=1)
    roles = {one.instance: one.role for one in read_fleet(known, SYSTEM_CLOCK.now_ms()).processes}
    assert {name: roles[name] for name in INSTANCES} == {name: name.partition("-")[0] for name in INSTANCES}


def test_one_selector_fetches_all_of_them(known: VarstoreClient) -> None:
    by = {labels["instance"] for labels in asked(known, "fetch('artimon.process.*'){span}").labels}
    assert by >= INSTANCES


def test_the_agents_count_is_that_of_its_health(whole_stack: Stack, known: VarstoreClient) -> None:
    def near() -> bool:
        counted = newest(known, "fetch('artimon.agent.batches.accepted'){span}").get("agent-local", 0)
        accepted = figures(whole_stack, "agent")["accepted_batches"]
        return bool(accepted > 20 and 0.8 * accepted <= counted <= accepted)

    eventually(near, pause=1)


def test_gauges_are_what_the_health_files_say(whole_stack: Stack, known: VarstoreClient) -> None:
    capacity = newest(known, "fetch('artimon.shard.capacity'){span}")
    for part in ("shard-0", "shard-1"):
        assert capacity[part] == figures(whole_stack, part)["capacity"]


def test_a_killed_shard_begins_a_new_life_in_the_same_series(whole_stack: Stack, known: VarstoreClient) -> None:
    text = "fetch('artimon.process.cpu.ms{{instance=\"shard-0\"}}'){span}"
    uptime = "fetch('artimon.process.uptime.ms{{instance=\"shard-0\"}}'){span}"
    eventually(lambda: newest(known, text).get("shard-0", 0) > 0)
    life_ms = newest(known, uptime)["shard-0"]
    whole_stack.kill("shard-0", signal.SIGKILL)
    whole_stack.wait_healthy(120, ["shard-0"])
    eventually(lambda: newest(known, uptime).get("shard-0", life_ms + 1) < life_ms, pause=1)
    assert len(known.find(parse_selector('artimon.process.cpu.ms{instance="shard-0"}').matchers)) == 1
    grown = [v for _, _, v in asked(known, text + ".increase()").points() if isinstance(v, int | float)]
    assert grown
    assert min(grown) >= 0
    up = "fetch('artimon.endpoint.up{{context=\"artimon\"}}'){span}"
    eventually(lambda: newest(known, up).get("shard-0") == 1, pause=1)
    problems = figures(whole_stack, "agent")["problems"]
    assert not any("artimon/" in problem for problem in problems), problems


def test_each_process_is_one_endpoint_and_sparks_workers_are_none(whole_stack: Stack, known: VarstoreClient) -> None:
    """By the nodes in ZooKeeper: also the node of a process that was killed goes with its session."""
    client = KazooClient(whole_stack.zookeeper)
    client.start(10)

    def instances() -> list[str]:
        found = []
        for name in client.get_children("/artimon/hosts/127.0.0.1"):
            if name.startswith("artimon:"):
                with suppress(NoNodeError):
                    found.append(json.loads(client.get(f"/artimon/hosts/127.0.0.1/{name}")[0])["instance"])
        return sorted(found)

    try:
        own = [part.name for part in whole_stack.parts if isinstance(part, ArtimonPart) and part.name != "agent"]
        eventually(lambda: instances() == sorted([*own, "agent-local"]), pause=1)
    finally:
        client.stop()
        client.close()
