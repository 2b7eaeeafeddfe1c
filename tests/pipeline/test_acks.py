"""artimon.model.ack_state: batches are acked only by the published state and sent again only on evidence of loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.ack_state import AckDecision, AckState, PartitionState, Position, SentBatch, decide_acks

TOPIC = "artimon.samples"
AT = Position("cluster-1", "topic-a", 2, 100)


def state(
    until: int = 0,
    log_start: int = 0,
    log_end: int = 1000,
    lost: tuple[tuple[int, int], ...] = (),
    topic_id: str = "topic-a",
    cluster: str = "cluster-1",
    version: int = 10,
    partition: int = 2,
    topic: str = TOPIC,
) -> AckState:
    partitions = {partition: PartitionState(until, log_start, log_end, lost)}
    return AckState(cluster, topic, topic_id, 0, partitions, version)


def decide(*states: AckState, since: int | None = None, at: Position = AT) -> AckDecision[str]:
    return decide_acks([SentBatch("batch", at, since)], {s.topic_id: s for s in states}, TOPIC)


@pytest.mark.parametrize(
    ("published", "since", "outcome"),
    [
        pytest.param(state(until=101), None, "acked", id="below_until"),
        pytest.param(state(until=100), None, "wait", id="at_until"),
        pytest.param(state(until=0), None, "wait", id="nothing_stored_yet"),
        pytest.param(state(until=500, lost=((90, 101),)), None, "resend", id="lost_range_holds_it"),
        pytest.param(state(until=500, lost=((90, 100),)), None, "acked", id="lost_range_ends_before_it"),
        pytest.param(state(until=100, log_start=101), None, "resend", id="log_starts_above_and_not_stored"),
        pytest.param(state(until=101, log_start=500), None, "acked", id="log_starts_above_but_stored"),
        pytest.param(state(until=50, log_start=100), None, "wait", id="log_starts_at_it"),
        pytest.param(state(until=50, log_end=100), 8, "resend", id="log_ends_at_it_two_states_later"),
        pytest.param(state(until=50, log_end=100), 9, "wait", id="log_ends_at_it_one_state_later"),
        pytest.param(state(until=50, log_end=100), None, "wait", id="log_ends_at_it_first_look"),
        pytest.param(state(until=50, log_end=101), 1, "wait", id="log_ends_above_it"),
        pytest.param(state(until=500, cluster="cluster-2"), None, "acked", id="a_topic_id_is_one_cluster's"),
        pytest.param(state(until=500, partition=3), None, "wait", id="another_partition"),
        pytest.param(state(until=500, topic_id="topic-b"), None, "wait", id="another_topic_id_first_look"),
        pytest.param(state(until=500, topic_id="topic-b"), 8, "resend", id="predecessor_never_read"),
        pytest.param(state(until=500, topic_id="b", topic="artimon.events"), 1, "wait", id="another_topic"),
        pytest.param(state(until=500, topic_id="b", cluster="c"), 1, "resend", id="the_cluster_was_made_again"),
    ],
)
def test_a_decision_needs_evidence(published: AckState, since: int | None, outcome: str) -> None:
    verdict = decide(published, since=since)
    assert bool(verdict.acked) == (outcome == "acked")
    assert bool(verdict.resend) == (outcome == "resend")


def test_an_offset_of_another_leader_epoch_is_another_message() -> None:
    """A leader epoch identifies the message behind an offset. Written at 100 under epoch 4; the log was cut at 90 and
    grew under epoch 6, so the state of offset 100 is about another message. Accepted are epoch 6, offsets below the
    cut, and positions without an epoch. An epoch above the state's decides nothing: its `until` may date from
    before the next cut."""
    cut = PartitionState(500, 0, 1000, (), ((0, 0), (4, 50), (6, 90)))
    published = AckState("cluster-1", TOPIC, "topic-a", 0, {2: cut}, 10)
    assert AckState.from_json(published.to_json(), 10) == published
    outcomes = {}
    for epoch in (-1, 3, 4, 5, 6, 7):
        verdict = decide(published, at=AT._replace(leader_epoch=epoch))
        outcomes[epoch] = "acked" if verdict.acked else "resend" if verdict.resend else "wait"
    assert outcomes == {-1: "acked", 3: "resend", 4: "resend", 5: "resend", 6: "acked", 7: "wait"}
    assert decide(published, at=AT._replace(offset=60, leader_epoch=4)).acked


def test_no_state_no_decision() -> None:
    assert decide() == AckDecision()


def test_an_old_topic_id_with_a_state_is_read_to_its_end() -> None:
    """A successor alone is no evidence of loss while the old topic id has a state: its rest may still be read or named
    lost."""
    new = state(topic_id="topic-b", version=50)
    assert decide(state(until=90), new, since=1) == AckDecision()
    assert decide(state(until=101), new, since=1).acked == ("batch",)
    assert decide(state(until=90, lost=((90, 2**62),)), new, since=1).resend


def test_the_first_state_is_remembered() -> None:
    assert decide(state(version=7)).checked == (("batch", 7),)
    assert decide(state(version=7), since=7).checked == ()
    assert decide(state(version=7), since=5).checked == ()
    assert decide(state(version=2), since=7).checked == (("batch", 2),), "ZooKeeper was wiped: versions restart"


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300), st.none() | st.integers(0, 20))
def test_never_both_and_never_below_until(until: int, log_start: int, log_end: int, since: int | None) -> None:
    verdict = decide(state(until, log_start, log_end), since=since)
    assert len(verdict.acked) + len(verdict.resend) <= 1
    assert bool(verdict.acked) == (until > AT.offset)


@given(
    st.dictionaries(
        st.integers(0, 20),
        st.builds(
            PartitionState,
            st.integers(0, 2**62),
            st.integers(0, 2**62),
            st.integers(0, 2**62),
            st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3).map(tuple),
        ),
        max_size=4,
    )
)
def test_states_round_trip(partitions: dict[int, PartitionState]) -> None:
    made = AckState("c", TOPIC, "t", 17, partitions, 4)
    assert AckState.from_json(made.to_json(), 4) == made


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"cluster": 1}', b'{"partitions": {"x": {}}}', b"\xff"])
def test_invalid_states_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        AckState.from_json(data)
