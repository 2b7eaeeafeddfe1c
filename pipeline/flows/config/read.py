"""Files of flows, TOML or JSON. Every mistake of a file is reported with its position. Format: docs/flows.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails

from artimon.runtime.config_file import ConfigFile, Form, parse_config, read_config
from artimon.runtime.config_model import Conversion, Section, built, fault, gather, refusal, refuse, repeated
from pipeline.delivery.modes import Delivery
from pipeline.flows.config.model import BranchOptions, Chosen, FlowConfig, FlowOptions, SinkChosen
from pipeline.flows.registry import BrokenComponent, Component, Part, Registry, UnknownComponent

MOST_FLOWS = 1_000
_DEFAULT_CHANNEL: Mapping[str, str] = {
    Delivery.END_TO_END: "file",
    Delivery.DISK_FAILOVER: "file",
    Delivery.BEST_EFFORT: "memory",
}
_ARRAY = 'flows stand in an array: [[flow]] in TOML, {"flow": [...]} in JSON'

GroupChosen = tuple[Chosen, tuple[SinkChosen, ...]]


def read_flows(path: Path, registry: Registry) -> list[FlowConfig]:
    """Return the flows of a file; `.json` is JSON, anything else TOML. Raises ConfigFileError."""
    return _flows(read_config(path, form="json" if path.suffix == ".json" else "toml"), registry)


def parse_flows(
    text: str, registry: Registry, form: Form = "toml", where: str = "flows", also: Sequence[str] = ()
) -> list[FlowConfig]:
    """Return the flows of a text. `also`: keys beside `flow` that others read. Raises ConfigFileError."""
    return _flows(parse_config(text, where, form), registry, also)


def check_flows(flows: Sequence[Mapping[str, Any]], registry: Registry, where: str) -> list[FlowConfig]:
    """Return the flows of parsed data. Raises ConfigFileError, without lines."""
    return _flows(ConfigFile(where, {"flow": list(flows)}), registry)


def find_component(part: Part, table: Mapping[str, Any], registry: Registry) -> Component:
    """Return the component that a table names as its `type`. Raises a validation error at that key."""
    try:
        return registry.find(part, str(table.get("type")))
    except (UnknownComponent, BrokenComponent) as error:
        raise refusal(fault(str(error), "type")) from None


def _flows(file: ConfigFile, registry: Registry, also: Sequence[str] = ()) -> list[FlowConfig]:
    return list(file.without(also).validate(_FlowsDocument, registry=registry).flow)


def _chosen(part: Part, table: Any, info: ValidationInfo, also: Sequence[str] = ()) -> Chosen:
    """Return the component of a table with its options. `also`: other keys of the table."""
    registry: Registry = (info.context or {})["registry"]
    if not isinstance(table, Mapping) or not isinstance(table.get("type"), str):
        raise ValueError(f"a {part.value[:-1]} has a `type`: one of {', '.join(registry.names(part))}")
    component = find_component(part, table, registry)
    given = {key: value for key, value in table.items() if key not in ("type", *also)}
    options = component.options.model_validate(given, context={"known_keys": ("type", *also)})
    if isinstance(encoding := getattr(options, "encoding", None), str):
        try:
            registry.find(Part.ENCODING, encoding)
        except (UnknownComponent, BrokenComponent) as error:
            raise refusal(fault(str(error), "encoding")) from None
    return Chosen(component, options)


def _component(part: Part) -> Conversion:
    return Conversion(lambda table, info: _chosen(part, table, info))


def _member(table: Any, info: ValidationInfo) -> SinkChosen:
    """Return a sink of a group, with its own options and those of its branch."""
    names = tuple(BranchOptions.model_fields)
    given = {key: table[key] for key in names if key in table} if isinstance(table, Mapping) else {}
    branch, chosen = gather(lambda: BranchOptions.model_validate(given), lambda: _chosen(Part.SINK, table, info, names))
    return SinkChosen(branch.name or "", chosen, branch)


class _Sinks(Section):
    sinks: tuple[Annotated[SinkChosen, Conversion(_member)], ...] = Field(min_length=1)


def _group(table: Any, info: ValidationInfo) -> GroupChosen:
    if not isinstance(table, Mapping) or not isinstance(table.get("sinks"), list):
        raise ValueError("a group has `type` and an array `sinks`")
    group, found = gather(
        lambda: _chosen(Part.GROUP, table, info, ("sinks",)),
        lambda: _Sinks.model_validate({"sinks": table["sinks"]}, context=info.context).sinks,
    )
    sinks = [
        SinkChosen(one.name or f"{one.chosen.component.name}-{at}", one.chosen, one.branch)
        for at, one in enumerate(found)
    ]
    refuse(repeated((f"sink {one.name}", ("sinks", at)) for at, one in enumerate(sinks)))
    return group, tuple(sinks)


class FlowSection(FlowOptions):
    """Flow as written in the file."""

    source: Annotated[Chosen, _component(Part.SOURCE)] = Field(description="a table with a `type`")
    interceptor: tuple[Annotated[Chosen, _component(Part.INTERCEPTOR)], ...] = Field(
        default=(), description="interceptors stand in an array: [[flow.interceptor]]"
    )
    channel: Annotated[Chosen, _component(Part.CHANNEL)]
    sink: Annotated[Chosen, _component(Part.SINK)] | None = None
    group: Annotated[GroupChosen, Conversion(_group)] | None = None

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        if (data.get("sink") is None) == (data.get("group") is None):
            yield fault("a flow has either a sink or a group of sinks")

    @model_validator(mode="before")
    @classmethod
    def _choose_channel(cls, data: Any) -> Any:
        """Add the default type of the channel where the file omits it."""
        table = data.get("channel", {}) if isinstance(data, Mapping) else None
        if not isinstance(table, Mapping) or "type" in table:
            return data
        usual = _DEFAULT_CHANNEL.get(str(data.get("delivery", Delivery.END_TO_END)), "file")
        return {**data, "channel": {"type": usual, **table}}

    def build(self) -> FlowConfig:
        options = FlowOptions(**{name: getattr(self, name) for name in FlowOptions.model_fields})
        single = (SinkChosen("sink", self.sink),) if self.sink else ()
        group, sinks = self.group or (None, single)
        flow = FlowConfig(options, self.source, self.interceptor, self.channel, sinks, group)
        refuse(_conflicts(flow))
        return flow


def _conflicts(flow: FlowConfig) -> Iterator[InitErrorDetails]:
    """Yield contradictions between the delivery mode and the components."""
    delivery, durable = flow.options.delivery, flow.channel.component.durable
    name, where = flow.channel.component.name, ("channel", "type")
    if delivery is Delivery.END_TO_END and not durable:
        yield fault(f"{name} loses what it holds: end-to-end takes a durable channel (file, spill, sql)", *where)
    if delivery is Delivery.BEST_EFFORT and durable:
        yield fault(f"{name} is durable: say end-to-end or disk-failover, or take memory", *where)
    if delivery is Delivery.DISK_FAILOVER and name not in ("file", "spill"):
        yield fault("disk-failover keeps what it cannot hand over in a channel of type file or spill", *where)
    if delivery is Delivery.DISK_FAILOVER and flow.fans_out:
        yield fault("disk-failover hands over directly to one sink: fan-out needs end-to-end", "group")
    if flow.fans_out and not any(sink.branch.required for sink in flow.sinks):
        yield fault("a fan-out has at least one required sink", "group")
    if flow.fans_out and not flow.channel.component.branches:
        yield fault(f"{name} has one reader only: fan-out takes memory, file, spill or sql", *where)


class _FlowsDocument(Section):
    flow: tuple[Annotated[FlowConfig, built(FlowSection)], ...] = Field(
        default=(), max_length=MOST_FLOWS, description=_ARRAY
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        refuse(repeated((f"flow {flow.name}", ("flow", at, "name")) for at, flow in enumerate(self.flow)))
        return self
