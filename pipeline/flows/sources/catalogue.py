"""The sources that come with the platform."""

from __future__ import annotations

from pipeline.flows.registry import Component
from pipeline.flows.sources.agent import AgentSource, AgentSourceOptions
from pipeline.flows.sources.commands import ExecOptions, ExecSource
from pipeline.flows.sources.http import HttpOptions, HttpSource
from pipeline.flows.sources.kafka import KafkaSource, KafkaSourceOptions
from pipeline.flows.sources.netcat import NetcatOptions, NetcatSource
from pipeline.flows.sources.simple import (
    ApiOptions,
    ApiSource,
    ListOptions,
    ListSource,
    SequenceOptions,
    SequenceSource,
)
from pipeline.flows.sources.syslog import SyslogOptions, SyslogSource
from pipeline.flows.sources.tail import TailOptions, TailSource
from pipeline.flows.sources.thrift import ThriftOptions, ThriftSource


def sources() -> list[Component]:
    """Each under the `type` by which configurations name it."""
    return [
        Component("agent", AgentSourceOptions, AgentSource),
        Component("api", ApiOptions, lambda _, __: ApiSource()),
        Component("exec", ExecOptions, ExecSource),
        Component("http", HttpOptions, HttpSource),
        Component("kafka", KafkaSourceOptions, KafkaSource),
        Component("list", ListOptions, lambda options, _: ListSource(options)),
        Component("netcat", NetcatOptions, NetcatSource),
        Component("sequence", SequenceOptions, lambda options, _: SequenceSource(options)),
        Component("syslog", SyslogOptions, SyslogSource),
        Component("tail", TailOptions, TailSource),
        Component("thrift", ThriftOptions, ThriftSource),
    ]
