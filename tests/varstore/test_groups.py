"""Groups of virtual shards of a process are adopted, dropped and fed at different offsets; every batch counts once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from artimon.model.batch import BatchError
from artimon.model.feed_codec import GROUP_CHANGED
from artimon.model.vshards import from_hex
from tests.varstore.keeping import (
    ALL,
    HOUR,
    MINUTE,
    SERIES,
    SOURCES,
    START,
    VSHARDS,
    Log,
    announce_sources,
    catch_up,
    check,
    empty,
    feed,
    masks,
    position,
    random_log,
    range_for,
)
from tests.varstore.worlds import TOPIC, positions, print_of
from varstore.shard.shard import Shard
from varstore.snapshot.snapshots import Snapshots
from varstore.store.active_exports import ActiveExports, ExportNotFoundError, TooManyExportsError
from varstore.store.feed_groups import GroupChanged, Partition
from varstore.store.snapshot_frames import SnapshotFormatError


@pytest.fixture
def log() -> Log:
    """Batches of three sources in two partitions."""
    return random_log(random.Random(7), 40)


def test_sources_of_these_tests_are_of_different_virtual_shards() -> None:
    assert len(set(VSHARDS.values())) == 3


def test_a_range_for_another_set_is_refused(log: Log) -> None:
    """A group must not be fed columns that were filtered for another set."""
    shard = empty()
    for mask in (masks(["s0"]), ALL | 1 << (set(range(256)) - set(VSHARDS.values())).pop()):
        with pytest.raises(GroupChanged, match=f"^{GROUP_CHANGED}"):
            shard.feed(range_for(log, mask, 0, 0, 5))
    assert position(shard.groups()[0], 0) == 0


def test_a_range_without_the_rows_of_an_owned_batch_is_refused(log: Log) -> None:
    """The rows would be lost for good, because the batch numbers would count as seen."""
    shard = empty()
    good = range_for(log, masks(["s0"]), 0, 0, 5)
    bad = type(good)(good.topic_id, 0, 0, good.until, good.entries, good.samples, ALL)
    with pytest.raises(BatchError, match="came without rows"):
        shard.feed(bad)


def test_groups_at_the_same_offsets_are_merged(log: Log) -> None:
    """An adopted virtual shard begins at 0; once it reaches the offsets of the others there is one group again."""
    shard = empty(masks(["s0", "s1"]))
    catch_up(shard, log)
    shard.adopt(masks(["s2"]))
    announce_sources(shard)
    assert [from_hex(g["vshards"]) for g in shard.groups()] == [masks(["s0", "s1"]), masks(["s2"])]
    for _ in range(3):
        feed(shard, log, shard.groups()[-1], 0, 5)
    assert len(shard.groups()) == 2
    catch_up(shard, log)
    assert [from_hex(g["vshards"]) for g in shard.groups()] == [ALL]
    check(shard, log)


def test_groups_that_are_not_ready_stay_apart(log: Log) -> None:
    """A group that is not complete must not be merged into one that is."""
    shard = empty(masks(["s0", "s1"]))
    catch_up(shard, log)
    shard.adopt(masks(["s2"]), ready=False)
    announce_sources(shard)
    catch_up(shard, log)
    assert shard.ready == masks(["s0", "s1"])
    assert len(shard.groups()) == 2
    shard.ownership.set_ready(masks(["s2"]))
    log.add("s0", log.head_ms + 1, [])
    catch_up(shard, log)
    assert [from_hex(g["vshards"]) for g in shard.groups()] == [ALL]


def test_groups_that_saw_different_batches_stay_apart(log: Log) -> None:
    """One of them read a part of the log that is lost now; batches that agents send again are new to the other one
    only."""
    shard = empty(masks(["s0"]))
    catch_up(shard, log)
    shard.adopt(masks(["s2"]))
    announce_sources(shard)
    late = next(g for g in shard.groups() if from_hex(g["vshards"]) == masks(["s2"]))
    assert position(late, 0) == 0
    skipped = range_for(log, masks(["s2"]), 0, 0, 0)
    shard.feed(type(skipped)(skipped.topic_id, 0, 0, 10, (), skipped.samples, masks(["s2"])))
    catch_up(shard, log)
    assert len(shard.groups()) == 2
    for batch in log.partitions[0][:10]:
        log.partitions[0].append(batch)  # sent again
    catch_up(shard, log)
    check(shard, log, masks(["s0"]))
    check(shard, log, masks(["s2"]))


def test_dropped_series_are_gone_and_complete_after_adoption(log: Log) -> None:
    """Slots, labels and announcements are removed."""
    shard = empty()
    catch_up(shard, log)
    assert shard.drop(masks(["s0"])) == masks(["s0"])
    assert shard.drop(masks(["s0"])) == 0
    assert all(name not in shard.names() for name in ("test.v0", "test.v2"))
    check(shard, log)
    shard.adopt(masks(["s0"]))
    announce_sources(shard)
    catch_up(shard, log)
    check(shard, log, ALL)
    assert len(shard.groups()) == 1


def test_virtual_shards_that_are_held_cannot_be_adopted(log: Log) -> None:
    """Neither from an image nor empty."""
    shard = empty()
    with pytest.raises(ValueError, match="held already"):
        shard.adopt(masks(["s1"]))
    with pytest.raises(ValueError, match="held already"):
        shard.adopt(masks(["s1"]), [])
    with pytest.raises(ValueError, match="are not held"):
        empty(masks(["s0"])).ownership.export(ALL)


def image(shard: Shard, vshards: int = ALL) -> list[bytes]:
    """Return all parts of the image."""
    export = shard.ownership.export(vshards)
    parts = list(export)
    export.close()
    return parts


@pytest.mark.parametrize("fed", [0, 3, 100])
def test_an_image_is_consistent(log: Log, fed: int) -> None:
    """The image stays consistent while batches are fed and virtual shards are dropped during the fetch."""
    shard, other = empty(), empty(0)
    for partition in (0, 1):
        feed(shard, log, shard.groups()[0], partition, 8)
    export = shard.ownership.export(ALL)
    positions = shard.groups()
    parts = []
    for i, part in enumerate(export):
        parts.append(part)
        if i % 3 == 0 and i // 3 < fed:
            feed(shard, log, shard.groups()[0], i % 2, 1)
        if i == 20:
            shard.drop(masks(["s1"]))
    export.close()
    assert not shard._store.captures
    other.adopt(ALL, parts)
    assert other.groups() == positions
    announce_sources(other)  # series dropped meanwhile lack their labels
    catch_up(other, log)
    check(other, log, ALL)
    catch_up(shard, log)
    check(shard, log)


def test_an_image_includes_rows_that_were_overwritten_meanwhile(log: Log) -> None:
    """A day passes before its first part is fetched."""
    shard, other = empty(), empty(0)
    catch_up(shard, log)
    export = shard.ownership.export(ALL)
    later = Log({p: list(batches) for p, batches in log.partitions.items()}, dict(log.numbers))
    for step in range(300):
        at = log.head_ms + HOUR + step * 5 * MINUTE
        for source in SOURCES:
            later.add(source, at, [(print_of(SERIES[source][0]), at - 5, START, step)])
    catch_up(shard, later)
    other.adopt(ALL, list(export))
    export.close()
    check(other, log, ALL)
    catch_up(other, later)
    check(other, later, ALL)


def test_part_of_an_image_can_be_adopted_by_a_shard_that_holds_others(log: Log) -> None:
    """Slots differ there; the data already there stays."""
    giver, taker = empty(), empty(masks(["s1"]))
    catch_up(giver, log)
    feed(taker, log, taker.groups()[0], 1, 4)
    taker.adopt(masks(["s0", "s2"]), image(giver))
    assert taker.vshards == ALL
    catch_up(taker, log)
    check(taker, log, ALL)
    log.add("s2", log.head_ms + 1, [])
    catch_up(taker, log)
    assert len(taker.groups()) == 1


def damage(parts: list[bytes], what: str) -> list[bytes]:
    """Return parts that are not a valid image."""
    match what:
        case "cut":
            return parts[:-1]
        case "lacks_a_part":
            return parts[:5] + parts[6:]
        case "flipped":
            middle = len(parts) // 2
            part = bytearray(parts[middle])
            part[len(part) // 2] ^= 1
            return [*parts[:middle], bytes(part), *parts[middle + 1 :]]
        case "short":
            return [*parts[:4], parts[4][:-3], *parts[5:]]
        case "noise":
            return [b"no image at all", *parts]
        case _:
            return [*parts, parts[0]]


@pytest.mark.parametrize("what", ["cut", "lacks_a_part", "flipped", "short", "noise", "goes_on"])
def test_a_damaged_image_leaves_nothing(log: Log, what: str) -> None:
    """The image is refused as a whole; the shard continues, and accepts a good one."""
    giver, taker = empty(), empty(masks(["s1"]))
    catch_up(giver, log)
    good = image(giver, masks(["s0", "s2"]))
    with pytest.raises(SnapshotFormatError):
        taker.adopt(masks(["s0", "s2"]), damage(good, what))
    assert taker.vshards == masks(["s1"])
    assert "test.v0" not in taker.names()
    taker.adopt(masks(["s0", "s2"]), good)
    catch_up(taker, log)
    check(taker, log, ALL)


def test_an_image_that_lacks_wanted_virtual_shards_is_refused(log: Log) -> None:
    """The shard holds nothing afterwards."""
    giver, taker = empty(masks(["s0"])), empty(0)
    catch_up(giver, log)
    with pytest.raises(SnapshotFormatError, match="lacks"):
        taker.adopt(ALL, image(giver, masks(["s0"])))
    assert taker.vshards == 0
    assert taker._store.slots.live == 0


def test_an_image_beyond_the_capacity_is_refused(log: Log) -> None:
    """The error names the capacity."""
    giver, taker = empty(), Shard(capacity=3, owned=frozenset())
    catch_up(giver, log)
    with pytest.raises(SnapshotFormatError, match="capacity"):
        taker.adopt(ALL, image(giver))
    assert taker._store.slots.live == 0


def test_exports_are_fetched_in_order_and_expire(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may be requested twice; exports that are not fetched are given up."""
    shard = empty()
    catch_up(shard, log)
    exports = ActiveExports(shard.ownership.export)
    id_, _ = exports.begin(ALL)
    assert exports.part(id_, 0) == exports.part(id_, 0)
    with pytest.raises(ExportNotFoundError):
        exports.part(id_, 2)
    for _ in range(3):
        exports.begin(ALL)
    with pytest.raises(TooManyExportsError):
        exports.begin(ALL)
    monkeypatch.setattr("varstore.store.active_exports.IDLE_TIMEOUT_S", -1.0)
    exports.close_idle()
    assert len(exports) == 0
    assert not shard._store.captures
    with pytest.raises(ExportNotFoundError):
        exports.part(id_, 1)


@pytest.mark.parametrize("how", ["alive", "snapshot", "image"])
def test_a_log_that_was_truncated_and_grew_again_is_read_again(log: Log, tmp_path: Path, how: str) -> None:
    """The log is longer than the shard's offset, so only the leader epochs show it. Nothing is fed meanwhile."""
    shard = empty()
    shard.follow_epochs(TOPIC, {0: 5, 1: 5}, {})
    catch_up(shard, log)
    if how == "snapshot":
        Snapshots(shard, tmp_path).take()
        shard = empty(0)
        assert Snapshots(shard, tmp_path).load()
    elif how == "image":
        parts = list(shard.ownership.export(ALL))
        shard = empty(0)
        shard.adopt(ALL, parts)
    announce_sources(shard)
    lost = log.partitions[0][-4:]
    del log.partitions[0][-4:]
    kept = len(log.partitions[0])
    for n in range(6):
        log.add("s0", log.head_ms, [(print_of(0), log.head_ms - n, START, 1_000 + n)])
    log.partitions[0] += lost[:2]  # agents send these again
    assert shard.other_epochs(TOPIC, {0: 7, 1: 5}) == {(0, 5)}
    shard.follow_epochs(TOPIC, {0: 7, 1: 5}, {(0, 5): kept})
    assert positions(shard)[Partition(TOPIC, 0)] == kept
    assert shard.other_epochs(TOPIC, {0: 7, 1: 5}) == set()
    catch_up(shard, log)
    log.partitions[0] += lost[2:]  # they were applied once, and count
    check(shard, log, ALL)


def test_leader_epochs_that_decrease_mean_another_log(log: Log) -> None:
    shard = empty()
    shard.follow_epochs(TOPIC, {0: 5, 1: 5}, {})
    catch_up(shard, log)
    shard.follow_epochs(TOPIC, {0: 2, 1: 5}, {(0, 5): 0})
    assert positions(shard)[Partition(TOPIC, 0)] == 0
    catch_up(shard, log)
    check(shard, log, ALL)
