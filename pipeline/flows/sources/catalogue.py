"""The sources that come with the platform."""

from __future__ import annotations

from pipeline.flows.registry import Component, Outside
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

_SERVER = {"host": Outside.HOST, "port": Outside.HOST}


def sources() -> list[Component]:
    """Each under the `type` by which configurations name it."""
    return [
        Component("agent", AgentSourceOptions, AgentSource, outside=_SERVER),
        Component("api", ApiOptions, lambda _, __: ApiSource(), outside={}),
        Component("exec", ExecOptions, ExecSource, outside={"command": Outside.HOST, "folder": Outside.HOST}),
        Component("http", HttpOptions, HttpSource, outside=_SERVER),
        Component("kafka", KafkaSourceOptions, KafkaSource, outside={"bootstrap": Outside.HOST, "topic": Outside.HOST}),
        Component("list", ListOptions, lambda options, _: ListSource(options), outside={}),
        Component("netcat", NetcatOptions, NetcatSource, outside=_SERVER),
        Component("sequence", SequenceOptions, lambda options, _: SequenceSource(options), outside={}),
        Component("syslog", SyslogOptions, SyslogSource, outside=_SERVER),
        Component("tail", TailOptions, TailSource, outside={"paths": Outside.READ, "below": Outside.HOST}),
        Component("thrift", ThriftOptions, ThriftSource, outside=_SERVER),
    ]
