"""In which order the parts of the default stack stop: the agent hears everybody leave, by a ZooKeeper that is there."""

from __future__ import annotations

from artimon.stack.artimon_parts import AgentPart, ArtimonPart
from artimon.stack.example_parts import ExamplePart
from artimon.stack.part_catalogue import choose_parts


def test_the_agent_outlives_all_that_register_and_no_server() -> None:
    layers: dict[str, set[int]] = {"agent": set(), "ours": set(), "examples": set(), "servers": set()}
    for part in choose_parts(("all", "examples")):
        kinds = {AgentPart: "agent", ArtimonPart: "ours", ExamplePart: "examples"}
        kind = next((name for class_, name in kinds.items() if isinstance(part, class_)), "servers")
        layers[kind].add(part.layer)
    assert all(layers.values())
    assert max(layers["servers"]) < min(layers["agent"])
    assert max(layers["agent"]) < min(layers["ours"])
    assert max(layers["ours"]) < min(layers["examples"])
