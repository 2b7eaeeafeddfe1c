"""Flows by configuration: added, changed and removed while the agent runs; invalid flows are refused or rolled back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.control import rollout as decide
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.flows.runtime.flows import Flows, open_flows
from tests.pipeline.plane.world import Operator, key_file, new_name
from tests.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture(autouse=True)
def _short_probation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "PROBATION_S", 0.3)


@contextmanager
def with_flows(name: str, folder: Path, zookeeper: str) -> Iterator[tuple[Agent, Flows]]:
    """Agent that runs flows, as `artimon agent` wires it."""
    keys, allow = key_file(folder), folder / "allow.toml"
    allow.write_text(
        f'[folder.in]\npath = "{folder.parent}"\n[folder.out]\npath = "{folder.parent / "out"}"\nwrite = true\n'
    )
    flows = open_flows(None, name, folder, zookeeper, allow=allow)
    agent = Agent(AgentConfig(name, folder, zookeeper, "kafka", keys=keys))
    agent.plane._every_s = 0.5
    agent.controls.flows = flows
    flows.share_object("groups", agent.plane.directory)
    flows.start()
    agent.start()
    try:
        yield agent, flows
    finally:
        flows.stop()
        agent.stop()


def tail(name: str, source: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"type": "tail", "paths": [f"@in/{source.name}"]},
        "channel": {"type": "file"},
        "sink": {"type": "files", "uri": "@out", "roll_s": 1, "path": name, **more},
    }


def arrived(folder: Path) -> list[str]:
    """Bodies of the lines in closed files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
    lines = [line for path in files for line in path.read_text().splitlines()]
    return [str(json.loads(line).get("body", line)) for line in lines if line.startswith("{")]


def test_a_pushed_flow_is_started_changed_and_removed(tmp_path: Path, zookeeper: str) -> None:
    name, operator = new_name(), Operator(zookeeper)
    source, target = tmp_path / "in.log", tmp_path / "out"
    source.write_text("one\ntwo\n")
    target.mkdir()

    def push(*flows: dict[str, Any]) -> None:
        operator.push_document(f"agent/{name}", {"flow": list(flows)})

    with with_flows(name, tmp_path / "agent", zookeeper) as (agent, flows):
        push(tail("a", source))
        eventually(lambda: len(arrived(target)) == 2, "its lines arrive")
        eventually(lambda: [flow["name"] for flow in operator.report(name).get("flows", [])] == ["a"], "it is reported")
        kept = flows.flow("a")
        push(tail("a", source), {**tail("b", source), "sink": {"type": "null"}})
        eventually(lambda: agent.plane.figures()["good"] == f"agent/{name}@2", "a second flow runs beside it")
        assert flows.flow("a") is kept, "unchanged flows keep running"
        push(tail("a", source, colour="red"))
        eventually(lambda: "colour" in agent.plane.figures()["refused"], "an unknown option is refused")
        assert flows.flow("a") is kept
        push(tail("a", source, prefix="other"))
        eventually(lambda: agent.plane.figures()["good"] == f"agent/{name}@4", "the changed one runs, b is gone")
        with source.open("a") as file:
            file.write("three\n")
        eventually(lambda: len(arrived(target)) == 3, "it goes on where it was")
        assert sorted(flows._all()) == ["a"]
    with with_flows(name, tmp_path / "agent", "127.0.0.1:1") as (agent, flows):
        eventually(lambda: sorted(flows._all()) == ["a"], "without ZooKeeper it runs what it ran")
    operator.close()
