"""Samples of batches as Arrow columns, for stores and queries; agents decode without Arrow (`batch_codec`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.batch import MAX_SAMPLES, BatchError, BatchHeader, BatchKind, Samples
from artimon.model.batch_codec import BODY_LIMITS, check_kind
from artimon.model.ipc import read_ipc
from artimon.model.ipc_limits import IpcError
from artimon.model.value_traits import TRAITS, VALUE_FIELDS, ValueTraits
from artimon.model.values import CellContent, ValueType

SAMPLE_SCHEMA = pa.schema([("series", pa.uint64()), ("time", pa.int64()), ("birth", pa.int64()), *VALUE_FIELDS])
_SAMPLE_TYPES = [(field.name, field.type) for field in SAMPLE_SCHEMA]


def decode_columns(header: BatchHeader, data: bytes) -> pa.RecordBatch:
    """Decode the body of a samples batch to SAMPLE_SCHEMA: series, time, birth and one nullable column per type."""
    check_kind(header, BatchKind.SAMPLES)
    body = _read_body(header, data)
    columns = body.columns if body.schema.equals(SAMPLE_SCHEMA) else _sample_columns(header, body)
    _check_values(header, columns[-len(VALUE_FIELDS) :])
    return pa.record_batch(columns, schema=SAMPLE_SCHEMA)


def _sample_columns(header: BatchHeader, body: Any) -> list[Any]:
    """Return the columns of SAMPLE_SCHEMA; a column that the body lacks is all nulls."""
    schema, columns = body.schema, []
    types = schema.types
    for name, type_ in _SAMPLE_TYPES:
        at = schema.get_field_index(name)
        if at < 0:
            columns.append(_nulls(type_).slice(0, header.rows))
        elif types[at] != type_:
            raise BatchError(f"column {name} of {header.id} is {types[at]}, not {type_}")
        else:
            columns.append(body.column(at))
    return columns


@lru_cache(maxsize=8)
def _nulls(type_: Any) -> Any:
    """Return a column of MAX_SAMPLES nulls."""
    return pa.nulls(MAX_SAMPLES, type_)


def _check_values(header: BatchHeader, columns: Sequence[Any]) -> None:
    """Raise BatchError if a row has values in two columns. Validity bits of a column are compared as one integer."""
    seen, every = 0, (1 << header.rows) - 1
    for column in columns:
        if column.null_count == header.rows:
            continue
        bits = int.from_bytes(column.buffers()[0], "little") & every if column.null_count else every
        if seen & bits:
            raise BatchError(f"a row of {header.id} has two values")
        seen |= bits


def samples_from_body(body: pa.RecordBatch) -> Samples:
    """Convert the columns of `decode_columns`, or a subset of them, to numpy columns."""
    rows = len(body)
    types = np.full(rows, ValueType.ENDED, np.uint8)
    cells = np.zeros(rows, np.int64)
    strings: tuple[str, ...] = ()
    for value_type, traits in TRAITS.items():
        at = body.schema.get_field_index(traits.column)
        if at < 0:
            continue
        column = body.column(at)
        if rows and column.null_count == rows:
            continue
        if traits.content is CellContent.TEXT:
            strings, column = _intern(column)
        whole = column.null_count == 0
        bits = _column_cells(traits, column)
        if whole:
            types[:] = value_type
            cells = bits
        else:
            present = np.asarray(column.is_valid())
            types[present] = value_type
            cells[present] = bits[present]
    fixed = [_column_array(body, name) for name in ("series", "time", "birth")]
    return Samples(fixed[0], fixed[1], fixed[2], types, cells, strings)


def _column_cells(traits: ValueTraits, column: Any) -> npt.NDArray[np.int64]:
    """Return the 64-bit cells of a column; cells of nulls are arbitrary."""
    if traits.content is CellContent.FLAG:
        return np.asarray(column.fill_null(False).cast(pa.int64()))
    width = np.dtype(np.int64).itemsize
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, np.int64, count=len(column), offset=column.offset * width)


def _intern(column: Any) -> tuple[tuple[str, ...], Any]:
    encoded = column.dictionary_encode()
    return tuple(encoded.dictionary.to_pylist()), encoded.indices.cast(pa.int64())


def _column_array(body: Any, name: str) -> Any:
    at = body.schema.get_field_index(name)
    if at < 0 or body.column(at).null_count:
        raise BatchError(f"column {name} is missing or has nulls")
    if body.schema.field(at).type != SAMPLE_SCHEMA.field(name).type:
        raise BatchError(f"column {name} is {body.schema.field(at).type}")
    return body.column(at).to_numpy(zero_copy_only=True)


def _read_body(header: BatchHeader, data: bytes) -> Any:
    """Read the record batch of a message's body and check its row count. Raises BatchError."""
    try:
        body = read_ipc(data, header.body_at, BODY_LIMITS[header.kind])
    except IpcError as error:
        raise BatchError(f"body of {header.id}: {error}") from error
    if len(body) != header.rows:
        raise BatchError(f"body of {header.id} holds {len(body)} rows, its header says {header.rows}")
    return body
