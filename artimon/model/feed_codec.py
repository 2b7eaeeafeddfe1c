"""Messages of the buckets job to the shards (docs/formats/feed.md): for a range of one partition the identities of
*all* batches in offset order, and the columns of the batches that the shard owns.

A shard drops repeats by identity, applies entries at or above its next offset and trims entries below it. It refuses
a gap and answers its next offset: that answer alone is authoritative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.batch import BatchError, BatchId, Samples
from artimon.model.ipc import read_ipc, write_ipc
from artimon.model.ipc_limits import IpcLimits
from artimon.model.vshards import ALL_VSHARDS, from_hex, to_hex

FEED_FORMAT = 1
"""Format of the ranges. A column or a word of the metadata that older readers may ignore does not change it."""
GROUP_CHANGED = "group changed"
"""Prefix of the refusal of a range whose mask is none of the shard's groups: the feeder must read the groups again."""


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One Kafka record of the range. A record that is not a whole batch has `id` None and only its offset."""

    offset: int
    append_ms: int
    id: BatchId | None
    source: str
    poll_ms: int
    rows: int
    """Rows of this batch in the columns of the range; 0 if the shard does not own it."""
    owned: bool
    block_hash: int
    """xxh3-64 of the fingerprint column: equal for the same series in the same order, so slots can be cached."""


@dataclass(frozen=True, slots=True)
class FeedRange:
    """Offsets [start, until) of one partition; `samples` holds the rows of all owned entries in order."""

    topic_id: str
    partition: int
    start: int
    until: int
    entries: tuple[FeedEntry, ...]
    samples: Samples
    vshards: int = ALL_VSHARDS
    """Target group: the mask of exactly its virtual shards (artimon/model/vshards.py)."""


@dataclass(frozen=True, slots=True)
class FeedAnswer:
    """Next offset of (topic id, partition) at the shard, and counts of the range's batches and samples by outcome."""

    next_offset: int
    applied: int = 0
    """Samples now in buckets."""
    repeated: int = 0
    """Batches dropped as repeats of a known identity."""
    late: int = 0
    future: int = 0


FEED_LIMITS = IpcLimits(512 * 1024, 64 * 1024 * 1024, compressed=False)
"""Limits of each part of a range: twice the samples that a feeder sends at once."""
_ENTRY_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("append_ms", pa.int64()),
        ("agent", pa.utf8()),
        ("epoch", pa.uint64()),
        ("lane", pa.uint16()),
        ("sequence", pa.uint64()),
        ("source", pa.utf8()),
        ("poll_ms", pa.int64()),
        ("rows", pa.uint32()),
        ("owned", pa.bool_()),
        ("block_hash", pa.uint64()),
    ]
)


_SAMPLE_SCHEMA = pa.schema(
    [
        ("series", pa.uint64()),
        ("time", pa.int64()),
        ("birth", pa.int64()),
        ("type", pa.uint8()),
        ("cell", pa.int64()),
    ]
)
_STRING_SCHEMA = pa.schema([("strings", pa.utf8())])


def encode_range(range_: FeedRange) -> list[bytes]:
    """Encode a range as three Arrow streams: entries, columns of samples, strings."""
    rows = [
        (e.offset, e.append_ms, *_identity(e.id), e.source, e.poll_ms, e.rows, e.owned, e.block_hash)
        for e in range_.entries
    ]
    columns: Sequence[Any] = list(zip(*rows, strict=True)) if rows else [[] for _ in _ENTRY_SCHEMA]
    entries = pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, _ENTRY_SCHEMA, strict=True)],
        schema=_ENTRY_SCHEMA.with_metadata(
            {
                b"format": str(FEED_FORMAT).encode(),
                b"topic_id": range_.topic_id.encode(),
                b"partition": str(range_.partition).encode(),
                b"start": str(range_.start).encode(),
                b"until": str(range_.until).encode(),
                b"vshards": to_hex(range_.vshards).encode(),
            }
        ),
    )
    s = range_.samples
    arrays = [pa.array(column) for column in (s.fingerprint, s.time_ms, s.birth_ms, s.type, s.cell)]
    samples = pa.record_batch(arrays, schema=_SAMPLE_SCHEMA)
    strings = pa.record_batch([pa.array(s.strings, pa.utf8())], schema=_STRING_SCHEMA)
    return [write_ipc(part) for part in (entries, samples, strings)]


def _identity(id: BatchId | None) -> tuple[Any, ...]:
    return (None,) * 4 if id is None else (id.agent, id.epoch, id.lane, id.sequence)


def decode_range(parts: Sequence[bytes]) -> FeedRange:
    """Inverse of `encode_range`; ignores what a newer writer adds. Raises BatchError for other data."""
    try:
        entries, samples, strings = (
            _read_part(part, schema)
            for part, schema in zip(parts, (_ENTRY_SCHEMA, _SAMPLE_SCHEMA, _STRING_SCHEMA), strict=True)
        )
        meta = entries.schema.metadata or {}
        if (form := int(meta.get(b"format", 1))) > FEED_FORMAT:
            raise ValueError(f"format {form}: this shard reads up to {FEED_FORMAT}, upgrade it before the driver")
        columns = [c.to_pylist() for c in entries.columns]
        made = tuple(
            FeedEntry(offset, append_ms, None if agent is None else BatchId(agent, epoch, lane, sequence), *rest)
            for offset, append_ms, agent, epoch, lane, sequence, *rest in zip(*columns, strict=True)
        )
        arrays: list[npt.NDArray[Any]] = [c.to_numpy(zero_copy_only=True) for c in samples.columns]
        return FeedRange(
            meta[b"topic_id"].decode(),
            int(meta[b"partition"]),
            int(meta[b"start"]),
            int(meta[b"until"]),
            made,
            Samples(arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], tuple(strings.column(0).to_pylist())),
            from_hex(meta[b"vshards"].decode()),
        )
    except (pa.ArrowException, OSError, StopIteration, KeyError, TypeError, ValueError) as error:
        raise BatchError(
            f"unreadable feed range: {error}; are the Spark application and this shard of neighbouring versions?"
        ) from error


def _read_part(part: bytes, schema: pa.Schema) -> Any:
    """Read the columns of `schema`, wherever they stand in a part. Raises ValueError if one is missing or of another
    type."""
    batch = read_ipc(part, 0, FEED_LIMITS)
    if batch.schema.equals(schema):
        return batch
    found = {field.name: at for at, field in enumerate(batch.schema)}
    bad = [one.name for one in schema if one.name not in found or batch.schema.field(found[one.name]).type != one.type]
    if bad or len(found) < len(batch.schema):
        raise ValueError(f"columns {batch.schema.names}: {', '.join(bad) or 'one is there twice'}")
    columns = [batch.column(found[one.name]) for one in schema]
    return pa.record_batch(columns, schema=schema.with_metadata(batch.schema.metadata))


def concat_samples(parts: Sequence[Samples]) -> Samples:
    """Concatenate samples; string cells are renumbered."""
    if len(parts) == 1:
        return parts[0]
    cells: list[npt.NDArray[np.int64]] = []
    strings: list[str] = []
    for part in parts:
        cell = part.cell
        if part.strings:
            cell = np.where(part.type == 3, cell + len(strings), cell)
            strings.extend(part.strings)
        cells.append(cell)
    if not parts:
        empty = np.zeros(0, np.int64)
        return Samples(empty.astype(np.uint64), empty, empty, empty.astype(np.uint8), empty)
    return Samples(
        np.concatenate([p.fingerprint for p in parts]),
        np.concatenate([p.time_ms for p in parts]),
        np.concatenate([p.birth_ms for p in parts]),
        np.concatenate([p.type for p in parts]),
        np.concatenate(cells),
        tuple(strings),
    )
