"""A day of integers that walk at random, polled as in a running stack, in a separate raw table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.schema import FILE_SCHEMA
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable
from benchmarks.peers.series import Ints, PeerSeries
from pipeline.compaction.row_order import sort_rows
from tests.compaction.builder import DAY_MS, HOUR_MS, Builder

SERIES = 1_500
"""Series of a source."""
NAME, OTHER = "walk.value", "walk.other"
POLL_MS = 60_000
STEP = 5
START_VALUE = 1_000_000
BLOCK = 1_000
_JITTER = """
0 0 -1 -2 -1 -1 -1 30 1 2 -1 -1 0 0 3 2 0 0 -1 -1 -1 0 0 -1 -1 -2 -2 -1 42 -1 3 3 -1 5 -2 -1 5 3 0 1 0 -1 0 -2
0 1 -1 -1 0 0 0 0 27 0 8 18 1 -1 0 12 2 -1 0 5 2 0 17 0 10 2 0 -1 0 0 1 0 3 -1 3 0 -1 -1 4 6 13 2 4 -1 3 0 3 0
0 -1 0 -1 -1 1 5 8 0 8 4 1 0 1 7 0 -1 1 0 0 0 2 1 -2 -1 -1 -2 -1 34 2 0 0 1 4 -1 -2 8 7 -2 34 2 -1 1 25 -2 9 1
1 0 0 0 -1 1 0 -1 0 0 7 30 -1 -1 1 3 0 3 4 2 0 4 -9 -10 -10 -9 -10 0 22 5 3 81 -9 7 -9 -9 10 54 35 -7 70 0 1 0
10 -1 0 0 0 -1 0 -1 -1 0 -1 4 5 -1 -2 0 0 45 -1 3 0 37 12 6 0 1 0 -1 0 0 0 9 70 -1 0 2 0 3 11 0 0 1 0 2 1 -1 0
-1 -1 -2 -2 -1 6 3 41 1 0 1 -2 0 -1 6 -2 -3 0 0 -1 -2 4 27 0 -1 -1 -2 -1 0 -2 1 1 6 -1 2 0 2 0 -2 6 2 5 0 6 -2
-1 -1 -2 -1 0 -2 6 10 0 -1 3 -2 7 -1 -1 5 1 23 -1 2 10 0 8
"""
JITTER_MS = np.array(_JITTER.split(), np.int64)
"""Deviations in ms of 298 polls of 13 sources of a running stack from their regular time, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Random walks. `named` series, over all sources, have the name NAME, the rest OTHER. Poll times: (source, poll);
    values: (source, series, poll) as int32."""

    start_ms: int
    sources: int
    named: int
    times_ms: Ints
    values: np.typing.NDArray[np.int32]

    @property
    def samples(self) -> int:
        return int(self.values.size)

    @property
    def polls(self) -> int:
        return int(self.times_ms.shape[1])

    @property
    def total(self) -> int:
        """Sum of all values of the series named NAME."""
        flat = self.values.reshape(-1, self.polls)
        return int(flat[: self.named].sum(dtype=np.int64))

    def label_sets(self, source: int) -> list[tuple[str, dict[str, str]]]:
        """Return name and labels of each series of a source."""
        first = source * SERIES
        return [
            (NAME if first + n < self.named else OTHER, {"host": f"host-{source:04}", "n": f"{n:04}"})
            for n in range(SERIES)
        ]

    def peer_series(self) -> Iterator[PeerSeries]:
        """Yield the series in the form of the peers, sorted by name."""
        for name in (OTHER, NAME):
            for source in range(self.sources):
                for n, (of, labels) in enumerate(self.label_sets(source)):
                    if of == name:
                        values = self.values[source, n].astype(np.float64)
                        yield PeerSeries(name.replace(".", "_"), labels, self.times_ms[source], values, True)


def make_walk(start_ms: int, sources: int, named: int, polls: int = DAY_MS // POLL_MS, seed: int = 1) -> Walk:
    """Make the walks; each source is polled at its own phase, with random deviations of JITTER_MS."""
    random = np.random.default_rng(seed)
    phases = random.integers(100, POLL_MS - 1_000, sources)
    times = start_ms + phases[:, None] + np.arange(polls) * POLL_MS + random.choice(JITTER_MS, (sources, polls))
    steps = random.integers(-STEP, STEP + 1, (sources, SERIES, polls), dtype=np.int32)
    steps[:, :, 0] += random.integers(0, START_VALUE, (sources, SERIES), dtype=np.int32)
    return Walk(start_ms, sources, named, times, np.cumsum(steps, axis=2, dtype=np.int32))


def fill(hdfs: str, walk: Walk, polls_a_file: int = 1) -> None:
    """Announce the series and append them once an hour, in files of one or several polls with the batches of all
    sources."""
    builder, order = Builder(hdfs), _announce(hdfs, walk)
    an_hour = HOUR_MS // POLL_MS
    for first in range(0, walk.polls, an_hour):
        polls = range(first, min(first + an_hour, walk.polls))
        tables = []
        for start in polls[::polls_a_file]:
            parts = [_poll(walk, order, poll) for poll in range(start, min(start + polls_a_file, polls.stop))]
            made = parts[0] if len(parts) == 1 else sort_rows(pa.concat_tables(parts))
            tables.append((walk.start_ms + start * POLL_MS, "default", made))
        builder.append_tables(tables)


@dataclass(frozen=True, slots=True)
class _Order:
    """Number, sorted fingerprints and series order of one source."""

    number: int
    prints: Ints
    of: Ints


def _announce(hdfs: str, walk: Walk) -> list[_Order]:
    names = [f"walk/host-{source:04}/0" for source in range(walk.sources)]
    ids = SourcesTable(hdfs).assign(names)
    blocks: list[SeriesBlock] = []
    order: list[_Order] = []
    for source, name in enumerate(names):
        texts = [canonical(of, labels) for of, labels in walk.label_sets(source)]
        infos = [SeriesInfo(text, ValueType.INTEGER, Kind.GAUGE) for text in texts]
        parts = [tuple(infos[n : n + BLOCK]) for n in range(0, SERIES, BLOCK)]
        blocks += [SeriesBlock(name, n, walk.start_ms, part) for n, part in enumerate(parts)]
        prints = np.array([signed(fingerprint(text)) for text in texts], np.int64)
        at = np.argsort(prints)
        order.append(_Order(ids[name], prints[at], at))
    rows, refused = rows_of(blocks, ids)
    if refused or not SeriesTable(hdfs).add(rows, "bench", {0: 0}, {0: 1}):
        raise RuntimeError(f"{len(refused)} series were refused")
    return sorted(order, key=lambda one: one.number)


def _poll(walk: Walk, order: list[_Order], poll: int) -> pa.Table:
    count = len(order) * SERIES
    sources = [one.number - 1 for one in order]
    stamp = FILE_SCHEMA.field("time").type
    values = np.concatenate([walk.values[at, one.of, poll] for at, one in zip(sources, order, strict=True)])
    columns = [
        pa.array(np.repeat(np.array([one.number for one in order], np.int32), SERIES)),
        pa.array(np.concatenate([one.prints for one in order])),
        pa.array(np.repeat(walk.times_ms[sources, poll] * 1000, SERIES)).view(stamp),
        pa.array(np.full(count, (walk.start_ms - 7_000_123) * 1000)).view(stamp),
        pa.array(np.zeros(count, bool)),
        pa.array(values.astype(np.int64)),
        *(pa.nulls(count, FILE_SCHEMA.field(name).type) for name in ("double", "boolean", "string")),
    ]
    return pa.table(columns, schema=FILE_SCHEMA)
