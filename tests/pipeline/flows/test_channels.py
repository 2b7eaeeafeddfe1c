"""Contract of every channel, tested on each of those within this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from artimon.model.batch import BatchId, SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_series
from artimon.model.event_codec import encode_events
from artimon.model.values import ValueType
from pipeline.flows import accepted_ids as seen
from pipeline.flows.channels.branch_ledger import BranchPolicy
from pipeline.flows.channels.file_channel import FileChannel, FileOptions
from pipeline.flows.channels.memory import MemoryChannel, MemoryOptions
from pipeline.flows.channels.sql_channel import SqlChannel, SqlOptions
from pipeline.flows.event import EventBatch
from pipeline.flows.spi import ChannelFailed
from pipeline.flows.transaction import TransactionPhaseError
from tests.pipeline.flows.parts import event, event_batch, numbers_of, until_full
from tests.pipeline.helpers import FastFiles
from tests.waiting import eventually

Branches = dict[str, BranchPolicy]


class Make(Protocol):
    def __call__(self, branches: Branches | None = None, small: bool = False) -> Any: ...


@pytest.fixture(params=["memory", "file", "spill", "sql"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Open the channel of the test, repeatedly in the same folder."""
    opened: list[Any] = []

    def build(branches: Branches | None = None, small: bool = False) -> Any:
        quota = 64 * 1024 if small else 1 << 28
        channel: Any
        match request.param:
            case "memory":
                channel = MemoryChannel(MemoryOptions(bytes=quota), "a", "f", branches)
            case "sql":
                channel = SqlChannel(SqlOptions(quota_bytes=quota), tmp_path / "c", "a", "f", branches)
            case kind:
                cache = 1 << 20 if kind == "spill" else 0
                options = FileOptions(quota_bytes=quota, segment_bytes=1 << 20, cache_bytes=cache)
                channel = FileChannel(options, tmp_path / "c", "a", "f", branches, files=FastFiles())
        channel.start()
        opened.append(channel)
        return channel

    yield build
    for channel in opened:
        channel.stop(5.0)


def taken(channel: Any, most: int = 100) -> list[int]:
    with channel.take(most, 30.0) as take:
        return numbers_of(take.event_batches)


def test_event_batches_are_taken_in_order_and_deleted_after_commit(make: Make) -> None:
    channel = make()
    channel.put([event_batch(1, 2), event_batch(3)], 30.0)
    channel.put([event_batch(4)], 30.0)
    assert taken(channel, 2) == [1, 2, 3]
    assert taken(channel) == [4]
    assert not channel.take(1, 0.01)
    assert channel.waiting == 0


def test_every_event_batch_has_a_stable_identity(make: Make) -> None:
    channel = make()
    channel.put([event_batch(1), event_batch(2)], 30.0)
    take = channel.take(10, 30.0)
    first = [p.id for p in take.event_batches]
    with pytest.raises(ZeroDivisionError), take:
        raise ZeroDivisionError
    with channel.take(10, 30.0) as take:
        assert [p.id for p in take.event_batches] == first
    assert None not in first
    assert len(set(first)) == 2


def test_rolled_back_event_batches_are_taken_again_first_and_in_order(make: Make) -> None:
    channel = make()
    channel.put([event_batch(n) for n in range(6)], 30.0)
    one, two = channel.take(2, 30.0), channel.take(2, 1.0)
    two.rollback()
    one.rollback()
    one.commit()  # too late: no effect
    assert taken(channel) == list(range(6))


def test_takes_may_be_committed_in_any_order(make: Make) -> None:
    channel = make()
    channel.put([event_batch(n) for n in range(3)], 30.0)
    takes = [channel.take(1, 30.0) for _ in range(3)]
    for take in reversed(takes):
        take.commit()
    assert channel.waiting == 0


def test_scenario_25_put_without_commit_is_absent_take_without_commit_comes_again(make: Make) -> None:
    """As in transactions of third parties; test_file_channel.py has the crash between take and commit."""
    channel = make()
    transaction = channel.transaction()
    transaction.begin()
    transaction.put([event_batch(1)])
    transaction.rollback()
    assert channel.waiting == 0
    with channel.transaction() as transaction:
        transaction.put([event_batch(2)])
    with pytest.raises(AssertionError), channel.transaction() as transaction:
        assert numbers_of(transaction.take(5, 30.0)) == [3]
    with channel.transaction() as transaction:
        assert numbers_of(transaction.take(5, 30.0)) == [2]
    assert channel.waiting == 0


def test_transactions_reject_calls_out_of_order(make: Make) -> None:
    channel = make()
    transaction = channel.transaction()
    with pytest.raises(TransactionPhaseError):
        transaction.put([event_batch(1)])
    transaction.begin()
    transaction.put([event_batch(1)])
    with pytest.raises(TransactionPhaseError):
        transaction.take(1, 0.0)
    transaction.close()
    with pytest.raises(TransactionPhaseError):
        transaction.commit()
    assert channel.waiting == 0


def test_scenario_31_full_refuses_and_keeps_what_it_has(make: Make) -> None:
    channel = make(small=True)
    count = until_full(lambda n: channel.put([EventBatch((event(n, 3000),))], 0.05))
    assert count >= 3
    assert channel.waiting == count
    seen: list[int] = []
    while len(seen) < count:
        seen += taken(channel)
    assert seen == list(range(count))
    channel.put([event_batch(99)], 30.0)  # there is room again
    assert taken(channel) == [99]


def test_a_put_waits_for_room(make: Make) -> None:
    channel = make(small=True)
    count = until_full(lambda n: channel.put([EventBatch((event(n, 3000),))], 0.0))
    late: list[str] = []

    def put() -> None:
        channel.put([EventBatch((event(count, 3000),))], 60.0)
        late.append("put")

    thread = threading.Thread(target=put)
    thread.start()
    assert not late
    got: list[int] = []
    while len(got) < count + 1:
        got += taken(channel)
    thread.join(20)
    assert late
    assert got == list(range(count + 1))


def test_a_durable_channel_continues_after_a_restart(make: Make) -> None:
    branches = {"a": BranchPolicy(), "b": BranchPolicy()}
    channel = make(branches)
    durable = not isinstance(channel, MemoryChannel)
    id = BatchId("elsewhere", 77, 0, 5)
    other = EventBatch((), id, encode_events(id, "s", 1, [event(0)]).data)
    channel.put([other, *(event_batch(n) for n in range(1, 5))], 30.0)
    channel.reader("a").take(4, 30.0).commit()
    ids = [p.id for p in channel.reader("b").take(2, 30.0).event_batches]
    assert channel.oldest_ms > 0
    channel.stop(30.0)
    if not durable:
        assert channel.figures()["lost"] == 5
        return
    channel = make(branches)
    assert numbers_of(channel.reader("a").take(9, 30.0).event_batches) == [4]
    again = channel.reader("b").take(9, 30.0)
    assert numbers_of(again.event_batches) == list(range(5))
    assert [p.id for p in again.event_batches][:2] == ids
    again.commit()
    channel.put([other, event_batch(6)], 30.0)
    with channel.reader("b").take(9, 30.0) as take:
        assert numbers_of(take.event_batches) == [6]
        assert take.event_batches[0].id not in ids


def test_a_repeat_is_dropped_and_counted(make: Make) -> None:
    channel = make()
    id = BatchId("elsewhere", 77, 0, 5)
    data = encode_events(id, "s", 1, [event(5)]).data
    channel.put([EventBatch((), id, data)], 30.0)
    channel.put([EventBatch((), id, data), event_batch(6)], 30.0)
    with channel.take(10, 30.0) as take:
        assert numbers_of(take.event_batches) == [5, 6]
        assert take.event_batches[0].id == id
        assert take.event_batches[0].data == data
    channel.put([EventBatch((), id, data)], 30.0)
    assert channel.waiting == 0
    assert channel.repeats == 2
    assert channel.done(id)


def test_announcements_with_one_identity_are_not_repeats(make: Make) -> None:
    blocks = [SeriesBlock(f"s{n}", 0, 5, (SeriesInfo("a{}", ValueType.INTEGER),)) for n in range(3)]
    announced = [encode_series("elsewhere", block) for block in blocks]
    event_batches = [EventBatch((), batch.header.id, batch.data) for batch in announced]
    channel = make()
    channel.put(event_batches[:2], 30.0)
    channel.put(event_batches[2:], 30.0)
    with channel.take(10, 30.0) as take:
        assert [event_batch.data for event_batch in take.event_batches] == [
            event_batch.data for event_batch in event_batches
        ]
    assert channel.repeats == 0


def test_lanes_of_ended_programs_are_forgotten(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sending program brings its own lanes. The newest are remembered, also after a restart."""
    monkeypatch.setattr(seen, "MAX_LANES", 20)
    ids = [BatchId("elsewhere", epoch, 0, 0) for epoch in range(60)]
    event_batches = [EventBatch((), id, encode_events(id, "s", 1, [event(id.epoch)]).data) for id in ids]
    channel = make()
    for one in event_batches:
        channel.put([one], 30.0)
        taken(channel)
    if not isinstance(channel, FileChannel):  # which forgets them together with their segments
        assert len(channel._accepted.lanes) <= 20
    channel.put(event_batches[-5:], 30.0)
    assert channel.repeats == 5
    channel.stop(30.0)
    if isinstance(channel, SqlChannel):
        monkeypatch.setattr(seen, "MAX_LANES", 1000)
        again = make()
        assert 5 <= len(again._accepted.lanes) <= 21, "the database has forgotten them too"


def test_a_waiting_take_returns_on_data_and_on_stop(make: Make) -> None:
    channel = make()
    found: list[Any] = []

    def take() -> None:
        found.append(numbers_of(channel.take(1, 60.0).event_batches))
        try:
            channel.take(1, 60.0)
        except ChannelFailed as error:
            found.append(str(error))

    thread = threading.Thread(target=take)
    thread.start()
    channel.put([event_batch(1)], 30.0)
    eventually(lambda: found == [[1]], "the first take")
    channel.stop(5.0)
    thread.join(20)
    assert found == [[1], "the channel is closed"]
    with pytest.raises(ChannelFailed):
        channel.put([event_batch(2)], 30.0)


def test_branches_have_cursors_of_their_own(make: Make) -> None:
    channel = make({"a": BranchPolicy(), "b": BranchPolicy()})
    a, b = channel.reader("a"), channel.reader("b")
    channel.put([event_batch(n) for n in range(4)], 30.0)
    with a.take(3, 30.0) as take:
        assert numbers_of(take.event_batches) == [0, 1, 2]
    b.take(2, 30.0).rollback()
    assert channel.waiting == 4
    with b.take(10, 30.0) as take:
        assert numbers_of(take.event_batches) == [0, 1, 2, 3]
    assert channel.waiting == 1
    with a.take(10, 30.0) as take:
        assert numbers_of(take.event_batches) == [3]
    assert channel.waiting == 0
    with pytest.raises(KeyError):
        channel.reader("c")


def test_scenario_37_a_stuck_optional_branch_delays_no_other(make: Make) -> None:
    channel = make({"must": BranchPolicy(), "may": BranchPolicy(required=False, behind_bytes=20_000)}, small=True)
    must, may = channel.reader("must"), channel.reader("may")
    stuck = may.take(1, 0.0)
    assert not stuck
    got = []
    for n in range(100):
        channel.put([EventBatch((event(n, 3000),))], 30.0)
        with must.take(10, 30.0) as take:
            got += numbers_of(take.event_batches)
    assert got == list(range(100))  # each once, independently of the other branch
    late = []
    while (found := may.take(10, 0.05)).event_batches:
        late += numbers_of(found.event_batches)
        found.commit()
    assert late
    assert late == list(range(late[0], 100))
    assert channel.figures()["branches"]["may"]["skipped"] == 100 - len(late)


def test_event_batches_are_done_once_the_required_branches_have_them(make: Make) -> None:
    channel = make({"must": BranchPolicy(), "may": BranchPolicy(required=False)})
    id = BatchId("elsewhere", 77, 0, 5)
    channel.put([EventBatch((), id, encode_events(id, "s", 1, [event(5)]).data)], 30.0)
    assert not channel.done(id)
    channel.reader("must").take(1, 30.0).commit()
    assert channel.done(id)
    assert channel.waiting == 1
    assert not channel.done(id._replace(sequence=6))


def test_concurrent_puts_and_takes_deliver_each_event_batch_once(make: Make) -> None:
    channel = make()
    got: list[int] = []
    lock = threading.Lock()

    def put(first: int) -> None:
        for n in range(first, first + 50):
            channel.put([event_batch(n)], 60.0)

    def take() -> None:
        while len(got) < 200:
            with channel.take(7, 0.1) as found, lock:
                got.extend(numbers_of(found.event_batches))

    threads = [threading.Thread(target=put, args=(1000 * n,)) for n in range(4)]
    threads += [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(got) == sorted(n for first in range(4) for n in range(1000 * first, 1000 * first + 50))
