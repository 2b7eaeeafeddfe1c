"""Index of a file of the table of series: numbers of row groups by term. A term is the 64-bit hash of a label and its
value, or of `__name__` and the name. docs/formats/series.md.

A row group that has a series with the term is always listed; terms that share a hash only cost reading it in vain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from artimon.rawtable.parquet_reader import GroupReader

Words = npt.NDArray[np.uint64]

TERMS_FOLDER = "_terms"
"""Folder of the indexes below the table: readers of Delta tables ignore folders that begin with an underscore."""
MIN_INDEXED_ROWS = 20_000
"""Files with fewer rows have no index: all their rows are read."""
NAME_LABEL = "__name__"
ENTRIES_OF_GROUP = 8_192
"""Entries of a row group of an index, about 60 KB. A lookup reads one for each term."""
SCHEMA = pa.schema([("term", pa.int64()), ("group", pa.int32())])
_ODD = np.uint64(0x9E3779B97F4A7C15)


def index_path(path: str) -> str:
    """Return the path of the index of a file, both relative to the table."""
    return f"{TERMS_FOLDER}/{path}"


def term_of(label: str, value: str) -> int:
    """Return the term of a label, signed."""
    term = (xxhash.xxh3_64_intdigest(label.encode()) * int(_ODD) ^ xxhash.xxh3_64_intdigest(value.encode())) % 2**64
    return term - 2**64 if term >= 2**63 else term


class TermIndexBuilder:
    """Collects the terms of a file that is written in row groups of `group_rows` rows."""

    def __init__(self, group_rows: int) -> None:
        self._group_rows = group_rows
        self._groups = 0
        self._parts: list[tuple[Words, int]] = []

    def add(self, rows: Any) -> None:
        """Add rows that the file has next, from a new row group on: `name` and `labels`, without nulls."""
        for start in range(0, len(rows), self._group_rows):
            part = rows.slice(start, self._group_rows)
            self._parts.append((_terms_of(part), self._groups))
            self._groups += 1

    def to_bytes(self) -> bytes:
        """Return the index as a Parquet file."""
        sizes = [len(terms) for terms, _ in self._parts]
        terms = np.concatenate([terms for terms, _ in self._parts]).view(np.int64)
        groups = np.repeat(np.array([group for _, group in self._parts], np.int32), sizes)
        order = np.argsort(terms, kind="stable")
        table = pa.table([terms[order], groups[order]], schema=SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(
            table,
            sink,
            compression="zstd",
            row_group_size=ENTRIES_OF_GROUP,
            use_dictionary=False,
            column_encoding={"term": "DELTA_BINARY_PACKED", "group": "PLAIN"},
            store_schema=False,
        )
        return bytes(sink.getvalue())


def _terms_of(rows: Any) -> Words:
    """Return the distinct terms of a slice of a file."""
    found = [_mix(NAME_LABEL, rows.column("name"))]
    labels = rows.column("labels")
    for chunk in labels.chunks if isinstance(labels, pa.ChunkedArray) else [labels]:
        first, last = chunk.offsets[0].as_py(), chunk.offsets[len(chunk)].as_py()
        keys, values = (part.slice(first, last - first).dictionary_encode() for part in (chunk.keys, chunk.items))
        of_keys, of_values = _hashes(keys.dictionary), _hashes(values.dictionary)
        found.append(of_keys[keys.indices.to_numpy()] * _ODD ^ of_values[values.indices.to_numpy()])
    return np.unique(np.concatenate(found))


def _mix(label: str, values: Any) -> Words:
    """Return the terms of the distinct values of one label."""
    return _hashes(pa.array([label])) * _ODD ^ _hashes(values.unique())


def _hashes(texts: Any) -> Words:
    whole = texts.cast(pa.binary()).to_pylist()
    return np.fromiter(map(xxhash.xxh3_64_intdigest, whole), np.uint64, len(whole))


class TermIndex:
    """Reader of one index by that of its file. Used by one thread."""

    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader

    def groups(self, wanted: Iterable[Sequence[int]]) -> list[int]:
        """Return the row groups that have, of each element of `wanted`, at least one term. Raises OSError."""
        found: set[int] | None = None
        for terms in wanted:
            held = set().union(*map(self._groups_of, terms))
            found = held if found is None else found & held
            if not found:
                break
        return sorted(found or ())

    def _groups_of(self, term: int) -> set[int]:
        held: set[int] = set()
        first = bisect_left(range(self._reader.groups), term, key=lambda number: self._bounds(number)[1])
        for number in range(first, self._reader.groups):
            if self._bounds(number)[0] > term:
                break
            rows = self._reader.read(number, SCHEMA.names)
            terms = rows.column("term").to_numpy()
            start, end = np.searchsorted(terms, term), np.searchsorted(terms, term, side="right")
            held.update(rows.column("group").to_numpy()[start:end].tolist())
        return held

    def _bounds(self, number: int) -> tuple[int, int]:
        """Return the least and greatest term of a row group of the index."""
        low, high = self._reader.bounds(number, ["term"])["term"]
        return low, high
