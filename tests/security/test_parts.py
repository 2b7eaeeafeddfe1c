"""Attacks with flows that name programs, paths and addresses: pushed configuration gets what the host's file allows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from artimon.runtime.config_file import ConfigFileError
from pipeline.flows.config.flow_file import parse_flows
from pipeline.flows.config.host_file import HostFile, NotAllowedError, read_host_file
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch, events_of
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, ComponentKind, Outside, Registry
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.sinks.files_sink import FilesOptions, FilesSink
from pipeline.flows.sources.tail_source import TailOptions, TailSource
from pipeline.flows.spi import SinkFailed

FLOW: dict[str, Any] = {"name": "a", "source": {"type": "sequence"}, "sink": {"type": "null"}}


@pytest.fixture
def host(tmp_path: Path) -> HostFile:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    return written(
        tmp_path,
        f"""
        [folder]
        in = "{tmp_path}/in"
        out = {{ path = "{tmp_path}/out", write = true }}
        lake = {{ path = "hdfs://namenode:8020/events", write = true }}

        [part.load]
        kind = "source"
        type = "exec"
        command = ["/usr/bin/uptime"]
        every_s = 60
        [part.broker]
        kind = "sink"
        type = "kafka"
        bootstrap = "kafka.example:9092"
        """,
    )


def written(folder: Path, text: str, registry: Registry | None = None) -> HostFile:
    file = folder / "allow.toml"
    file.write_text(text)
    return read_host_file(file, registry or builtin_registry())


REFUSED: dict[str, dict[str, Any]] = {
    "exec": {"source": {"type": "exec", "command": ["/bin/sh", "-c", "id > /tmp/x"]}},
    "exec_under_a_part": {"source": {"part": "load", "command": ["/bin/sh"]}},
    "a_part_as_another_kind": {"sink": {"part": "load"}},
    "unknown_part": {"source": {"part": "laod"}},
    "tail_absolute": {"source": {"type": "tail", "paths": ["/etc/shadow"]}},
    "tail_dots": {"source": {"type": "tail", "paths": ["@in/../../etc/shadow"]}},
    "tail_absolute_after_the_folder": {"source": {"type": "tail", "paths": ["@in//etc/shadow"]}},
    "tail_one_of_two": {"source": {"type": "tail", "paths": ["@in/a", "/etc/shadow"]}},
    "tail_unknown_folder": {"source": {"type": "tail", "paths": ["@etc/shadow"]}},
    "tail_lifts_its_limit": {"source": {"type": "tail", "paths": ["@in/a"], "below": []}},
    "tail_newline": {"source": {"type": "tail", "paths": ["@in/a\n"]}},
    "files_absolute": {"sink": {"type": "files", "uri": "file:///etc/cron.d"}},
    "files_into_a_folder_to_read": {"sink": {"type": "files", "uri": "@in/x"}},
    "files_dots": {"sink": {"type": "files", "uri": "@out/../../etc/cron.d"}},
    "files_hdfs_anywhere": {"sink": {"type": "files", "uri": "hdfs://elsewhere:8020/artimon/raw"}},
    "files_hdfs_dots": {"sink": {"type": "files", "uri": "@lake/../artimon/raw"}},
    "kafka_sink": {"sink": {"type": "kafka", "bootstrap": "attacker:9092"}},
    "kafka_source": {"source": {"type": "kafka", "bootstrap": "10.0.0.1:22", "topic": "x"}},
    "kafka_channel": {"channel": {"type": "kafka", "bootstrap": "attacker:9092", "topic": "x"}},
    "varstore": {"sink": {"type": "varstore", "bootstrap": "attacker:9092"}},
    "agent_by_address": {"sink": {"type": "agent", "to": ["10.0.0.1:22"]}},
    "listens_to_all": {"source": {"type": "http", "host": "0.0.0.0", "port": 80}},
    "takes_a_port": {"source": {"type": "syslog", "port": 514}},
    "in_a_group": {"sink": None, "group": {"type": "failover", "sinks": [{"type": "kafka", "bootstrap": "x:1"}]}},
    "foreign_encoding": {"sink": {"type": "files", "uri": "@out", "encoding": "their_code"}},
}


@pytest.mark.parametrize("attack", REFUSED)
def test_what_only_the_host_may_name(attack: str, host: HostFile) -> None:
    flow = {key: value for key, value in {**FLOW, **REFUSED[attack]}.items() if value is not None}
    with pytest.raises(NotAllowedError, match="flow a") as refused:
        host.admit(flow, builtin_registry())
    assert "\n" not in str(refused.value)


ALLOWED: dict[str, dict[str, Any]] = {
    "numbers": {},
    "part": {"source": {"part": "load"}},
    "sink_part_in_a_group": {"sink": None, "group": {"type": "failover", "sinks": [{"part": "broker", "name": "b"}]}},
    "tail_below": {"source": {"type": "tail", "paths": ["@in/web/*.log"]}},
    "files_below": {"sink": {"type": "files", "uri": "@out/web"}},
    "files_on_hdfs": {"sink": {"type": "files", "uri": "@lake/web"}},
    "agent_by_group": {"sink": {"type": "agent", "group": "tier-2"}},
    "own_channel": {"channel": {"type": "sql"}},
}


@pytest.mark.parametrize("wish", ALLOWED)
def test_what_the_host_allows_can_be_used(wish: str, host: HostFile, tmp_path: Path) -> None:
    flow = {key: value for key, value in {**FLOW, **ALLOWED[wish]}.items() if value is not None}
    host.admit(flow, builtin_registry())
    (config,) = parse_flows(_json(host.resolve(flow, builtin_registry())), builtin_registry(), "json")
    if wish == "part":
        assert config.source.options.model_dump()["command"] == ["/usr/bin/uptime"]
    if wish == "tail_below":
        dumped = config.source.options.model_dump()
        assert (dumped["paths"], dumped["below"]) == ([f"{tmp_path}/in/web/*.log"], [f"{tmp_path}/in"])


def _json(flow: dict[str, Any]) -> str:
    import json

    return json.dumps({"flow": [flow]})


def test_a_link_in_an_allowed_folder_does_not_lead_out(tmp_path: Path, host: HostFile) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the password\n")
    (tmp_path / "in" / "link.log").symlink_to(secret)
    (tmp_path / "in" / "good.log").write_text("a line\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "deep.log").write_text("the password\n")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "elsewhere")
    flow = {**FLOW, "source": {"type": "tail", "paths": ["@in/*.log", "@in/*/*.log"]}}
    options = TailOptions.model_validate(without_type(host.resolve(flow, builtin_registry())["source"]))
    source, heard = TailSource(options, context(tmp_path)), list[bytes]()
    source.start()

    def put(event_batches: Sequence[EventBatch]) -> None:
        for event_batch in event_batches:
            heard.extend(event.body for event in events_of(event_batch))

    while source.poll(put):
        pass
    assert heard == [b"a line"]
    assert "not below" in source.figures()["problems"][0]
    source.stop(1.0)


def test_a_sink_does_not_follow_a_link_out_of_its_folder(tmp_path: Path, host: HostFile) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (tmp_path / "out" / "link").symlink_to(target)
    flow = {**FLOW, "sink": {"type": "files", "uri": "@out/link"}}
    sink = FilesSink(
        FilesOptions.model_validate(without_type(host.resolve(flow, builtin_registry())["sink"])), context(tmp_path)
    )
    sink.start()
    with pytest.raises(SinkFailed, match="not below"):
        sink.deliver([EventBatch((Event({}, b"a line"),))])
    sink.stop(1.0)
    assert not list(target.iterdir())


def without_type(table: Any) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "type"}


def context(folder: Path) -> Context:
    own = folder / "flow"
    own.mkdir()
    return Context("agent", "a", "part", own, builtin_registry())


class Plugin:
    """An entry point that says when it is loaded."""

    name, value = "theirs", "their.module:part"

    def __init__(self) -> None:
        self.loaded = 0

    def load(self) -> Component:
        self.loaded += 1
        return Component("theirs", Options, lambda options, context: None)


@pytest.fixture
def plugin() -> tuple[Registry, Plugin]:
    found = Plugin()
    registry = Registry(lambda group: [found] if group == "artimon.flows.sources" else [])
    for part in ComponentKind:
        for name in builtin_registry().names(part):
            registry.add(part, builtin_registry().find(part, name))
    return registry, found


def test_a_plug_in_is_not_even_loaded_for_pushed_configuration(tmp_path: Path, plugin: tuple[Registry, Plugin]) -> None:
    registry, found = plugin
    flow = {**FLOW, "source": {"type": "theirs"}}
    with pytest.raises(NotAllowedError, match="plug-in"):
        HostFile().admit(flow, registry)
    assert found.loaded == 0
    allowed = written(tmp_path, '[part.ours]\nkind = "source"\ntype = "theirs"\n', registry)
    assert found.loaded == 1, "the host's own file may load it"
    allowed.admit({**FLOW, "source": {"part": "ours"}}, registry)


def test_a_component_that_declares_nothing_is_for_the_host_alone() -> None:
    registry = builtin_registry()
    registry.add(ComponentKind.SOURCE, Component("fresh", Options, lambda options, context: None))
    with pytest.raises(NotAllowedError, match="does not declare what it touches"):
        HostFile().admit({**FLOW, "source": {"type": "fresh"}}, registry)


HARMLESS = {
    *("answer", "ack", "batch", "batches", "busy_s", "bytes", "cache_bytes", "call_s", "compression", "connections"),
    *("count", "encoding", "end", "errors", "events", "every_s", "exclude", "files", "first", "group", "header"),
    *("headers", "held_bytes", "idle_s", "ip", "keep", "lanes", "least_s", "line_bytes", "messages", "most_s", "names"),
    *("open_files", "parcels", "path", "pattern", "prefix", "quota_bytes", "request_s", "restart_most_s", "roll_bytes"),
    *("roll_s", "segment_bytes", "settle_s", "shown_s", "size", "slow_s", "start", "start_s", "transport", "behind"),
}
"""Options known to name nothing outside: numbers, words, headers, names of groups. `path` of the sink `files` stands
below its `uri`."""


def test_every_option_of_every_component_is_judged() -> None:
    """An option that is neither declared nor known to be harmless fails here: decide which it is."""
    registry = builtin_registry()
    for part in ComponentKind:
        for name in registry.names(part):
            component = registry.find(part, name)
            assert component.outside is not None, f"{part} {name} declares nothing"
            unknown = component.options.model_fields.keys() - component.outside.keys() - HARMLESS
            assert not unknown, f"{part} {name}: {unknown}"
            assert all(isinstance(one, Outside) for one in component.outside.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[folder]\nroot = "/"\n', "absolute path"),
        ('[folder]\nhere = "logs"\n', "absolute path"),
        ('[folder]\nroot = "/var/.."\n', "absolute path"),
        ("[parts]\n", "unknown key"),
        ('[part.x]\nkind = "program"\ntype = "exec"\n', "kind"),
        ('[part.x]\nkind = "source"\ntype = "exec"\n', "command"),
        ("[part.x", "allow.toml"),
    ],
)
def test_files_of_the_host_that_cannot_be_used(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match=said):
        written(tmp_path, text)


def test_a_file_that_others_may_write_is_not_the_hosts(tmp_path: Path) -> None:
    written(tmp_path, "")
    (tmp_path / "allow.toml").chmod(0o666)
    with pytest.raises(ConfigFileError, match="chmod 644"):
        read_host_file(tmp_path / "allow.toml", builtin_registry())
    if os.getuid() == 0:
        (tmp_path / "allow.toml").chmod(0o644)
        os.chown(tmp_path / "allow.toml", 12345, -1)
        with pytest.raises(ConfigFileError, match="another user"):
            read_host_file(tmp_path / "allow.toml", builtin_registry())
    with pytest.raises(ConfigFileError, match="missing"):
        read_host_file(tmp_path / "missing", builtin_registry())
