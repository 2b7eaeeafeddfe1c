"""Result of one poll of one source, before (`PollResult`) and after (`Batch`) it has an identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.model.ranges import LaneId
from artimon.model.values import Kind, Value, ValueType, double_to_cell, type_of, value_of_cell

MAX_SAMPLES = 10_000
MAX_BYTES = 512 * 1024
MAX_BLOCK_SERIES = 1_000
MAX_DECODED_BYTES = 8 * 1024 * 1024
"""Limit of the decompressed columns of a batch, bytes: 10,000 numbers take 0.4 MiB, the rest is for strings."""
MAX_SOURCE_BYTES = 4_096
"""Limit of the name of a source, bytes."""
MAX_NAME_BYTES = 255
"""Limit of the names of agents and retention classes, bytes: they are part of every commit and every file path."""
MAX_TIME_MS = 253_402_300_799_999
"""Last millisecond of the year 9999, the greatest time that tables can hold."""
DEFAULT_KEEP = "default"
NO_LANE = 0xFFFF
Picked = slice | npt.NDArray[np.intp]


class BatchError(ValueError):
    """Bytes that are not a whole, undamaged batch, or a batch that breaks a limit. The text names the fault."""


class UnknownFormatError(BatchError):
    """A batch of an unsupported format version, probably of a newer program."""


class BatchKind(IntEnum):
    """Kind of content of a message."""

    SAMPLES = 1
    SERIES = 2
    EVENTS = 3


class BatchId(NamedTuple):
    """Permanent identity of a batch; the same identity always has the same bytes."""

    agent: str
    epoch: int
    lane: int
    sequence: int

    @property
    def lane_id(self) -> LaneId:
        return LaneId(self.agent, self.epoch, self.lane)

    def __str__(self) -> str:
        return f"{self.agent}/{self.epoch:016x}/{self.lane}/{self.sequence}"


@dataclass(frozen=True, slots=True)
class Samples:
    """Columns of n samples; a fingerprint occurs once in a batch, except where a file held several times of a series.

    `cell` holds the 64 bits of a value: int64, float64 bits, 0/1, or an index into `strings`; 0 where type is ENDED.
    """

    fingerprint: npt.NDArray[np.uint64]
    time_ms: npt.NDArray[np.int64]
    birth_ms: npt.NDArray[np.int64]
    type: npt.NDArray[np.uint8]
    cell: npt.NDArray[np.int64]
    strings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.fingerprint)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, Value | None]]) -> Samples:
        """Build from rows (fingerprint, time_ms, birth_ms, value); value None marks the end of the series."""
        from_rows = _CellColumns()
        for _, _, _, value in rows:
            from_rows.add(value)
        return cls(
            np.array([row[0] for row in rows], np.uint64),
            np.array([row[1] for row in rows], np.int64),
            np.array([row[2] for row in rows], np.int64),
            np.array(from_rows.types, np.uint8),
            np.array(from_rows.cells, np.int64),
            tuple(from_rows.strings),
        )

    def value(self, row: int) -> Value | None:
        """Return the value of one row as a Python object; None for an end marker."""
        type_ = ValueType(int(self.type[row]))
        return None if type_ == ValueType.ENDED else value_of_cell(type_, int(self.cell[row]), self.strings)

    def rows(self) -> list[tuple[int, int, int, Value | None]]:
        """Inverse of `of`."""
        return [
            (int(self.fingerprint[i]), int(self.time_ms[i]), int(self.birth_ms[i]), self.value(i))
            for i in range(len(self))
        ]

    def slice(self, start: int, end: int) -> Samples:
        """Return rows [start, end); the strings are shared."""
        return self.pick(slice(start, end))

    def pick(self, rows: Picked) -> Samples:
        """Return the given rows; the strings are shared."""
        return Samples(
            self.fingerprint[rows],
            self.time_ms[rows],
            self.birth_ms[rows],
            self.type[rows],
            self.cell[rows],
            self.strings,
        )

    def join(self, more: Samples) -> Samples:
        """Return these rows, then those of `more`, which have no strings."""
        return Samples(
            np.concatenate([self.fingerprint, more.fingerprint]),
            np.concatenate([self.time_ms, more.time_ms]),
            np.concatenate([self.birth_ms, more.birth_ms]),
            np.concatenate([self.type, more.type]),
            np.concatenate([self.cell, more.cell]),
            self.strings,
        )


class _CellColumns:
    """Collects types and cells of Python values."""

    def __init__(self) -> None:
        self.types: list[int] = []
        self.cells: list[int] = []
        self.strings: list[str] = []

    def add(self, value: Value | None) -> None:
        kind = ValueType.ENDED if value is None else type_of(value)
        cell = value if isinstance(value, int) else double_to_cell(value) if isinstance(value, float) else 0
        if isinstance(value, str):
            cell = len(self.strings)
            self.strings.append(value)
        self.types.append(kind)
        self.cells.append(cell)


@dataclass(frozen=True, slots=True)
class SeriesInfo:
    """Entry of one series in an announcement."""

    text: str
    """Canonical text."""
    type: ValueType
    kind: Kind = Kind.UNKNOWN
    help: str = ""
    unit: str = ""
    first_seen_ms: int = 0


@dataclass(frozen=True, slots=True)
class SeriesBlock:
    """Complete block of at most 1,000 series of one source. For equal (source, block) the greatest version is valid."""

    source: str
    block: int
    version: int
    """Announce time, epoch milliseconds."""
    series: tuple[SeriesInfo, ...]

    @property
    def key(self) -> bytes:
        """Kafka key, by which the topic is compacted."""
        return f"{self.block}/{self.source}".encode()


@dataclass(frozen=True, slots=True)
class PollResult:
    """Result of one poll of one source. The log assigns an identity when it accepts it."""

    source: str
    endpoint: bytes
    """UUID of the process (16 bytes); zeros if there is none."""
    birth_ms: int
    poll_ms: int
    samples: Samples
    keep: str = DEFAULT_KEEP
    blocks: tuple[SeriesBlock, ...] = field(default=())
    """Announcements sent with these samples: new or changed blocks of this source."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """Header of a batch: all fields except the body."""

    kind: BatchKind
    id: BatchId
    """For announcements: agent, epoch 0, lane NO_LANE, sequence 0."""
    source: str
    endpoint: bytes
    birth_ms: int
    poll_ms: int
    """Poll time; the version for announcements."""
    rows: int
    block: int
    keep: str
    body_at: int
    """Offset of the body in the message."""
    size: int
    """Length of the whole message."""


class Batch(NamedTuple):
    """A header and the whole message as it is sent."""

    header: BatchHeader
    data: bytes
