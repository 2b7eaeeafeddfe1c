"""Reads a file of flows, TOML or JSON: all of it is checked, and everything that is wrong is said at once."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ValidationError

from pipeline.delivery.modes import Delivery
from pipeline.flows.config.model import BranchOptions, Chosen, FlowConfig, FlowOptions, SinkChosen
from pipeline.flows.config.positions import Path, json_lines, line_of, toml_lines
from pipeline.flows.registry import BrokenComponent, Part, Registry, UnknownComponent, near
from pipeline.flows.spi import FlowError

MOST_FLOWS = 1_000
_DEFAULT_CHANNEL = {Delivery.END_TO_END: "file", Delivery.DISK_FAILOVER: "file", Delivery.BEST_EFFORT: "memory"}
_PARTS = ("source", "interceptor", "channel", "sink", "group")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where in the file (line from 1 if known), at which key, what and what to do."""

    line: int | None
    path: Path
    text: str

    def __str__(self) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).lstrip(".")
        return f"{f'line {self.line}: ' if self.line else ''}{f'{where}: ' if where else ''}{self.text}"


class ConfigError(FlowError):
    """A file of flows that cannot be used; nothing of it is. `problems` is everything that is wrong."""

    def __init__(self, where: str, problems: list[Problem]) -> None:
        super().__init__(where, problems)
        self.where, self.problems = where, problems

    def __str__(self) -> str:
        return "\n".join(f"{self.where}: {problem}" for problem in self.problems)


def read_flows(path: FilePath, registry: Registry) -> list[FlowConfig]:
    """The flows of a file; `.json` is JSON, anything else TOML. Raises ConfigError, for a missing file too."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), [Problem(None, (), f"cannot be read: {error}")]) from None
    return parse_flows(text, registry, "json" if path.suffix == ".json" else "toml", str(path))


def parse_flows(
    text: str, registry: Registry, form: str = "toml", where: str = "flows", also: Sequence[str] = ()
) -> list[FlowConfig]:
    """The flows that `text` describes, in form "toml" or "json". `also`: keys beside `flow` that are somebody else's to
    read. Raises ConfigError."""
    try:
        data = json.loads(text) if form == "json" else tomllib.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(where, [Problem(error.lineno, (), f"no JSON: {error.msg}")]) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(where, [Problem(None, (), f"no {form.upper()}: {error}")]) from None
    lines = json_lines(text) if form == "json" else toml_lines(text)
    reading = _Reading(registry, lines)
    flows = reading.all(data, also)
    if reading.problems:
        raise ConfigError(where, sorted(reading.problems, key=lambda p: p.line or 0))
    return flows


class _Reading:
    """One pass over the data of a file. What is wrong is noted, and the pass goes on."""

    def __init__(self, registry: Registry, lines: dict[Path, int]) -> None:
        self._registry, self._lines = registry, lines
        self.problems: list[Problem] = []

    def all(self, data: Any, also: Sequence[str]) -> list[FlowConfig]:
        if not isinstance(data, Mapping) or not isinstance(data.get("flow", []), list):
            self._problem((), 'flows stand in an array: [[flow]] in TOML, {"flow": [...]} in JSON')
            return []
        for key in data.keys() - {"flow", *also}:
            self._problem((key,), f"unknown key{near(key, ['flow', *also])}")
        tables = data.get("flow", [])
        if len(tables) > MOST_FLOWS:
            self._problem(("flow",), f"{len(tables)} flows: at most {MOST_FLOWS}")
            return []
        flows = [flow for at, table in enumerate(tables) if (flow := self._flow(("flow", at), table)) is not None]
        self._check_names(flows)
        return flows

    def _check_names(self, flows: list[FlowConfig]) -> None:
        names = [flow.name for flow in flows]
        for at, name in enumerate(names):
            if name in names[:at]:
                self._problem(("flow", at, "name"), f"two flows are called {name}: each has a folder of its own")

    def _flow(self, path: Path, table: Any) -> FlowConfig | None:
        if not isinstance(table, Mapping):
            self._problem(path, "a flow is a table")
            return None
        rest = {key: value for key, value in table.items() if key not in _PARTS}
        options = self._options(FlowOptions, rest, path, extra=_PARTS)
        source = self._chosen(Part.SOURCE, (*path, "source"), table.get("source"))
        interceptors = self._interceptors((*path, "interceptor"), table.get("interceptor", []))
        group, sinks = self._sinks(path, table)
        channel = self._channel(path, table.get("channel"), options)
        if options is None or source is None or channel is None or interceptors is None or not sinks:
            return None
        config = FlowConfig(options, source, interceptors, channel, sinks, group)
        self._check_delivery(path, config)
        return config

    def _interceptors(self, path: Path, tables: Any) -> tuple[Chosen, ...] | None:
        if not isinstance(tables, list):
            self._problem(path, "interceptors stand in an array: [[flow.interceptor]]")
            return None
        found = [self._chosen(Part.INTERCEPTOR, (*path, at), table) for at, table in enumerate(tables)]
        chosen = [one for one in found if one is not None]
        return tuple(chosen) if len(chosen) == len(found) else None

    def _channel(self, path: Path, table: Any, options: FlowOptions | None) -> Chosen | None:
        if table is None:
            table = {"type": _DEFAULT_CHANNEL[options.delivery if options else Delivery.BEST_EFFORT]}
        elif isinstance(table, Mapping) and "type" not in table and options is not None:
            table = {"type": _DEFAULT_CHANNEL[options.delivery], **table}
        return self._chosen(Part.CHANNEL, (*path, "channel"), table)

    def _sinks(self, path: Path, table: Mapping[str, Any]) -> tuple[Chosen | None, tuple[SinkChosen, ...]]:
        if ("sink" in table) == ("group" in table):
            self._problem(path, "a flow has either a sink or a group of sinks")
            return None, ()
        if "sink" in table:
            chosen = self._chosen(Part.SINK, (*path, "sink"), table["sink"])
            return None, (SinkChosen("sink", chosen),) if chosen else ()
        return self._group((*path, "group"), table["group"])

    def _group(self, path: Path, table: Any) -> tuple[Chosen | None, tuple[SinkChosen, ...]]:
        if not isinstance(table, Mapping) or not isinstance(table.get("sinks"), list) or not table["sinks"]:
            self._problem(path, "a group has `type` and an array `sinks`")
            return None, ()
        group = self._chosen(Part.GROUP, path, {key: value for key, value in table.items() if key != "sinks"})
        found = [self._member((*path, "sinks", at), sink, at) for at, sink in enumerate(table["sinks"])]
        sinks = [sink for sink in found if sink is not None]
        names = [sink.name for sink in sinks]
        for at, name in enumerate(names):
            if name in names[:at]:
                self._problem((*path, "sinks", at), f"two sinks are called {name}: give each a name")
        return group, tuple(sinks) if len(sinks) == len(found) and group is not None else ()

    def _member(self, path: Path, table: Any, at: int) -> SinkChosen | None:
        if not isinstance(table, Mapping):
            self._problem(path, "a sink is a table")
            return None
        names = BranchOptions.model_fields.keys()
        branch = self._options(BranchOptions, {k: v for k, v in table.items() if k in names}, path)
        chosen = self._chosen(Part.SINK, path, {k: v for k, v in table.items() if k not in names}, extra=tuple(names))
        if branch is None or chosen is None:
            return None
        return SinkChosen(branch.name or f"{chosen.component.name}-{at}", chosen, branch)

    def _check_delivery(self, path: Path, flow: FlowConfig) -> None:
        delivery, durable = flow.options.delivery, flow.channel.component.durable
        name = flow.channel.component.name
        where = (*path, "channel", "type")
        if delivery is Delivery.END_TO_END and not durable:
            self._problem(where, f"{name} loses what it holds: end-to-end takes a durable channel (file, spill, sql)")
        if delivery is Delivery.BEST_EFFORT and durable:
            self._problem(where, f"{name} is durable: say end-to-end or disk-failover, or take memory")
        if delivery is Delivery.DISK_FAILOVER and name not in ("file", "spill"):
            self._problem(where, "disk-failover keeps what it cannot hand over in a channel of type file or spill")
        if delivery is Delivery.DISK_FAILOVER and flow.fans_out:
            self._problem((*path, "group"), "disk-failover hands over directly to one sink: fan-out needs end-to-end")
        if flow.fans_out and not any(sink.branch.required for sink in flow.sinks):
            self._problem((*path, "group"), "a fan-out has at least one required sink")
        if flow.fans_out and not flow.channel.component.branches:
            self._problem(where, f"{name} has one reader only: fan-out takes memory, file, spill or sql")

    def _chosen(self, part: Part, path: Path, table: Any, extra: tuple[str, ...] = ()) -> Chosen | None:
        word = part.value[:-1]
        if not isinstance(table, Mapping) or not isinstance(table.get("type"), str):
            self._problem(path, f"a {word} has a `type`: one of {', '.join(self._registry.names(part))}")
            return None
        try:
            component = self._registry.find(part, table["type"])
        except (UnknownComponent, BrokenComponent) as error:
            self._problem((*path, "type"), str(error))
            return None
        options = {key: value for key, value in table.items() if key != "type"}
        found = self._options(component.options, options, path, (*extra, "type"))
        if found is not None and isinstance(encoding := getattr(found, "encoding", None), str):
            try:
                self._registry.find(Part.ENCODING, encoding)
            except (UnknownComponent, BrokenComponent) as error:
                self._problem((*path, "encoding"), str(error))
                return None
        return Chosen(component, found) if found is not None else None

    def _options(self, model: type[BaseModel], data: Any, path: Path, extra: tuple[str, ...] = ()) -> Any:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for one in error.errors():
                self._problem((*path, *one["loc"]), _told(one, model, extra))
            return None

    def _problem(self, path: Path, text: str) -> None:
        self.problems.append(Problem(line_of(self._lines, path), path, text))


def _told(error: Any, model: type[BaseModel], extra: tuple[str, ...]) -> str:
    """What pydantic found, in our words."""
    name = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        return f"unknown option{near(name, [*model.model_fields, *extra])}"
    if error["type"] == "missing":
        return "is missing"
    given = error.get("input")
    shown = "" if isinstance(given, Mapping) else f", not {given!r:.80}"
    return f"{str(error['msg']).removeprefix('Value error, ')}{shown}"
