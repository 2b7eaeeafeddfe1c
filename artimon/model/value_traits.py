"""Table of the types of variables: column, Arrow type and encodings. The codec, the raw table, shards, history and
answers read it, so that a new type is one entry here and one in `values`, which needs no Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.values import COLUMNS, CONTENTS, CellContent, ValueType

DICTIONARY = "dictionary"
"""Encoding by a dictionary, among the names of Parquet's other encodings."""


@dataclass(frozen=True, slots=True)
class ValueTraits:
    """Properties of one type."""

    type: ValueType
    arrow: Any
    """Arrow type of that column."""
    encodings: tuple[str, ...]
    """Parquet encodings that every reader supports: the raw query writes the first, compaction tries all."""

    @property
    def column(self) -> str:
        """Column in batches, in the raw table and in answers."""
        return COLUMNS[self.type]

    @property
    def content(self) -> CellContent:
        return CONTENTS[self.type]

    def to_column(self, cells: npt.NDArray[np.int64], strings: tuple[str, ...], missing: Any = None) -> Any:
        """Return the Arrow column of (n,) cells; `missing` is a mask of nulls or None."""
        if missing is not None and missing.all():
            return pa.nulls(len(cells), self.arrow)
        if missing is not None and not missing.any():
            missing = None
        match self.content:
            case CellContent.FLOAT64:
                return pa.array(cells.view(np.float64), self.arrow, mask=missing, from_pandas=False)
            case CellContent.FLAG:
                return pa.array(cells != 0, self.arrow, mask=missing)
            case CellContent.TEXT:
                here = np.ones(len(cells), np.bool_) if missing is None else ~missing
                texts = [strings[cell] if there else None for cell, there in zip(cells, here, strict=True)]
                return pa.array(texts, self.arrow)
        return pa.array(cells, pa.int64(), mask=missing).view(self.arrow)


_TRAITS = (
    ValueTraits(ValueType.INTEGER, pa.int64(), ("DELTA_BINARY_PACKED", "PLAIN", DICTIONARY)),
    ValueTraits(ValueType.DOUBLE, pa.float64(), ("PLAIN", DICTIONARY)),
    ValueTraits(ValueType.BOOLEAN, pa.bool_(), ("PLAIN",)),
    ValueTraits(ValueType.STRING, pa.utf8(), (DICTIONARY, "DELTA_BYTE_ARRAY")),
)
TRAITS: Mapping[ValueType, ValueTraits] = MappingProxyType({one.type: one for one in _TRAITS})
"""Entries in the order of the columns. The order is part of the digests of rows: append new types."""
VALUE_COLUMNS = tuple(one.column for one in _TRAITS)
VALUE_FIELDS = tuple((one.column, one.arrow) for one in _TRAITS)
"""Column and Arrow type of each type, for a schema."""
