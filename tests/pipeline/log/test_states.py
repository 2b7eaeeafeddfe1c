"""Every pair of states and events: the retry table of the reference; each transition happens once."""

from __future__ import annotations

import itertools
import threading

import pytest

from pipeline.wal.batch_states import TRANSITIONS, BatchEvent, BatchState, InvalidTransitionError, transition

RETRY = {
    BatchState.SENT: BatchState.LOGGED,
    BatchState.LOGGED: BatchState.LOGGED,
    BatchState.SENDING: BatchState.SENDING,
    BatchState.ACKED: BatchState.ACKED,
    BatchState.ERROR: BatchState.ERROR,
}
"""What a retry does; a batch that is still being written cannot meet with one."""
MOVES = {
    (BatchState.WRITING, BatchEvent.DURABLE): BatchState.LOGGED,
    (BatchState.LOGGED, BatchEvent.CLAIM): BatchState.SENDING,
    (BatchState.SENDING, BatchEvent.BACK): BatchState.LOGGED,
    (BatchState.SENDING, BatchEvent.PLACED): BatchState.SENT,
    (BatchState.SENDING, BatchEvent.ACK): BatchState.ACKED,
    (BatchState.SENT, BatchEvent.ACK): BatchState.ACKED,
    (BatchState.ACKED, BatchEvent.ACK): BatchState.ACKED,
    (BatchState.LOGGED, BatchEvent.ASIDE): BatchState.ERROR,
    (BatchState.SENDING, BatchEvent.ASIDE): BatchState.ERROR,
    (BatchState.ERROR, BatchEvent.ASIDE): BatchState.ERROR,
    (BatchState.ERROR, BatchEvent.AGAIN): BatchState.LOGGED,
    **{(state, BatchEvent.RETRY): after for state, after in RETRY.items()},
}


class Batch:
    def __init__(self, state: BatchState) -> None:
        self.state = state


@pytest.mark.parametrize(("state", "event"), list(itertools.product(BatchState, BatchEvent)))
def test_every_pair_of_state_and_event_follows_the_table(state: BatchState, event: BatchEvent) -> None:
    batch = Batch(state)
    after = MOVES.get((state, event))
    if after is None:
        with pytest.raises(
            InvalidTransitionError, match=f"event {event.value} is invalid for a batch in state {state.value}"
        ):
            transition(batch, state, event)
        assert batch.state is state, "nothing was changed"
        return
    assert transition(batch, state, event) == (after is not state)
    assert batch.state is after


def test_every_entry_of_the_table_is_tested() -> None:
    assert MOVES == TRANSITIONS


@pytest.mark.parametrize(("seen", "state", "event"), [(s, t, e) for (s, e) in MOVES for t in BatchState if t is not s])
def test_a_transition_from_an_outdated_state_changes_nothing(
    seen: BatchState, state: BatchState, event: BatchEvent
) -> None:
    """Compare and set: a retry races with an ack, an answer with a retry."""
    batch = Batch(state)
    assert not transition(batch, seen, event)
    assert batch.state is state


def test_one_of_two_concurrent_transitions_wins() -> None:
    """An ack and a retry that both read the state `sent`, under their owner's lock, in any order."""
    lock = threading.Lock()
    for _ in range(200):
        batch = Batch(BatchState.SENT)
        won: list[BatchEvent] = []

        def one(event: BatchEvent, batch: Batch = batch, won: list[BatchEvent] = won) -> None:
            with lock:
                if transition(batch, BatchState.SENT, event):
                    won.append(event)

        threads = [threading.Thread(target=one, args=(event,)) for event in (BatchEvent.ACK, BatchEvent.RETRY)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(won) == 1
        assert batch.state is TRANSITIONS[BatchState.SENT, won[0]]
