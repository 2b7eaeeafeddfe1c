"""The sinks that come with the platform."""

from __future__ import annotations

from pipeline.flows.registry import Component, Outside
from pipeline.flows.sinks.agent import AgentSink, AgentSinkOptions
from pipeline.flows.sinks.files import FilesOptions, FilesSink
from pipeline.flows.sinks.kafka import KafkaSink, KafkaSinkOptions
from pipeline.flows.sinks.simple import LogOptions, LogSink, NullOptions, NullSink
from pipeline.flows.sinks.varstore import VarstoreOptions, VarstoreSink

_KAFKA = {"bootstrap": Outside.HOST, "prefix": Outside.HOST}


def sinks() -> list[Component]:
    """Each under the `type` by which configurations name it."""
    return [
        Component("agent", AgentSinkOptions, AgentSink, terminal=False, outside={"to": Outside.HOST}),
        Component("files", FilesOptions, FilesSink, outside={"uri": Outside.WRITE, "below": Outside.HOST}),
        Component("kafka", KafkaSinkOptions, KafkaSink, outside=_KAFKA),
        Component("log", LogOptions, lambda options, context: LogSink(options, context.flow), outside={}),
        Component("null", NullOptions, lambda options, _: NullSink(options), outside={}),
        Component("varstore", VarstoreOptions, VarstoreSink, outside=_KAFKA),
    ]
