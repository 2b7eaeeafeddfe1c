"""Digest of a set of rows: their number and hashes that do not depend on their order. Sets with equal digests hold
the same rows, each equally often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from artimon.compute.kernels import kernels
from artimon.model.value_traits import VALUE_COLUMNS

Words = npt.NDArray[np.uint64]
_MASK = 2**64 - 1
_KEYS = ("source", "series", "time", "birth", "future")
_ODD = tuple(np.uint64(xxhash.xxh3_64_intdigest(f"column {n}".encode()) | 1) for n in range(16))
"""One odd factor for each column: the same value in another column gives another hash."""


@dataclass(frozen=True, slots=True)
class RowDigest:
    """`total` and `parity` are the sum and the exclusive or of 64-bit hashes of the rows."""

    rows: int = 0
    total: int = 0
    parity: int = 0

    def plus(self, other: RowDigest) -> RowDigest:
        """Return the digest of both sets together."""
        return RowDigest(self.rows + other.rows, (self.total + other.total) & _MASK, self.parity ^ other.parity)

    def __str__(self) -> str:
        return f"{self.rows} rows {self.total:016x}{self.parity:016x}"


def digest_of(batch: Any) -> RowDigest:
    """Return the digest of a RecordBatch of FILE_SCHEMA."""
    if not len(batch):
        return RowDigest()
    hashes = row_hashes(batch)
    return RowDigest(len(hashes), int(hashes.sum(dtype=np.uint64)), int(np.bitwise_xor.reduce(hashes)))


def row_hashes(batch: Any) -> Words:
    """Return a 64-bit hash of each row over all its bits: NaN, minus zero and null differ."""
    words, factors, first = [_words(batch.column(name)) for name in _KEYS], list(_ODD[: len(_KEYS)]), 0
    for n, name in enumerate(VALUE_COLUMNS):
        column = batch.column(name)
        if column.null_count == len(column):
            continue
        here, held = _ODD[5 + 2 * n], _words(column)
        if column.null_count:
            valid = column.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False).astype(np.uint64)
            words, factors, held = [*words, valid], [*factors, here], held * valid
        else:
            first = (first + int(here)) & _MASK
        words, factors = [*words, held], [*factors, _ODD[6 + 2 * n]]
    if (compiled := kernels()) is not None:
        return compiled.hash_rows(words, np.array(factors, np.uint64), first)
    mixed = np.full(len(batch), first, np.uint64)
    for factor, word in zip(factors, words, strict=True):
        mixed += factor * word
    return _mix(mixed)


def _words(column: Any) -> Words:
    """Return 64 bits for each value; any bits where it is null."""
    if pa.types.is_string(column.type):
        return _hashed_strings(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, 0)
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    numbers = column.to_numpy(zero_copy_only=True)
    if numbers.dtype == np.int32:
        numbers = numbers.astype(np.int64)
    words: Words = numbers.view(np.uint64)
    return words


def _hashed_strings(column: Any) -> Words:
    coded = column.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    hashes = np.array([xxhash.xxh3_64_intdigest(text.encode()) for text in texts] or [0], np.uint64)
    picked: Words = hashes[pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)]
    return picked


def _mix(words: Words) -> Words:
    """Mix in place, so that every bit of the sum affects every bit of the hash."""
    words ^= words >> np.uint64(32)
    words *= np.uint64(0xD6E8FEB86659FD93)
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xA0761D6478BD642F)
    words ^= words >> np.uint64(32)
    return words
