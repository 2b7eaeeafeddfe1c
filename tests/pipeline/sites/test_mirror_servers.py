"""Mirroring from the Kafka of one site to the collectors of another, with real servers: the same bytes, once by
identity; an offset is committed only when the other site has acked everything below it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from artimon.model.ack_state import AckState, PartitionState
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.sites.mirror import MirrorConfig, SiteMirror
from tests.pipeline.helpers import polled
from tests.pipeline.kafka_helpers import deduplicated, read_topic
from tests.pipeline.sites.test_links import Centre, centres
from tests.waiting import eventually

__all__ = ["centres"]
pytestmark = pytest.mark.stack


@contextmanager
def handover(source: Centre, target: Centre) -> Iterator[SiteMirror]:
    config = MirrorConfig(
        source.name, source.kafka, target.site.zookeeper, topic_prefix=source.prefix, target_prefix=target.prefix
    )
    running = SiteMirror(config)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def publish(target: Centre, client: KazooClient, running: SiteMirror, until: int) -> None:
    """Publish ack states as the raw query of the target."""
    for sent in running.samples.unacked()[:1]:
        position = sent.position
        parts = {n: PartitionState(until, 0, 1000) for n in range(2)}
        state = AckState(position.cluster, f"{target.prefix}.samples", position.topic_id, 0, parts)
        path = f"/{target.prefix}/artimon/acks/{position.topic_id}"
        client.ensure_path(path)
        client.set(path, state.to_json())


def test_batches_are_mirrored_unchanged_and_a_restart_continues(
    tmp_path: Path, centres: tuple[Centre, Centre], zookeeper: str
) -> None:
    source, target = centres
    client = KazooClient(zookeeper)
    client.start(10)
    one = Agent(AgentConfig("a", tmp_path, source.site.zookeeper, "kafka"))
    one.start()
    try:
        with source.collector():
            for n in range(12):
                one.wal_sink.accept_now([polled(f"source-{n % 4}", 5, announce=n < 4)])
            eventually(lambda: one.figures()["pending_batches"] == 0, "in the source's Kafka")
            with target.collector():
                with handover(source, target) as running:
                    eventually(lambda: len(running.samples.unacked()) == 12, "handed to the target")
                    eventually(lambda: running.series.figures()["messages"] == 4, "announcements too")
                    assert not any(running.samples.figures()["until"].values()), "nothing is acked"
                with handover(source, target) as running:
                    eventually(lambda: len(running.samples.unacked()) == 12, "not acked: handed over again")
                    publish(target, client, running, 1000)
                    eventually(lambda: sum(running.samples.figures()["until"].values()) == 12, "acked")
                    eventually(lambda: running.samples._saved_offsets == running.samples.progress.handed_until, "kept")
                one.wal_sink.accept_now([polled("source-9", 5)])
                eventually(lambda: one.figures()["pending_batches"] == 0, "one more")
                with handover(source, target) as running:
                    eventually(lambda: running.samples.figures()["messages"] == 1, "only that one")
    finally:
        one.stop()
        client.stop()
        client.close()
    theirs = deduplicated(target.kafka, f"{target.prefix}.samples")
    assert theirs == deduplicated(source.kafka, f"{source.prefix}.samples"), "the same identities and bytes"
    assert len(theirs) == 13
    assert len(read_topic(target.kafka, f"{target.prefix}.samples")) == 25, "repeats are dropped by identity"
