"""Samples of batches as Arrow columns, for stores and queries; agents decode without Arrow (`batch_codec`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.batch import BatchError, BatchHeader, BatchKind, Samples
from artimon.model.batch_codec import BODY_LIMITS, check_kind
from artimon.model.ipc import read_ipc
from artimon.model.ipc_limits import IpcError
from artimon.model.value_traits import TRAITS, VALUE_FIELDS, ValueTraits
from artimon.model.values import CellContent, ValueType

SAMPLE_SCHEMA = pa.schema([("series", pa.uint64()), ("time", pa.int64()), ("birth", pa.int64()), *VALUE_FIELDS])
Number = TypeVar("Number", np.int64, np.uint64)
_NUMBER_BYTES = 8
_PREFIX = Struct("<Ii")
"""Continuation marker and bytes of the metadata of a message of an Arrow stream."""
_SAMPLE_TYPES = [(field.name, field.type) for field in SAMPLE_SCHEMA]


def decode_columns(header: BatchHeader, data: bytes) -> pa.RecordBatch:
    """Decode the body of a samples batch to SAMPLE_SCHEMA: series, time, birth and one nullable column per type."""
    check_kind(header, BatchKind.SAMPLES)
    body = _read_body(header, data)
    columns = body.columns
    present = [
        columns[at] if at >= 0 else _nulls(type_, header.rows)
        for at, (_, type_) in zip(_positions(header, data), _SAMPLE_TYPES, strict=True)
    ]
    _check_values(header, present[-len(VALUE_FIELDS) :])
    return pa.record_batch(present, schema=SAMPLE_SCHEMA)


def _positions(header: BatchHeader, data: bytes) -> tuple[int, ...]:
    """Return the position in the body of each column of SAMPLE_SCHEMA, -1 for none. The stream was checked."""
    _, size = _PREFIX.unpack_from(data, header.body_at)
    try:
        return _schema_positions(data[header.body_at : header.body_at + _PREFIX.size + size])
    except _ColumnTypeError as error:
        raise BatchError(f"a column of {header.id}: {error}") from error


class _ColumnTypeError(ValueError):
    """Column of another type than in SAMPLE_SCHEMA."""


@lru_cache(maxsize=64)
def _schema_positions(message: bytes) -> tuple[int, ...]:
    """Return the positions for the schema in this message. Few schemas exist."""
    schema = pa.ipc.read_schema(pa.py_buffer(message))
    positions = tuple(schema.get_field_index(name) for name, _ in _SAMPLE_TYPES)
    for at, (name, type_) in zip(positions, _SAMPLE_TYPES, strict=True):
        if at >= 0 and schema.field(at).type != type_:
            raise _ColumnTypeError(f"{name} is {schema.field(at).type}, not {type_}")
    return positions


@lru_cache(maxsize=64)
def _nulls(type_: Any, rows: int) -> Any:
    """Return a column of nulls."""
    return pa.nulls(rows, type_)


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
    columns = dict(zip(body.schema.names, body.columns, strict=True))
    for value_type, traits in TRAITS.items():
        column = columns.get(traits.column)
        if column is None or (rows and column.null_count == rows):
            continue
        if traits.content is CellContent.TEXT:
            strings, column = _intern(column)
        bits = _column_cells(traits, column)
        present = _present(column)
        np.copyto(types, np.uint8(value_type), where=present)
        np.copyto(cells, bits, where=present)
    fixed = [_column_array(columns, name) for name in ("series", "time", "birth")]
    return Samples(fixed[0], fixed[1], fixed[2], types, cells, strings)


def _present(column: Any) -> npt.NDArray[np.bool_] | Literal[True]:
    """Return the rows that have a value, from the validity bits; True for all."""
    if not column.null_count:
        return True
    bits = np.frombuffer(column.buffers()[0], np.uint8)
    return np.unpackbits(bits, count=column.offset + len(column), bitorder="little")[column.offset :].view(np.bool_)


def _column_cells(traits: ValueTraits, column: Any) -> npt.NDArray[np.int64]:
    """Return the 64-bit cells of a column; cells of nulls are arbitrary."""
    if traits.content is CellContent.FLAG:
        return np.asarray(column.fill_null(False).cast(pa.int64()))
    return numbers_of(column, np.int64)


def numbers_of(column: Any, kind: type[Number]) -> npt.NDArray[Number]:
    """Return the values of a column of 64-bit numbers as a view; those of nulls are arbitrary. Arrow's own conversion
    takes more than twice as long for the columns of a batch."""
    if not len(column):
        return np.zeros(0, kind)
    return np.frombuffer(column.buffers()[1], kind, count=len(column), offset=column.offset * _NUMBER_BYTES)


def _intern(column: Any) -> tuple[tuple[str, ...], Any]:
    encoded = column.dictionary_encode()
    return tuple(encoded.dictionary.to_pylist()), encoded.indices.cast(pa.int64())


def _column_array(columns: Mapping[str, Any], name: str) -> Any:
    column = columns.get(name)
    if column is None or column.null_count:
        raise BatchError(f"column {name} is missing or has nulls")
    if column.type != SAMPLE_SCHEMA.field(name).type:
        raise BatchError(f"column {name} is {column.type}")
    return numbers_of(column, np.uint64) if name == "series" else numbers_of(column, np.int64)


def _read_body(header: BatchHeader, data: bytes) -> Any:
    """Read the record batch of a message's body and check its row count. Raises BatchError."""
    try:
        body = read_ipc(data, header.body_at, BODY_LIMITS[header.kind])
    except IpcError as error:
        raise BatchError(f"body of {header.id}: {error}") from error
    if len(body) != header.rows:
        raise BatchError(f"body of {header.id} holds {len(body)} rows, its header says {header.rows}")
    return body
