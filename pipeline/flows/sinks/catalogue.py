"""The sinks that come with the platform."""

from __future__ import annotations

from pipeline.flows.registry import Component
from pipeline.flows.sinks.agent import AgentSink, AgentSinkOptions
from pipeline.flows.sinks.files import FilesOptions, FilesSink
from pipeline.flows.sinks.kafka import KafkaSink, KafkaSinkOptions
from pipeline.flows.sinks.simple import LogOptions, LogSink, NullOptions, NullSink
from pipeline.flows.sinks.varstore import VarstoreOptions, VarstoreSink


def sinks() -> list[Component]:
    """Each under the `type` by which configurations name it."""
    return [
        Component("agent", AgentSinkOptions, AgentSink, terminal=False),
        Component("files", FilesOptions, FilesSink),
        Component("kafka", KafkaSinkOptions, KafkaSink),
        Component("log", LogOptions, lambda options, context: LogSink(options, context.flow)),
        Component("null", NullOptions, lambda options, _: NullSink(options)),
        Component("varstore", VarstoreOptions, VarstoreSink),
    ]
