"""Encoding of a piece as bytes, returned by a Spark task. The same program encodes and decodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.compute.statistics import STATISTICS
from artimon.model.select import INCARNATION_DTYPE
from query_dsl.stores.partial_buckets import PartialBuckets, SparseBuckets
from query_dsl.stores.sample_rows import Ints

_CODEC = "zstd"
_HEAD = 8
MAX_PARTIAL_BYTES = 1 << 30
"""Maximum bytes of a decompressed piece."""


def encode_partial(piece: PartialBuckets) -> bytes:
    """Encode as header length, JSON header, and int64 columns as differences, compressed together."""
    columns = [
        piece.buckets.at,
        *(piece.buckets.stats[name] for name in STATISTICS),
        piece.rows,
        piece.types.astype(np.int64),
        piece.newest_ms,
        *(np.ascontiguousarray(piece.incarnations[name]) for name in INCARNATION_DTYPE.names or ()),
        *piece.ended,
        piece.mixed,
    ]
    flat = np.concatenate([np.diff(column, prepend=np.int64(0)) for column in columns])
    head = {
        "lengths": [len(column) for column in columns],
        "strings": list(piece.strings),
        "samples": piece.samples,
        "columns": piece.columns,
        "bytes": flat.nbytes,
    }
    text = json.dumps(head).encode()
    return len(text).to_bytes(_HEAD, "big") + text + bytes(pa.compress(flat.tobytes(), _CODEC, asbytes=True))


def decode_partial(data: bytes | pa.Buffer) -> PartialBuckets:
    """Decode the bytes of `encode_partial`. Raises ValueError for lengths that do not agree."""
    whole = memoryview(data)
    body = _HEAD + int.from_bytes(whole[:_HEAD], "big")
    head = json.loads(bytes(whole[_HEAD:body]))
    if not 0 <= head["bytes"] <= MAX_PARTIAL_BYTES or head["bytes"] != 8 * sum(head["lengths"]):
        raise ValueError(f"a piece of {head['bytes']} bytes with columns of {sum(head['lengths'])} numbers")
    packed = pa.decompress(whole[body:], head["bytes"], _CODEC)
    flat = np.frombuffer(packed, np.int64)
    cuts = np.cumsum([0, *head["lengths"]]).tolist()
    rest: Iterator[Ints] = iter([np.cumsum(flat[a:b]) for a, b in pairwise(cuts)])
    return PartialBuckets(
        SparseBuckets(next(rest), {name: next(rest) for name in STATISTICS}),
        next(rest),
        next(rest).astype(np.uint8),
        next(rest),
        _incarnations([next(rest) for _ in INCARNATION_DTYPE.names or ()]),
        (next(rest), next(rest)),
        next(rest),
        tuple(head["strings"]),
        head["samples"],
        head["columns"],
    )


def _incarnations(columns: Sequence[Ints]) -> npt.NDArray[np.void]:
    lives = np.empty(len(columns[0]), INCARNATION_DTYPE)
    for name, column in zip(INCARNATION_DTYPE.names or (), columns, strict=True):
        lives[name] = column
    return lives
