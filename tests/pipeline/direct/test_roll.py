"""Rolling and acking without I/O: schedules of writes, closes, failures and crashes, and the agents' conclusions."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from artimon.model.ack_state import END_OF_LOG, AckState, PartitionState, Position, SentBatch, decide_acks
from pipeline.collector.hdfs.file_names import Scheme
from pipeline.collector.hdfs.stream_state import (
    MAX_LOST_RANGES,
    FileState,
    RollConfig,
    StreamFile,
    StreamState,
    final_state,
)

FOLDER, TOPIC, STREAM, HEAD = "hdfs://x:1/f", "t.samples", "s", 20


def core(scheme: Scheme = Scheme.ROLL, size: int = 200, count: int = 5, seconds: float = 10.0) -> StreamState:
    return StreamState(scheme, RollConfig(size, count, seconds, 10_000))


def put(one: StreamState, size: int = 50, now: float = 0.0) -> tuple[StreamFile, int]:
    assert not one.refusal(size)
    return one.add_record(size, HEAD, now)


def finish(one: StreamState, file: StreamFile) -> None:
    one.mark_written(file, file.length - file.written)
    one.mark_closed(file)


def acked(one: StreamState, *offsets: int) -> list[bool]:
    """Conclusions of an agent with these offsets: True acked, False sent again; undecided ones are absent."""
    state = AckState(FOLDER, TOPIC, STREAM, 0, {0: one.state()}, 10)
    sent = [SentBatch(at, Position(FOLDER, STREAM, 0, at), 0) for at in offsets]
    verdict = decide_acks(sent, {STREAM: state}, TOPIC)
    again = {key for key, _ in verdict.resend}
    return [at in verdict.acked for at in offsets if at in verdict.acked or at in again]


def test_scenario_14_a_file_whose_close_fails_acks_none_of_its_batches() -> None:
    one = core()
    first, at = put(one)
    _, at2 = put(one)
    one.roll()
    second, at3 = put(one)
    one.roll()
    finish(one, second)
    assert acked(one, at, at2, at3) == [], "nothing before the older file is settled"
    one.mark_failed(first, "close failed")
    assert acked(one, at, at2, at3) == [False, False, True]
    third, at4 = put(one)
    one.roll()
    finish(one, third)
    assert acked(one, at, at2, at3, at4) == [False, False, True, True], "a later close does not ack lost batches"


def test_scenario_15_a_call_over_two_files_of_which_the_first_is_lost() -> None:
    """A batch is always whole in one file; of a call over two files only the batches of the good file are acked."""
    one = core(size=HEAD + 100)
    placed = [put(one) for _ in range(4)]
    (first, _), (second, _) = placed[0], placed[2]
    assert [file for file, _ in placed] == [first, first, second, second]
    assert all(file.base <= at - 49 and at < file.end for file, at in placed), "whole in its file"
    one.roll()
    one.mark_failed(first, "write failed")
    finish(one, second)
    assert acked(one, *(at for _, at in placed)) == [False, False, True, True]


@pytest.mark.parametrize("gap", [0, 1], ids=["aligned", "not aligned"])
def test_scenario_16_never_acked_before_the_file_is_closed(gap: int) -> None:
    one = core(size=HEAD + 100 + gap)
    file, at = put(one)
    _, at2 = put(one)
    next_file, at3 = put(one)
    one.mark_written(file, file.length)
    one.mark_durable(file, file.length)
    assert next_file is not file
    assert acked(one, at, at2, at3) == []
    one.mark_closed(file)
    assert acked(one, at, at2, at3) == [True, True]


def test_by_committed_length_exactly_the_covered_batches_are_acked() -> None:
    one = core(Scheme.LENGTH, size=10_000)
    file, at = put(one)
    _, at2 = put(one)
    one.mark_durable(file, at)
    assert acked(one, at, at2) == [], "the last byte is missing"
    one.mark_durable(file, at + 1)
    assert acked(one, at, at2) == [True]
    one.mark_durable(file, 5)
    assert acked(one, at, at2) == [True], "a smaller length revokes no ack"
    one.mark_failed(file, "write failed")
    assert acked(one, at, at2) == [True, False]


def test_files_roll_by_size_by_count_and_by_time() -> None:
    one = core(size=HEAD + 100, count=99, seconds=99)
    assert [put(one)[0].base for _ in range(3)] == [0, 0, HEAD + 100]
    one = core(size=9999, count=2, seconds=99)
    assert len({id(put(one)[0]) for _ in range(5)}) == 3
    one = core(size=9999, count=99, seconds=10)
    first, _ = put(one, now=0.0)
    assert one.roll_due() == 10.0
    assert put(one, now=9.9)[0] is first
    assert put(one, now=10.0)[0] is not first
    assert put(core(size=10), 5000)[0].count == 1, "one that is larger than a file has a file of its own"


def test_memory_is_bounded_and_an_exhausted_stream_is_reported() -> None:
    one = StreamState(Scheme.ROLL, RollConfig(10_000, 100, 10, held_bytes=300))
    file, _ = put(one, 200)
    assert one.refusal(200)
    one.mark_written(file, 150)
    assert not one.refusal(200)
    for _ in range(2 * MAX_LOST_RANGES):
        lost, _ = put(one, 10)
        one.roll()
        one.mark_failed(lost, "x")
        good, _ = put(one, 10)
        one.roll()
        finish(one, good)
    assert one.is_exhausted
    assert len(one.lost) == 2 * MAX_LOST_RANGES, "a lost range is never forgotten: its batches would be acked"


class Rolling(RuleBasedStateMachine):
    """Collector, its disk, and an agent. `durable` is the content for readers; the agent reads only the published
    state."""

    @initialize(scheme=st.sampled_from(list(Scheme)))
    def begin(self, scheme: Scheme) -> None:
        self.core = core(scheme, size=HEAD + 120, count=3, seconds=5)
        self.now = 0.0
        self.batches: dict[int, StreamFile] = {}
        self.open: dict[StreamFile, int] = {}
        """Bytes of files that are under way which the disk holds for certain."""
        self.closed: set[StreamFile] = set()
        self.dead = False
        self.published = self.core.state()
        self.verdicts: dict[int, bool] = {}

    @precondition(lambda self: not self.dead)
    @rule(size=st.integers(1, 100))
    def batch(self, size: int) -> None:
        file, at = self.core.add_record(size, HEAD, self.now)
        assert file.base + file.length - 1 == at
        self.batches[at] = file
        self.open.setdefault(file, 0)

    @precondition(lambda self: not self.dead)
    @rule(seconds=st.floats(0, 6))
    def time(self, seconds: float) -> None:
        self.now += seconds
        if self.core.is_full(self.now):
            self.core.roll()

    @precondition(lambda self: not self.dead and self.open)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(list(self.open)))
        self.open[file] = max(self.open[file], data.draw(st.integers(0, file.length)))
        if self.core.scheme is Scheme.LENGTH:
            self.core.mark_durable(file, self.open[file])

    @precondition(lambda self: not self.dead and self.open)
    @rule(data=st.data(), told=st.booleans(), fine=st.booleans())
    def close(self, data: st.DataObject, told: bool, fine: bool) -> None:
        """`fine`: closed and renamed on the disk; `told`: the collector learns that, else it takes it for a failure."""
        file = data.draw(st.sampled_from(list(self.open)))
        if file.state is not FileState.CLOSING:
            return
        if fine:
            del self.open[file]
            self.closed.add(file)
        if fine and told:
            self.core.mark_closed(file)
        else:
            self.core.mark_failed(file, "close")

    @precondition(lambda self: not self.dead)
    @rule()
    def publish(self) -> None:
        self.published = self.core.state()

    @precondition(lambda self: not self.dead)
    @rule()
    def crash_and_sweep(self) -> None:
        """Another collector recovers the disk: under `length` it keeps the durable part of open files."""
        files = [(file.base, file.end) for file in self.closed]
        if self.core.scheme is Scheme.LENGTH:
            files += [(file.base, file.base + length) for file, length in self.open.items()]
        self.published, self.dead = final_state(self.published, files), True

    @rule()
    def agents_look_again(self) -> None:
        """No operation; the invariant is checked once more."""

    def durable(self, at: int) -> bool:
        file = self.batches[at]
        kept = self.open.get(file, 0) if self.core.scheme is Scheme.LENGTH else 0
        return file in self.closed or at < file.base + kept

    @invariant()
    def agents_conclude_only_what_is_true(self) -> None:
        if not hasattr(self, "core"):
            return
        state = AckState(FOLDER, TOPIC, STREAM, 0, {0: self.published}, 10)
        told_of = [at for at in self.batches if self.dead or at < self.published.log_end]
        sent = [SentBatch(at, Position(FOLDER, STREAM, 0, at), 0) for at in told_of]
        verdict = decide_acks(sent, {STREAM: state}, TOPIC)
        assert all(self.durable(at) for at in verdict.acked)
        told = dict.fromkeys(verdict.acked, True) | {at: False for at, _ in verdict.resend}
        for at, good in self.verdicts.items():
            assert told.get(at) == good, "a verdict never changes"
        self.verdicts = told
        if self.dead:
            assert len(told) == len(sent), "a closed stream leaves no batch undecided"


Rolling.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestRolling = Rolling.TestCase


def test_closing_a_stream_declares_unpublished_offsets_lost() -> None:
    last = final_state(PartitionState(50, 0, 80), [(50, 70), (90, 120)])
    assert (last.until, last.lost) == (120, ((70, 90), (120, END_OF_LOG)))
    assert last.closed


def test_batches_of_an_unknown_stream_are_sent_again_only_while_other_streams_of_its_folder_are_known() -> None:
    """A topic of Kafka says nothing about a folder, a folder nothing about another one, a dead stream nothing about
    live ones."""
    mine = SentBatch("b", Position(FOLDER, "gone", 0, 5), 3)

    def seen(cluster: str, version: int, closed: bool = False) -> bool:
        lost = ((0, END_OF_LOG),) if closed else ()
        state = AckState(cluster, TOPIC, "other", 0, {0: PartitionState(0, 0, 0, lost)}, version)
        return bool(decide_acks([mine], {"other": state}, TOPIC).resend)

    assert seen(FOLDER, 5)
    assert not seen(FOLDER, 4), "it may have been read earlier"
    assert not seen(FOLDER, 5, closed=True)
    assert not seen("hdfs://y:1/f", 5)
    assert not seen("kafka-cluster", 5)
