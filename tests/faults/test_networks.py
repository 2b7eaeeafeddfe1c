"""Partitions and slow links between an agent and everything else, in network namespaces: ledger = store afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artimon.model.batch_codec import decode_samples, verify
from artimon.model.clock import SYSTEM_CLOCK
from pipeline.collector.collector_process import CollectorConfig, run_collector
from tests.faults.network import Network, Remote, forwarder, network
from tests.pipeline.helpers import MINUTE
from tests.pipeline.kafka_helpers import deduplicated, own_topics
from tests.waiting import eventually

# A new interface of the machine makes each browser on it fail its requests, those of the tests of pages too.
pytestmark = [pytest.mark.stack, pytest.mark.slow]
STORM = 3.0
"""Bytes sent, at most, for one byte accepted: each call that a cut left without an answer goes once more or twice."""


@pytest.fixture
def net() -> Iterator[Network]:
    with network() as made:
        yield made


@contextmanager
def behind(net: Network, data: Path, zookeeper: str, kafka: str, pause: float = 0.02) -> Iterator[tuple[Remote, str]]:
    """An agent on the far side of the link, a collector that listens on this side; the prefix of their topics."""
    prefix, stop = own_topics(kafka), threading.Event()
    config = CollectorConfig(prefix, zookeeper, kafka, host=net.here, insecure=True, topic_prefix=prefix)
    thread = threading.Thread(target=run_collector, args=(config, stop), daemon=True)
    thread.start()
    try:
        with forwarder(net.here, zookeeper) as through, Remote(data, prefix, through, net, pause) as agent:
            yield agent, prefix
    finally:
        stop.set()
        thread.join(60)


def is_proven(agent: Remote, kafka: str, prefix: str, seconds: float) -> None:
    """Everything arrives, Kafka holds exactly what the ledger names, and no more was sent than what a cut costs."""
    agent.be_quiet()
    eventually(lambda: bool(agent.figures()) and agent.figures()["pending_batches"] == 0, "all are acked", seconds)
    stored = deduplicated(kafka, f"{prefix}.samples").values()
    times = sorted(int(decode_samples(verify(data), data).time_ms[0]) - MINUTE for data in stored)
    assert times == sorted(agent.accepted())
    figures = agent.figures()
    assert figures["carried_bytes"] <= STORM * figures["accepted_bytes"]


def is_cut_off(agent: Remote, net: Network, seconds: float) -> None:
    """It goes on to accept, sends nothing, and loses nothing; afterwards the link is there again."""
    eventually(lambda: len(agent.accepted()) > 30 and agent.figures()["acked_batches"] > 20, "data flows")
    net.cut()
    before = len(agent.accepted())
    SYSTEM_CLOCK.wait(threading.Event(), seconds)
    figures = agent.figures()
    assert len(agent.accepted()) > before + 3 * seconds, "a cut link does not keep it from accepting"
    assert figures["pending_batches"] > 3 * seconds
    assert figures["oldest_unsent_ms"] > (seconds - 5) * 1000
    assert figures["flying_bytes"] <= 32 * 1024 * 1024
    net.heal()


def test_a_partition_between_agent_and_everything(tmp_path: Path, zookeeper: str, kafka: str, net: Network) -> None:
    with behind(net, tmp_path, zookeeper, kafka) as (agent, prefix):
        is_cut_off(agent, net, 8)
        is_proven(agent, kafka, prefix, 60)


def test_a_partition_past_every_timeout(tmp_path: Path, zookeeper: str, kafka: str, net: Network) -> None:
    """The longest is that of a call, 60 s."""
    with behind(net, tmp_path, zookeeper, kafka) as (agent, prefix):
        is_cut_off(agent, net, 150)
        is_proven(agent, kafka, prefix, 120)


def test_a_link_that_flaps(tmp_path: Path, zookeeper: str, kafka: str, net: Network) -> None:
    with behind(net, tmp_path, zookeeper, kafka) as (agent, prefix):
        for seconds in (2, 1, 5, 20, 3):
            is_cut_off(agent, net, seconds)
            SYSTEM_CLOCK.wait(threading.Event(), 2)
        is_proven(agent, kafka, prefix, 120)


def test_a_link_that_is_slow(tmp_path: Path, zookeeper: str, kafka: str, net: Network) -> None:
    """Slower than what is accepted: the log keeps the rest, and nothing is sent twice for want of patience."""
    with behind(net, tmp_path, zookeeper, kafka, pause=0.01) as (agent, prefix):
        eventually(lambda: agent.figures().get("acked_batches", 0) > 20, "data flows")
        net.slow("400kbit")
        eventually(lambda: agent.figures()["pending_batches"] > 100, "the log fills")
        net.slow("40mbit")
        is_proven(agent, kafka, prefix, 60)
        assert agent.figures()["calls_unanswered"].get("late", 0) <= 6
