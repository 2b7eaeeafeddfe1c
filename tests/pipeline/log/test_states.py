"""Every pair of states and events: the retry table of the reference, and that no move is made twice."""

from __future__ import annotations

import itertools
import threading

import pytest

from pipeline.wal.states import TABLE, Event, State, UnexpectedMove, move

RETRY = {
    State.SENT: State.LOGGED,
    State.LOGGED: State.LOGGED,
    State.SENDING: State.SENDING,
    State.ACKED: State.ACKED,
    State.ERROR: State.ERROR,
}
"""What a retry does; a batch that is still being written cannot meet with one."""
MOVES = {
    (State.WRITING, Event.DURABLE): State.LOGGED,
    (State.LOGGED, Event.CLAIM): State.SENDING,
    (State.SENDING, Event.BACK): State.LOGGED,
    (State.SENDING, Event.PLACED): State.SENT,
    (State.SENDING, Event.ACK): State.ACKED,
    (State.SENT, Event.ACK): State.ACKED,
    (State.ACKED, Event.ACK): State.ACKED,
    (State.LOGGED, Event.ASIDE): State.ERROR,
    (State.SENDING, Event.ASIDE): State.ERROR,
    (State.ERROR, Event.ASIDE): State.ERROR,
    (State.ERROR, Event.AGAIN): State.LOGGED,
    **{(state, Event.RETRY): after for state, after in RETRY.items()},
}


class Batch:
    def __init__(self, state: State) -> None:
        self.state = state


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair(state: State, event: Event) -> None:
    batch = Batch(state)
    after = MOVES.get((state, event))
    if after is None:
        with pytest.raises(UnexpectedMove, match=f"event {event.value} is invalid for a batch in state {state.value}"):
            move(batch, state, event)
        assert batch.state is state, "nothing was changed"
        return
    assert move(batch, state, event) == (after is not state)
    assert batch.state is after


def test_the_table_is_no_longer_than_what_is_tested() -> None:
    assert MOVES == TABLE


@pytest.mark.parametrize(("seen", "state", "event"), [(s, t, e) for (s, e) in MOVES for t in State if t is not s])
def test_who_saw_an_older_state_changes_nothing(seen: State, state: State, event: Event) -> None:
    """Compare and set: a retry that races with an ack, an answer that races with a retry."""
    batch = Batch(state)
    assert not move(batch, seen, event)
    assert batch.state is state


def test_of_two_moves_from_one_state_one_wins() -> None:
    """An ack and a retry that both saw the batch as sent, under their owner's lock, in any order."""
    lock = threading.Lock()
    for _ in range(200):
        batch = Batch(State.SENT)
        won: list[Event] = []

        def one(event: Event, batch: Batch = batch, won: list[Event] = won) -> None:
            with lock:
                if move(batch, State.SENT, event):
                    won.append(event)

        threads = [threading.Thread(target=one, args=(event,)) for event in (Event.ACK, Event.RETRY)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(won) == 1
        assert batch.state is TABLE[State.SENT, won[0]]
