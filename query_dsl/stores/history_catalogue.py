"""Series of the history: rows of the table of series converted to the series of an answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from artimon.model.select import NAME, Matcher, Series
from artimon.model.series_table import EncodedLabel, SeriesTable
from artimon.model.values import Kind, ValueType
from artimon.rawtable.table_reader import OpenTables
from query_dsl.stores.history.series_lookup import read_announced, read_label_values
from query_dsl.stores.sample_rows import Ints

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
CACHE_SIZE = 8
CACHE_TTL_S = 30.0
"""Cache lifetime of a lookup, in seconds: new announcements need as long to reach the table."""
MAX_FOUND = 1_000_000
"""Maximum number of series of a lookup, about 1 GiB: those of a query are limited further."""


@dataclass(frozen=True)
class SeriesMatch:
    """Matching series: `table` with one row per series, pairs of (source, fingerprint) that report them, and the row
    of each pair."""

    table: SeriesTable
    source: Ints
    fingerprint: Ints
    row_of: Ints
    ambiguous: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def canonical_order(self) -> Ints:
        """Return the rows in the order of their names and labels."""
        return self.table.canonical_order().astype(np.int64)


class HistoryCatalogue:
    """Cached lookups of series in one history. `_lock` guards both caches."""

    def __init__(self, hdfs: str, opened: OpenTables | None = None) -> None:
        self._hdfs, self._opened = hdfs, opened or OpenTables()
        self._lock = Lock()
        self._cache: OrderedDict[tuple[Matcher, ...], tuple[float, SeriesMatch]] = OrderedDict()
        self._values: OrderedDict[str | None, tuple[float, list[str]]] = OrderedDict()

    def find(self, matchers: tuple[Matcher, ...]) -> SeriesMatch:
        """Return every matching series that was ever announced. Raises TooMuchHistory for more than MAX_FOUND, and as
        `read_announced`."""

        def read() -> SeriesMatch:
            return make_match(*read_announced(self._hdfs, matchers, MAX_FOUND, self._opened))

        return self._cached(self._cache, matchers, read)

    def label_values(self, label: str | None) -> list[str]:
        """Return the values of a label of all series, or with None all names of labels, sorted. Raises as
        `read_label_values`."""
        return self._cached(self._values, label, lambda: sorted(read_label_values(self._hdfs, label, self._opened)))

    def _cached(self, cache: OrderedDict[K, tuple[float, T]], key: K, read: Callable[[], T]) -> T:
        now = monotonic()
        with self._lock:
            if key in cache and now - cache[key][0] < CACHE_TTL_S:
                return cache[key][1]
        found = read()
        with self._lock:
            cache[key] = now, found
            cache.move_to_end(key)
            while len(cache) > CACHE_SIZE:
                cache.popitem(last=False)
        return found


def make_match(rows: Any, aside: tuple[int, ...]) -> SeriesMatch:
    """Convert rows of SERIES_SCHEMA, each (source, series) once. A series of two sources becomes one row."""
    prints = rows.column("series").to_numpy()
    source = rows.column("source").cast(pa.int64()).to_numpy()
    distinct, first, row_of = np.unique(prints, return_index=True, return_inverse=True)
    types = _codes(rows.column("type"), ValueType)
    double = np.zeros(len(distinct), np.bool_)
    double[row_of[types == ValueType.DOUBLE]] = True
    one = types[first]
    own = np.where(double & (one == ValueType.INTEGER), int(ValueType.DOUBLE), one).astype(np.uint8)
    kinds = _codes(rows.column("kind"), Kind)[first]
    chosen = rows.select(["name", "labels"]).take(pa.array(first)).combine_chunks()
    columns = {NAME: _coded(chosen.column("name").combine_chunks()), **_labels(chosen.column("labels"))}
    return SeriesMatch(
        SeriesTable(distinct.view(np.uint64), own, kinds, columns), source, prints, row_of.reshape(-1), aside
    )


def _codes(column: Any, of: type[ValueType] | type[Kind]) -> Any:
    names, codes = _dictionary(column)
    place = np.array([int(of[name.upper()]) for name in names], np.uint8)
    return place[codes]


def _dictionary(column: Any) -> tuple[list[str], Any]:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], pa.utf8())
    coded = whole.dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy()


def _coded(column: Any) -> EncodedLabel:
    values, codes = _dictionary(column)
    return codes.astype(np.int32), values


def _labels(column: Any) -> dict[str, EncodedLabel]:
    """Return one column per label, "" for series without it."""
    keys, items, owner, n = [], [], [], 0
    for chunk in column.chunks:
        sizes = np.diff(np.asarray(chunk.offsets))
        keys.append(chunk.keys)
        items.append(chunk.items)
        owner.append(np.repeat(np.arange(n, n + len(chunk)), sizes))
        n += len(chunk)
    names, name_of = _dictionary(pa.chunked_array(keys, pa.utf8()))
    values, value_of = _dictionary(pa.chunked_array(items, pa.utf8()))
    rows = np.concatenate(owner) if owner else np.zeros(0, np.int64)
    columns: dict[str, EncodedLabel] = {}
    for number, name in enumerate(names):
        mine = name_of == number
        used, codes = np.unique(value_of[mine], return_inverse=True)
        whole = np.zeros(n, np.int32)
        whole[rows[mine]] = codes + 1
        columns[name] = whole, ["", *(values[i] for i in used.tolist())]
    return columns


def sort_series(series: Sequence[Series]) -> list[Series]:
    """Sort in canonical order."""
    return sorted(series, key=lambda one: (one.name, sorted(one.labels.items())))
