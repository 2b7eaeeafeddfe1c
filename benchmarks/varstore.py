"""Memory store: rate at which received columns become queryable, and series per GiB.

`varstore.ingest`: columns of 1.5 million series as the buckets query sends them (1,000 batches of 1,500 a minute, the
sources in a new random order every minute, the series of each source not in the order of their slots) until they are
in every level and statistic; closing and packing of rows, and writing to disk, included. `@anywhere`: the same without
batches, in runs of random slots, nothing on disk. `varstore.ingest.unknown`: the first minute of all. Samples per
second of one core (processor time).

`varstore.density`: growth of the process's resident memory, the index of labels included, in a store that was fed every
minute for 77 hours, so that every bucket of all levels is filled. Packed cells of the coarser levels are on disk, and
pages that were read are released before the measurement, as every 30 seconds in a shard. Half of the series are
integers of any 64 bits, half doubles with random bits, times at random. `varstore.density.mixed`: the same fed with
samples recorded on a whole stack (benchmarks/storing/mix.py). Bytes a series: `@cells`: cells in memory, as the store
reports them; `@disk`: cells on disk; `@anonymous`: growth of anonymous memory. `varstore.density.cold`: 99th percentile
of questions about the mixed series whose cells are not in the page cache; `@cached`: the same when they are.

artimon bench varstore [--only ingest|density] [--minutes 4620]
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from artimon.compute.aggregate import AggregateRequest
from artimon.compute.reduction import WindowPlan
from artimon.compute.statistics import STATISTICS
from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.feed_codec import FeedEntry, FeedRange
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import DEFAULT_LEVELS, Grid
from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher, SelectRequest
from artimon.model.values import Kind, ValueType
from benchmarks.common import Parts, emit, say
from benchmarks.limits import bucket_rate, emit_limit
from benchmarks.storing import mix
from varstore.cells.cell_file import CellFile
from varstore.shard.shard import Shard
from varstore.store.bucket_store import BucketStore, SampleRun
from varstore.store.cell_spiller import CellSpiller

Ints = npt.NDArray[np.int64]
START_MS = 1_800_000_000_000
MINUTE_MS = 60_000
FULL_MINUTES = 77 * 60
"""72 hours, four spare rows of an hour, one open hour."""
SERIES, A_SOURCE = 1_500_000, 1_500
MEASURED_MINUTES = 10
RUN_ROWS = 32_768
LANES = 4
"""Lanes of the agent; the batches of each are numbered without a gap, as an agent numbers them."""
RELEASE_MINUTES = 10
GIB = 2**30
LAG_MINUTES = 10
OTHERS: dict[str, list[str]] = {"varstore_rack": [], "varstore_restart": [], "lag": ["--minutes", str(LAG_MINUTES)]}
"""Further modules of this benchmark with their arguments; the last measures `lag.buckets.p99` on a whole stack."""


class WrongAnswer(RuntimeError):
    """Stored data differs from the samples that were fed."""


class Source(NamedTuple):
    """Series of one source, in the order of its batches."""

    name: str
    fingerprints: npt.NDArray[np.uint64]
    hash: int


class Feed:
    """Ranges of one partition, minute after minute."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources, self._offset = sources, 0
        self._sequences = [0] * LANES

    def minute(self, number: int, order: Ints, cells: Ints, types: npt.NDArray[np.uint8], offsets: Ints) -> FeedRange:
        """Return one batch of each source, in that order; columns are joined in the order of `sources`."""
        at, entries = START_MS + number * MINUTE_MS, list[FeedEntry]()
        for i in order.tolist():
            source, lane = self.sources[i], i % LANES
            id = BatchId("bench", 1, lane, self._sequences[lane])
            rows, sent = len(source.fingerprints), at + MINUTE_MS
            entries.append(FeedEntry(self._offset, sent, id, source.name, at, rows, True, source.hash))
            self._offset, self._sequences[lane] = self._offset + 1, self._sequences[lane] + 1
        pick = np.concatenate([_rows_of(self.sources, i) for i in order.tolist()])
        prints = np.concatenate([self.sources[i].fingerprints for i in order.tolist()])
        births = np.full(len(pick), START_MS - 1, np.int64)
        samples = Samples(prints, at + offsets[pick], births, types[pick], cells[pick])
        return FeedRange("bench", 0, self._offset - len(entries), self._offset, tuple(entries), samples)


def _rows_of(sources: Sequence[Source], number: int) -> Ints:
    """Return the rows of a source in joined columns; all sources have equally many series."""
    size = len(sources[0].fingerprints)
    return np.arange(number * size, number * size + size)


def _source(name: str, fingerprints: npt.NDArray[np.uint64]) -> Source:
    return Source(name, fingerprints, xxhash.xxh3_64_intdigest(fingerprints.tobytes()))


# speed


def measure_ingest() -> None:
    """Measure the lines `varstore.ingest*`."""
    with TemporaryDirectory(prefix="artimon-cells-") as folder:
        _measure_ingest(Shard(capacity=SERIES, cell_file=CellFile(Path(folder))))


def _measure_ingest(shard: Shard) -> None:
    _spiller(shard).start()
    generator = np.random.default_rng(1)
    prints = generator.permutation(np.unique(generator.integers(1, 2**64, SERIES * 2, np.uint64)))[:SERIES]
    sources = [_source(f"s{i}", prints[i * A_SOURCE : (i + 1) * A_SOURCE]) for i in range(SERIES // A_SOURCE)]
    types = generator.choice(np.array([ValueType.INTEGER, ValueType.DOUBLE], np.uint8), SERIES)
    feed = Feed(sources)
    first = _random_minute(feed, 0, types, generator)
    emit("varstore.ingest.unknown", SERIES / _feed_s(shard, first), "samples/s/core")
    order = np.concatenate([i * A_SOURCE + generator.permutation(A_SOURCE) for i in range(len(sources))])
    prints, types = prints[order], types[order]  # no longer in the order of slots
    feed.sources = [_source(s.name, prints[i * A_SOURCE : (i + 1) * A_SOURCE]) for i, s in enumerate(sources)]
    took = list[float]()
    for number in range(1, 6 + MEASURED_MINUTES):
        made = _random_minute(feed, number, types, generator)
        took.append(_feed_s(shard, made))
    speed = SERIES * MEASURED_MINUTES / sum(took[5:])
    emit("varstore.ingest", speed, f"samples/s/core ({SERIES:,} series, shuffled, slots known)")
    unit = "samples/s/core (columns copied and scattered, levels folded)"
    emit_limit("varstore.ingest", speed, bucket_rate(SERIES, A_SOURCE), unit)
    _spiller(shard).stop()
    del shard
    emit("varstore.ingest@anywhere", _anywhere(types, prints, generator), "samples/s/core (slots anywhere)")


def _random_minute(feed: Feed, number: int, types: npt.NDArray[np.uint8], generator: np.random.Generator) -> FeedRange:
    order = generator.permutation(len(feed.sources))
    offsets = np.repeat(generator.integers(1, MINUTE_MS, len(feed.sources)), A_SOURCE)
    return feed.minute(number, order, _cells(types, generator), types, offsets)


def _cells(types: npt.NDArray[np.uint8], generator: np.random.Generator) -> Ints:
    cells = generator.integers(-(2**63), 2**63 - 1, len(types))
    doubles = types == ValueType.DOUBLE
    cells[doubles] = (generator.random(int(doubles.sum())) * 1_000).view(np.int64)
    return cells


def _cpu_s(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def _feed_s(shard: Shard, range_: FeedRange) -> float:
    return _cpu_s(lambda: _feed(shard, range_))


def _feed(shard: Shard, range_: FeedRange) -> None:
    answer = shard.feed(range_)
    if answer.applied != len(range_.samples):
        raise WrongAnswer(f"{answer.applied} of {len(range_.samples)} samples were applied: {answer}")


def _anywhere(types: npt.NDArray[np.uint8], prints: npt.NDArray[np.uint64], generator: np.random.Generator) -> float:
    store = BucketStore(capacity=SERIES)
    slots = store.slots.add(prints, 0)
    took = []
    for number in range(6 + MEASURED_MINUTES):
        order = generator.permutation(SERIES)
        runs = list(_runs(slots[order], types[order], _cells(types, generator)[order], START_MS + number * MINUTE_MS))
        took.append(_cpu_s(lambda runs=runs: [store.apply(run) for run in runs]))  # type: ignore[misc]
    return SERIES * MEASURED_MINUTES / sum(took[6:])


def _runs(slots: Ints, types: npt.NDArray[np.uint8], cells: Ints, at_ms: int) -> Iterator[SampleRun]:
    for start in range(0, len(slots), RUN_ROWS):
        part = slice(start, start + RUN_ROWS)
        n = len(slots[part])
        times, births = np.full(n, at_ms + 1 + start % MINUTE_MS), np.full(n, START_MS - 1)
        append = np.array([at_ms + MINUTE_MS])
        yield SampleRun(slots[part], times, births, types[part], cells[part], append, np.array([n]), True)


# density


class Density(NamedTuple):
    """Measurements of one density process."""

    series: int
    resident_bytes: int
    anonymous_bytes: int
    cell_bytes: int
    disk_bytes: int
    seconds: float
    asked_s: list[tuple[float, float]]
    """Durations of questions: about cells that are on disk only, and again."""


def measure_density(minutes: int) -> None:
    """Measure the lines `varstore.density*`, each in a separate process."""
    for name, case in (("varstore.density", dense), ("varstore.density.mixed", mixed)):
        with (
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
            TemporaryDirectory(prefix="artimon-cells-") as folder,
        ):
            found = pool.submit(case, minutes, Path(folder)).result(timeout=1_800)
        say(f"{name}: {found.series:,} series, {minutes:,} minutes, {found.seconds:.0f} s")
        emit(name, found.series * GIB / found.resident_bytes, "series/GiB (resident memory, index included)")
        emit(f"{name}@series", found.resident_bytes / found.series, "bytes/series")
        emit(f"{name}@anonymous", found.anonymous_bytes / found.series, "bytes/series of anonymous memory")
        emit(f"{name}@cells", found.cell_bytes / found.series, "bytes/series of cells in memory alone")
        emit(f"{name}@disk", found.disk_bytes / found.series, "bytes/series of cells on disk")
        if found.asked_s:
            cold, cached = (float(np.percentile(took, 99)) * 1000 for took in zip(*found.asked_s, strict=True))
            unit = f"ms (99th percentile of {len(found.asked_s)} questions"
            emit("varstore.density.cold", cold, f"{unit}, their cells outside of the page cache)")
            emit("varstore.density.cold@cached", cached, f"{unit}, the same asked anew, their cells in the page cache)")


def dense(minutes: int, folder: Path) -> Density:
    """Measure with random values and times."""
    sources, a_source = 44, A_SOURCE
    generator = np.random.default_rng(2)
    series = sources * a_source
    types = generator.choice(np.array([ValueType.INTEGER, ValueType.DOUBLE], np.uint8), series)

    def columns(_: int) -> tuple[Ints, Ints]:
        return _cells(types, generator), generator.integers(1, MINUTE_MS, series)

    return _fill(sources, a_source, types, columns, minutes, folder)[0]


def mixed(minutes: int, folder: Path) -> Density:
    """Measure with copies of recorded samples; some series are compared with their samples."""
    made, copies = mix.load(), 75
    types = np.where(made.doubles, ValueType.DOUBLE, ValueType.INTEGER).astype(np.uint8)

    def columns(number: int) -> tuple[Ints, Ints]:
        cells, offsets = made.minute(number, copies)
        return cells.ravel(), offsets.ravel()

    density, shard, prints = _fill(copies, made.series, np.tile(types, copies), columns, minutes, folder)
    _compare(shard, prints, columns, minutes, np.tile(made.doubles, copies))
    return density._replace(asked_s=[_ask_s(shard, *asked) for asked in _questions(minutes)])


def _fill(
    sources: int,
    a_source: int,
    types: npt.NDArray[np.uint8],
    columns: Callable[[int], tuple[Ints, Ints]],
    minutes: int,
    folder: Path,
) -> tuple[Density, Shard, npt.NDArray[np.uint64]]:
    """Announce and feed everything to a shard, and measure its process."""
    columns(0)
    gc.collect()
    before, began = _resident(), time.perf_counter()
    shard, fed = Shard(capacity=sources * a_source, cell_file=CellFile(folder)), list[Source]()
    spiller = _spiller(shard)
    for i in range(sources):
        texts = [_text(i, j) for j in range(a_source)]
        fed.append(_source(f"s{i}", np.array([fingerprint(text) for text in texts], np.uint64)))
        for block in range(0, a_source, 1_000):
            infos = tuple(SeriesInfo(text, ValueType.INTEGER, Kind.GAUGE) for text in texts[block : block + 1_000])
            shard.announce(SeriesBlock(f"s{i}", block, 1, infos))
    feed, order = Feed(fed), np.random.default_rng(4)
    for number in range(minutes):
        cells, offsets = columns(number)
        _feed(shard, feed.minute(number, order.permutation(sources), cells, types, offsets))
        spiller.move()
        if number % RELEASE_MINUTES == 0:
            spiller.file.release()
    gc.collect()
    spiller.file.release()
    resident, anonymous = _resident()
    took, in_memory, on_disk = time.perf_counter() - began, shard._store.bytes_used(), spiller.file.nbytes
    _check_full(shard, minutes)
    prints = np.concatenate([source.fingerprints for source in fed])
    grown = resident - before[0], anonymous - before[1]
    return Density(len(prints), grown[0], grown[1], in_memory, on_disk, took, []), shard, prints


def _spiller(shard: Shard) -> CellSpiller:
    if shard.spiller is None or shard.spiller.problem:
        raise RuntimeError("cells are not written to disk")
    return shard.spiller


Question = tuple[tuple[Matcher, ...], int, int, str | None]
"""Matchers, step in ms, buckets, and the label by which the mean is taken (None: every series)."""


def _questions(minutes: int) -> Iterator[Question]:
    """Questions of panels: one series, 75 series one by one, and all 1,600 of one name by rack; in each level."""
    for level in DEFAULT_LEVELS[1:]:
        n = min(level.count, minutes * MINUTE_MS // level.step_ms - 1)
        for i in range(10 if n > 0 else 0):
            part, name = Matcher("part", "=", str(41 * i)), Matcher(NAME, "=", f"bench.v{3 * i}")
            yield (part, Matcher("host", "=", f"host-{i:03}")), level.step_ms, n, None
            yield (part,), level.step_ms, n, None
            yield (name,), level.step_ms, n, "rack"


def _ask_s(shard: Shard, matchers: tuple[Matcher, ...], step_ms: int, n: int, by: str | None) -> tuple[float, float]:
    """Ask after all cells on disk left the page cache, and again; return both durations in seconds."""
    file = _spiller(shard).file
    file.release()
    for chunk in file._chunks:
        os.posix_fadvise(chunk.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    grid, took = Grid(shard._store.head_ms // step_ms * step_ms - step_ms, step_ms, n), list[float]()
    for unused in ("cold", "cached"):  # a new text each time, so that no other cache helps
        asked = (*matchers, Matcher(unused, "=", ""))
        began = time.perf_counter()
        if by is None:
            shard.select(SelectRequest(asked, grid, STATISTICS))
        else:
            shard.aggregate(AggregateRequest(asked, grid, WindowPlan("mean", n), "mean", (by,)))
        took.append(time.perf_counter() - began)
    return took[0], took[1]


def _text(source: int, number: int) -> str:
    labels = {
        "host": f"host-{source:03}", "rack": f"r{source % 20}", "dc": f"dc{source % 3}", "context": "web",
        "pool": f"p{number % 50}", "part": str(number),
    }  # fmt: skip
    return canonical(f"bench.v{number % 40}", labels)


def _resident() -> tuple[int, int]:
    """Return the resident bytes of this process, and those that are anonymous memory."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) * 1024, int(lines["RssAnon"].split()[0]) * 1024


def _end_ms(step_ms: int, minutes: int) -> int:
    """Return the end of the last complete bucket."""
    return (START_MS + minutes * MINUTE_MS) // step_ms * step_ms


def _check_full(shard: Shard, minutes: int) -> None:
    """Check that every bucket of every level holds a sample for each minute."""
    for level in DEFAULT_LEVELS:
        n = min(level.count, minutes * MINUTE_MS // level.step_ms - 1)
        if n > 0:
            grid = Grid(_end_ms(level.step_ms, minutes), level.step_ms, n)
            found = shard.select(SelectRequest((Matcher("part", "=", "7"),), grid, ("count",)))
            held = set(found.statistics["count"].ravel().tolist())
            if held != {level.step_ms // MINUTE_MS}:
                raise WrongAnswer(f"buckets of {level.step_s} s hold {held} samples")


def _compare(
    shard: Shard,
    prints: npt.NDArray[np.uint64],
    columns: Callable[[int], tuple[Ints, Ints]],
    minutes: int,
    doubles: npt.NDArray[np.bool_],
) -> None:
    """Compare min, max, sum and last of the last three hours of series with part=7 with their samples."""
    level = DEFAULT_LEVELS[-1]
    hours = min(3, minutes // 60 - 1)
    if hours < 1:
        return
    grid = Grid(_end_ms(level.step_ms, minutes), level.step_ms, hours)
    found = shard.select(SelectRequest((Matcher("part", "=", "7"),), grid, STATISTICS))
    at = {int(print_): i for i, print_ in enumerate(prints.tolist())}
    first = (grid.start_ms - START_MS) // MINUTE_MS
    fed = np.stack([columns(first + i)[0] for i in range(60 * hours)]).reshape(hours, 60, -1)
    for row, series in enumerate(found.series):
        i = at[series.fingerprint]
        values = fed[:, :, i].view(np.float64) if doubles[i] else fed[:, :, i]
        for name, expected in (("last", values[:, -1]), ("min", values.min(1)), ("max", values.max(1))):
            if (found.statistics[name][row] != expected.view(np.int64)).any():
                raise WrongAnswer(f"{name} of {series.name} {series.labels} is not what was fed")
        total = found.statistics["sum"][row].view(values.dtype)
        if not np.allclose(total, values.sum(1), rtol=1e-12) or (not doubles[i] and (total != values.sum(1)).any()):
            raise WrongAnswer(f"sum of {series.name} {series.labels} is not what was fed")


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    parser = argparse.ArgumentParser(
        prog="artimon bench varstore", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ["ingest", "density", *OTHERS]
    parser.add_argument("--only", default=",".join(parts), help=f"comma-separated: {', '.join(parts)} (default: all)")
    parser.add_argument("--minutes", type=int, default=FULL_MINUTES, help="minutes fed before the density is measured")
    options = parser.parse_args(args)
    only, done = set(options.only.split(",")), Parts()
    if unknown := only - set(parts):
        parser.error(f"--only: {', '.join(sorted(unknown))} is none of {', '.join(parts)}")
    if "ingest" in only:
        done.run("varstore.ingest", measure_ingest)
    if "density" in only:
        done.run("varstore.density", lambda: measure_density(options.minutes))
    for name, arguments in OTHERS.items():
        if name in only:
            done.run(f"varstore.{name}", partial(importlib.import_module(f"benchmarks.{name}").run, arguments))
    done.finish()


if __name__ == "__main__":
    run(sys.argv[1:])
