"""Codec of batches of events: docs/formats/batch.md, golden bytes in tests/golden/batch/."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from artimon.model.arrow_columns import BINARY, MAP, STRUCT, UTF8, Array, ArrayError, Field, blob_array, offset_buffer
from artimon.model.batch import Batch, BatchError, BatchHeader, BatchId, BatchKind
from artimon.model.batch_codec import assemble, compress_body, read_body, verify
from artimon.model.event import MAX_DECODED_HEADERS, MAX_EVENTS, Event

_KEY, _VALUE = Field("key", UTF8, nullable=False), Field("value", UTF8)
_ENTRIES = Field("entries", STRUCT, False, (_KEY, _VALUE))
EVENT_FIELDS = (Field("headers", MAP, True, (_ENTRIES,)), Field("body", BINARY))


def encode_events(id: BatchId, source: str, time_ms: int, events: Sequence[Event]) -> Batch:
    """Encode events; equal arguments give equal bytes. `time_ms` is their time of receipt. Raises BatchError beyond
    10,000 events or 512 KiB (`artimon.model.event.split_events` splits them to fit)."""
    if len(events) > MAX_EVENTS:
        raise BatchError(f"{len(events)} events of {source}: split into batches of at most {MAX_EVENTS}")
    names = [name.encode() for event in events for name in event.headers]
    values = [value.encode() for event in events for value in event.headers.values()]
    pairs = Array(_ENTRIES, len(names), 0, (b"",), (blob_array(_KEY, names), blob_array(_VALUE, values)))
    offsets = offset_buffer(len(event.headers) for event in events)
    headers = Array(EVENT_FIELDS[0], len(events), 0, (b"", offsets), (pairs,))
    bodies = blob_array(EVENT_FIELDS[1], [event.body for event in events])
    body = compress_body(len(events), [headers, bodies], source)
    return assemble(BatchKind.EVENTS, id, source, bytes(16), 0, time_ms, len(events), 0, "", body)


def decode_events(data: bytes) -> tuple[Event, ...]:
    """Check and decode the events of a message; () for another kind. Raises BatchError, also for a wrong digest."""
    header = verify(data)
    return body_events(header, data) if header.kind == BatchKind.EVENTS else ()


def body_events(header: BatchHeader, data: bytes) -> tuple[Event, ...]:
    """Decode the events of a message whose header was checked before."""
    body = read_body(header, data)
    if body.fields != EVENT_FIELDS:
        raise BatchError(f"events of {header.id} have columns {[field.name for field in body.fields]}")
    headers, bodies = body.arrays
    if headers.null_count or bodies.null_count:
        raise BatchError(f"events of {header.id} have nulls")
    try:
        return tuple(map(Event, _read_headers(header, headers), bodies.blobs()))
    except ArrayError as error:
        raise BatchError(f"body of {header.id}: {error}") from error


def _read_headers(header: BatchHeader, headers: Array) -> Iterator[dict[str, str]]:
    (entries,) = headers.children
    if any(array.null_count for array in (entries, *entries.children)):
        raise BatchError(f"headers of events of {header.id} have nulls")
    names, values = (array.texts() for array in entries.children)
    offsets = headers.offsets()
    if offsets[-1] > len(names) or len(names) != len(values):
        raise BatchError(f"headers of events of {header.id} have {len(names)} names and {len(values)} values")
    for start, end in pairwise(offsets):
        if end - start > MAX_DECODED_HEADERS:
            raise BatchError(f"an event of {header.id} has more than {MAX_DECODED_HEADERS} headers")
        yield dict(zip(names[start:end], values[start:end], strict=True))
