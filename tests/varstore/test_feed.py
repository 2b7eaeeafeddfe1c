"""Feed protocol: the position in a shard's answer is authoritative."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from artimon.compute.statistics import STATISTICS
from artimon.model.batch import BatchError, BatchId
from artimon.model.feed_codec import FeedAnswer, FeedEntry, FeedRange, concat_samples, decode_range, encode_range
from artimon.model.grid import Grid
from artimon.model.hash_routing import ownership, virtual_shard
from artimon.model.select import NAME, Buckets, Matcher, SelectRequest
from tests.varstore.worlds import TOPIC, TestBatch, announce, positions, print_of, range_of
from varstore.shard.shard import Shard, ShardBroken
from varstore.store.feed_groups import Partition

NOW = 1_800_000_000_000
END = NOW + 60_000


def batch(number: int, series: int = 0, value: int | float | str = 1, source: str = "s0") -> TestBatch:
    """Return one sample of one series."""
    id = BatchId("agent", 1, 0, number)
    return TestBatch(id, source, NOW + 1_000, [(print_of(series), NOW + 500 + number, NOW, value)])


LOG = [batch(i) for i in range(6)]


def count(shard: Shard, end: int = END) -> int:
    """Return the number of samples in the finest bucket, over all series."""
    request = SelectRequest((Matcher(NAME, "prefix", "test."),), Grid(end, 60_000, 1), ("count",))
    return int(shard.select(request).statistics["count"].sum())


@pytest.fixture
def shard() -> Shard:
    """A small shard that knows some series."""
    made = Shard(capacity=1_000)
    announce(made, range(5))
    return made


def test_a_range_moves_the_position_with_its_data(shard: Shard) -> None:
    """The answer counts the outcome of its batches."""
    assert shard.feed(range_of(LOG, 0, 3)) == FeedAnswer(3, applied=3)
    assert positions(shard) == {Partition(TOPIC, 0): 3}
    assert count(shard) == 3


@pytest.mark.parametrize(
    ("start", "until", "expected", "samples"),
    [
        pytest.param(4, 6, FeedAnswer(3), 3, id="gap_refused"),
        pytest.param(0, 3, FeedAnswer(3), 3, id="sent_again"),
        pytest.param(1, 5, FeedAnswer(5, applied=2), 5, id="overlap_trimmed"),
        pytest.param(3, 3, FeedAnswer(3), 3, id="empty"),
        pytest.param(3, 6, FeedAnswer(6, applied=3), 6, id="next"),
    ],
)
def test_repeats_and_gaps_do_not_change_the_buckets(
    shard: Shard, start: int, until: int, expected: FeedAnswer, samples: int
) -> None:
    """Ranges after the first three batches: repeats, overlaps and gaps."""
    shard.feed(range_of(LOG, 0, 3))
    assert shard.feed(range_of(LOG, start, until)) == expected
    assert count(shard) == samples


def test_an_identity_counts_once(shard: Shard) -> None:
    """A batch that occurs twice in the partition is dropped the second time, in the same range or in another."""
    log = [LOG[0], LOG[1], LOG[0], LOG[2], LOG[1]]
    assert shard.feed(range_of(log, 0, 3)) == FeedAnswer(3, applied=2, repeated=1)
    assert shard.feed(range_of(log, 3, 5)) == FeedAnswer(5, applied=1, repeated=1)
    assert count(shard) == 3


def test_partitions_and_topics_have_positions_of_their_own(shard: Shard) -> None:
    """A topic that was recreated has another id and starts at 0."""
    shard.feed(range_of(LOG, 0, 2))
    shard.feed(range_of(LOG[2:], 0, 1, partition=1))
    shard.feed(range_of(LOG[3:], 0, 1, topic="topic-two"))
    assert positions(shard) == {Partition(TOPIC, 0): 2, Partition(TOPIC, 1): 1, Partition("topic-two", 0): 1}
    assert count(shard) == 4


def test_batches_sent_again_to_a_recreated_topic_are_repeats(shard: Shard) -> None:
    """The offsets of the old topic mean nothing any more, but a batch keeps its identity for ever."""
    shard.feed(range_of(LOG, 0, 4))
    assert shard.feed(range_of(LOG[2:], 0, 4, topic="topic-two")) == FeedAnswer(4, applied=2, repeated=2)
    assert count(shard) == 6


def test_undecodable_and_foreign_messages_only_take_an_offset() -> None:
    """Identities of batches that other shards own are recorded; undecodable messages have none."""
    mine = LOG[0]
    shard = Shard(capacity=1_000, owned=frozenset({virtual_shard(mine.source)}))
    entries = (
        FeedEntry(0, NOW, None, "", 0, 0, False, 0),
        replace(batch(1, source="x").entry(1), rows=0, owned=False),
        mine.entry(2),
    )
    range_ = FeedRange(TOPIC, 0, 0, 3, entries, mine.samples(), shard.vshards)
    assert shard.feed(range_) == FeedAnswer(3, applied=1)


def test_offsets_without_entries_are_passed(shard: Shard) -> None:
    """A range without entries moves the position; the feeder sends it for offsets that the log no longer has."""
    assert shard.feed(FeedRange(TOPIC, 0, 0, 50, (), concat_samples([]))) == FeedAnswer(50)
    assert shard.feed(replace(range_of(LOG[:1], 0, 1), start=50, until=51, entries=(LOG[0].entry(50),))).applied == 1


def damage(what: str) -> FeedRange:
    """Return a range that contradicts itself."""
    good = range_of(LOG, 0, 3)
    a, b, c = good.entries
    match what:
        case "falling":
            return replace(good, entries=(b, a, c))
        case "outside":
            return replace(good, until=2)
        case "rows":
            return replace(good, entries=(a, b, replace(c, rows=2)))
        case "not_owned":
            return replace(good, entries=(a, b, replace(c, owned=False)))
        case "type":
            return replace(good, samples=replace(good.samples, type=np.full(3, 9, np.uint8)))
        case "string":
            return replace(good, samples=replace(good.samples, type=np.full(3, 3, np.uint8)))
        case _:
            return replace(good, until=-1)


@pytest.mark.parametrize("what", ["falling", "outside", "rows", "not_owned", "type", "string", "backwards"])
def test_a_range_that_contradicts_itself_is_refused_whole(shard: Shard, what: str) -> None:
    """Nothing of it is applied, and the shard continues."""
    with pytest.raises(BatchError, match="feed of"):
        shard.feed(damage(what))
    assert shard.feed(range_of(LOG, 0, 3)).applied == 3


def test_a_source_that_is_not_ours_is_refused() -> None:
    """A feeder with an outdated membership must not spread a series over two shards."""
    owned = ownership(["a", "b"])["a"]
    shard = Shard("a", capacity=1_000, owned=owned)
    foreign = next(f"s{i}" for i in range(100) if virtual_shard(f"s{i}") not in owned)
    log = [batch(0, source=foreign)]
    with pytest.raises(BatchError, match="not owned by shard a"):
        shard.feed(replace(range_of(log, 0, 1), vshards=shard.vshards))
    announce(shard, [0], source=foreign)
    assert shard.names() == []


def test_a_failure_half_way_stops_the_shard(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a range must never be taken for the whole: the process restarts empty."""

    def fail(*_: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(shard._store, "apply", fail)
    for _ in range(2):
        with pytest.raises(ShardBroken, match="half-way"):
            shard.feed(range_of(LOG, 0, 3))
    assert "no more" in shard.status()["broken"]
    assert positions(shard) == {}


def test_a_decoded_range_equals_the_encoded_one(shard: Shard) -> None:
    """The bytes of docs/formats/feed.md, strings and ends included, decode to the same range."""
    log = [batch(0, value="ü"), batch(1, value=2.5), batch(2)]
    assert shard.feed(decode_range(encode_range(range_of(log, 0, 3)))).next_offset == 3
    with pytest.raises(BatchError, match="unreadable"):
        decode_range([b"no", b"such", b"thing"])


def test_capacity_is_a_limit_not_a_crash() -> None:
    """New series beyond the capacity are refused and counted; known ones continue."""
    shard = Shard(capacity=1_024)
    rows = [(i + 1, NOW, NOW, 1) for i in range(1_030)]
    log = [TestBatch(BatchId("a", 1, 0, i), "s0", NOW, rows) for i in range(2)]
    assert shard.feed(range_of(log, 0, 2)).applied == 2 * 1_024
    status = shard.status()
    assert (status["slots"], status["refused"]) == (1_024, 12)


def test_a_wrong_block_hash_does_not_assign_wrong_slots(shard: Shard) -> None:
    """Cached slots are used only for the fingerprints they belong to."""
    one, two = batch(0, series=0), batch(1, series=1)
    entries = (one.entry(0), replace(two.entry(1), block_hash=one.entry(0).block_hash))
    shard.feed(FeedRange(TOPIC, 0, 0, 2, entries, concat_samples([one.samples(), two.samples()])))
    request = SelectRequest((Matcher(NAME, "prefix", "test."),), Grid(END, 60_000, 1), ("count",))
    assert sorted(shard.select(request).statistics["count"].ravel().tolist()) == [0, 0, 0, 1, 1]


def test_readers_see_whole_cells_while_ranges_arrive(shard: Shard) -> None:
    """count, min, max and sum of a cell are consistent in every answer while ranges are fed."""
    log = [
        TestBatch(BatchId("a", 1, 0, i), "s0", NOW + 1_000, [(print_of(j), NOW + 500, NOW, 3) for j in range(5)])
        for i in range(400)
    ]
    request = SelectRequest((Matcher(NAME, "prefix", "test."),), Grid(END, 60_000, 1), STATISTICS)
    answers: list[Buckets] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            answers.append(shard.select(request))

    reader = threading.Thread(target=read)
    reader.start()
    for at in range(0, 400, 4):
        shard.feed(range_of(log, at, at + 4))
    done.set()
    reader.join(60)
    assert len(answers) > 1
    for answer in answers:
        got = {name: answer.statistics[name].ravel() for name in STATISTICS}
        assert (got["sum"] == 3 * got["count"]).all()
        assert len(set(got["count"].tolist())) == 1  # five series of one run
    assert count(shard) == 2_000
