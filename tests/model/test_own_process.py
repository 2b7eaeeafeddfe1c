"""A process of Artimon as an endpoint: it is found under its instance, polled, exits quickly, and never waits for
ZooKeeper."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from artimon.runtime.self_metrics_endpoint import CONTEXT
from tests.bookkeeper.polling import Node, application, connect, end, hear, nodes, rows, say
from tests.sockets import free_port
from tests.waiting import eventually
from tests.zookeepers import connected

SCRIPT = """
import sys, threading, time
from artimon.runtime.health import HealthFile
from artimon.runtime.self_metrics_endpoint import published_metrics
stop = threading.Event()
with published_metrics("api", INSTANCE, ZOOKEEPER, stop) as publish:
    began = time.monotonic()
    HealthFile(None, "api", publish=publish).write("ok", running=3)
    print(round(time.monotonic() - began, 3), flush=True)
    input()
    began = time.monotonic()
    stop.set()
print(round(time.monotonic() - began, 3), flush=True)
"""

PATIENT = """
from artimon.runtime import self_metrics_endpoint
self_metrics_endpoint.LAST_POLL_TIMEOUT_S = self_metrics_endpoint.EXIT_TIMEOUT_S = 100.0
"""
APIS = """
import sys, threading
from pathlib import Path
from artimon.api.api_limits import ApiConfig
from artimon.cli.process_wiring import run_api_process
run_api_process(ApiConfig(ZOOKEEPER, Path(), PORT, 0, id=ID))
"""
REFUSALS = "import bookkeeper; print(bookkeeper.refusals(), flush=True)"


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    with connected(zookeeper) as client:
        yield client


@pytest.fixture
def instance() -> str:
    return f"api-{uuid.uuid4().hex[:8]}"


def script(zookeeper: str, instance: str) -> str:
    return f"ZOOKEEPER, INSTANCE = {zookeeper!r}, {instance!r}\n{SCRIPT}"


def mine(client: KazooClient, instance: str) -> list[Node]:
    return [node for node in nodes(client, CONTEXT) if node.data["instance"] == instance]


def registered(
    zookeeper: str, client: KazooClient, instance: str, folder: Path, before: str = ""
) -> tuple[subprocess.Popen[str], Node]:
    """Start a process that is publishing, and return it with its node."""
    process = application(before + script(zookeeper, instance), folder)
    hear(process)
    eventually(lambda: mine(client, instance))
    (node,) = mine(client, instance)
    return process, node


@pytest.mark.stack
def test_a_process_is_polled_under_its_instance(
    zookeeper: str, client: KazooClient, instance: str, tmp_path: Path
) -> None:
    process, node = registered(zookeeper, client, instance, tmp_path)
    endpoint, found = rows(node.port)
    assert (endpoint.context, endpoint.instance) == ("artimon", instance)
    assert found["artimon.api.running", "{}"] == 3
    assert found["artimon.process.ok", "{}"] == 1
    say(process, "end")
    assert float(hear(process)) < 4
    end(process)
    assert not mine(client, instance)


@pytest.mark.stack
def test_a_polled_process_exits_at_once(zookeeper: str, client: KazooClient, instance: str, tmp_path: Path) -> None:
    process, node = registered(zookeeper, client, instance, tmp_path, PATIENT)
    with connect(node.port) as calls:
        calls.getVars()
        say(process, "end")
        eventually(lambda: not mine(client, instance))
        assert calls.getVars()
        assert float(hear(process)) < 60, "it must not wait for 100 s"
    end(process)


@pytest.mark.stack
def test_two_processes_with_one_instance_both_register(
    zookeeper: str, client: KazooClient, instance: str, tmp_path: Path
) -> None:
    """The agent refuses and names the second, as tests/sources/test_bad_endpoints.py shows."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    processes = [application(script(zookeeper, instance), folder) for folder in folders]
    for process in processes:
        hear(process)
    eventually(lambda: len(mine(client, instance)) == 2)
    for process in processes:
        say(process, "end")
        hear(process)
        end(process)


@pytest.mark.parametrize("zookeeper_at", ["127.0.0.1:1", "no such host", "192.0.2.1:2181"])
def test_a_process_does_not_wait_for_zookeeper(zookeeper_at: str, instance: str, tmp_path: Path) -> None:
    process = application(script(zookeeper_at, instance), tmp_path)
    assert float(hear(process)) < 0.5, "publishing"
    say(process, "end")
    assert float(hear(process)) < 4, "leaving"
    end(process)


def test_an_instance_name_that_zookeeper_refuses_is_adapted(instance: str, tmp_path: Path) -> None:
    process = application(script("127.0.0.1:1", f"agent/{instance}") + REFUSALS, tmp_path)
    hear(process)
    say(process, "end")
    hear(process)
    assert hear(process) == "{}"
    end(process)


@pytest.mark.stack
def test_apis_of_one_host_register_under_different_names(
    zookeeper: str, client: KazooClient, instance: str, tmp_path: Path
) -> None:
    port, processes = free_port(), []
    for name, at, id in [("by port", port, None), ("by name", 0, instance)]:
        (tmp_path / name).mkdir()
        before = f"ZOOKEEPER, PORT, ID = {zookeeper!r}, {at}, {id!r}\n"
        processes.append(application(before + APIS, tmp_path / name))
    eventually(lambda: mine(client, f"api-{port}") and mine(client, instance), "both are registered")
    for process in processes:
        process.terminate()
        process.wait(20)
    eventually(lambda: not mine(client, f"api-{port}"), "it has left")
