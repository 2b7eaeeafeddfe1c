"""Imports samples of a demo fleet into the history, which takes any age; agents send at most 90 days."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import xxhash

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.import_chunk import UNKNOWN_START_MS, ImportChunk
from artimon.model.values import Kind, ValueType
from artimon.stack.demo_fleet import METRICS, MINUTE_MS, DemoFleet, DemoSamples
from pipeline.history.importer import Importer
from sources.history.import_builder import ImportBuilder, Ints, ParsedColumns

SOURCE = "demo"
CHUNKS = 5
"""Chunks of samples of one import, 30 days of hours: an import takes 60 bytes a sample of the local disk."""


def import_samples(
    fleet: DemoFleet, chunks: Iterable[DemoSamples], hdfs: str, data: Path, clock: Clock = SYSTEM_CLOCK
) -> int:
    """Store these samples of the fleet in the history on `hdfs`; return their number. `data`: a local folder.

    Raises TableError, OSError, RunError."""
    left, stored = iter(chunks), 0
    while some := list(islice(left, CHUNKS)):
        about = fleet.seed, fleet.hosts, fleet.days, int(some[0].times_ms[0]), int(some[-1].times_ms[-1])
        identity = xxhash.xxh3_128_hexdigest(repr(("demo", *about)).encode())
        importer = Importer(hdfs, data / "import" / identity, "default", clock)
        stored += importer.run(identity, _import_chunks(fleet, some, clock.now_ms())).samples
    return stored


def _import_chunks(fleet: DemoFleet, chunks: Iterable[DemoSamples], now_ms: int) -> Iterator[ImportChunk]:
    builder = ImportBuilder(SOURCE, now_ms)
    about = ((name, labels, METRICS[name]) for name, labels in fleet.series)
    codes = [
        builder.series(name, labels, 0, Kind[one.kind.upper()], ValueType.DOUBLE, one.unit, one.help)
        for name, labels, one in about
    ]
    for chunk in chunks:
        yield builder.chunk(_columns(chunk, np.array(codes, np.int64), fleet.phases_ms))


def _columns(chunk: DemoSamples, codes: Ints, phases_ms: Ints) -> ParsedColumns:
    rows, at = np.nonzero(chunk.present)
    zero = np.zeros(len(rows), np.int64)
    return ParsedColumns(
        codes[rows],
        chunk.times_ms[at] - MINUTE_MS + phases_ms[rows],  # read at its phase in the minute that ends then
        np.full(len(rows), ValueType.DOUBLE, np.uint8),
        chunk.values[rows, at].view(np.int64),
        zero,
        birth_ms=zero + UNKNOWN_START_MS,
    )
