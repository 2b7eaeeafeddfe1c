"""The components that come with the platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pipeline.flows.channels.file import FileChannel, FileOptions
from pipeline.flows.channels.ledger import BranchPolicy
from pipeline.flows.channels.memory import MemoryChannel, MemoryOptions
from pipeline.flows.channels.sql import SqlChannel, SqlOptions
from pipeline.flows.context import Context
from pipeline.flows.encodings import Arrow, JsonLines, JsonOptions, Lines, LinesOptions
from pipeline.flows.groups.choice import ORDERS, ChoiceGroup, ChoiceOptions
from pipeline.flows.interceptors.headers import (
    DropHeaders,
    DropHeadersOptions,
    Host,
    HostOptions,
    Static,
    StaticOptions,
    Timestamp,
    TimestampOptions,
)
from pipeline.flows.interceptors.regex import ExtractOptions, FilterOptions, RegexExtract, RegexFilter
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, Outside, Part, Registry
from pipeline.flows.spi import Sink

Branches = Mapping[str, BranchPolicy]


class SpillOptions(FileOptions):
    """The file channel with a cache: what fits into it need not be read back."""

    cache_bytes: int = 32 * 1024 * 1024


class FanOutOptions(Options):
    """Each sink says itself whether it is `required` and how many `behind_bytes` it may be behind if not."""


def builtin() -> Registry:
    """A registry of everything that comes with the platform; entry points are added to it by themselves."""
    registry = Registry()
    registry.add(Part.CHANNEL, *_channels())
    registry.add(Part.INTERCEPTOR, *_interceptors())
    registry.add(Part.GROUP, *_groups())
    registry.add(Part.ENCODING, *_encodings())
    from pipeline.flows.sinks.catalogue import sinks  # below, so that a sink's own imports are its own business
    from pipeline.flows.sources.catalogue import sources

    registry.add(Part.SOURCE, *sources())
    registry.add(Part.SINK, *sinks())
    return registry


def _channels() -> list[Component]:
    return [
        Component("memory", MemoryOptions, _memory, durable=False, outside={}),
        Component("file", FileOptions, _file, outside={}),
        Component("spill", SpillOptions, _file, outside={}),
        Component("sql", SqlOptions, _sql, outside={}),
        Component("kafka", *_kafka(), branches=False, outside={"bootstrap": Outside.HOST, "topic": Outside.HOST}),
    ]


def _memory(options: MemoryOptions, context: Context) -> MemoryChannel:
    return MemoryChannel(options, context.agent, context.flow, _branches(context), context.clock)


def _file(options: FileOptions, context: Context) -> FileChannel:
    folder = context.folder / "log"
    return FileChannel(options, folder, context.agent, context.flow, _branches(context), context.clock)


def _sql(options: SqlOptions, context: Context) -> SqlChannel:
    folder = context.folder / "sql"
    return SqlChannel(options, folder, context.agent, context.flow, _branches(context), context.clock)


def _kafka() -> tuple[type[Any], Callable[[Any, Context], Any]]:
    from pipeline.flows.channels.kafka import KafkaChannel, KafkaOptions

    return KafkaOptions, lambda options, context: KafkaChannel(options, context.agent, context.flow, context.clock)


def _branches(context: Context) -> Branches | None:
    """The sinks of a fan-out, told by the flow that is being built."""
    branches: Branches | None = context.shared.get("branches")
    return branches


def _interceptors() -> list[Component]:
    return [
        Component(
            "timestamp", TimestampOptions, lambda options, context: Timestamp(options, context.clock), outside={}
        ),
        Component("host", HostOptions, lambda options, _: Host(options), outside={}),
        Component("static", StaticOptions, lambda options, _: Static(options), outside={}),
        Component("drop-headers", DropHeadersOptions, lambda options, _: DropHeaders(options), outside={}),
        Component("regex-filter", FilterOptions, lambda options, _: RegexFilter(options), outside={}),
        Component("regex-extract", ExtractOptions, lambda options, _: RegexExtract(options), outside={}),
    ]


def _groups() -> list[Component]:
    """A group's `build` gives a function from the sinks by name to the group; fan-out is the channel's business."""
    chosen = [Component(name, ChoiceOptions, partial(_choice, name), outside={}) for name in ORDERS]
    return [*chosen, Component("fan-out", FanOutOptions, lambda options, _: options, outside={})]


def _choice(name: str, options: ChoiceOptions, context: Context) -> Callable[[Mapping[str, Sink]], ChoiceGroup]:
    return lambda sinks: ChoiceGroup(sinks, ORDERS[name], options, context.clock)


def _encodings() -> list[Component]:
    return [
        Component("lines", LinesOptions, lambda options, _: Lines(options), outside={}),
        Component("json", JsonOptions, lambda options, _: JsonLines(options), outside={}),
        Component("arrow", JsonOptions, lambda options, _: Arrow(options), outside={}),
    ]
