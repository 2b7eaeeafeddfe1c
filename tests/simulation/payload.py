"""Batches whose headers, identities and digests are real, and whose bodies are a few bytes: the decisions never look
into a body. A *token* in the header's endpoint distinguishes one poll from all others, whatever its identity."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import xxhash

from artimon.model import batch_codec as codec
from artimon.model.batch import (
    NO_LANE,
    Batch,
    BatchError,
    BatchHeader,
    BatchId,
    BatchKind,
    PollResult,
    Samples,
    SeriesBlock,
)
from artimon.model.values import ValueType
from pipeline.wal.shed_records import shed_source
from tests.simulation.table import Columns

BODY = b"samples of one poll"
TOO_LARGE = 1 << 40
"""Flag of a token: its samples fit into no batch."""
SHED = 1 << 62
"""Flag of a token: it belongs to a shed record, which no source has polled."""

_ONE = np.zeros(1, np.int64)
_BIRTH = np.zeros(1, np.int64)
_TYPES = np.full(1, ValueType.INTEGER, np.uint8)


@lru_cache(maxsize=4096)
def samples_with(token: int) -> Samples:
    """Return one sample, whose fingerprint is the token."""
    return Samples(np.array([token], np.uint64), _ONE, _BIRTH, _TYPES, _ONE)


_ANY = samples_with(0)
_TWO = Samples(
    np.zeros(2, np.uint64), np.zeros(2, np.int64), np.zeros(2, np.int64), np.full(2, 0, np.uint8), np.zeros(2, np.int64)
)


def polled(source: str, token: int, poll_ms: int, blocks: tuple[SeriesBlock, ...] = ()) -> PollResult:
    """Return the result of one poll of a source."""
    samples = _TWO if token & TOO_LARGE else _ANY
    return PollResult(source, token.to_bytes(16, "little"), 0, poll_ms, samples, blocks=blocks)


class RealEncoder:
    """pipeline.delivery.batch_numbers.BatchEncoder of an agent that sheds: the batches that it gives up are decoded and
    counted."""

    def samples(
        self, id: BatchId, source: str, endpoint: bytes, birth_ms: int, poll_ms: int, keep: str, samples: Samples
    ) -> Batch:
        """Encode a batch as every agent does; the token of a shed record follows from its identity."""
        if int.from_bytes(endpoint, "little") & TOO_LARGE:
            raise BatchError("beyond the limit of a batch")
        if source == shed_source(id.agent):
            token = xxhash.xxh3_64_intdigest(str(id).encode()) >> 2 | SHED
            endpoint = token.to_bytes(16, "little")
        return codec.encode_samples(id, source, endpoint, birth_ms, poll_ms, keep, samples)

    def series(self, agent: str, block: SeriesBlock) -> Batch:
        """Encode an announcement as every agent does."""
        return codec.encode_series(agent, block)


class SimEncoder:
    """pipeline.delivery.batch_numbers.BatchEncoder with short bodies."""

    def samples(
        self, id: BatchId, source: str, endpoint: bytes, birth_ms: int, poll_ms: int, keep: str, samples: Samples
    ) -> Batch:
        """Encode a batch with a real header and digest."""
        if int.from_bytes(endpoint, "little") & TOO_LARGE:
            raise BatchError("beyond the limit of a batch")
        return codec.assemble(BatchKind.SAMPLES, id, source, endpoint, birth_ms, poll_ms, len(samples), 0, keep, BODY)

    def series(self, agent: str, block: SeriesBlock) -> Batch:
        """Encode an announcement with a real header and digest."""
        if not block.series:
            raise BatchError("an announcement that cannot be encoded")
        id = BatchId(agent, 0, NO_LANE, 0)
        return codec.assemble(
            BatchKind.SERIES, id, block.source, bytes(16), 0, block.version, len(block.series), block.block, "", BODY
        )


def token_of(header: BatchHeader) -> int:
    """Return the token of the poll."""
    return int.from_bytes(header.endpoint, "little")


def decode(header: BatchHeader, value: bytes) -> Any:
    """Stand-in for tasks.Decode. A body that another program wrote cannot be read."""
    _check(header, value)
    return Columns(header)


def read(header: BatchHeader, value: bytes) -> tuple[Samples, int]:
    """Stand-in for feeding.BatchDecoder."""
    _check(header, value)
    return samples_with(token_of(header)), 0


def _check(header: BatchHeader, value: bytes) -> None:
    if not value.endswith(BODY):
        codec.decode_samples(header, value)
