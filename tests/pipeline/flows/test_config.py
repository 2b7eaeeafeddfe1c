"""Flow files: valid ones are read; all errors of an invalid one are reported together with their lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artimon.runtime.config_file import ConfigFileError, FileFormat
from pipeline.delivery.delivery_mode import DeliveryMode
from pipeline.flows.config.flow_file import parse_flows, read_flows
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, ComponentKind, Registry
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.sinks.builtin_sinks import NullSink
from pipeline.flows.spi import FlowError

GOOD = """
[[flow]]
name = "access"          # a comment
put_s = 2.5

[flow.source]
type = "sequence"
count = 10

[[flow.interceptor]]
type = "host"

[[flow.interceptor]]
type = "static"
headers = { dc = "jb" }

[flow.channel]
quota_bytes = 1_000_000

[flow.sink]
type = "agent"
to = ["127.0.0.1:4000"]

[[flow]]
name = "loss"
delivery = "best-effort"
source = { type = "api" }
group = { type = "fan-out", sinks = [{ type = "null", name = "x" }, { type = "null", required = false }] }
"""

BAD = """
[[flow]]
name = "bad name"
delivry = "end-to-end"

[flow.source]
type = "sequense"

[[flow.interceptor]]
type = "regex-filter"
pattern = "("

[flow.channel]
type = "memory"
bytes = -5

[flow.sink]
type = "agent"
too = ["127.0.0.1:4000"]

[[flow]]
name = "two"
[flow.source]
type = "list"
[flow.sink]
type = "null"
[flow.group]
type = "failover"
sinks = []
"""


def problems(text: str, form: FileFormat = "toml", registry: Registry | None = None) -> list[str]:
    with pytest.raises(ConfigFileError) as caught:
        parse_flows(text, registry or builtin_registry(), form)
    return [str(problem) for problem in caught.value.problems]


def test_valid_flows_are_read_from_toml_and_json(tmp_path: Path) -> None:
    import tomllib

    registry = builtin_registry()
    first, second = parse_flows(GOOD, registry)
    assert (first.name, first.options.put_s, first.options.delivery) == ("access", 2.5, DeliveryMode.END_TO_END)
    assert first.channel.component.name == "file"
    assert [one.component.name for one in first.interceptors] == ["host", "static"]
    assert second.fans_out
    assert [(sink.name, sink.branch.required) for sink in second.sinks] == [("x", True), ("null-1", False)]
    path = tmp_path / "flows.json"
    path.write_text(json.dumps(tomllib.loads(GOOD), indent=1))
    assert read_flows(path, registry) == [first, second]


def test_all_errors_are_reported_together_with_their_lines() -> None:
    found = problems(BAD)
    for line, word in (
        (3, "name"),
        (4, "did you mean delivery"),
        (7, "did you mean sequence"),
        (11, "RE2"),
        (15, "greater than or equal to 1"),
        (19, "did you mean to"),
        (21, "either a sink or a group"),
        (23, "events: is missing"),
    ):
        assert any(text.startswith(f"flows:{line}:1: ") and word in text for text in found), (line, word, found)
    assert found == sorted(found, key=lambda text: int(text.split(":")[1]))


def test_errors_in_json_have_lines() -> None:
    text = '{"flow": [\n {"name": "a",\n  "source": {"type": "api"},\n  "sink": {"type": "null",\n   "port": 1}}]}'
    (problem,) = problems(text, "json")
    assert problem == "flows:5:4: flow[0].sink.port: unknown key; there are type"


@pytest.mark.parametrize(
    ("text", "form", "word"),
    [
        ("flow = 5", "toml", "array"),
        ("[[flow]\n", "toml", "flows:1:"),
        ("{", "json", "flows:1:"),
        ("[]", "json", "write a mapping"),
        ("[[flows]]\n", "toml", "did you mean flow?"),
        ("flow = [5]", "toml", "write a mapping"),
    ],
)
def test_unreadable_files_are_errors(text: str, form: FileFormat, word: str) -> None:
    assert any(word in problem for problem in problems(text, form))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="cannot be read"):
        read_flows(tmp_path / "none.toml", builtin_registry())


@pytest.mark.parametrize(
    ("delivery", "channel", "sinks", "word"),
    [
        ("end-to-end", "memory", '[flow.sink]\ntype = "null"', "durable channel"),
        ("best-effort", "file", '[flow.sink]\ntype = "null"', "take memory"),
        ("disk-failover", "sql", '[flow.sink]\ntype = "null"', "file or spill"),
        ("disk-failover", "file", '[flow.group]\ntype = "fan-out"\nsinks = [{type = "null"}]', "fan-out needs"),
        (
            "best-effort",
            "memory",
            '[flow.group]\ntype = "fan-out"\nsinks = [{type = "null", required = false}]',
            "at least one required",
        ),
        (
            "end-to-end",
            "kafka",
            '[flow.group]\ntype = "fan-out"\nsinks = [{type = "null"}]',
            "one reader",
        ),
    ],
)
def test_settings_that_contradict_the_delivery_mode_are_refused(
    delivery: str, channel: str, sinks: str, word: str
) -> None:
    more = 'bootstrap = "x:1"\ntopic = "t"' if channel == "kafka" else ""
    text = f"""
[[flow]]
name = "one"
delivery = "{delivery}"
[flow.source]
type = "api"
[flow.channel]
type = "{channel}"
{more}
{sinks}
"""
    (problem,) = problems(text)
    assert word in problem


def test_duplicate_names_are_refused() -> None:
    one = '[[flow]]\nname = "a"\nsource = {type = "api"}\nsink = {type = "null"}\n'
    assert any("flow a is defined a second time" in text for text in problems(one + one))
    group = '[[flow]]\nname = "b"\nsource = {type = "api"}\n[flow.group]\ntype = "failover"\n'
    group += 'sinks = [{type = "null", name = "x"}, {type = "null", name = "x"}]\n'
    assert any("sink x is defined a second time" in text for text in problems(group))


class ThirdOptions(Options):
    level: int = 3


class Entry(SimpleNamespace):
    def load(self) -> Any:
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


def third_party(**made: Any) -> Registry:
    entries = [Entry(name=name, value=f"package:{name}", made=one) for name, one in made.items()]
    return Registry(lambda group: entries if group == "artimon.flows.sinks" else [])


def test_components_of_third_parties_are_found_by_entry_points() -> None:
    component = Component("third", ThirdOptions, lambda options, context: NullSink())
    registry = third_party(third=component, broken=ImportError("no module"), odd=5)
    assert registry.find(ComponentKind.SINK, "third") is component
    assert registry.names(ComponentKind.SINK) == ["broken", "odd", "third"]
    with pytest.raises(FlowError, match="cannot be loaded: no module"):
        registry.find(ComponentKind.SINK, "broken")
    with pytest.raises(FlowError, match=r"is not a pipeline\.flows Component"):
        registry.find(ComponentKind.SINK, "odd")
    with pytest.raises(FlowError, match="did you mean third"):
        registry.find(ComponentKind.SINK, "thirt")
    registry.add(ComponentKind.SINK, Component("own", ThirdOptions, component.build))
    with pytest.raises(FlowError, match="two sinks"):
        registry.add(ComponentKind.SINK, Component("own", ThirdOptions, component.build))


def test_an_unknown_encoding_is_named() -> None:
    text = """
[[flow]]
name = "a"
source = {type = "api"}
sink = {type = "files", uri = "file:///x", encoding = "linse"}
"""
    with pytest.raises(ConfigFileError, match=r"no encoding is called 'linse'; did you mean lines"):
        parse_flows(text, builtin_registry())


def test_a_component_whose_library_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent without the extras runs flows that do not need them, and names the library for one that does."""
    for name in ["kafka", *(one for one in sys.modules if one.startswith("kafka."))]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [one for one in sys.modules if one.startswith(("pipeline.flows.sinks.", "pipeline.collector.kafka"))]:
        monkeypatch.delitem(sys.modules, name)
    registry = builtin_registry()
    assert registry.find(ComponentKind.SINK, "files").name == "files"
    with pytest.raises(FlowError, match=r"not loaded: .*kafka_sink.*, because kafka is not installed"):
        registry.find(ComponentKind.SINK, "kafka")
