"""Stream over a store that fails, hangs and recovers: only batches that a reader finds are acked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from artimon.model.ack_state import Position, SentBatch, decide_acks
from artimon.model.batch import BatchHeader, BatchId
from artimon.model.batch_codec import encode_samples
from artimon.model.clock import SYSTEM_CLOCK
from pipeline.collector.hdfs.file_names import ABORTED, OPEN, Scheme
from pipeline.collector.hdfs.folder_reader import FolderReader
from pipeline.collector.hdfs.stream import Stream
from pipeline.collector.hdfs.stream_state import RollConfig
from tests.pipeline.direct.stores import FaultyStore
from tests.pipeline.helpers import samples
from tests.waiting import eventually

Made = tuple[BatchHeader, bytes]


def batch(sequence: int, lane: int = 0, count: int = 5) -> Made:
    made = encode_samples(BatchId("agent", 7, lane, sequence), "src", bytes(16), 1, 2, "default", samples(count))
    return made.header, made.data


class Sending:
    """Minimal agent: sent batches, their answered positions, and the resulting verdicts."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.at: dict[BatchId, Position] = {}
        self.refused: list[str] = []

    def put(self, *batches: Made) -> None:
        for (header, _), result in zip(batches, self.stream.append(batches), strict=True):
            if isinstance(result, str):
                self.refused.append(result)
            else:
                self.at[header.id] = result

    def verdict(self) -> tuple[set[BatchId], set[BatchId]]:
        """(acked, sent again)."""
        sent = [SentBatch(id, position, 0) for id, position in self.at.items()]
        found = decide_acks(sent, {self.stream.name: self.stream.state()}, self.stream.topic)
        return set(found.acked), {key for key, _ in found.resend}

    @property
    def acked(self) -> set[BatchId]:
        return self.verdict()[0]

    @property
    def again(self) -> set[BatchId]:
        return self.verdict()[1]


Make = Callable[..., Sending]


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyStore:
    return FaultyStore(tmp_path)


@pytest.fixture
def make(faulty: FaultyStore) -> Iterator[Make]:
    made: list[Stream] = []

    def begin(scheme: Scheme = Scheme.ROLL, config: RollConfig | None = None, open_s: float = 60.0) -> Sending:
        config = config or RollConfig(seconds=600)
        stream = Stream(
            faulty, f"s-{len(made)}", "t.samples", SYSTEM_CLOCK, lambda: None, scheme, config, 0.01, open_s=open_s
        )
        stream.start()
        made.append(stream)
        return Sending(stream)

    yield begin
    faulty.failing.clear()
    faulty.go.set()
    for stream in made:
        stream.stop(5)


def found(faulty: FaultyStore) -> set[BatchId]:
    reader = FolderReader(faulty)
    ids = {one.header.id for one in reader.batches()}
    assert not reader.report.damaged
    return ids


def test_acked_on_close_and_rename_only(make: Make, faulty: FaultyStore) -> None:
    one = make()
    faulty.slow = {"close"}
    faulty.go.clear()
    one.put(*map(batch, range(4)))
    one.stream.roll()
    eventually(lambda: "write" in faulty.done, "written")
    assert one.verdict() == (set(), set())
    faulty.slow = {"rename"}
    faulty.go.set()
    eventually(lambda: one.acked == set(one.at), "closed and renamed")
    assert found(faulty) == one.acked
    assert faulty.list_folder(OPEN) == []


def test_scenario_18_rotation_while_an_append_is_slow(make: Make, faulty: FaultyStore) -> None:
    """No caller waits; files follow one another; batches beyond the limit are refused, and nothing is lost."""
    size = len(batch(0)[1])
    one = make(config=RollConfig(bytes=3 * size, seconds=600, held_bytes=20 * size))
    faulty.slow = {"write"}
    faulty.go.clear()
    batches = [batch(n) for n in range(40)]
    began = monotonic()
    one.put(*batches)
    one.stream.roll()
    assert monotonic() - began < 40, "the append takes a minute"
    assert 0 < len(one.at) < 40
    assert all(reason.startswith("full:") for reason in one.refused)
    faulty.go.set()
    eventually(lambda: one.acked == set(one.at), "all that was taken is acked")
    assert found(faulty) == one.acked
    assert one.stream.figures()["rolls"] >= len(one.at) / 3


def test_a_file_that_cannot_be_closed_is_overdue(make: Make, faulty: FaultyStore) -> None:
    one = make(config=RollConfig(seconds=0.2))
    faulty.slow = {"close"}
    faulty.go.clear()
    one.put(batch(0))
    assert one.stream.figures()["overdue_ms"] == 0
    eventually(lambda: one.stream.figures()["overdue_ms"] > 100, "its close hangs")
    faulty.go.set()
    eventually(lambda: one.stream.figures()["overdue_ms"] == 0, "it is closed")


@pytest.mark.parametrize("call", ["write", "close", "rename"])
def test_scenario_14_a_failed_roll_acks_nothing_and_the_next_file_only_its_own(
    make: Make, faulty: FaultyStore, call: str
) -> None:
    one = make()
    faulty.failing = {call}
    one.put(*map(batch, range(3)))
    one.stream.roll()
    eventually(lambda: one.again == set(one.at), "named lost")
    faulty.failing = set()
    eventually(lambda: not one.stream._refusal(1), "the pause is over")
    first = set(one.at)
    one.put(*map(batch, range(3, 6)))
    one.stream.roll()
    eventually(lambda: len(one.acked) == 3, "the next file is closed")
    assert one.again == first
    assert one.acked == set(one.at) - first
    one.put(*map(batch, range(3)))
    one.stream.roll()
    eventually(lambda: found(faulty) == {batch(n)[0].id for n in range(6)}, "sent again, stored once")


def test_scenario_17_the_store_down_at_open_loses_nothing_and_stops_in_time(make: Make, faulty: FaultyStore) -> None:
    one = make()
    faulty.failing = {"create"}
    one.put(*map(batch, range(3)))
    eventually(lambda: bool(one.stream.problem), "it says so")
    one.put(batch(3))
    assert one.refused[0].startswith("store:")
    faulty.failing = set()
    one.stream.roll()
    eventually(lambda: one.acked == set(one.at), "what waited in memory is written")
    faulty.failing = {"create"}
    eventually(lambda: not one.stream._refusal(1), "it takes again")
    one.put(batch(5))
    began = monotonic()
    one.stream.stop(0.5)
    assert monotonic() - began < 40
    assert one.again == {batch(5)[0].id}, "nothing of it was acked"


def test_a_long_outage_of_the_store_returns_the_batches_to_the_agents(make: Make, faulty: FaultyStore) -> None:
    one = make(open_s=0.2)
    faulty.failing = {"create"}
    one.put(batch(0))
    eventually(lambda: one.again == set(one.at), "another collector may have it")
    faulty.failing = set()
    eventually(lambda: not one.stream._refusal(1), "it takes again by itself")


def test_scenario_17_a_hanging_append_does_not_hold_up_the_stop(make: Make, faulty: FaultyStore) -> None:
    one = make()
    faulty.slow = {"write"}
    faulty.go.clear()
    one.put(*map(batch, range(3)))
    began = monotonic()
    one.stream.stop(0.3)
    assert monotonic() - began < 40
    assert one.again == set(one.at)


def test_committed_length_acks_before_the_file_is_closed(make: Make, faulty: FaultyStore) -> None:
    one = make(Scheme.LENGTH)
    one.put(*map(batch, range(3)))
    eventually(lambda: one.acked == set(one.at), "the durable length covers them")
    assert len(faulty.list_folder(OPEN)) == 1
    assert found(faulty) == one.acked, "a reader reads the durable part of an open file"
    faulty.failing = {"sync"}
    one.put(batch(3))
    eventually(lambda: one.again == {batch(3)[0].id}, "the rest is lost")
    assert len(one.acked) == 3


def test_a_thread_of_a_stream_survives_a_defect(make: Make, faulty: FaultyStore) -> None:
    """Scenario 40: an unexpected exception ends the stream with an error, and the collector begins another one."""
    one = make()
    boom = threading.Event()

    def broken(path: str) -> None:
        boom.set()
        raise KeyError(path)

    faulty.create = broken  # type: ignore[method-assign,assignment]
    one.put(batch(0))
    eventually(lambda: one.stream.is_exhausted, "given up")
    assert boom.is_set()
    assert one.again == set(one.at)


def test_only_a_sweep_moves_files_to_aborted(make: Make, faulty: FaultyStore) -> None:
    make().put(batch(0))
    assert faulty.list_folder(ABORTED) == []
