"""Raw samples in columns, from any source, and the type of each series."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.values import ValueType
from artimon.rawtable.value_columns import read_values, to_milliseconds

Ints = npt.NDArray[np.int64]
Types = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
INTEGER, DOUBLE, BOOLEAN, STRING, ENDED = (
    np.uint8(int(t))
    for t in (ValueType.INTEGER, ValueType.DOUBLE, ValueType.BOOLEAN, ValueType.STRING, ValueType.ENDED)
)
NO_TYPE = np.uint8(0xFE)


@dataclass(frozen=True, slots=True)
class SampleRows:
    """n samples in any order. A row of type ENDED has no value: it marks the end of its series."""

    row: Ints
    """Number of the series."""
    time_ms: Ints
    birth_ms: Ints
    type: Types
    cell: Ints
    """64 bits of the value; of STRING an index into `strings`."""
    strings: tuple[str, ...] = ()
    """Distinct and sorted, so that cells are in the order of their texts."""

    def __len__(self) -> int:
        return len(self.row)

    def select(self, which: Bools | npt.NDArray[np.intp]) -> SampleRows:
        """Return the rows of a mask or of indices."""
        return SampleRows(
            self.row[which], self.time_ms[which], self.birth_ms[which], self.type[which], self.cell[which], self.strings
        )


def from_raw_table(table: Any, row_of: Ints) -> SampleRows:
    """Convert rows of the raw table, as the history reads them. Rows from the future are left out, as in shards;
    `row_of` is the series of each pair."""
    if len(table) and table.column("future").combine_chunks().true_count:
        table = table.filter(pa.compute.invert(table.column("future")))
    types, cells, strings = read_values(table)
    return SampleRows(
        row_of[table.column("pair").to_numpy()],
        to_milliseconds(table.column("time")),
        to_milliseconds(table.column("birth")),
        types,
        cells,
        strings,
    )


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows with one type per series, and the number of rows left out because of their type."""

    rows: SampleRows
    conflicts: int = 0
    conflicting: tuple[int, ...] = ()
    """Series for which two sources report incompatible types: only rows of one of these types are kept."""


def unify_types(rows: SampleRows, source: Ints) -> TypedRows:
    """Give each series one type, as shards do: that of its first sample by time. INTEGER may become DOUBLE once, with
    all samples up to then; rows of other types are left out. Each `source` (one per row) is settled alone; then a
    series with INTEGER and DOUBLE sources is DOUBLE."""
    settled = settle_types(rows, source, rows.time_ms)
    whole = np.flatnonzero(settled.keep & (settled.types == DOUBLE) & (rows.type == INTEGER))
    if not len(whole) and settled.keep.all():
        return TypedRows(rows)
    cells = rows.cell.copy()
    cells[whole] = cells[whole].astype(np.float64).view(np.int64)
    made = replace(rows, type=settled.types, cell=cells)
    return TypedRows(made.select(settled.keep), int(len(rows) - np.count_nonzero(settled.keep)), settled.conflicting)


class SettledTypes(NamedTuple):
    """Type of each row, the mask of rows that are kept, and the series of two incompatible types."""

    types: Types
    keep: Bools
    conflicting: tuple[int, ...] = ()


def settle_types(rows: SampleRows, source: Ints, last_ms: Ints) -> SettledTypes:
    """Decide for `unify_types`. A row may stand for several samples of one type: from `time_ms` to `last_ms`."""
    types, keep = rows.type.copy(), np.ones(len(rows), np.bool_)
    mixed = np.flatnonzero(_mixed_rows(rows))
    if not len(mixed):
        return SettledTypes(types, keep)
    order = mixed[np.lexsort((rows.type[mixed], rows.time_ms[mixed], source[mixed], rows.row[mixed]))]
    apart = []
    for one in np.split(order, np.flatnonzero(np.diff(rows.row[order])) + 1):
        parts = [
            _choose_type(part, types, rows.time_ms, last_ms, keep)
            for part in np.split(one, np.flatnonzero(np.diff(source[one])) + 1)
        ]
        double = DOUBLE in parts and set(parts) == {INTEGER, DOUBLE}
        wanted = DOUBLE if double else parts[0]
        if double or wanted == DOUBLE:
            types[one[(types[one] == INTEGER) & keep[one]]] = DOUBLE
        other = one[types[one] != wanted]
        if len(set(parts)) > 1 and not double:
            apart.append(int(rows.row[one[0]]))
        keep[other] = False
    return SettledTypes(types, keep, tuple(apart))


def _mixed_rows(rows: SampleRows) -> Any:
    """(n,) mask of the rows with a value whose series has more than one type."""
    valued = rows.type != ENDED
    if not valued.any():
        return valued
    size = int(rows.row.max()) + 1
    least, most = np.full(size, 255, np.uint8), np.zeros(size, np.uint8)
    np.minimum.at(least, rows.row[valued], rows.type[valued])
    np.maximum.at(most, rows.row[valued], rows.type[valued])
    return valued & (least < most)[rows.row]


def _choose_type(part: npt.NDArray[np.intp], types: Types, time_ms: Ints, last_ms: Ints, keep: Bools) -> np.uint8:
    """Return the type of one source's rows, which are in the order of time; clear `keep` of rows of other types."""
    first = np.uint8(types[part[0]])
    doubles = part[types[part] == DOUBLE]
    if first == INTEGER and len(doubles):
        since = time_ms[doubles[0]]
        late = (types[part] != DOUBLE) & ~((types[part] == INTEGER) & (last_ms[part] <= since))
        keep[part[late]] = False
        return DOUBLE
    keep[part[types[part] != first]] = False
    return first
