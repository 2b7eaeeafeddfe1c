"""Delivery modes with and without a collector, and the losses they count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from artimon.model.batch import BatchId
from artimon.model.batch_codec import verify
from pipeline.delivery.delivery_mode import UNLOGGED_MARKER
from pipeline.delivery.failover_log import DirectBackoff
from pipeline.delivery.memory_files import MemoryFileSystem
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.sites.multi_site_sender import Site
from pipeline.wal.log import WriteAheadLog
from pipeline.wal.recovery import segments_in
from tests.pipeline.helpers import RecordingListener, entry, figure, ids_in, polled, started
from tests.pipeline.kafka_helpers import collector, deduplicated, own_topics, read_topic
from tests.waiting import eventually


@contextmanager
def agent(prefix: str, data: Path, zookeeper: str, delivery: str, **options: Any) -> Iterator[Agent]:
    config = AgentConfig(prefix, data, zookeeper, topic_prefix=prefix, delivery=delivery, **options)  # type: ignore[arg-type]
    with started(Agent(config)) as running:
        yield running


def accept(one: Agent, count: int, sources: int = 3, samples: int = 5) -> None:
    for n in range(count):
        one.wal_sink.accept_now([polled(f"source-{n % sources}", samples)])


@pytest.mark.stack
def test_disk_failover_uses_the_log_only_while_no_collector_works(tmp_path: Path, zookeeper: str, kafka: str) -> None:
    prefix = own_topics(kafka)
    with agent(prefix, tmp_path, zookeeper, "disk-failover") as one:
        with collector(zookeeper, kafka, prefix):
            eventually(lambda: figure(one, "collectors_up") == 1, "it is known")
            # while the broker creates the topic, some batches may go through the log
            eventually(lambda: _direct(one, 20), "accepted means that Kafka has it")
            eventually(lambda: figure(one, "pending_batches") == 0, "what was in the log is sent")
            before = figure(one, "failed_over_batches")
            assert len(ids_in(tmp_path / "log")) <= before, "direct batches are not in the log"
        logged = set(ids_in(tmp_path / "log"))
        accept(one, 10)
        assert len(set(ids_in(tmp_path / "log")) - logged) == 10
        assert figure(one, "failed_over_batches") == before + 10
        assert figure(one, "pending_batches") == 10
        with collector(zookeeper, kafka, prefix, id=f"{prefix}-2"):
            eventually(lambda: figure(one, "pending_batches") == 0, "the log is sent, and needs no ack")
            eventually(lambda: _direct(one, 3), "and then it is past the log again")
    found = read_topic(kafka, f"{prefix}.samples")
    lanes: dict[int, list[int]] = {}
    for _, _, _, value in found:
        id = verify(value).id
        if id.sequence not in lanes.setdefault(id.lane, []):
            lanes[id.lane].append(id.sequence)
    assert sum(map(len, lanes.values())) == len(deduplicated(kafka, f"{prefix}.samples"))
    assert all(numbers == sorted(numbers) for numbers in lanes.values()), "each lane in order"


def _direct(one: Agent, count: int) -> bool:
    """All of the next `count` batches bypass the log."""
    direct, logged = figure(one, "direct_batches"), figure(one, "failed_over_batches")
    accept(one, count)
    return bool(figure(one, "direct_batches") == direct + count and figure(one, "failed_over_batches") == logged)


@pytest.mark.stack
def test_numbers_are_not_reused_by_batches_that_bypass_the_log(tmp_path: Path, zookeeper: str, kafka: str) -> None:
    """Every start of disk failover begins an epoch, and so does the first later start that uses the log."""
    prefix = own_topics(kafka)
    with collector(zookeeper, kafka, prefix):
        for delivery in ("disk-failover", "disk-failover", "end-to-end", "end-to-end"):
            with agent(prefix, tmp_path, zookeeper, delivery, level="kafka") as one:
                eventually(lambda one=one: figure(one, "collectors_up") == 1, "it is known")  # type: ignore[misc]
                accept(one, 6)
                eventually(lambda one=one: figure(one, "pending_batches") == 0, "sent")  # type: ignore[misc]
    assert not (tmp_path / "log" / UNLOGGED_MARKER).exists()
    ids: set[BatchId] = set(deduplicated(kafka, f"{prefix}.samples"))
    assert len(ids) == 24
    assert len({id.epoch for id in ids}) == 3


@pytest.mark.stack
def test_best_effort_is_bounded_and_counts_dropped_batches(tmp_path: Path, zookeeper: str, kafka: str) -> None:
    """Without a disk and a collector the oldest batches are dropped and recorded; the rest is delivered to a later
    collector."""
    prefix = own_topics(kafka)
    quota = 600_000
    with agent(prefix, tmp_path, zookeeper, "best-effort", quota_bytes=quota, segment_bytes=100_000) as one:
        count = 200
        for n in range(count):
            one.wal_sink.accept_now([polled(f"source-{n}", 900)])
            assert figure(one, "log_bytes") < 1.5 * quota
        lost = figure(one, "lost_batches")["full"]
        assert 0 < lost < count
        with collector(zookeeper, kafka, prefix):
            eventually(lambda: figure(one, "pending_batches") == 0, "what is left is sent")
    headers = [verify(value) for value in deduplicated(kafka, f"{prefix}.samples").values()]
    kept = [header for header in headers if header.source.startswith("source-")]
    assert len(kept) + lost >= count
    assert len(headers) > len(kept), "the loss is recorded"
    assert not (tmp_path / "log").exists()
    assert list((tmp_path / "memory").iterdir()) == []


def test_only_end_to_end_supports_several_sites(tmp_path: Path) -> None:
    config = AgentConfig("a", tmp_path, "h:1", sites=(Site("x", "h:1"),), delivery="best-effort")
    with pytest.raises(ValueError, match="several sites"):
        Agent(config)


def test_a_route_waits_longer_after_each_failure_and_never_overtakes_the_log() -> None:
    route = DirectBackoff()
    assert route.is_open(0.0, backlog=False, reachable=True)
    assert not route.is_open(0.0, backlog=True, reachable=True)
    assert not route.is_open(0.0, backlog=False, reachable=False)
    waits = []
    for _ in range(12):
        route.record_failure(100.0)
        waits.append(route.not_before - 100)
    assert waits[0] == 0.5
    assert waits == sorted(waits)
    assert waits[-1] == 30.0
    route.record_success()
    assert route.is_open(100.0, backlog=False, reachable=True)


def test_a_log_in_memory_behaves_like_a_log_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    files, recorded = MemoryFileSystem(folder), RecordingListener()
    wal = WriteAheadLog(folder, "agent-1", 2, recorded, files=files, host="here", segment_bytes=2_000)
    places = [wal.append([entry(wal, n % 2, n // 2)]).result(60)[0] for n in range(12)]
    assert [wal.read(place) for place in places] == [one.payload for one, _ in recorded.placed]
    assert len(segments_in(folder, files)) > 1
    wal.release(places)
    wal.close()
    again = WriteAheadLog(folder, "agent-1", 2, RecordingListener(), files=files, host="here")
    assert again.epoch == wal.epoch
    again.close()
    assert not folder.exists(), "no write to the disk"
