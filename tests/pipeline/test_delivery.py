"""Agent -> collector -> Kafka with real servers: every accepted batch is in Kafka and is acked only when durable."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.model.ack_state import AckState, PartitionState, Position
from artimon.model.batch import BatchId
from artimon.model.batch_codec import decode_samples, verify
from artimon.stack.stack import Stack
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.wal.recovery import segments_in
from tests.pipeline.helpers import MINUTE, polled, started
from tests.pipeline.kafka_helpers import (
    COLLECTOR,
    Publisher,
    collector,
    deduplicated,
    own_topics,
    publisher,
    read_topic,
)
from tests.waiting import eventually

pytestmark = pytest.mark.stack


def config(prefix: str, data: Path, zookeeper: str, level: str = "kafka", segment: int = 1 << 20) -> AgentConfig:
    return AgentConfig(prefix, data, zookeeper, level, segment_bytes=segment, topic_prefix=prefix)  # type: ignore[arg-type]


def pending(agent: Agent) -> int:
    count: int = agent.figures()["pending_batches"]
    return count


@pytest.fixture
def raw(zookeeper: str) -> Iterator[Publisher]:
    """Substitute for the publications of the raw query."""
    made = publisher(zookeeper)
    yield made
    made.close()


def test_everything_arrives_once_and_the_log_empties(tmp_path: Path, zookeeper: str, kafka: str) -> None:
    prefix = own_topics(kafka)
    agent = Agent(config(prefix, tmp_path, zookeeper, segment=20_000))
    agent.start()
    with collector(zookeeper, kafka, prefix):
        for n in range(60):
            agent.wal_sink.accept_now([polled(f"source-{n % 9}", 100, announce=n < 9)])
        eventually(lambda: pending(agent) == 0, "all are acked")
        list(agent.sink.replay())
        eventually(lambda: len(segments_in(tmp_path / "log")) == 1, "the log is empty but for its open segment")
        agent.stop()
    found = read_topic(kafka, f"{prefix}.samples")
    assert len(found) == 60
    assert len(deduplicated(kafka, f"{prefix}.samples")) == 60
    assert len(read_topic(kafka, f"{prefix}.series")) == 9
    lanes: dict[tuple[int, int], list[int]] = {}
    for partition, _, _, value in found:
        id = verify(value).id
        lanes.setdefault((id.lane, partition), []).append(id.sequence)
    assert len(lanes) == len({lane for lane, _ in lanes}), "a lane always goes to one partition"
    assert all(numbers == list(range(len(numbers))) for numbers in lanes.values()), "in order, without gaps"


def states(found: list[Position], until: int, lost: tuple[tuple[int, int], ...] = ()) -> AckState:
    """Ack states of every partition, as the raw query publishes them."""
    first = found[0]
    parts = {p: PartitionState(until, 0, 1000, lost) for p in {at.partition for at in found}}
    return AckState(first.cluster, "", first.topic_id, 0, parts)


def positions(agent: Agent) -> dict[BatchId, Position]:
    return {sent.key: sent.position for sent in agent._sender.unacked()}


def test_at_level_hdfs_acks_follow_the_published_until(
    tmp_path: Path, zookeeper: str, kafka: str, raw: Publisher
) -> None:
    """Acks cover exactly the offsets below the published `until`, are kept over a restart, and are undone only on
    evidence of loss."""
    prefix = own_topics(kafka)
    settings = config(prefix, tmp_path, zookeeper, "hdfs")
    agent = Agent(settings)
    agent.start()
    with collector(zookeeper, kafka, prefix):
        for _ in range(6):
            agent.wal_sink.accept_now([polled("one-source")])
        eventually(lambda: len(positions(agent)) == 6, "all have an offset")
        at = list(positions(agent).values())
        assert pending(agent) == 6, "an offset alone acks nothing"
        raw.publish(states(at, 0))
        raw.publish(states(at, 2))
        eventually(lambda: pending(agent) == 4, "those below 2 are acked")
        agent.stop()

        again = Agent(settings)
        again.start()
        assert pending(again) == 4
        assert sorted(p.offset for p in positions(again).values()) == [2, 3, 4, 5]
        raw.publish(states(at, 3))
        eventually(lambda: pending(again) == 3, "an ack reaches the agent after its restart")
        assert again.figures()["resent_batches"] == 0
        assert len(read_topic(kafka, f"{prefix}.samples")) == 6, "nothing was sent again"

        raw.publish(states(at, 5, lost=((3, 4),)))
        eventually(lambda: again.figures()["resent_batches"] == 1, "the lost one is sent again")
        eventually(lambda: sorted(p.offset for p in positions(again).values()) == [5, 6], "it has a new offset")
        raw.publish(states(at, 7, lost=((3, 4),)))
        eventually(lambda: pending(again) == 0, "all are acked")
        again.stop()
    third = Agent(settings)
    assert pending(third) == 0, "acks are persisted"
    third.log.close()
    values = [verify(value).id.sequence for _, _, _, value in read_topic(kafka, f"{prefix}.samples")]
    assert values == [0, 1, 2, 3, 4, 5, 3]


def spawn(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments])


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_collector_killed_in_the_middle_loses_nothing(tmp_path: Path, zookeeper: str, kafka: str) -> None:
    """Killed three times under load. Batches that may have been written are sent again under the same identity."""
    prefix = own_topics(kafka)
    with started(Agent(config(prefix, tmp_path, zookeeper))) as agent:
        count = _delivered_through_kills(agent, prefix, zookeeper, kafka)
    assert len(deduplicated(kafka, f"{prefix}.samples")) == count


def _delivered_through_kills(agent: Agent, prefix: str, zookeeper: str, kafka: str) -> int:
    """Return the number of batches that the agent accepted and delivered."""
    count = 0
    for _ in range(3):
        process = spawn(COLLECTOR, zookeeper, kafka, prefix)
        try:
            before = agent.figures()["acked_batches"]
            until = time.monotonic() + 20
            while agent.figures()["acked_batches"] < before + 40 and time.monotonic() < until:
                agent.wal_sink.accept_now([polled(f"source-{n}", 500) for n in range(10)])
                count += 10
            assert agent.figures()["acked_batches"] >= before + 40
        finally:
            kill(process)
    with collector(zookeeper, kafka, prefix, id=f"{prefix}-last"):
        eventually(lambda: pending(agent) == 0, "all are acked")
    return count


AGENT = """
import sys
from pathlib import Path
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from tests.pipeline.helpers import polled, MINUTE
prefix, zookeeper, data, first = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
agent = Agent(AgentConfig(prefix, data, zookeeper, "kafka", segment_bytes=50_000, topic_prefix=prefix))
agent.start()
ledger = open(data / "ledger", "a", buffering=1)
number = first
while True:
    number += 1
    agent.wal_sink.accept_now([polled(f"source-{number % 7}", 50, MINUTE + number)])
    ledger.write(f"{number}\\n")
"""


def test_kill_9_of_the_agent_in_a_loop_keeps_every_accepted_batch(tmp_path: Path, zookeeper: str, kafka: str) -> None:
    """The caller writes a ledger after each accept. Every batch of the ledger is in Kafka, exactly once by identity;
    each kill may add at most one accepted batch that the ledger lacks."""
    prefix = own_topics(kafka)
    ledger = tmp_path / "ledger"
    rounds = 6
    with collector(zookeeper, kafka, prefix):
        last = 0
        for round in range(rounds):
            process = spawn(AGENT, prefix, zookeeper, str(tmp_path), str(last + 1000))
            try:
                grown = len(_lines(ledger)) + 30 * (round + 1)
                eventually(lambda grown=grown: len(_lines(ledger)) >= grown, "the agent accepts")  # type: ignore[misc]
            finally:
                kill(process)
            last = max(_lines(ledger))
        agent = Agent(config(prefix, tmp_path, zookeeper))
        agent.start()
        eventually(lambda: pending(agent) == 0, "the log is delivered")
        agent.stop()
    stored = deduplicated(kafka, f"{prefix}.samples")
    times = [int(decode_samples(verify(data), data).time_ms[0]) for data in stored.values()]
    assert len(times) == len(set(times)), "no poll has two identities"
    numbers = {t - MINUTE for t in times}
    accepted = set(_lines(ledger))
    assert accepted <= numbers
    assert len(numbers - accepted) <= rounds


def _lines(path: Path) -> list[int]:
    if not path.exists():
        return []
    return [int(line) for line in path.read_text().splitlines()]


def test_data_flows_without_zookeeper(tmp_path: Path, zookeeper: str, kafka: str, zookeeper_stack: Stack) -> None:
    prefix = own_topics(kafka)
    agent = Agent(config(prefix, tmp_path, zookeeper))
    agent.start()
    with collector(zookeeper, kafka, prefix):
        agent.wal_sink.accept_now([polled("a")])
        eventually(lambda: pending(agent) == 0, "the way is known")
        zookeeper_stack.stop_part("zookeeper")
        try:
            for n in range(20):
                agent.wal_sink.accept_now([polled(f"source-{n}")])
            eventually(lambda: pending(agent) == 0, "data flows without ZooKeeper")
            eventually(lambda: any("ZooKeeper" in p for p in agent.figures()["problems"]), "and the agent says so")
        finally:
            zookeeper_stack.start_part("zookeeper")
            zookeeper_stack.wait_healthy(60)
        agent.stop()
    assert len(deduplicated(kafka, f"{prefix}.samples")) == 21
