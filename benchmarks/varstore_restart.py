"""Restart of a shard from its snapshot, and the cost of snapshots while it is fed.

1.5 million series of 1,000 sources with six labels each are announced and fed for 77 hours, so that every bucket of
every level is filled: each minute of the last 80, twice in each bucket of a coarser level before.
`varstore.snapshot.first` and `varstore.snapshot`: a snapshot of everything, and one of the changes of a minute, taken
while another minute is fed in steps of a run. `varstore.snapshot.pause`: the longest such step, in which nothing else
was applied; `@without`: the longest step without a snapshot. `varstore.restart`: a new process loads the snapshot and
answers a `select`. Then every bucket of every level is checked.

artimon bench varstore_restart [--series 1500000] [--minutes 4620]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import xxhash

from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.feed_codec import FeedEntry, FeedRange
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import DEFAULT_LEVELS, Grid, Level
from artimon.model.labels import canonical
from artimon.model.select import Matcher, SelectRequest
from artimon.model.values import Kind, ValueType
from benchmarks.common import emit
from benchmarks.limits import emit_limit, file_read_s, file_write_s
from varstore.shard.shard import Shard
from varstore.shard_process import THREAD_SWITCH_S
from varstore.snapshot.snapshots import SnapshotResult, Snapshots

SERIES, A_SOURCE, MINUTES = 1_500_000, 1_500, 77 * 60
BYTES_A_SERIES = 9_500
"""Upper bound in bytes of the memory of a filled series, index included."""
START_MS = 1_800_000_000_000
MINUTE_MS = 60_000
STEP = 20
"""Sources in one range of the measured minutes: 30,000 samples, a run."""


class World:
    """Sources with their announcements, and their samples minute by minute in ranges."""

    def __init__(self, series: int) -> None:
        self.sources = [f"shop/h{i}/0" for i in range(max(1, series // A_SOURCE))]
        self.prints: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = []
        self._random = np.random.default_rng(1)
        self._offset = self.minutes = 0
        self.samples = 0

    def announce(self, shard: Shard) -> None:
        """Announce everything, in blocks of 750."""
        for number, source in enumerate(self.sources):
            labels = {"context": "shop", "host": f"h{number}", "rack": f"r{number % 40}", "dc": f"d{number % 3}"}
            texts = [
                canonical(f"shop.var{i % 60}", {**labels, "instance": "0", "route": f"/p/{i // 60}"})
                for i in range(A_SOURCE)
            ]
            self.prints.append(np.array([fingerprint(text) for text in texts], np.uint64))
            infos = [SeriesInfo(text, ValueType.INTEGER, Kind.COUNTER) for text in texts]
            for block, first in enumerate(range(0, A_SOURCE, 750)):
                shard.announce(SeriesBlock(source, block, 1, tuple(infos[first : first + 750])))

    def minute(self, step: int) -> Iterator[FeedRange]:
        """Yield the next minute, `step` sources a range, in random order."""
        at = START_MS + self.minutes * MINUTE_MS
        self.minutes += 1
        self.samples += len(self.sources) * A_SOURCE
        order = self._random.permutation(len(self.sources))
        for first in range(0, len(order), step):
            yield self._range(order[first : first + step].tolist(), at)

    def skip(self, minute: int) -> None:
        """Continue at this minute."""
        self.minutes = minute

    def _range(self, sources: list[int], at: int) -> FeedRange:
        entries = []
        for i in sources:
            id_ = BatchId("bench", 1, i % 4, self._offset)
            hash_ = xxhash.xxh3_64_intdigest(self.prints[i].data)
            entry = FeedEntry(self._offset, at + 2_000, id_, self.sources[i], at, A_SOURCE, True, hash_)
            entries.append(entry)
            self._offset += 1
        n = len(sources) * A_SOURCE
        times = np.repeat(at + self._random.integers(1, 1_000, len(sources)), A_SOURCE)
        cells = self._random.integers(0, 10**6, n) + self.minutes * 1_000
        samples = Samples(
            np.concatenate([self.prints[i] for i in sources]),
            times,
            np.full(n, START_MS - MINUTE_MS, np.int64),
            np.full(n, ValueType.INTEGER, np.uint8),
            cells,
        )
        return FeedRange("topic", 0, self._offset - len(sources), self._offset, tuple(entries), samples)


def fill_minutes(minutes: int) -> Iterator[int]:
    """Yield minutes whose polls fill every bucket that all levels hold at the end of `minutes`."""
    for minute in range(minutes):
        left = minutes - minute
        if left <= 80:
            wanted = True
        elif left <= 270:
            wanted = minute % 5 in (1, 3)
        elif left <= 1_500:
            wanted = minute % 15 in (3, 11)
        else:
            wanted = minute % 30 == 7
        if wanted:
            yield minute


def measure(series: int = SERIES, minutes: int = MINUTES, folder: Path | None = None) -> None:
    """Measure and print the lines."""
    with tempfile.TemporaryDirectory(prefix="artimon-restart-", dir=folder) as name:
        path = Path(name)
        held = _fill_and_snap(path, series, minutes)
        with ProcessPoolExecutor(1, get_context("spawn")) as other:
            took_s, found = other.submit(_restart, path, series, held).result()
        if found != series // A_SOURCE // 40 * A_SOURCE and series == SERIES:
            raise RuntimeError(f"{found} series of rack r7 after the restart")
        size = sum(file.stat().st_size for file in path.iterdir())
        emit("varstore.restart", took_s, f"s ({series:,} series, {_said(minutes)}, {size / 1e9:.1f} GB of snapshots)")
        least = file_read_s(sorted(path.iterdir()))
        emit_limit("varstore.restart", took_s, least, "s (the bytes of the snapshots read once)", more=False)
        emit("varstore.restart@bytes", size / series, "bytes/series on disk, two snapshots")
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()


def _said(minutes: int) -> str:
    full = "every bucket of every level filled" if minutes >= MINUTES else "levels not all filled"
    return f"{minutes} minutes, {full}"


def _require_memory(series: int) -> None:
    needed, free = series * BYTES_A_SERIES, psutil.virtual_memory().available
    if free < needed:
        raise RuntimeError(
            f"{needed / 2**30:.0f} GiB of memory are needed, {free / 2**30:.0f} are free: reduce --series"
        )


def _fill_and_snap(path: Path, series: int, minutes: int) -> int:
    """Fill a shard and take snapshots; return the number of minutes that the last snapshot holds at least."""
    sys.setswitchinterval(THREAD_SWITCH_S)
    _require_memory(series)
    shard, world = Shard(capacity=series), World(series)
    world.announce(shard)
    for minute in fill_minutes(minutes):
        world.skip(minute)
        for range_ in world.minute(200):
            shard.feed(range_)
    print(f"# {world.samples:,} samples fed", file=sys.stderr, flush=True)
    snapshots = Snapshots(shard, path)
    without = _longest_step_s(shard, world)
    for name in ("varstore.snapshot.first", "varstore.snapshot"):
        held = world.minutes
        taken, longest_s, beside = _snap(shard, world, snapshots)
        emit(name, taken.took_s, f"s ({taken.rows} rows, {taken.bytes / 1e6:.0f} MB)")
        least = file_write_s(path.parent / f"{path.name}.limit", taken.bytes)
        emit_limit(name, taken.took_s, least, "s (as many bytes written once and fsynced)", more=False)
        emit(f"{name}.pause", longest_s * 1000, f"ms, longest step while it was taken ({beside:,} samples applied)")
        _longest_step_s(shard, world)
    emit("varstore.snapshot.pause@without", without * 1000, "ms, longest step without a snapshot")
    return held


def _longest_step_s(shard: Shard, world: World) -> float:
    """Feed a minute of samples; return the longest step."""
    longest = 0.0
    for range_ in list(world.minute(STEP)):
        began = time.perf_counter()
        shard.feed(range_)
        longest = max(longest, time.perf_counter() - began)
    return longest


def _snap(shard: Shard, world: World, snapshots: Snapshots) -> tuple[SnapshotResult, float, int]:
    """Take a snapshot while minutes are fed, at a pace of 1.5 million samples in about 20 s."""
    found: list[SnapshotResult | None] = []
    thread = threading.Thread(target=lambda: found.append(snapshots.take()))
    ranges: list[FeedRange] = []
    longest, applied = 0.0, 0
    thread.start()
    while thread.is_alive():
        ranges = ranges or list(world.minute(STEP))
        range_ = ranges.pop(0)
        began = time.perf_counter()
        applied += shard.feed(range_).applied
        took = time.perf_counter() - began
        longest = max(longest, took)
        thread.join(max(0.0, 0.4 - took))
    for range_ in ranges:
        shard.feed(range_)
    if not found or found[0] is None:
        raise RuntimeError("no snapshot was taken")
    return found[0], longest, applied


def _restart(path: Path, series: int, minutes: int) -> tuple[float, int]:
    """Load the snapshot in a new process; return the seconds and the number of series found in one rack."""
    began = time.perf_counter()
    shard = Shard(capacity=series, owned=frozenset())
    if not Snapshots(shard, path).load():
        raise RuntimeError("the snapshot could not be loaded")
    buckets = shard.select(_request(DEFAULT_LEVELS[0], minutes, 5))
    took = time.perf_counter() - began
    if not (buckets.statistics["count"] == 1).all():
        raise RuntimeError("buckets are not what was fed")
    _check_filled(shard, minutes)
    return took, len(buckets.series)


def _request(level: Level, minutes: int, count: int) -> SelectRequest:
    """Return the request for the newest buckets of a level before the end of the fill."""
    end = (START_MS + minutes * MINUTE_MS) // level.step_ms * level.step_ms
    return SelectRequest((Matcher("rack", "=", "r7"),), Grid(end, level.step_ms, count), ("last", "count"))


def _check_filled(shard: Shard, minutes: int) -> None:
    """Check that no bucket is empty, except the two oldest of a level, as minutes may have been fed after `minutes`."""
    for level in DEFAULT_LEVELS:
        count = min(level.count - 2, minutes * MINUTE_MS // level.step_ms - 1)
        if count > 0 and not (shard.select(_request(level, minutes, count)).statistics["count"] > 0).all():
            raise RuntimeError(f"buckets of {level.step_s} s are empty after the restart")


def run(arguments: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--minutes", type=int, default=MINUTES)
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args(arguments)
    measure(args.series, args.minutes, args.folder)


if __name__ == "__main__":
    run(sys.argv[1:])
