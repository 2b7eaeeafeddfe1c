"""Values of rows of the tables, which have a nullable column per type, as types and 64-bit cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from artimon.compute.cells import Ints, Types
from artimon.model.value_traits import TRAITS
from artimon.model.values import CellContent, ValueType


def to_milliseconds(column: Any) -> Ints:
    """Convert a column of times to epoch milliseconds, rounded down."""
    whole: Ints = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy() // 1000
    return whole


def read_values(table: Any) -> tuple[Types, Ints, tuple[str, ...]]:
    """Return type and cell of the value of each row, ENDED without one, and the texts that cells of STRING index:
    distinct and sorted, so that cells are in the order of their texts."""
    n = len(table)
    types, cells = np.full(n, int(ValueType.ENDED), np.uint8), np.zeros(n, np.int64)
    strings: tuple[str, ...] = ()
    for type_, traits in TRAITS.items():
        column = table.column(traits.column)
        if column.null_count == n:
            continue
        held = column.drop_null() if column.null_count else column
        held = held.chunk(0) if held.num_chunks == 1 else held.combine_chunks()
        if traits.content is CellContent.TEXT:
            strings, own = _interned(held)
        elif traits.content is CellContent.FLOAT64:
            own = held.to_numpy(zero_copy_only=False).view(np.int64)
        else:
            own = held.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        if column.null_count == 0:
            return np.full(n, type_, np.uint8), own, strings
        there = np.flatnonzero(column.is_valid().to_numpy())
        types[there], cells[there] = type_, own
    return types, cells, strings


def _interned(texts: Any) -> tuple[tuple[str, ...], Ints]:
    coded = texts.dictionary_encode()
    strings, places = intern_texts(coded.dictionary.to_pylist())
    return strings, np.array(places, np.int64)[coded.indices.to_numpy()]


def intern_texts(texts: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """Return the distinct texts in order, and the index of each given text."""
    strings = tuple(sorted(set(texts)))
    place = {text: i for i, text in enumerate(strings)}
    return strings, [place[text] for text in texts]
