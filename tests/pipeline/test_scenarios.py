"""Faults of a batch between log and store, by the numbers of docs/transport_scenarios.md: after any loss, repeat or
change on the way, the store holds every batch as it was accepted, once by identity."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from artimon.model.ack_state import AckDecision, Position
from artimon.model.batch import BatchHeader, BatchId, Samples
from artimon.model.batch_codec import encode_samples, parse_header
from artimon.model.clock import SYSTEM_CLOCK
from pipeline.collector.collector import Collector
from pipeline.collector.collector_process import CollectorConfig, server_of
from pipeline.collector.link_server import LinkServer
from pipeline.delivery.send_planner import PlannedCall
from pipeline.delivery.sender import Sender
from pipeline.delivery.tracker import Tracker
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.link.answers import MessageAnswer
from pipeline.link.collector_choice import CollectorEndpoint, Collectors
from pipeline.wal.batch_states import BatchState
from pipeline.wal.state_records import LogPosition
from tests.pipeline.helpers import polled, samples
from tests.pipeline.transit import ONE, TWO, Damage, Store, Transit, exchange
from tests.waiting import eventually


def batch(sequence: int, rows: Samples | None = None, lane: int = 0) -> bytes:
    id = BatchId("agent-1", 9, lane, sequence)
    return encode_samples(id, "a-source", bytes(16), 1, 2, "default", rows or samples(6)).data


def other_rows(data: bytes, rows: Samples) -> bytes:
    """The header of `data` unchanged, digest included, before a body of other rows."""
    head = parse_header(data)
    altered = encode_samples(head.id, head.source, bytes(16), 1, 2, head.keep, rows).data
    begin = len(data) - (len(data) - head.body_at)
    body = altered[parse_header(altered).body_at :]
    fixed = bytearray(data[:begin])
    fixed[: len(fixed)] = altered[:begin]  # lengths and counts match the new body
    fixed[70:86] = data[70:86]  # the digest is that of the accepted body
    return bytes(fixed) + body


def picked(rows: Samples, order: list[int]) -> Samples:
    """These rows, in this order."""
    return Samples(
        rows.fingerprint[order], rows.time_ms[order], rows.birth_ms[order], rows.type[order], rows.cell[order]
    )


def only_at_first(change: Damage) -> Damage:
    """Damage the first two calls only; the second one is the retry."""
    return lambda call, messages: change(call, messages) if call <= 2 else messages


def hit(change: object) -> Damage:
    def damage(_call: int, messages: list[bytes]) -> list[bytes]:
        return [change(messages[0]), *messages[1:]]  # type: ignore[operator]

    return only_at_first(damage)


def is_whole(transit: Transit, accepted: list[bytes]) -> None:
    """Every batch is stored as it was accepted; a batch that was held back may follow later ones."""
    stored = {parse_header(message.value).id: message.value for message in transit.store.messages}
    assert sorted(stored.values()) == sorted(accepted)


def test_scenario_01_without_a_fault_every_batch_is_acked_once() -> None:
    transit, accepted = Transit(), [batch(n) for n in range(40)]
    for data in accepted:
        transit.accept(data)
    transit.run()
    assert [message.value for message in transit.store.messages] == accepted
    assert set(transit.sends.values()) == {1}


SIX = samples(6)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data[20:], id="02_begin_lost"),
        pytest.param(lambda data: other_rows(data, picked(SIX, [0, 1, 2, 4, 5])), id="03_one_sample_lost"),
        pytest.param(lambda data: data[:-7], id="04_end_lost"),
        pytest.param(lambda data: other_rows(data, picked(SIX, [1, 0, 2, 3, 4, 5])), id="06_samples_reordered"),
        pytest.param(lambda data: other_rows(data, picked(SIX, [0, 0, 1, 2, 3, 4, 5])), id="07_a_sample_twice"),
    ],
)
def test_scenarios_02_to_07_changed_batches_are_refused_and_sent_again(change: object) -> None:
    transit, accepted = Transit(), [batch(n) for n in range(4)]
    for data in accepted:
        transit.accept(data)
    transit.run(hit(change))
    is_whole(transit, accepted)
    assert transit.tracker.nacks == {"damaged": 2}, "refused twice with its reason; the other batches are sent"


def test_scenario_08_loss_of_an_even_number_of_equal_samples_is_detected() -> None:
    equal = samples(1)  # whatever is XORed over an even number of equal ones cancels
    transit, whole = Transit(), batch(0, picked(equal, [0] * 6))
    transit.accept(whole)
    transit.run(hit(lambda data: other_rows(data, picked(equal, [0] * 4))))
    is_whole(transit, [whole])
    assert transit.tracker.nacks == {"damaged": 2}


def test_scenario_05_a_lost_answer_repeats_the_batch_under_the_same_identity() -> None:
    transit, accepted = Transit(), [batch(n) for n in range(5)]
    for data in accepted:
        transit.accept(data)
    transit.run(lost=lambda call: call <= 3)
    is_whole(transit, accepted)
    assert len(transit.store.messages) == 20, "four times the same call: the stores drop what stands higher"
    assert set(transit.sends.values()) == {4}


class Parts:
    """Tracker with one batch in a given state."""

    def __init__(self, state: BatchState) -> None:
        self.tracker = Tracker()
        header: BatchHeader = parse_header(batch(0))
        self.key = header.id
        self.tracker.add(header, LogPosition(1, 0, 10), 0)
        self.group = None
        if state is not BatchState.LOGGED:
            self.group = self.tracker.take_call(0.0)
        if state is BatchState.SENT and self.group:
            self.tracker.apply_answers(self.group, [MessageAnswer(Position("c", "t", 0, 5))], 0.0)


@pytest.mark.parametrize("state", [BatchState.LOGGED, BatchState.SENDING, BatchState.SENT])
@pytest.mark.parametrize("event", ["evidence", "ack", "evidence and ack", "ack and evidence"])
def test_scenario_13_a_retry_that_races_with_sending_and_acks(state: BatchState, event: str) -> None:
    """Evidence of loss sends a sent batch again and is ignored otherwise; an ack forgets a sent batch once and is
    ignored otherwise. In every order nothing is lost before its ack and nothing is queued twice."""
    parts = Parts(state)
    evidence = AckDecision(resend=((parts.key, "its offset was named lost"),))
    for word in event.split(" and "):
        parts.tracker.apply_verdict(evidence if word == "evidence" else AckDecision(acked=(parts.key,)))
    left = parts.tracker.pending
    assert left == (0 if state is BatchState.SENT and event.startswith("ack") else 1)
    assert parts.tracker.resent_count == (state is BatchState.SENT and event.startswith("evidence"))
    if parts.group is not None and state is BatchState.SENDING:
        parts.tracker.apply_answers(parts.group, [MessageAnswer(Position("c", "t", 0, 5))], 0.0)
        assert len(parts.tracker.unacked()) == 1
    elif left:
        assert parts.tracker.take_call(1.0) is not None
        assert parts.tracker.take_call(1.0) is None, "it is in the queue once"


def test_scenario_19_collectors_absent_late_and_flapping() -> None:
    transit, accepted = Transit(), [batch(n) for n in range(30)]
    transit.sending.link.collectors = Collectors("agent-1")
    for data in accepted:
        transit.accept(data)
    assert transit.take() is None, "no collector is known"
    transit.now += 100
    turns = [{"one": ONE}, {"two": TWO}, {"one": ONE, "two": TWO}]
    for number in range(12):
        transit.sending.collectors.update(turns[number % 3])
        transit.now += 5
        group = transit.take()
        begun = transit.begin(group) if group is not None else None
        if begun is not None:
            transit.sending.call_unanswered(begun[0], transit.now, late=number % 2 == 0)
    transit.run()
    is_whole(transit, accepted)


def sender_of(agent: Agent) -> Sender:
    assert isinstance(agent._sender, Sender)
    return agent._sender


def test_scenarios_20_and_24_no_collector_can_be_resolved(tmp_path: Path) -> None:
    """Nothing is acked, nothing is lost, and stopping takes no longer than usual."""
    agent = Agent(AgentConfig("agent-1", tmp_path, "127.0.0.1:1", "kafka"))
    agent.start()
    agent.wal_sink.accept_now([polled(f"source-{n}") for n in range(8)])
    sender_of(agent).update_collectors(
        {"x": CollectorEndpoint("no-such-host.invalid", 1), "y": CollectorEndpoint("127.0.0.1", 1)}
    )
    eventually(lambda: sum(agent.figures()["calls_unanswered"].values()) >= 4, "it tries")
    assert agent.figures()["pending_batches"] == 8
    assert agent.figures()["acked_batches"] == 0
    began = SYSTEM_CLOCK.monotonic()
    agent.stop()
    assert SYSTEM_CLOCK.monotonic() - began < 10
    again = Agent(AgentConfig("agent-1", tmp_path, "127.0.0.1:1", "kafka"))
    assert again.figures()["pending_batches"] == 8
    again.stop()


@pytest.mark.parametrize("answer_s", [3.0, 14.0, 30.0, 59.0])
def test_scenario_22_late_answers_cause_no_retry_storm(answer_s: float) -> None:
    """Every call takes as long for five minutes while batches arrive: the timer adapts, and each batch is sent about
    once."""
    transit, number = Transit(), 0
    flying: list[tuple[float, PlannedCall, list[bytes]]] = []
    while transit.now < 300:
        while number < transit.now * 4:
            transit.accept(batch(number // 4, lane=number % 4))
            number += 1
        group = transit.take()
        begun = transit.begin(group) if group is not None else None
        if begun is not None:
            flying.append((transit.now, *begun))
        for one in list(flying):
            began, call, messages = one
            if transit.now - began >= min(answer_s, call.reservation.deadline_s):
                flying.remove(one)
                if answer_s <= call.reservation.deadline_s:
                    transit.answer(call, messages)
                else:
                    exchange(transit.collector, messages)
                    transit.sending.call_unanswered(call, transit.now, late=True)
        transit.now += 0.2
    sends, batches = sum(transit.sends.values()), len(transit.sends)
    assert transit.calls <= 4 * (300 / answer_s + 8), "one call a lane at a time, each waited for"
    assert sends <= 1.6 * batches
    oldest = transit.tracker.oldest_ms()
    assert oldest is None or transit.ms - oldest < 200_000


def test_scenario_22_a_missing_ack_causes_no_retry() -> None:
    """At level `hdfs` a batch with an offset waits for evidence, not for a timeout."""
    transit = Transit(tracker=Tracker())
    for n in range(20):
        transit.accept(batch(n))
    while transit.now < 7_200:
        group = transit.take()
        begun = transit.begin(group) if group is not None else None
        if begun is not None:
            transit.answer(*begun)
        transit.now += 1.0
    assert set(transit.sends.values()) == {1}
    assert transit.tracker.pending == 20


def serving(store: Store) -> tuple[LinkServer, CollectorEndpoint]:
    server = server_of(Collector(store), CollectorConfig("c", "", ""))
    return server, CollectorEndpoint("127.0.0.1", server.start())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_mb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) // 1024


def test_scenario_41_thousands_of_batches_leak_no_handles_threads_or_memory(tmp_path: Path) -> None:
    store = Store()
    server, endpoint = serving(store)
    agent = Agent(AgentConfig("agent-1", tmp_path, "127.0.0.1:1", "kafka", segment_bytes=64 * 1024))
    list(agent.sink.replay())
    agent.start()
    sender_of(agent).update_collectors({"c": endpoint})
    try:

        def carry(first: int, count: int) -> tuple[int, int, int]:
            for at in range(first, first + count, 100):
                agent.wal_sink.accept_now([polled(f"source-{n % 11}", 20) for n in range(at, at + 100)])
            eventually(lambda: agent.figures()["pending_batches"] == 0, "all are acked")
            return open_files(), threading.active_count(), resident_mb()

        carry(0, 400)
        store.messages.clear()
        files, threads, memory = carry(400, 400)
        assert len(store.messages) == 400
        store.messages.clear()
        many_files, many_threads, more_memory = carry(800, 2_400)
        store.messages.clear()
        assert many_files <= files + 4
        assert many_threads <= threads + 2
        assert more_memory <= memory + 40
        eventually(lambda: len(list((tmp_path / "log").glob("*.wal"))) <= 3, "old segments are gone")
    finally:
        agent.stop()
        server.stop(2.0)
