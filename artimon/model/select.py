"""What an engine is asked and what it answers: a selector and a grid in, a matrix of statistics out.

The memory store and the history engine answer the same request with the same `Buckets`, so the evaluator knows neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.grid import Grid
from artimon.model.ipc import read_ipc, write_ipc
from artimon.model.values import Kind, ValueType

STATISTICS = ("last", "last_time", "min", "max", "sum", "count")
"""`last`, `min` and `max` are cells (64 bits in the series' own type); `last_time` epoch ms; `sum` float64 bits for
DOUBLE, for others an int64 modulo 2^64; `count` samples in the bucket. A cell has a meaning only where count > 0."""

NAME = "__name__"


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label, or on the name (`__name__`). An absent label has the value ""."""

    label: str
    op: str
    """One of = != =~ !~ and, for the name only, `prefix`. Regular expressions match the whole value (RE2)."""
    value: str


@dataclass(frozen=True, slots=True)
class SelectRequest:
    """Ask for the buckets of every series that fits all matchers, on a grid whose step is that of a level."""

    matchers: tuple[Matcher, ...]
    grid: Grid
    statistics: tuple[str, ...] = ("last", "count")
    limit: int = 100_000
    """Refuse (never cut silently) when more series fit."""

    def to_json(self) -> dict[str, Any]:
        return {
            "matchers": [[m.label, m.op, m.value] for m in self.matchers],
            "grid": [self.grid.end_ms, self.grid.step_ms, self.grid.n],
            "statistics": list(self.statistics),
            "limit": self.limit,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SelectRequest:
        return cls(
            tuple(Matcher(*m) for m in data["matchers"]),
            Grid(*data["grid"]),
            tuple(data["statistics"]),
            data["limit"],
        )


@dataclass(frozen=True, slots=True)
class Series:
    """One selected series."""

    fingerprint: int
    name: str
    labels: Mapping[str, str]
    type: ValueType
    kind: Kind


BIRTH_TYPE = np.dtype(
    [
        ("row", np.int64),
        ("birth_ms", np.int64),
        ("first_ms", np.int64),
        ("last_ms", np.int64),
        ("last", np.int64),
    ]
)
"""One life of one series: `row` of the series in the matrix, birth, time of its first sample, time and cell of its
last."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The answer: arrays of shape (series, grid.n), rows in the order of `series` (any order; the evaluator sorts)."""

    grid: Grid
    series: tuple[Series, ...]
    statistics: Mapping[str, npt.NDArray[np.int64]]
    strings: tuple[str, ...] = ()
    """Cells of STRING series are indices into this."""
    births: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, BIRTH_TYPE))
    """Lives of the selected series, dtype BIRTH_TYPE, sorted by (row, birth_ms); every series has at least one once
    sampled."""
    ended_ms: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(series,) time at which the source said that the series ended and nothing came since; 0 where it goes on."""
    newest_ms: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(series,) time of the newest sample."""
    notes: tuple[str, ...] = ()
    """What a reader must know: partial answers, what was stale."""
    partial: bool = False


class SelectError(ValueError):
    """A request that cannot be answered: unknown level, too many series. The text says what, and what to do."""

    of_query = True
    """Whether another query would help; False where the store itself is the matter."""


class Store(Protocol):
    """Where the evaluator gets data."""

    def select(self, request: SelectRequest) -> Buckets:
        """Buckets of every series that fits; a grid whose step no level has raises SelectError."""
        ...

    def levels(self) -> tuple[tuple[int, int], ...]:
        """(step_ms, buckets kept) of each level, finest first."""
        ...

    def names(self) -> list[str]:
        """Every variable name, sorted."""
        ...

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """Values of a label, sorted; label None: the names of all labels."""
        ...

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """Series that fit, whether or not they have buckets, in canonical order."""
        ...


def encode_buckets(buckets: Buckets) -> bytes:
    """Arrow IPC: one row a series, statistics as fixed-size lists, the rest in the schema's metadata."""
    n = buckets.grid.n
    columns: list[tuple[str, Any]] = [
        ("fingerprint", pa.array([s.fingerprint for s in buckets.series], pa.uint64())),
        ("name", pa.array([s.name for s in buckets.series], pa.utf8())),
        (
            "labels",
            pa.array([json.dumps(dict(s.labels), ensure_ascii=False) for s in buckets.series], pa.utf8()),
        ),
        ("type", pa.array([s.type for s in buckets.series], pa.uint8())),
        ("kind", pa.array([s.kind for s in buckets.series], pa.uint8())),
        ("ended", pa.array(buckets.ended_ms)),
        ("newest", pa.array(buckets.newest_ms)),
    ]
    for name, matrix in buckets.statistics.items():
        flat = pa.array(np.ascontiguousarray(matrix, np.int64).reshape(-1))
        columns.append((f"stat.{name}", pa.FixedSizeListArray.from_arrays(flat, n)))
    meta = {
        "grid": [buckets.grid.end_ms, buckets.grid.step_ms, n],
        "strings": list(buckets.strings),
        "notes": list(buckets.notes),
        "partial": buckets.partial,
    }
    table = pa.record_batch([c for _, c in columns], names=[name for name, _ in columns])
    table = table.replace_schema_metadata(
        {b"artimon": json.dumps(meta).encode(), b"births": buckets.births.astype(BIRTH_TYPE).tobytes()}
    )
    return write_ipc(table)


def decode_buckets(data: bytes) -> Buckets:
    """Inverse of `encode_buckets`; arrays are read-only views."""
    table = read_ipc(data)
    meta = json.loads(table.schema.metadata[b"artimon"])
    births = np.frombuffer(table.schema.metadata[b"births"], BIRTH_TYPE)
    grid = Grid(*meta["grid"])
    heads = zip(
        *(table.column(name).to_pylist() for name in ("fingerprint", "name", "labels", "type", "kind")),
        strict=True,
    )
    series = tuple(
        Series(fingerprint, name, json.loads(labels), ValueType(type_), Kind(kind))
        for fingerprint, name, labels, type_, kind in heads
    )
    statistics = {
        field.name[5:]: table.column(i).flatten().to_numpy(zero_copy_only=True).reshape(len(series), grid.n)
        for i, field in enumerate(table.schema)
        if field.name.startswith("stat.")
    }
    return Buckets(
        grid,
        series,
        statistics,
        tuple(meta["strings"]),
        births,
        table.column(5).to_numpy(zero_copy_only=True),
        table.column(6).to_numpy(zero_copy_only=True),
        tuple(meta["notes"]),
        meta["partial"],
    )
