"""Senders that name a group instead of a host: registered agents, and the platform's collectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from artimon.stack.topics import TopicSpec, make_topics
from pipeline.control.group_directory import GroupDirectory
from pipeline.flows.config.flow_file import parse_flows
from pipeline.flows.context import GROUPS
from pipeline.flows.runtime.flow import Flow
from tests.pipeline.flows.parts import Sinks, context, event_batch, eventually_has, numbers_of, registry
from tests.pipeline.kafka_helpers import APPEND_TIME, collector, deduplicated, own_topics
from tests.waiting import eventually

RECEIVER = """
[[flow]]
name = "in"
[flow.source]
type = "agent"
group = "tier-2"
[flow.sink]
type = "list"
id = "{agent}"
"""
SENDER = """
[[flow]]
name = "out"
[flow.source]
type = "api"
[flow.sink]
type = "agent"
group = "{group}"
"""


class Looking(ZooKeeperWatcher):
    """Reads the groups of a directory from ZooKeeper, as the control plane of an agent does."""

    def __init__(self, zookeeper: str) -> None:
        super().__init__(zookeeper_client(zookeeper), "groups", 0.2)
        self._client.start()
        self.directory = GroupDirectory(self._client)
        self.directory.on_change = self.wake

    def _refresh(self) -> None:
        self.directory.refresh(self._on_event)


@pytest.fixture
def directory(zookeeper: str) -> Iterator[GroupDirectory]:
    looking = Looking(zookeeper)
    looking.start()
    yield looking.directory
    looking.stop()
    looking._client.stop()
    looking._client.close()


def started(text: str, folder: Path, sinks: Sinks, agent: str, directory: GroupDirectory) -> Flow:
    about = context(folder / agent, sinks, agent, {GROUPS: directory})
    (config,) = parse_flows(text, registry(sinks))
    flow = Flow(config, about)
    flow.start()
    assert not flow.fault
    return flow


@pytest.mark.stack
def test_a_sender_discovers_members_of_a_group_and_fails_over(tmp_path: Path, directory: GroupDirectory) -> None:
    sinks = Sinks()
    names = ("agent-2", "agent-3")
    receivers = {name: started(RECEIVER.format(agent=name), tmp_path, sinks, name, directory) for name in names}
    sender = started(SENDER.format(group="tier-2"), tmp_path, sinks, "agent-1", directory)
    sender.put([event_batch(1)])
    eventually(lambda: sender.waiting == 0, "delivered")
    eventually(lambda: sender.figures()["sinks"]["sink"]["agents"] == 2, "both are known")
    first = eventually(lambda: next((name for name in names if sinks[name].numbers), ""), "it is received")
    other = next(name for name in names if name != first)
    assert receivers[first].stop() == []
    sender.put([event_batch(2)])
    eventually_has(sinks[other], [2], seconds=60)
    sender.stop()
    receivers[other].stop()


@pytest.mark.stack
def test_events_go_to_kafka_through_the_collectors(
    tmp_path: Path, zookeeper: str, kafka: str, directory: GroupDirectory
) -> None:
    prefix = own_topics(kafka, 1)
    make_topics(kafka, (TopicSpec(f"{prefix}.events", 2, APPEND_TIME),))
    sinks = Sinks()
    with collector(zookeeper, kafka, prefix):
        sender = started(SENDER.format(group="collectors"), tmp_path, sinks, "agent-1", directory)
        for n in range(10):
            sender.put([event_batch(n)])
        eventually(lambda: sender.waiting == 0, "all in Kafka")
        sender.stop()
    found = deduplicated(kafka, f"{prefix}.events")
    assert [id.sequence for id in sorted(found)] == list(range(10))
    from pipeline.flows.event import EventBatch

    assert numbers_of([EventBatch((), id, found[id]) for id in sorted(found)]) == list(range(10))
