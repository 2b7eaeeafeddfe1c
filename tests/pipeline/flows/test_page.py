"""docs/flows.md: its examples run, and it names every component and option."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoints
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.flows.config.flow_config import BranchOptions, FlowOptions
from pipeline.flows.config.flow_file import parse_flows
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch
from pipeline.flows.registry import ComponentKind, Registry
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.runtime.flow import Flow
from tests.waiting import eventually

PAGE = (Path(__file__).parents[3] / "docs" / "flows.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", blocks("toml"))
def test_the_configurations_are_valid(text: str) -> None:
    assert parse_flows(text, builtin_registry())


def test_the_code_runs_and_its_component_is_found(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    for code in blocks("python"):
        exec(compile(code, "docs/flows.md", "exec"), names)
    entry = SimpleNamespace(name="shout", value="my_package.shouting:shout", load=lambda: names["shout"])
    registry = builtin_registry()
    registry._entries = lambda group: [entry] if group == "artimon.flows.sinks" else EntryPoints()
    text = '[[flow]]\nname = "a"\nsource = {type = "api"}\nsink = {type = "shout", end = "?"}\n'
    (config,) = parse_flows(text, registry)
    flow = Flow(config, Context("agent", "", "", tmp_path, registry))
    flow.start()
    flow.put([EventBatch((Event({}, b"one"),)), EventBatch((Event({}, b""),)), EventBatch((Event({}, b"two"),))])
    eventually(lambda: flow.waiting == 0, "delivered")
    assert flow._sinks["sink"].heard == ["ONE?", "TWO?"]
    assert flow.figures()["runners"]["sink sink"]["rejected"] == 1
    flow.stop()


@pytest.mark.parametrize("part", list(ComponentKind))
def test_every_component_and_option_is_on_the_page(part: ComponentKind) -> None:
    registry = Registry(lambda _: [])
    found = builtin_registry()
    for name in found.names(part):
        assert f"`{name}`" in PAGE, name
        for option in found.find(part, name).options.model_fields:
            assert f"`{option}`" in PAGE, (name, option)
    assert registry.names(part) == []


def test_every_option_of_a_flow_is_on_the_page() -> None:
    for option in (*FlowOptions.model_fields, *BranchOptions.model_fields):
        assert f"`{option}`" in PAGE, option
