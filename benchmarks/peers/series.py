"""Samples in the form of the peers: series with labels, times in ms, values as floats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PeerSeries:
    """One series. `name` has no dots; times increase strictly; `integer`: all values are whole numbers."""

    name: str
    labels: Mapping[str, str]
    times_ms: Ints
    values: Floats
    integer: bool

    def texts(self) -> Sequence[str]:
        """Return the values as text, short and exact."""
        return list(map(str, self.values.astype(np.int64).tolist() if self.integer else self.values.tolist()))

    def joined(self) -> str:
        """Return the values as text with commas between them."""
        return join_numbers(self.values.astype(np.int64)) if self.integer else ",".join(self.texts())


def join_numbers(numbers: Ints) -> str:
    """Return whole numbers as text with commas between them, four times faster than Python's `str`."""
    texts = pa.array(numbers).cast(pa.string())
    return str(pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), ",")[0])


@dataclass(frozen=True, slots=True)
class Content:
    """Number of samples and the exact sum of their values, which are whole numbers."""

    samples: int
    total: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Disk usage of a peer. `index_bytes` is the part that names the series."""

    samples: int
    bytes: int
    index_bytes: int


class Peer(Protocol):
    """Database with a folder of its own."""

    @property
    def name(self) -> str:
        """Name of the peer in the lines."""
        ...

    @property
    def version(self) -> str:
        """Version for messages."""
        ...

    def store(self, series: Iterable[PeerSeries]) -> Stored:
        """Import the series, compact, stop the server, and return the disk usage. Raises PeerFailed."""
        ...

    def serve(self) -> AbstractContextManager[str]:
        """Serve the stored data; yield the address, which answers Prometheus' HTTP API. Raises PeerFailed."""
        ...

    def read(self, name: str, start_ms: int, end_ms: int, expected: Content) -> tuple[float, float]:
        """Return the seconds of the first and of the best later answer over HTTP with every sample of a name, to the
        last byte, undecoded. Raises PeerFailed unless number and sum of the samples are those expected."""
        ...


class PeerFailed(RuntimeError):
    """A peer failed; the text gives the reason."""


def plain_name(name: str) -> str:
    """Replace characters that peers refuse by underscores."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder: their lengths, not the blocks of this file system."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def series_of(rows: Any, texts: Mapping[tuple[int, int], tuple[str, dict[str, str]]]) -> list[PeerSeries]:
    """Convert rows of the raw table, sorted by (source, series, time), to peers' series; `texts` gives name and labels
    of (source, series). Booleans become 0 and 1. Strings, end markers and repeated times are omitted."""
    source, series = (rows.column(name).to_numpy() for name in ("source", "series"))
    times = rows.column("time").cast(pa.int64()).to_numpy() // 1000
    values, integer = _numbers(rows)
    ends = np.flatnonzero((source[1:] != source[:-1]) | (series[1:] != series[:-1])) + 1
    made: dict[str, PeerSeries] = {}
    for start, end in zip([0, *ends.tolist()], [*ends.tolist(), len(source)], strict=True):
        told = texts.get((int(source[start]), int(series[start])))
        if told is None:
            continue
        good = np.isfinite(values[start:end])
        good[1:] &= times[start + 1 : end] != times[start : end - 1]
        at, held = times[start:end][good], values[start:end][good]
        key = repr(told)
        if len(at) and key not in made:  # a second source of the same series is omitted
            made[key] = PeerSeries(plain_name(told[0]), told[1], at, held, bool(integer[start:end][good].all()))
    return sorted(made.values(), key=lambda one: one.name)


def _numbers(rows: Any) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the values as floats, NaN for rows without a number, and a mask of the whole numbers."""
    values = np.full(len(rows), np.nan)
    integer = np.zeros(len(rows), np.bool_)
    for name in ("integer", "boolean", "double"):
        column = rows.column(name).combine_chunks()
        held = np.asarray(column.is_valid())
        if held.any():
            values[held] = np.asarray(column.drop_null().cast("float64", safe=False))
        integer |= held & (name != "double")
    return values, integer
