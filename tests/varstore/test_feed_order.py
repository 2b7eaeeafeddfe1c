"""Groups of virtual shards are fed from one log while virtual shards move: no batch is missed or counted twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute.statistics import STATISTICS
from artimon.model.grid import Grid
from artimon.model.hash_routing import ownership, virtual_shard
from artimon.model.select import NAME, Matcher, SelectRequest
from artimon.model.vshards import ALL_VSHARDS, mask_of
from pipeline.spark import feed_task as feeding
from pipeline.spark.log_truncation import TruncationDetector
from pipeline.spark.topic_client import TopicError
from tests.varstore.feeding import NOW, FedShard, Feed, Log, Shards, reference, table
from tests.varstore.worlds import announce, positions, print_of
from varstore.cluster.peers import PeerError, fetch_snapshot
from varstore.shard.shard import Shard
from varstore.store.feed_groups import Partition

SOURCES = [f"s{i}" for i in range(12)]
AGENTS = [f"agent-{i}" for i in range(5)]
ALL = SelectRequest((Matcher(NAME, "prefix", "test."),), Grid(NOW + 60_000, 60_000, 3), STATISTICS)
HALVES = [mask_of(vshards) for vshards in ownership(("0", "1")).values()]


class World:
    """A log, shards, and one run of the query."""

    def __init__(self, *masks: int) -> None:
        self.log = Log()
        self.shards = {str(i): FedShard(str(i), mask) for i, mask in enumerate(masks)}
        self.feed = Feed(self.log, Shards(self.shards))
        self._values = 0

    def send(self, source: int, copies: int = 1) -> None:
        """Send a batch of two series of a source; a source stays with its agent."""
        self._values += 1
        rows = [(print_of(2 * source + i), NOW + self._values, NOW, self._values) for i in (0, 1)]
        self.log.send(AGENTS[source % len(AGENTS)], SOURCES[source], rows, NOW + self._values, copies)

    def begin_again(self) -> None:
        self.feed = Feed(self.log, Shards(self.shards))

    def add(self, id_: str, vshards: int = 0) -> FedShard:
        self.shards[id_] = FedShard(id_, vshards)
        return self.shards[id_]

    def close(self) -> None:
        for shard in self.shards.values():
            shard.close()

    def check(self) -> None:
        """Check that all shards together hold the data of one shard that gets everything."""
        whole = reference(self.log)
        announce_all_to(whole)
        for fed in self.shards.values():
            announce_all_to(fed.shard)
        expected = table([whole.select(ALL)], ALL)
        assert table([fed.shard.select(ALL) for fed in self.shards.values()], ALL) == expected


def announce_all_to(shard: Shard) -> None:
    """Announce all series to a shard."""
    for i, source in enumerate(SOURCES):
        announce(shard, [2 * i, 2 * i + 1], source)


@pytest.fixture
def pair() -> Iterator[World]:
    world = World(*HALVES)
    yield world
    world.close()


def fill(world: World) -> None:
    for i in range(36):
        world.send(i % 12, copies=1 + i % 2)


def test_each_group_is_fed_the_batches_of_its_virtual_shards(pair: World) -> None:
    fill(pair)
    pair.feed.settle()
    pair.check()
    assert pair.feed.progress.figures(0)["lagging"] == []


def test_virtual_shards_copied_from_a_peer_continue_where_the_image_ends(pair: World) -> None:
    """Batches fed during the copy are included; afterwards the copied virtual shards merge into one group with the
    rest."""
    fill(pair)
    pair.feed.settle()
    zero, one = pair.shards["0"], pair.shards["1"]
    announce_all_to(one.shard)
    some = mask_of(v for v in map(virtual_shard, SOURCES) if HALVES[1] >> v & 1)
    with closing(fetch_snapshot(one.place(), some)) as parts:
        pair.send(3)
        pair.feed.micro_batch()
        zero.shard.adopt(some, parts)
    one.shard.drop(some)
    fill(pair)
    pair.feed.settle()
    pair.check()
    assert len(zero.shard.groups()) == 1
    assert zero.shard.vshards == HALVES[0] | some


def test_virtual_shards_without_a_holder_are_read_from_the_start_without_delaying_others(pair: World) -> None:
    fill(pair)
    pair.feed.settle()
    pair.shards["1"].close()
    fresh = pair.add("1", 0)
    fresh.shard.adopt(HALVES[1])
    fill(pair)
    pair.feed.check_shards()
    pair.feed.micro_batch()
    assert positions(pair.shards["0"].shard) == {Partition("topic-one", p): n for p, n in pair.log.ends().items()}
    pair.feed.settle()
    pair.check()


def test_a_peer_that_dies_during_a_copy_leaves_nothing_behind(pair: World) -> None:
    fill(pair)
    pair.feed.settle()
    zero, one = pair.shards["0"], pair.shards["1"]
    with closing(fetch_snapshot(one.place(), HALVES[1])) as parts:
        first = next(parts)

        def rest() -> Iterator[bytes]:
            yield first
            one.close()
            yield from parts

        with pytest.raises(PeerError, match="shard 1"):
            zero.shard.adopt(HALVES[1], rest())
    assert zero.shard.vshards == HALVES[0]
    with pytest.raises(PeerError):
        list(fetch_snapshot(one.place(), HALVES[1]))


def test_a_hanging_shard_is_waited_for_once(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other shard gets its data at the same time, and later batches at once."""
    pair.send(1)
    pair.feed.micro_batch()  # the first batch takes longer: modules are imported
    monkeypatch.setattr(feeding, "SEND_TIMEOUT_S", 3.0)
    feeding._client.cache_clear()
    hang, zero = threading.Event(), pair.shards["0"].shard
    real = zero.feed

    def feed(range_: object) -> object:
        hang.wait(60)
        return real(range_)  # type: ignore[arg-type]

    zero.feed = feed  # type: ignore[assignment, method-assign]
    fill(pair)
    began = monotonic()
    for _ in range(5):
        pair.send(1)
        pair.feed.micro_batch()
    assert monotonic() - began < 14, "five rounds that each wait for the timeout take 15 s"
    assert positions(pair.shards["1"].shard) == {Partition("topic-one", p): n for p, n in pair.log.ends().items()}
    assert set(pair.feed.progress.figures(0)["problems"]) == {"0"}
    hang.set()
    pair.feed.settle()
    pair.check()
    feeding._client.cache_clear()


def cut(pair: World) -> tuple[int, int]:
    """Truncate a partition and let it grow beyond its old end, with other batches and some of the lost ones again.
    Returns the partition and the offset of the truncation."""
    partition = max(pair.log.records, key=lambda p: len(pair.log.records[p]))
    at = len(pair.log.records[partition]) - 4
    batches = pair.log.batches[partition][at:]
    gone = pair.log.cut(partition, at)
    other = next(i for i in range(12) if pair.log.batches[partition][0].source == SOURCES[i])
    for _ in range(3):
        pair.send(other)
    for record, batch in zip(gone, batches, strict=True):
        assert record.value is not None
        pair.log.append(partition, record.value, batch, record.append_ms)
    assert len(pair.log.records[partition]) > at + len(gone)
    return partition, at


def test_a_truncated_log_is_read_again_from_the_truncation(pair: World) -> None:
    """Offsets are reused by other batches; some of the old batches are sent once more."""
    cuts = TruncationDetector("topic-one")
    fill(pair)
    pair.feed.settle()
    pair.feed.rewind_truncated(cuts, pair.feed.info, pair.log.log_bounds(0), 0)
    partition, at = cut(pair)
    with pytest.raises(TopicError, match=f"partition {partition} at {at}"):
        pair.feed.rewind_truncated(cuts, pair.feed.info, pair.log.log_bounds(0), 1)
    for fed in pair.shards.values():
        assert positions(fed.shard)[Partition("topic-one", partition)] == at
    pair.begin_again()
    pair.feed.rewind_truncated(cuts, pair.feed.info, pair.log.log_bounds(0), 2)
    pair.feed.settle()
    pair.check()


@pytest.mark.parametrize("soon", [True, False])
def test_a_log_truncated_while_no_driver_ran_is_read_again(pair: World, soon: bool) -> None:
    """The shards detect it by the leader epochs, before the next driver feeds them or after."""
    fill(pair)
    before = {p: epochs[-1][0] for p, epochs in pair.log.leaders.items()}
    for fed in pair.shards.values():
        fed.shard.follow_epochs("topic-one", before, {})
    pair.feed.settle()
    partition, at = cut(pair)
    if not soon:
        pair.begin_again()
        pair.feed.settle()
    now = {p: epochs[-1][0] for p, epochs in pair.log.leaders.items()}
    for fed in pair.shards.values():
        other = fed.shard.other_epochs("topic-one", now)
        assert other == {(partition, before[partition])}
        fed.shard.follow_epochs("topic-one", now, dict.fromkeys(other, at))
        assert positions(fed.shard)[Partition("topic-one", partition)] == at
    pair.begin_again()
    pair.feed.settle()
    pair.check()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 11)),
        st.tuples(st.just("live"), st.just(0)),
        st.tuples(st.just("help"), st.just(0)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, 11)),
        st.tuples(st.just("empty"), st.integers(0, 11)),
        st.tuples(st.just("kill"), st.integers(0, 2)),
        st.tuples(st.just("again"), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=25)
@given(STEPS)
def test_any_sequence_of_moves_kills_and_restarts_ends_with_the_same_buckets(steps: list[tuple[str, int]]) -> None:
    world = World(*HALVES, 0)
    try:
        for what, n in steps:
            act(world, what, n)
        world.feed.settle()
        world.check()
    finally:
        world.close()


def act(world: World, what: str, n: int) -> None:
    match what:
        case "send":
            for i in range(3):
                world.send((n + i) % 12, copies=1 + n % 2)
        case "live":
            world.feed.micro_batch()
        case "help":
            world.feed.help_laggards()
        case "look":
            world.feed.check_shards()
        case "again":
            world.begin_again()
        case "kill":
            vshards = world.shards[str(n)].shard.vshards
            world.shards[str(n)].close()
            world.add(str(n), vshards)
        case _:
            vshard = 1 << virtual_shard(SOURCES[n])
            giver = next(fed for fed in world.shards.values() if fed.shard.vshards & vshard)
            taker = world.shards[str((int(giver.id) + 1) % 3)]
            if what == "move":
                announce_all_to(giver.shard)
                with closing(fetch_snapshot(giver.place(), vshard)) as parts:
                    taker.shard.adopt(vshard, parts)
            else:
                taker.shard.adopt(vshard)
            giver.shard.drop(vshard)


def test_the_world_covers_all_virtual_shards() -> None:
    assert HALVES[0] ^ HALVES[1] == ALL_VSHARDS
