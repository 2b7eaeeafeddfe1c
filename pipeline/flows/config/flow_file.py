"""Files of flows, TOML or JSON. Every mistake of a file is reported with its position. Format: docs/flows.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails

from artimon.runtime.config_file import ConfigFile, FileFormat, parse_config, read_config
from artimon.runtime.config_model import (
    Conversion,
    Section,
    built,
    collect_faults,
    fault,
    raise_faults,
    repeated,
    validation_error,
)
from pipeline.delivery.delivery_mode import DeliveryMode
from pipeline.flows.config.flow_config import BranchOptions, ComponentConfig, FlowConfig, FlowOptions, SinkConfig
from pipeline.flows.registry import BrokenComponentError, Component, ComponentKind, Registry, UnknownComponentError

MAX_FLOWS = 1_000
_DEFAULT_CHANNEL: Mapping[str, str] = {
    DeliveryMode.END_TO_END: "file",
    DeliveryMode.DISK_FAILOVER: "file",
    DeliveryMode.BEST_EFFORT: "memory",
}
_ARRAY = 'flows stand in an array: [[flow]] in TOML, {"flow": [...]} in JSON'

GroupConfig = tuple[ComponentConfig, tuple[SinkConfig, ...]]


def read_flows(path: Path, registry: Registry) -> list[FlowConfig]:
    """Return the flows of a file; `.json` is JSON, anything else TOML. Raises ConfigFileError."""
    return _read_flows(read_config(path, form="json" if path.suffix == ".json" else "toml"), registry)


def parse_flows(
    text: str, registry: Registry, form: FileFormat = "toml", where: str = "flows", also: Sequence[str] = ()
) -> list[FlowConfig]:
    """Return the flows of a text. `also`: further keys that the text may have, which this function ignores. Raises
    ConfigFileError."""
    return _read_flows(parse_config(text, where, form), registry, also)


def check_flows(flows: Sequence[Mapping[str, Any]], registry: Registry, where: str) -> list[FlowConfig]:
    """Return the flows of parsed data. Raises ConfigFileError, without lines."""
    return _read_flows(ConfigFile(where, {"flow": list(flows)}), registry)


def find_component(part: ComponentKind, table: Mapping[str, Any], registry: Registry) -> Component:
    """Return the component that a table names as its `type`. Raises a validation error at that key."""
    try:
        return registry.find(part, str(table.get("type")))
    except (UnknownComponentError, BrokenComponentError) as error:
        raise validation_error(fault(str(error), "type")) from None


def _read_flows(file: ConfigFile, registry: Registry, also: Sequence[str] = ()) -> list[FlowConfig]:
    return list(file.without(also).validate(_FlowsDocument, registry=registry).flow)


def _parse_component(
    part: ComponentKind, table: Any, info: ValidationInfo, also: Sequence[str] = ()
) -> ComponentConfig:
    """Return the component of a table with its options. `also`: other keys of the table."""
    registry: Registry = (info.context or {})["registry"]
    if not isinstance(table, Mapping) or not isinstance(table.get("type"), str):
        raise ValueError(f"a {part.value[:-1]} has a `type`: one of {', '.join(registry.names(part))}")
    component = find_component(part, table, registry)
    given = {key: value for key, value in table.items() if key not in ("type", *also)}
    options = component.options.model_validate(given, context={"known_keys": ("type", *also)})
    if isinstance(encoding := getattr(options, "encoding", None), str):
        try:
            registry.find(ComponentKind.ENCODING, encoding)
        except (UnknownComponentError, BrokenComponentError) as error:
            raise validation_error(fault(str(error), "encoding")) from None
    return ComponentConfig(component, options)


def _component(part: ComponentKind) -> Conversion:
    return Conversion(lambda table, info: _parse_component(part, table, info))


def _parse_group_sink(table: Any, info: ValidationInfo) -> SinkConfig:
    """Return a sink of a group, with its own options and those of its branch."""
    names = tuple(BranchOptions.model_fields)
    given = {key: table[key] for key in names if key in table} if isinstance(table, Mapping) else {}
    branch, chosen = collect_faults(
        lambda: BranchOptions.model_validate(given), lambda: _parse_component(ComponentKind.SINK, table, info, names)
    )
    return SinkConfig(branch.name or "", chosen, branch)


class _Sinks(Section):
    sinks: tuple[Annotated[SinkConfig, Conversion(_parse_group_sink)], ...] = Field(min_length=1)


def _parse_group(table: Any, info: ValidationInfo) -> GroupConfig:
    if not isinstance(table, Mapping) or not isinstance(table.get("sinks"), list):
        raise ValueError("a group has `type` and an array `sinks`")
    group, found = collect_faults(
        lambda: _parse_component(ComponentKind.GROUP, table, info, ("sinks",)),
        lambda: _Sinks.model_validate({"sinks": table["sinks"]}, context=info.context).sinks,
    )
    sinks = [
        SinkConfig(one.name or f"{one.component.component.name}-{at}", one.component, one.branch)
        for at, one in enumerate(found)
    ]
    raise_faults(repeated((f"sink {one.name}", ("sinks", at)) for at, one in enumerate(sinks)))
    return group, tuple(sinks)


class FlowSection(FlowOptions):
    """Flow as written in the file."""

    source: Annotated[ComponentConfig, _component(ComponentKind.SOURCE)] = Field(description="a table with a `type`")
    interceptor: tuple[Annotated[ComponentConfig, _component(ComponentKind.INTERCEPTOR)], ...] = Field(
        default=(), description="interceptors stand in an array: [[flow.interceptor]]"
    )
    channel: Annotated[ComponentConfig, _component(ComponentKind.CHANNEL)]
    sink: Annotated[ComponentConfig, _component(ComponentKind.SINK)] | None = None
    group: Annotated[GroupConfig, Conversion(_parse_group)] | None = None

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
        usual = _DEFAULT_CHANNEL.get(str(data.get("delivery", DeliveryMode.END_TO_END)), "file")
        return {**data, "channel": {"type": usual, **table}}

    def build(self) -> FlowConfig:
        options = FlowOptions(**{name: getattr(self, name) for name in FlowOptions.model_fields})
        single = (SinkConfig("sink", self.sink),) if self.sink else ()
        group, sinks = self.group or (None, single)
        flow = FlowConfig(options, self.source, self.interceptor, self.channel, sinks, group)
        raise_faults(_conflicts(flow))
        return flow


def _conflicts(flow: FlowConfig) -> Iterator[InitErrorDetails]:
    """Yield contradictions between the delivery mode and the components."""
    delivery, durable = flow.options.delivery, flow.channel.component.durable
    name, where = flow.channel.component.name, ("channel", "type")
    if delivery is DeliveryMode.END_TO_END and not durable:
        yield fault(f"{name} loses what it holds: end-to-end takes a durable channel (file, spill, sql)", *where)
    if delivery is DeliveryMode.BEST_EFFORT and durable:
        yield fault(f"{name} is durable: say end-to-end or disk-failover, or take memory", *where)
    if delivery is DeliveryMode.DISK_FAILOVER and name not in ("file", "spill"):
        yield fault("disk-failover keeps what it cannot hand over in a channel of type file or spill", *where)
    if delivery is DeliveryMode.DISK_FAILOVER and flow.fans_out:
        yield fault("disk-failover hands over directly to one sink: fan-out needs end-to-end", "group")
    if flow.fans_out and not any(sink.branch.required for sink in flow.sinks):
        yield fault("a fan-out has at least one required sink", "group")
    if flow.fans_out and not flow.channel.component.branches:
        yield fault(f"{name} has one reader only: fan-out takes memory, file, spill or sql", *where)


class _FlowsDocument(Section):
    flow: tuple[Annotated[FlowConfig, built(FlowSection)], ...] = Field(
        default=(), max_length=MAX_FLOWS, description=_ARRAY
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        raise_faults(repeated((f"flow {flow.name}", ("flow", at, "name")) for at, flow in enumerate(self.flow)))
        return self
