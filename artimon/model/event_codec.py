"""Codec of batches of events: docs/formats/batch.md, golden bytes in tests/golden/batch/."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from artimon.model.batch import Batch, BatchError, BatchHeader, BatchId, BatchKind
from artimon.model.batch_codec import assemble, compress_body, read_body, verify
from artimon.model.event import MAX_DECODED_HEADERS, MAX_EVENTS, Event

EVENT_SCHEMA = pa.schema([("headers", pa.map_(pa.utf8(), pa.utf8())), ("body", pa.binary())])


def encode_events(id: BatchId, source: str, time_ms: int, events: Sequence[Event]) -> Batch:
    """Encode events; equal arguments give equal bytes. `time_ms` is their time of receipt. Raises BatchError beyond
    10,000 events or 512 KiB (`artimon.model.event.split_events` splits them to fit)."""
    if len(events) > MAX_EVENTS:
        raise BatchError(f"{len(events)} events of {source}: split into batches of at most {MAX_EVENTS}")
    offsets = [0, *accumulate(len(event.headers) for event in events)]
    names = pa.array([name for event in events for name in event.headers], pa.utf8())
    values = pa.array([value for event in events for value in event.headers.values()], pa.utf8())
    headers = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, values)
    bodies = pa.array([event.body for event in events], pa.binary())
    body = compress_body(pa.record_batch([headers, bodies], schema=EVENT_SCHEMA), source)
    return assemble(BatchKind.EVENTS, id, source, bytes(16), 0, time_ms, len(events), 0, "", body)


def decode_events(data: bytes) -> tuple[Event, ...]:
    """Check and decode the events of a message; () for another kind. Raises BatchError, also for a wrong digest."""
    header = verify(data)
    return body_events(header, data) if header.kind == BatchKind.EVENTS else ()


def body_events(header: BatchHeader, data: bytes) -> tuple[Event, ...]:
    """Decode the events of a message whose header was checked before."""
    body = read_body(header, data)
    if not body.schema.equals(EVENT_SCHEMA):
        raise BatchError(f"events of {header.id} have columns {body.schema}")
    headers, bodies = body.column(0), body.column(1)
    if headers.null_count or bodies.null_count:
        raise BatchError(f"events of {header.id} have nulls")
    if headers.keys.null_count or headers.items.null_count:
        raise BatchError(f"headers of events of {header.id} have nulls")
    if np.diff(headers.offsets.to_numpy()).max(initial=0) > MAX_DECODED_HEADERS:
        raise BatchError(f"an event of {header.id} has more than {MAX_DECODED_HEADERS} headers")
    offsets = headers.offsets.to_pylist()
    names, values = headers.keys.to_pylist(), headers.items.to_pylist()
    pairs = list(zip(names, values, strict=True))
    return tuple(
        Event(dict(pairs[start - offsets[0] : end - offsets[0]]), content)
        for start, end, content in zip(offsets, offsets[1:], bodies.to_pylist(), strict=False)
    )
