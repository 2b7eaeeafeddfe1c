"""Load of the pipeline benchmark: batches of many sources, polls a minute apart, written to the topic beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from kafka import KafkaProducer

from artimon.model.batch import BatchId, Samples
from artimon.model.batch_codec import encode_samples
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint
from artimon.model.hash_routing import lane_of, partition_of
from artimon.model.values import ValueType
from artimon.rawtable.schema import FILE_SCHEMA
from pipeline.compaction.row_digest import RowDigest, digest_of

SERIES_A_SOURCE = 1_500
CHECKED_EVERY = 20
"""Keep the values of one source in this many, to be compared with the answers of the shards."""
DOUBLES = 300
"""Number of doubles among the 1,500 variables of a process; the rest are integers that walk at random."""
AGENTS = 8
MINUTE_MS = 60_000
_MASK = (1 << 64) - 1


TYPES = np.where(np.arange(SERIES_A_SOURCE) % 5 == 0, ValueType.DOUBLE, ValueType.INTEGER).astype(np.uint8)
"""Types of the series of every source."""
NAME = "bench.load.v"


def source_name(number: int) -> str:
    """Name of a source; `number_of` is its inverse."""
    return f"shop{number % 40}/host-{number:04d}.example/0"


def capacity_of_two(sources: int) -> int:
    """Return the capacity in series of each of two shards. A hash assigns the sources, so a shard gets half of them and
    at most four standard deviations more."""
    return (sources // 2 + 2 * math.isqrt(sources) + 2) * SERIES_A_SOURCE


def text_of(source: int, i: int) -> str:
    """Return the canonical text of one series of a source."""
    return f'{NAME}{i}{{host="host-{source:04d}"}}'


@dataclass(slots=True)
class Expected:
    """Expected contents of table and shards. Sums are modulo 2^64."""

    samples: int = 0
    batches: int = 0
    bytes: int = 0
    series_sum: int = 0
    time_sum: int = 0
    """Milliseconds."""
    integer_sum: int = 0
    digest: RowDigest = field(default_factory=RowDigest)
    """Digest of all rows as in the table, with `number_of` its name for each source."""
    ends: dict[int, int] = field(default_factory=dict)
    kept: dict[int, list[tuple[int, npt.NDArray[np.int64]]]] = field(default_factory=dict)
    """Time and cells of every poll of each checked source."""

    def add(self, source: int, samples: Samples, size: int) -> None:
        """Add one batch."""
        self.digest = self.digest.plus(digest_of(_row_batch(source, samples)))
        self.samples += len(samples)
        self.batches += 1
        self.bytes += size
        if source % CHECKED_EVERY == 0:
            self.kept.setdefault(source, []).append((int(samples.time_ms[0]), samples.cell))
        self.series_sum = (self.series_sum + int(samples.fingerprint.sum())) & _MASK
        self.time_sum = (self.time_sum + int(samples.time_ms.sum())) & _MASK
        integers = samples.cell[samples.type == ValueType.INTEGER]
        self.integer_sum = (self.integer_sum + int(integers.sum())) & _MASK


def number_of(name: str) -> int:
    """Return the number in the name of a source."""
    return int(name.split("host-")[1].split(".")[0])


def _row_batch(source: int, samples: Samples) -> Any:
    """Return the samples as rows of the table: integers and doubles that were polled on time."""
    rows = len(samples)
    doubles = samples.type == ValueType.DOUBLE
    columns = [
        pa.array(np.full(rows, source, np.int32)),
        pa.array(samples.fingerprint.view(np.int64)),
        *(pa.array(times * 1000).view(FILE_SCHEMA.field("time").type) for times in (samples.time_ms, samples.birth_ms)),
        pa.array(np.zeros(rows, np.bool_)),
        pa.array(samples.cell, mask=doubles),
        pa.array(samples.cell.view(np.float64), mask=~doubles),
        pa.nulls(rows, pa.bool_()),
        pa.nulls(rows, pa.utf8()),
    ]
    return pa.record_batch(columns, schema=FILE_SCHEMA)


class Source:
    """One polled process: fingerprints, last values, identity of its batches."""

    def __init__(self, number: int, generator: np.random.Generator, birth_ms: int) -> None:
        self.name = source_name(number)
        self.endpoint = number.to_bytes(16, "big")
        self.birth_ms = birth_ms
        self._random = generator
        self._fingerprints = np.array([fingerprint(text_of(number, i)) for i in range(SERIES_A_SOURCE)], np.uint64)
        self._births = np.full(SERIES_A_SOURCE, birth_ms, np.int64)
        self._types = TYPES
        self._integers = generator.integers(0, 1_000_000, SERIES_A_SOURCE)
        self._doubles = generator.normal(100.0, 30.0, SERIES_A_SOURCE)

    def poll(self, at_ms: int) -> Samples:
        """Return samples with new values."""
        self._integers = self._integers + self._random.integers(0, 200, SERIES_A_SOURCE)
        self._doubles = self._doubles + self._random.normal(0.0, 1.0, SERIES_A_SOURCE)
        cells = np.where(self._types == ValueType.DOUBLE, self._doubles.view(np.int64), self._integers)
        times = np.full(SERIES_A_SOURCE, at_ms, np.int64)
        return Samples(self._fingerprints, times, self._births, self._types, cells)


def fill(kafka: str, topic: str, partitions: int, sources: int, samples: int) -> Expected:
    """Write at least `samples` samples to `topic`; every source is polled once a minute, the last time just now."""
    generator = np.random.default_rng(1)
    polls = -(-samples // (sources * SERIES_A_SOURCE))
    last = SYSTEM_CLOCK.now_ms() // MINUTE_MS * MINUTE_MS
    first = last - (polls - 1) * MINUTE_MS
    made = [Source(i, generator, first - MINUTE_MS) for i in range(sources)]
    sequences: dict[tuple[str, int], int] = {}
    expected = Expected()
    producer: Any = KafkaProducer(bootstrap_servers=kafka, acks=1, linger_ms=20, batch_size=512 * 1024)
    for poll in range(polls):
        for number, source in enumerate(made):
            agent, lane = f"agent-{number % AGENTS}", lane_of(source.name)
            sequence = sequences.get((agent, lane), 0)
            sequences[agent, lane] = sequence + 1
            at = first + poll * MINUTE_MS + number * 9  # within the first 10 s of each minute
            polled = source.poll(at)
            batch = encode_samples(
                BatchId(agent, 1, lane, sequence), source.name, source.endpoint, source.birth_ms, at, "default", polled
            )
            partition = partition_of(agent, 1, lane, partitions)
            producer.send(topic, value=batch.data, partition=partition)
            expected.ends[partition] = expected.ends.get(partition, 0) + 1
            expected.add(number, polled, len(batch.data))
        producer.flush(60)  # bounds the unsent messages to one minute of polls
    producer.close()
    return expected
