"""A shard without a snapshot is refilled from the raw table, then from Kafka, and holds the same buckets as before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from tests.seeds import fixed_and_drawn
from tests.spark.local_files import local_files
from tests.varstore.keeping import (
    ALL,
    HOUR,
    START,
    Log,
    announce_sources,
    catch_up,
    check,
    empty,
    feed,
    masks,
    random_log,
)
from tests.varstore.raw_log import RawLog
from tests.varstore.worlds import TOPIC, positions, print_of
from varstore.shard.shard import Shard
from varstore.snapshot.raw_head import RawHead
from varstore.snapshot.refill import Refill
from varstore.store.feed_groups import Partition


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[str]:
    """A local folder in place of HDFS."""
    with local_files(SYSTEM_CLOCK):
        yield f"file://{tmp_path}"


def legal(log: Log) -> Log:
    """Remove the series that changes its type against the rules, because its type depends on the order of samples."""
    for batches in log.partitions.values():
        for i, batch in enumerate(batches):
            rows = [row for row in batch.rows if row[0] != print_of(6) or not isinstance(row[3], str)]
            batches[i] = type(batch)(batch.id, batch.source, batch.append_ms, [r for r in rows if r[0] != print_of(6)])
    return log


def accept_any_head(_head: RawHead) -> bool:
    return True


def refilled(hdfs: str, vshards: int = ALL) -> Shard:
    """Return a new shard that was refilled."""
    shard = empty(0)
    assert Refill(shard, hdfs).run(vshards, accept_any_head)
    announce_sources(shard)
    return shard


@pytest.mark.parametrize("seed", fixed_and_drawn(range(2), "refill", 3))
def test_a_refill_from_table_and_kafka_gives_the_same_buckets(hdfs: str, seed: int) -> None:
    """Late and future samples, repeats, ends, restarts, several periods."""
    draw = random.Random(seed)
    log = legal(random_log(draw, 60))
    raw = RawLog(hdfs)
    for share in (0.3, 0.7):
        raw.store(log, {p: int(len(batches) * share) for p, batches in log.partitions.items()})
    shard = refilled(hdfs)
    at = {Partition(TOPIC, p): int(len(batches) * 0.7) for p, batches in log.partitions.items()}
    assert positions(shard) == at
    assert shard.ready == ALL
    catch_up(shard, log)
    check(shard, log, ALL)


def test_only_wanted_virtual_shards_are_refilled(hdfs: str) -> None:
    """The other virtual shards are not read."""
    log = legal(random_log(random.Random(1), 40))
    RawLog(hdfs).store(log, {p: len(batches) for p, batches in log.partitions.items()})
    shard = refilled(hdfs, masks(["s1"]))
    check(shard, log, masks(["s1"]))
    assert shard._store.slots.live == 3


def test_a_shard_is_fed_while_it_is_refilled(hdfs: str) -> None:
    """Periods are read newest first; newer batches of Kafka are applied at once, and a batch in both counts once."""
    log = legal(random_log(random.Random(2), 60))
    RawLog(hdfs).store(log, {p: len(batches) // 2 for p, batches in log.partitions.items()})
    shard = empty(0)

    def begun() -> None:
        announce_sources(shard)
        assert shard.ready == 0
        feed(shard, log, shard.groups()[0], 0, 7)

    assert Refill(shard, hdfs).run(ALL, accept_any_head, begun)
    catch_up(shard, log)
    check(shard, log, ALL)


def test_series_that_became_doubles_are_refilled(hdfs: str) -> None:
    """The one permitted change of type, read from its end."""
    log = Log()
    for hour in range(6):
        append = START + hour * HOUR
        log.add("s0", append, [(print_of(0), append - 5, START, hour if hour < 3 else hour + 0.5)])
    RawLog(hdfs).store(log, {0: 6, 1: 0})
    shard = refilled(hdfs)
    check(shard, log, ALL)


def test_without_a_table_nothing_is_held(hdfs: str) -> None:
    """The same holds if the offsets of the table cannot be used."""
    shard = empty(0)
    assert not Refill(shard, hdfs).run(ALL, accept_any_head)
    log = random_log(random.Random(1), 10)
    RawLog(hdfs).store(log, {0: 2, 1: 2})
    assert not Refill(shard, hdfs).run(ALL, lambda head: head.topic_id != TOPIC)
    assert shard.vshards == 0


def test_a_refill_with_a_missing_file_leaves_nothing(hdfs: str, tmp_path: Path) -> None:
    """The next attempt reads a newer version."""
    log = legal(random_log(random.Random(4), 40))
    RawLog(hdfs).store(log, {p: len(batches) for p, batches in log.partitions.items()})
    victim = sorted((tmp_path / "artimon" / "raw").rglob("*.parquet"))[0]
    kept = victim.read_bytes()
    victim.unlink()
    shard = empty(0)
    with pytest.raises(FileNotFoundError):
        Refill(shard, hdfs).run(ALL, accept_any_head)
    assert (shard.vshards, shard._store.slots.live) == (0, 0)
    victim.write_bytes(kept)
    assert Refill(shard, hdfs).run(ALL, accept_any_head)
    announce_sources(shard)
    check(shard, log, ALL)
