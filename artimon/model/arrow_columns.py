"""Columns of an Arrow record batch as their buffers, without an Arrow library, which takes 165 MB of disk and 26 MB of
memory: too much for an agent. Only the types that batches use.

The layout of the buffers is that of the Arrow columnar format, version 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Buffer = bytes | npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class ArrayError(ValueError):
    """A column whose buffers do not fit its type and length."""


class ArrowType(NamedTuple):
    """Type of a column; `kind` is its number in Schema.fbs."""

    kind: int
    width: int = 0
    """Bits of an integer, precision of a floating point number."""
    signed: bool = False


INT64, UINT64, UINT8 = ArrowType(2, 64, True), ArrowType(2, 64), ArrowType(2, 8)
DOUBLE = ArrowType(3, 2)
BINARY, UTF8, BOOL, STRUCT, MAP = (ArrowType(kind) for kind in (4, 5, 6, 13, 17))
BUFFERS = {2: 2, 3: 2, 4: 3, 5: 3, 6: 2, 12: 2, 13: 1, 16: 1, 17: 2}
"""Number of buffers of an array, by the kind of its type."""
_DTYPES: dict[ArrowType, Any] = {INT64: np.int64, UINT64: np.uint64, UINT8: np.uint8, DOUBLE: np.float64}


class Field(NamedTuple):
    """Name and type of a column."""

    name: str
    type: ArrowType
    nullable: bool = True
    children: tuple[Field, ...] = ()


class Array(NamedTuple):
    """One column. The first buffer is the validity bitmap, empty if no value is null."""

    field: Field
    length: int
    null_count: int
    buffers: tuple[Buffer, ...]
    children: tuple[Array, ...] = ()

    def present(self) -> Mask | None:
        """Return the mask of the values that are not null; None if none is."""
        if not self.null_count:
            return None
        mask = _unpack(self.buffers[0], self.length, self.field)
        if self.length - int(mask.sum()) != self.null_count:
            raise ArrayError(f"column {self.field.name} has not the {self.null_count} nulls that it declares")
        return mask

    def numbers(self) -> npt.NDArray[Any]:
        """Return the values of a column of numbers; those of nulls are arbitrary."""
        return _values(self.buffers[1], _DTYPES[self.field.type], self.length, self.field)

    def flags(self) -> Mask:
        """Return the values of a column of booleans."""
        return _unpack(self.buffers[1], self.length, self.field)

    def blobs(self) -> list[bytes]:
        """Return the values of a column of texts or bytes; those of nulls are arbitrary."""
        offsets, data = self.offsets(), bytes(self.buffers[2])
        if offsets[-1] > len(data):
            raise ArrayError(f"column {self.field.name} has {len(data)} bytes, its offsets say {offsets[-1]}")
        return [data[start:end] for start, end in pairwise(offsets)]

    def texts(self) -> list[str]:
        """Return the values of a column of texts. Raises ArrayError for a text that is not UTF-8."""
        try:
            return [one.decode() for one in self.blobs()]
        except UnicodeDecodeError as error:
            raise ArrayError(f"column {self.field.name}: {error}") from error

    def offsets(self) -> list[int]:
        """Return the offsets of a column of texts, bytes or maps, which never decrease."""
        if not self.length and not len(self.buffers[1]):
            return [0]
        offsets = _values(self.buffers[1], np.int32, self.length + 1, self.field)
        if offsets[0] < 0 or (np.diff(offsets) < 0).any():
            raise ArrayError(f"column {self.field.name} has offsets that decrease")
        return offsets.tolist()  # type: ignore[no-any-return]


def number_array(field: Field, values: npt.NDArray[Any], present: Mask | None = None) -> Array:
    """Make a column of 64-bit or 8-bit numbers; values that are not present become null, and their bits 0."""
    values = np.ascontiguousarray(values if present is None else np.where(present, values, 0), _DTYPES[field.type])
    return _array(field, len(values), present, values.view(np.uint8))


def flag_array(field: Field, values: Mask, present: Mask | None = None) -> Array:
    """Make a column of booleans."""
    return _array(field, len(values), present, _pack(values if present is None else values & present))


def blob_array(field: Field, values: Sequence[bytes], present: Mask | None = None) -> Array:
    """Make a column of texts in UTF-8, or of bytes. A value that is not present must be empty."""
    return _array(field, len(values), present, offset_buffer(map(len, values)), b"".join(values))


def offset_buffer(lengths: Any) -> Buffer:
    """Return the buffer of the offsets of values of these lengths."""
    return np.fromiter(accumulate(lengths, initial=0), np.int32).view(np.uint8)


def _array(field: Field, length: int, present: Mask | None, *buffers: Buffer) -> Array:
    if present is None:
        return Array(field, length, 0, (b"", *buffers))
    return Array(field, length, length - int(present.sum()), (_pack(present), *buffers))


def _pack(mask: Mask) -> Buffer:
    return np.packbits(mask, bitorder="little")


def _unpack(data: Buffer, length: int, field: Field) -> Mask:
    bits = _values(data, np.uint8, (length + 7) // 8, field)
    return np.unpackbits(bits, count=length, bitorder="little").view(np.bool_)


def _values(data: Buffer, dtype: Any, count: int, field: Field) -> npt.NDArray[Any]:
    if len(data) < count * np.dtype(dtype).itemsize:
        raise ArrayError(f"column {field.name} has a buffer of {len(data)} bytes, too few for {count} values")
    return np.frombuffer(data, dtype, count)
