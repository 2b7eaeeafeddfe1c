"""Request and answer of a storage engine: a selector and a grid in, a matrix of statistics out.

The memory store and the history engine answer equal requests with equal `Buckets`; the evaluator depends on neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.grid import Grid
from artimon.model.ipc import read_ipc, write_ipc
from artimon.model.series_table import NAME as NAME
from artimon.model.series_table import EncodedLabel, SeriesTable
from artimon.model.series_table import Series as Series
from artimon.model.small_buckets_codec import MARK, decode_small, encode_small, is_small
from artimon.model.vshards import from_hex, to_hex

NOT_OWNED = "not held"
"""Prefix of the refusal by a shard that does not hold a requested virtual shard: another shard holds it."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """Condition on a label or on the name (`__name__`). An absent label has the value ""."""

    label: str
    op: str
    """One of = != =~ !~ and, for the name only, `prefix`. Regular expressions match the whole value (RE2)."""
    value: str


@dataclass(frozen=True, slots=True)
class SelectRequest:
    """Request for the buckets of every series that matches, on a grid with the step of a level."""

    matchers: tuple[Matcher, ...]
    grid: Grid
    statistics: tuple[str, ...] = ("last", "count")
    """Names of statistics in artimon/compute/statistics.py."""
    limit: int = 100_000
    """Refuse the request (never truncate silently) if more series match."""
    vshards: int | None = None
    """For shards only: restrict to these virtual shards (mask, artimon/model/vshards.py), all of which the shard must
    hold; None: all that it holds. The memory store as a whole and other engines ignore this."""
    only: tuple[int, ...] | None = None
    """Restrict the matching series to these fingerprints; None: all. Other engines ignore this."""
    opening: bool = False
    """True if `min` is needed of opening buckets alone: those of several samples whose series has none in the bucket
    before, on this grid. Others are then arbitrary. For the history; other engines ignore this."""

    def to_json(self) -> dict[str, Any]:
        return {
            "matchers": [[m.label, m.op, m.value] for m in self.matchers],
            "grid": [self.grid.end_ms, self.grid.step_ms, self.grid.n],
            "statistics": list(self.statistics),
            "limit": self.limit,
            "vshards": None if self.vshards is None else to_hex(self.vshards),
            **({} if self.only is None else {"only": list(self.only)}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SelectRequest:
        return cls(
            tuple(Matcher(*m) for m in data["matchers"]),
            Grid(*data["grid"]),
            tuple(data["statistics"]),
            data["limit"],
            None if data.get("vshards") is None else from_hex(data["vshards"]),
            None if data.get("only") is None else tuple(int(print_) for print_ in data["only"]),
        )


INCARNATION_DTYPE = np.dtype(
    [
        ("row", np.int64),
        ("birth_ms", np.int64),
        ("first_ms", np.int64),
        ("last_ms", np.int64),
        ("last", np.int64),
    ]
)
"""One incarnation of one series: `row` of the series in the matrix, start time, time of the first sample, time and cell
of the last."""


@dataclass(frozen=True, slots=True)
class EngineShare:
    """Share of one engine in an answer: the times in (start_ms, end_ms] and the data read for them."""

    engine: str
    start_ms: int
    end_ms: int
    samples: int = 0
    """Raw samples read; 0 if the engine had buckets already."""
    bytes: int = 0
    """Bytes read from the table, compressed."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Answer: arrays of shape (series, grid.n), rows in the order of `series` (any order; the evaluator sorts)."""

    grid: Grid
    series: Sequence[Series]
    """A SeriesTable if it came over the network."""
    statistics: Mapping[str, npt.NDArray[np.int64]]
    strings: tuple[str, ...] = ()
    """Strings that the cells of STRING series index."""
    births: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, INCARNATION_DTYPE))
    """Incarnations of the selected series, dtype BIRTH_TYPE, sorted by (row, birth_ms); at least one for every sampled
    series."""
    ended_ms: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(series,) time of an end marker with no later sample; 0 for series that continue."""
    newest_ms: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(series,) time of the newest sample."""
    notes: tuple[str, ...] = ()
    """Warnings for the reader: partial answers, stale data."""
    partial: bool = False
    parts: tuple[EngineShare, ...] = ()
    """Oldest first; empty in answers of shards. Not sent over a network."""


class SelectError(ValueError):
    """A request that cannot be answered: unknown level, too many series. The text gives reason and remedy."""

    of_query = True
    """True if the query causes the error; False if the store does."""


class TooManySeries(SelectError):
    """More series match than the request allows."""


_TOO_MANY = "are allowed: add matchers or raise the limit"


def too_many_series(found: int, limit: int, of: str = "") -> TooManySeries:
    """Return the error for `found` matching series; `of` names the shard that found them."""
    where = f" of {of}" if of else ""
    return TooManySeries(f"{found} series{where} fit, at most {limit} {_TOO_MANY}")


def select_error(text: str) -> SelectError:
    """Convert the refusal of a shard, which is sent as its text."""
    return TooManySeries(text) if text.endswith(_TOO_MANY) else SelectError(text)


class Store(Protocol):
    """Source of data for the evaluator."""

    def select(self, request: SelectRequest) -> Buckets:
        """Return the buckets of every series that matches. Raises SelectError for a step that no level has."""
        ...

    def levels(self) -> tuple[tuple[int, int], ...]:
        """Return (step_ms, buckets kept) of each level, finest first."""
        ...

    def names(self) -> list[str]:
        """Return every variable name, sorted."""
        ...

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """Return the values of a label, sorted; label None: the names of all labels."""
        ...

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """Return the series that match, with or without buckets, in canonical order."""
        ...


def encode_buckets(buckets: Buckets, small: bool = False) -> bytes:
    """Encode as two Arrow IPC streams, preceded by the length of the first in 8 bytes. The first has a row per series,
    a dictionary-encoded column per label, and other fields in the schema's metadata. The second has a column per
    statistic, bucket by bucket as shards hold them. With `small`, small answers have the format of
    `small_buckets_codec`."""
    table = SeriesTable.from_series(buckets.series)
    meta = {
        "grid": [buckets.grid.end_ms, buckets.grid.step_ms, buckets.grid.n],
        "strings": list(buckets.strings),
        "notes": list(buckets.notes),
        "partial": buckets.partial,
    }
    whole = len(buckets.ended_ms) == len(buckets.newest_ms) == len(table)
    if small and whole and is_small(len(table), buckets.grid.n, len(buckets.statistics)):
        lives = buckets.births.astype(INCARNATION_DTYPE, copy=False).view(np.int64)
        return encode_small(meta, table, buckets.statistics, buckets.ended_ms, buckets.newest_ms, lives)
    columns: dict[str, Any] = {
        "fingerprint": pa.array(table.fingerprints),
        "type": pa.array(table.types),
        "kind": pa.array(table.kinds),
        "ended": pa.array(buckets.ended_ms),
        "newest": pa.array(buckets.newest_ms),
    }
    for label, (codes, values) in table.columns.items():
        coded = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values, pa.utf8()))
        columns[f"label.{label}"] = coded
    head = pa.record_batch(list(columns.values()), names=list(columns)).replace_schema_metadata(
        {b"artimon": json.dumps(meta).encode(), b"births": buckets.births.astype(INCARNATION_DTYPE).tobytes()}
    )
    flat = [pa.array(np.ascontiguousarray(m.T, np.int64).reshape(-1)) for m in buckets.statistics.values()]
    first = write_ipc(head)
    return write_ipc(pa.record_batch(flat, list(buckets.statistics)), before=len(first).to_bytes(8, "big") + first)


def decode_buckets(data: bytes) -> Buckets:
    """Decode `encode_buckets`; arrays are read-only views."""
    if data.startswith(MARK):
        return _decode_small(data)
    batch = read_ipc(data, 8)
    meta = json.loads(batch.schema.metadata[b"artimon"])
    births = np.frombuffer(batch.schema.metadata[b"births"], INCARNATION_DTYPE)
    grid = Grid(*meta["grid"])
    names = {field.name: i for i, field in enumerate(batch.schema)}
    arrays = {
        name: batch.column(names[name]).to_numpy(zero_copy_only=True)
        for name in ("fingerprint", "type", "kind", "ended", "newest")
    }
    labels = {name[6:]: _decoded(batch.column(i)) for name, i in names.items() if name.startswith("label.")}
    cells = read_ipc(data, 8 + int.from_bytes(data[:8], "big"))
    statistics = {
        field.name: cells.column(i).to_numpy(zero_copy_only=True).reshape(grid.n, batch.num_rows).T
        for i, field in enumerate(cells.schema)
    }
    return Buckets(
        grid,
        SeriesTable(arrays["fingerprint"], arrays["type"], arrays["kind"], labels),
        statistics,
        tuple(meta["strings"]),
        births,
        arrays["ended"],
        arrays["newest"],
        tuple(meta["notes"]),
        meta["partial"],
    )


def _decode_small(data: bytes) -> Buckets:
    meta, table, statistics, rest = decode_small(data)
    n = len(table)
    return Buckets(
        Grid(*meta["grid"]),
        table,
        statistics,
        tuple(meta["strings"]),
        rest[2 * n :].view(INCARNATION_DTYPE),
        rest[:n],
        rest[n : 2 * n],
        tuple(meta["notes"]),
        meta["partial"],
    )


def _decoded(coded: Any) -> EncodedLabel:
    return coded.indices.to_numpy(zero_copy_only=True), tuple(coded.dictionary.to_pylist())
