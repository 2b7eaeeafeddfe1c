"""Random histories of shards - fed, snapshot, killed, restarted, moved, dropped, refilled - compared with a plain slow
store that saw each batch once."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.model.batch import BatchError
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.feed_codec import FeedRange, concat_samples
from artimon.model.vshards import from_hex
from tests.spark.local_files import local_files
from tests.varstore.keeping import (
    ALL,
    HOUR,
    SOURCES,
    VSHARDS,
    Log,
    announce_sources,
    catch_up,
    check,
    empty,
    position,
    random_log,
    range_for,
)
from tests.varstore.raw_log import RawLog
from tests.varstore.worlds import TOPIC, print_of
from varstore.cells.cell_file import CellFile
from varstore.shard.shard import Shard
from varstore.snapshot.refill import Refill
from varstore.snapshot.snapshots import Snapshots

STEPS = (
    *("feed", "feed", "feed", "wrong", "snapshot", "restart", "adopt", "drop", "move", "copy", "append"),
    *("refill", "clear", "lose", "spill"),
)

Step = tuple[str, int, int, int, int]
"""Operation, shard, sources (mask of three), two numbers."""

steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 1), st.integers(1, 7), st.integers(0, 60), st.integers(0, 12)),
    min_size=5,
    max_size=30,
)


def wanted(sources: int) -> int:
    """Return the virtual shards of some of the three sources."""
    return sum(1 << VSHARDS[name] for at, name in enumerate(SOURCES) if sources >> at & 1)


class World:
    """Two shards, the log, the raw table."""

    def __init__(self, folder: Path, log: Log) -> None:
        self.log, self._folder = log, folder
        self._hdfs = f"file://{folder}/hdfs"
        self.raw = RawLog(self._hdfs)
        self.shards: list[Shard] = []
        self.snapshots: list[Snapshots] = []
        for number in range(2):
            self.shards.append(self._empty(ALL if number == 0 else 0))
            self.snapshots.append(self._on(number))

    def _empty(self, vshards: int) -> Shard:
        return empty(vshards, cell_file=CellFile(self._folder / "cells"))

    def _on(self, number: int) -> Snapshots:
        return Snapshots(self.shards[number], self._folder / f"shard-{number}")

    def run(self, step: Step) -> None:
        """Run one step."""
        what, number, sources, one, other = step
        run: Callable[[int, int, int, int], None] = getattr(self, what)
        run(number, wanted(sources), one, other)

    def _group(self, number: int, at: int) -> dict[str, object] | None:
        groups = self.shards[number].groups()
        return groups[at % len(groups)] if groups else None

    def feed(self, number: int, _: int, at: int, count: int) -> None:
        """Feed a range that begins at the group's offset, a little below it, or above; the last is refused."""
        group = self._group(number, at)
        if group is None:
            return
        partition, mask = at % 2, from_hex(str(group["vshards"]))
        stands, end = position(group, partition), len(self.log.partitions[at % 2])
        start = min(max(0, stands + (0, 0, -2, 3)[at % 4]), end)
        answer = self.shards[number].feed(range_for(self.log, mask, partition, start, start + count))
        until = min(start + count, end)
        assert answer.next_offset == (max(stands, until) if start <= stands else stands)

    def wrong(self, number: int, mask: int, _: int, count: int) -> None:
        """Feed a range for a set that is no group."""
        shard = self.shards[number]
        if mask not in [from_hex(str(group["vshards"])) for group in shard.groups()]:
            with pytest.raises(BatchError, match="group changed"):
                shard.feed(range_for(self.log, mask, 0, 0, count))

    def snapshot(self, number: int, *_: int) -> None:
        """Take a snapshot."""
        self.snapshots[number].take()

    def spill(self, number: int, *_: int) -> None:
        """Move packed cells to disk."""
        spiller = self.shards[number].spiller
        assert spiller is not None
        spiller.move()
        spiller.file.release()

    def restart(self, number: int, _mask: int, wipe: int, *_: int) -> None:
        """Kill the shard and start it again, seldom without its disk."""
        held = self.shards[number].vshards
        self.shards[number] = self._empty(0)
        if wipe % 8 == 0:
            self._folder = self._folder / "new"
        self.snapshots[number] = self._on(number)
        self.snapshots[number].load()
        missing = held & ~self.shards[number].vshards
        if missing:
            self.shards[number].adopt(missing)
        announce_sources(self.shards[number])

    def adopt(self, number: int, mask: int, *_: int) -> None:
        """Adopt more virtual shards, empty."""
        fresh = mask & ~self.shards[number].vshards
        if fresh:
            self.shards[number].adopt(fresh)
            announce_sources(self.shards[number])

    def drop(self, number: int, mask: int, *_: int) -> None:
        """Drop some virtual shards."""
        held = self.shards[number].vshards
        assert self.shards[number].drop(mask) == mask & held

    def move(self, number: int, mask: int, at: int, count: int) -> None:
        """Copy to the other shard, feeding both meanwhile, and drop them from the giver."""
        self.copy(number, mask, at, count)
        giver, taker = self.shards[number], self.shards[1 - number]
        giver.drop(mask & giver.vshards & taker.vshards)

    def copy(self, number: int, mask: int, at: int, count: int) -> None:
        """As `move`, but the giver keeps them."""
        giver, taker = self.shards[number], self.shards[1 - number]
        mask &= giver.ready & ~taker.vshards
        if not mask:
            return
        export = giver.ownership.export(mask)

        def parts() -> object:
            for i, part in enumerate(export):
                if i % (count + 1) == 0:
                    self.feed(number, 0, at + i, 1)
                    self.feed(1 - number, 0, at + i, 1)
                yield part

        taker.adopt(mask, parts())  # type: ignore[arg-type]
        export.close()
        announce_sources(taker)

    def append(self, _number: int, _mask: int, one: int, other: int) -> None:
        """Advance the raw query."""
        self._store(one % 7, other % 7)

    def _store(self, one: int, other: int) -> None:
        until = dict(self.raw.state.until())
        for partition, count in ((0, one), (1, other)):
            until[partition] = min(until[partition] + count, len(self.log.partitions[partition]))
        self.raw.store(self.log, until)

    def refill(self, number: int, mask: int, at: int, count: int) -> None:
        """Refill from the raw table, feeding meanwhile."""
        fresh = mask & ~self.shards[number].vshards
        if fresh:
            refill = Refill(self.shards[number], self._hdfs)
            if not refill.run(fresh, lambda _: True, lambda: self.feed(number, 0, at, count)):
                self.shards[number].adopt(fresh)
            announce_sources(self.shards[number])

    def clear(self, number: int, *_: int) -> None:
        """Lose the process with its disk, and refill its virtual shards."""
        held = self.shards[number].vshards
        self.shards[number] = self._empty(0)
        self._folder = self._folder / "new"
        self.snapshots[number] = self._on(number)
        self.refill(number, held, 0, 0)

    def lose(self, number: int, _: int, at: int, count: int) -> None:
        """Delete from Kafka some of the batches that a group lacks."""
        group = self._group(number, at)
        if group is not None:
            partition, mask = at % 2, from_hex(str(group["vshards"]))
            stands = position(group, partition)
            until = min(stands + 1 + count, len(self.log.partitions[partition]))
            self.shards[number].feed(FeedRange(TOPIC, partition, stands, until, (), concat_samples([]), mask))

    def heal(self) -> None:
        """Advance the table past all lost ranges, and refill the shards that lack them."""
        self._store(*(len(batches) for batches in self.log.partitions.values()))
        for number, shard in enumerate(self.shards):
            for mask in [mask for mask, _ in shard.lost()]:
                shard.drop(mask)
                self.refill(number, mask, 0, 0)

    def finish(self) -> None:
        """Feed everything to the end and check every shard."""
        self.heal()
        for shard in self.shards:
            catch_up(shard, self.log)
            check(shard, self.log)
            assert shard.broken == ""


def play(seed: int, given_steps: list[Step]) -> None:
    """Run one history."""
    log = random_log(random.Random(seed), 40, (0, 1_000, 60_000, 61_000, 2 * HOUR))
    without = print_of(6)  # a refill cannot restore the type of a series that broke the rules
    for batches in log.partitions.values():
        for i, b in enumerate(batches):
            batches[i] = type(b)(b.id, b.source, b.append_ms, [row for row in b.rows if row[0] != without])
    with tempfile.TemporaryDirectory() as folder, local_files(SYSTEM_CLOCK):
        world = World(Path(folder), log)
        for step in given_steps:
            world.run(step)
        world.finish()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), steps)
def test_any_history_gives_the_buckets_of_a_plain_store(seed: int, given_steps: list[Step]) -> None:
    play(seed, given_steps)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), steps)
def test_many_histories_give_the_buckets_of_a_plain_store(seed: int, given_steps: list[Step]) -> None:
    play(seed, given_steps)
