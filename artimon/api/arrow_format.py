"""Encoding of a matrix as an Arrow IPC stream: a row per cell, every value in a column of its type, without rounding.

Columns: `series`, `name` (dictionaries), `time` (timestamp[ms, UTC], the end of the bucket), and `integer`, `double`,
`boolean`, `string` for the types in the matrix. A missing value is null in all of these. The schema's metadata
`artimon` is JSON: grid, complete, partial, notes, and name, labels and type of each entry of the `series` dictionary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.value_traits import TRAITS
from artimon.model.values import CellContent, ValueType
from query_dsl import Matrix
from query_dsl.tree.calendar_units import grid_fields

BATCH_ROWS = 32_768
"""Target size of a record batch in cells; a batch has whole series."""
COLUMNS = {
    kind: (traits.column, pa.dictionary(pa.int32(), pa.utf8()) if traits.content is CellContent.TEXT else traits.arrow)
    for kind, traits in TRAITS.items()
}


class _BytesSink(BytesIO):
    """Buffer of written bytes, emptied by `take`."""

    def take(self) -> bytes:
        taken = self.getvalue()
        self.seek(0)
        self.truncate()
        return taken


def arrow_pieces(matrix: Matrix) -> Iterator[bytes]:
    """Yield the stream, batch by batch."""
    sink = _BytesSink()
    writer = _ArrowWriter(matrix)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), writer.schema) as stream:
        step = max(1, BATCH_ROWS // max(1, matrix.grid.n))
        for start in range(0, len(matrix), step):
            stream.write_batch(writer.batch(start, min(start + step, len(matrix))))
            if piece := sink.take():
                yield piece
    yield sink.take()


class _ArrowWriter:
    """Splits a matrix into record batches that share their dictionaries."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._kinds = [kind for kind in COLUMNS if (matrix.types == kind).any()]
        self._series = _string_array(matrix.series)
        names = sorted(set(matrix.names))
        place = {name: i for i, name in enumerate(names)}
        self._names = _string_array(names)
        self._name_of = np.array([place[name] for name in matrix.names], np.int32)
        self._strings = _string_array([*matrix.strings])
        text = pa.dictionary(pa.int32(), pa.utf8())
        fields = [("series", text), ("name", text), ("time", pa.timestamp("ms", "UTC"))]
        fields += [COLUMNS[kind] for kind in self._kinds]
        self.schema = pa.schema(fields, {b"artimon": json.dumps(_metadata(matrix)).encode()})

    def batch(self, start: int, stop: int) -> Any:
        """Return the record batch of the series `start` to `stop` - 1."""
        matrix, n = self._matrix, self._matrix.grid.n
        rows = np.repeat(np.arange(start, stop, dtype=np.int32), n)
        columns = [
            pa.DictionaryArray.from_arrays(pa.array(rows), self._series),
            pa.DictionaryArray.from_arrays(pa.array(self._name_of[rows]), self._names),
            pa.array(np.tile(matrix.grid.ends(), stop - start), pa.timestamp("ms", "UTC")),
        ]
        cells = np.ascontiguousarray(matrix.cells[start:stop]).reshape(-1)
        present = matrix.present[start:stop].reshape(-1)
        types = np.repeat(matrix.types[start:stop], n)
        columns += [self._column(kind, cells, present & (types == kind)) for kind in self._kinds]
        return pa.record_batch(columns, schema=self.schema)

    def _column(self, kind: ValueType, cells: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> Any:
        traits = TRAITS[kind]
        if traits.content is CellContent.TEXT:
            return pa.DictionaryArray.from_arrays(pa.array(cells.astype(np.int32), mask=~valid), self._strings)
        return traits.to_column(cells, (), ~valid)


def _string_array(texts: list[str]) -> Any:
    """Return an Arrow array of texts; lone surrogates, which UTF-8 cannot encode, become escapes."""
    return pa.array([text.encode("utf-8", "backslashreplace").decode() for text in texts], pa.utf8())


def _metadata(matrix: Matrix) -> dict[str, Any]:
    return {
        "grid": grid_fields(matrix.grid),
        "complete": matrix.complete,
        "partial": matrix.partial,
        "notes": list(matrix.notes),
        "series": [
            {"name": key.name, "labels": dict(key.labels), "type": ValueType(int(kind)).name}
            for key, kind in zip(matrix.keys, matrix.types.tolist(), strict=True)
        ],
    }
