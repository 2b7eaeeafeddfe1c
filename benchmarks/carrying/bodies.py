"""Prepared batches for the transport: bodies encoded once, and sealed for each agent under identities of its log."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from artimon.model.batch import BatchId, BatchKind, Samples
from artimon.model.batch_codec import assemble, decode_samples, encode_samples, parse_header
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.hash_routing import lane_of
from artimon.model.values import ValueType
from benchmarks.loads.samples import MINUTE_MS, SERIES_A_SOURCE, Source
from pipeline.wal.log import LogEntry
from pipeline.wal.segment_format import RecordType

_MAKER = BatchId("maker", 0, 0, 0)


class Bodies:
    """File of encoded batches with their offsets; mapped, so that they do not count as own memory of a process."""

    def __init__(self, path: Path) -> None:
        self._ends = np.load(path.with_suffix(".npy"))
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> bytes:
        begin = int(self._ends[index - 1]) if index else 0
        return self._data[begin : int(self._ends[index])]

    @property
    def bytes(self) -> int:
        """Total size."""
        return len(self._data)


def write(path: Path, batches: Iterator[bytes]) -> Bodies:
    """Write batches to a file."""
    ends, size = [], 0
    with path.open("wb") as file:
        for data in batches:
            file.write(data)
            size += len(data)
            ends.append(size)
    np.save(path.with_suffix(".npy"), np.array(ends, np.int64))
    return Bodies(path)


class Counters:
    """One process with 1,500 counters of a few thousand each: about 10 bytes a sample with random fingerprints."""

    def __init__(self, number: int, generator: np.random.Generator, birth_ms: int) -> None:
        self.name = f"shop{number % 40}/host-{number:04d}.example/0"
        self.endpoint, self.birth_ms, self._random = number.to_bytes(16, "big"), birth_ms, generator
        self._fingerprints = generator.integers(0, 2**64, SERIES_A_SOURCE, np.uint64, endpoint=False)
        self._births = np.full(SERIES_A_SOURCE, birth_ms, np.int64)
        self._types = np.full(SERIES_A_SOURCE, ValueType.INTEGER, np.uint8)
        self._cells = generator.integers(0, 2_000, SERIES_A_SOURCE)

    def poll(self, at_ms: int) -> Samples:
        """Return samples of all counters after each has grown."""
        self._cells = self._cells + self._random.integers(0, 100, SERIES_A_SOURCE)
        times = np.full(SERIES_A_SOURCE, at_ms, np.int64)
        return Samples(self._fingerprints, times, self._births, self._types, self._cells)


def make(path: Path, count: int, kind: type[Counters] | type[Source] = Counters, sources: int = 1_000) -> Bodies:
    """Make `count` batches of 1,500 samples with new values in each, the sources in turn."""
    generator = np.random.default_rng(7)
    now = SYSTEM_CLOCK.now_ms() // MINUTE_MS * MINUTE_MS
    made = [kind(number, generator, now - MINUTE_MS) for number in range(min(sources, count))]

    def batches() -> Iterator[bytes]:
        for number in range(count):
            source, at = made[number % len(made)], now + number // len(made) * 1000
            samples = source.poll(at)
            yield encode_samples(_MAKER, source.name, source.endpoint, source.birth_ms, at, "default", samples).data

    return write(path, batches())


def samples_in(data: bytes) -> tuple[str, Samples]:
    """Return source and samples of a batch."""
    header = parse_header(data)
    return header.source, decode_samples(header, data)


def readdress(data: bytes, agent: str, epoch: int, numbers: list[int]) -> bytes:
    """Return the body under an identity of this agent: the next number in the lane of its source."""
    old = parse_header(data)
    lane = lane_of(old.source, len(numbers))
    id = BatchId(agent, epoch, lane, numbers[lane])
    numbers[lane] += 1
    body = data[old.body_at :]
    batch = assemble(
        BatchKind.SAMPLES, id, old.source, old.endpoint, old.birth_ms, old.poll_ms, old.rows, 0, old.keep, body
    )
    return batch.data


def entry(data: bytes) -> LogEntry:
    """Return the log entry of a sealed batch, all of its samples in one minute."""
    header = parse_header(data)
    minute = -(-header.poll_ms // MINUTE_MS) * MINUTE_MS
    return LogEntry(RecordType.BATCH, header, data, ((minute, header.rows),))
