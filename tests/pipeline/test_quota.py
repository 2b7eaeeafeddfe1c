"""Byte quota of Kafka: the collector's count, its `buffer full` answers, and the agent's probes."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from artimon.model.ack_state import Position
from artimon.model.batch import BatchHeader, BatchId, SeriesBlock
from artimon.model.batch_codec import encode_samples, encode_series
from artimon.model.clock import ManualClock
from artimon.runtime.settings import MIN_KAFKA_QUOTA, SettingsError, load, parse_quota
from pipeline.collector.collector import Collector
from pipeline.collector.kafka_quota import MIN_FREE_BYTES, STALE_S, KafkaQuotaGate, LogSizes, QuotaError, sizes_of
from pipeline.collector.kafka_writer import KafkaWriter
from pipeline.delivery.slow_start import MAX_PAUSE_S, SlowStart
from pipeline.delivery.tracker import Tracker
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.link.answers import MessageAnswer
from pipeline.link.collector_link import MAX_CALL_MESSAGES
from pipeline.wal.state_records import LogPosition
from tests.pipeline.helpers import polled, samples
from tests.pipeline.kafka_helpers import collector, deduplicated, own_topics
from tests.pipeline.test_collector import message
from tests.pipeline.transit import exchange
from tests.waiting import eventually

LIMIT = 1_000_000


@dataclass
class Part:
    partition_index: int
    partition_size: int
    is_future_key: bool = False


@dataclass
class OfTopic:
    name: str
    partitions: list[Part]


@dataclass
class Disk:
    topics: list[OfTopic]
    usable_bytes: int = -1
    error_code: int = 0


@dataclass
class Said:
    results: list[Disk] = field(default_factory=list)


def test_the_largest_replica_counts() -> None:
    answers = [
        Said([Disk([OfTopic("s", [Part(0, 10), Part(1, 7)]), OfTopic("other", [Part(0, 999)])], 5_000)]),
        Said([Disk([OfTopic("s", [Part(0, 12), Part(2, 1), Part(2, 99, True)])], 4_000), Disk([], 1)]),
        Said([Disk([OfTopic("s", [Part(1, 1_000)])], 0, 56)]),
    ]
    assert sizes_of(answers, "s") == LogSizes({0: 12, 1: 7, 2: 1}, 4_000)


def known(size: int, clock: ManualClock | None = None) -> KafkaQuotaGate:
    quota = KafkaQuotaGate(LIMIT, clock or ManualClock(0))
    quota.measure(lambda: LogSizes({0: size}))
    return quota


def test_kafka_is_full_at_95_percent_and_has_room_below_90() -> None:
    quota = known(940_000)
    assert quota.admit(0, 10_000) == ""
    refused = quota.admit(0, 1_000)
    assert refused.startswith("buffer full: 950000 of 1000000 bytes")
    assert "data waits in the agents' logs" in refused
    quota.mark_written(0, 10_000)
    quota.measure(lambda: LogSizes({0: 900_000}))
    assert quota.admit(0, 1) != "", "90 % is not below 90 %"
    assert quota.problem.startswith("buffer full:")
    quota.measure(lambda: LogSizes({0: 899_999}))
    assert (quota.admit(0, 1), quota.problem) == ("", "")


def test_bytes_in_flight_count_until_a_measurement_after_their_answer() -> None:
    """A message in flight during a measurement may be missing from it, so it counts on top."""
    quota = known(0)
    assert quota.admit(0, 400_000) == ""
    quota.measure(lambda: LogSizes({0: 100}))
    assert quota.figures()["bytes"] == 400_100
    quota.mark_written(0, 400_000)
    assert quota.figures()["bytes"] == 400_100

    def written_meanwhile() -> LogSizes:
        assert quota.admit(0, 50) == ""
        quota.mark_written(0, 50)
        return LogSizes({0: 400_150})

    quota.measure(written_meanwhile)
    assert quota.figures()["bytes"] == 400_200, "never less than what Kafka holds"
    quota.measure(lambda: LogSizes({0: 400_150}))
    assert quota.figures()["bytes"] == 400_150


def fails() -> LogSizes:
    raise QuotaError("no broker answers")


def test_a_failed_measurement_keeps_the_last_one_and_doubles_own_bytes() -> None:
    clock = ManualClock(0)
    quota = known(500_000, clock)
    assert quota.admit(0, 200_000) == ""
    quota.measure(fails)
    assert (quota.figures()["bytes"], quota.problem) == (700_000, "")
    clock.advance(round(STALE_S * 1000) + 1)
    assert quota.figures()["bytes"] == 900_000, "own bytes count double once the answer is old"
    assert "unknown for 60 s" in quota.problem
    assert "no broker answers" in quota.problem
    assert quota.admit(0, 60_000).startswith("buffer full:")


def test_a_partition_absent_from_the_measurement_keeps_its_size() -> None:
    quota = KafkaQuotaGate(LIMIT, ManualClock(0))
    quota.measure(lambda: LogSizes({0: 300_000, 1: 300_000}))
    quota.measure(lambda: LogSizes({0: 1}))
    assert quota.figures()["bytes"] == 300_001


def test_a_disk_that_is_nearly_full_is_full() -> None:
    quota = known(0)
    quota.measure(lambda: LogSizes({0: 0}, MIN_FREE_BYTES - 1))
    assert "a disk of Kafka has" in quota.admit(0, 1)
    quota.measure(lambda: LogSizes({0: 0}, MIN_FREE_BYTES))
    assert quota.admit(0, 1) == ""


def test_without_a_quota_nothing_is_refused() -> None:
    quota = KafkaQuotaGate(0)
    assert quota.is_measured
    quota.measure(lambda: LogSizes({0: 2**60}, 0))
    assert (quota.admit(0, 2**50), quota.problem) == ("", "")


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("20GiB", 20 * 2**30), ("25 m", 25 * 2**20), ("30000000", 30_000_000)]
)
def test_quotas_with_units_are_parsed(text: str, size: int) -> None:
    assert parse_quota(text) == size
    assert load({"HOME": "/h", "ARTIMON_KAFKA_QUOTA": text}).kafka_quota_bytes == size


@pytest.mark.parametrize("text", ["", "x", "-1", "1e9", str(MIN_KAFKA_QUOTA - 1), "20 GiB free"])
def test_invalid_quotas_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="ARTIMON_KAFKA_QUOTA"):
        parse_quota(text)


def test_probes_are_single_jittered_and_grow_once_there_is_room() -> None:
    probing = SlowStart(_random=random.Random(1))
    assert probing.window_now(0, False) is None
    probing.record_refusal("buffer full: x", 0.0, probe=False)
    probing.record_refusal("buffer full: x", 0.0, probe=False)
    assert probing.refusals == 1, "simultaneous calls are one refusal"
    pauses, now = [], 0.0
    for _ in range(12):
        assert probing.window_now(now, False) == 0
        pauses.append(probing.not_before - now)
        now = probing.not_before
        assert (probing.window_now(now, False), probing.window_now(now, True)) == (1, 0)
        probing.record_refusal("buffer full: x", now, probe=True)
    assert len(set(pauses)) == len(pauses)
    assert max(pauses) <= 1.5 * MAX_PAUSE_S
    assert min(pauses[-4:]) >= 0.5 * MAX_PAUSE_S
    sizes = []
    while (window := probing.window_now(now + 100, False)) is not None:
        sizes.append(window)
        probing.record_accepted()
    assert sizes[:3] == [1, 2, 4]
    assert sizes[-1] <= MAX_CALL_MESSAGES
    assert probing.reason == ""


def test_a_full_kafka_does_not_delay_the_lane() -> None:
    """Refused batches are first in their lane again, in order, and the lane has no back-off."""
    tracker = Tracker()
    for sequence in range(5):
        id = BatchId("a", 1, 0, sequence)
        tracker.add(_header(id), LogPosition(0, sequence, 10), 0)
    assert tracker.take_call(0.0, 0) is None
    group = tracker.take_call(0.0, 3)
    assert group is not None
    assert len(group.items) == 3
    full = MessageAnswer(None, "buffer full: 9 of 9 bytes")
    tracker.apply_answers(group, [MessageAnswer(Position("c", "t", 0, 0)), full, full], 0.0)
    again = tracker.take_call(0.0)
    assert again is not None
    assert [item.id.sequence for item in again.items] == [1, 2, 3, 4]
    assert tracker.nacks == {"buffer full": 2}


def test_reasons_of_collectors_are_counted_in_bounded_memory() -> None:
    tracker = Tracker()
    tracker.add(_header(BatchId("a", 1, 0, 0)), LogPosition(0, 0, 10), 0)
    for n in range(200):
        group = tracker.take_call(n * 1e4)
        if group is not None:
            tracker.apply_answers(group, [MessageAnswer(None, f"buffer full {n}: x")], n * 1e4)
    assert len(tracker.nacks) == 51
    assert tracker.nacks["other"] == sum(tracker.nacks.values()) - 50


def _header(id: BatchId) -> BatchHeader:
    return encode_samples(id, "s", bytes(16), 0, 0, "default", samples(1)).header


@pytest.mark.stack
def test_a_collector_refuses_samples_and_still_carries_announcements(kafka: str) -> None:
    prefix = own_topics(kafka)
    broker, quota = KafkaWriter(kafka), KafkaQuotaGate(10_000)

    def measured() -> bool:
        quota.measure(lambda: broker.log_sizes(f"{prefix}.samples"))
        return not quota.failure

    eventually(measured, "Kafka says the size")
    assert quota.figures()["bytes"] == 0
    tested = Collector(broker, prefix, quota=quota)
    announcement = encode_series("agent-1", SeriesBlock("s", 0, 1, ())).data
    answers = exchange(tested, [*(message(0, n) for n in range(40)), announcement])
    taken = [answer.ok for answer in answers[:-1]]
    assert 0 < sum(taken) < 40
    assert taken == sorted(taken, reverse=True), "once refused, the rest of the call is refused: a lane stays in order"
    assert answers[-1].ok
    assert all(answer.reason.startswith("buffer full:") for answer in answers[:-1] if not answer.ok)
    assert tested.figures()["nacks"] == {"buffer full": 40 - sum(taken)}
    eventually(measured, "Kafka says the size")
    assert 0.5 * 10_000 < quota.figures()["bytes"] <= 10_000, "the count is at least Kafka's"
    broker.close()


@pytest.mark.stack
def test_a_collector_takes_nothing_before_its_first_measurement(kafka: str) -> None:
    broker = KafkaWriter("127.0.0.1:1")
    quota = KafkaQuotaGate(LIMIT)
    quota.measure(lambda: broker.log_sizes("x"))
    assert not quota.is_measured
    assert "127.0.0.1:1" in quota.failure
    assert kafka


SMALL = 300_000


class Bounded:
    """An agent, a collector with a small quota, and topics with segments far smaller than the quota."""

    def __init__(self, folder: Path, zookeeper: str, kafka: str) -> None:
        self.kafka, self.prefix = kafka, own_topics(kafka, partitions=1)
        self.topic = f"{self.prefix}.samples"
        self.agent = Agent(AgentConfig(self.prefix, folder, zookeeper, "kafka", topic_prefix=self.prefix))
        self.count = 0

    def accept(self, batches: int) -> None:
        for _ in range(batches):
            self.agent.wal_sink.accept_now([polled(f"source-{self.count % 9}", 8_000, 1_700_000_000_000 + self.count)])
            self.count += 1

    def figures(self) -> dict[str, Any]:
        return self.agent.figures()


@pytest.mark.stack
def test_an_agent_only_probes_while_kafka_is_full_and_sends_everything_afterwards(
    tmp_path: Path, zookeeper: str, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = threading.Event()
    limit = property(lambda _: 10**12 if room.is_set() else SMALL, lambda *_: None)
    monkeypatch.setattr(KafkaQuotaGate, "limit", limit, raising=False)
    world = Bounded(tmp_path, zookeeper, kafka)
    with collector(zookeeper, kafka, world.prefix, quota_bytes=SMALL):
        world.agent.start()
        world.accept(40)
        eventually(lambda: bool(world.figures()["buffer_full"]), "the collector says so")
        assert any("buffer full:" in problem for problem in world.figures()["problems"])
        before = world.figures()["carried_bytes"]
        world.accept(400)
        threading.Event().wait(2.0)
        probes = world.figures()["carried_bytes"] - before
        size = world.figures()["accepted_bytes"] / world.count
        assert probes <= 8 * size, "single messages, less and less often"
        assert world.figures()["unsent_batches"] > 400
        room.set()
        eventually(lambda: world.figures()["pending_batches"] == 0, "everything drains")
        assert world.figures()["buffer_full"] == ""
    world.agent.stop()
    assert len(deduplicated(kafka, world.topic)) == world.count
