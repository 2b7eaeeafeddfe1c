"""Validation of Kafka messages as batches that may be stored. Shared by the raw query and the buckets query, so that
a message is a dead letter for both or for neither."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from artimon.model.batch import MAX_TIME_MS, BatchError, BatchHeader, BatchKind
from artimon.model.batch_codec import verify
from artimon.model.hash_routing import partition_of
from artimon.model.sample_columns import decode_columns, numbers_of
from artimon.rawtable.table_state import FORGET_MS

FUTURE_MS = 60_000
"""A sample is in the future if its time is later than the append of its batch by more than this."""


def parse_header(value: bytes | None) -> BatchHeader:
    """Return the header of a whole, undamaged batch of samples of any age. Raises BatchError with the reason."""
    if value is None:
        raise BatchError("a message without a value")
    with _errors_as_batch_errors():
        header = verify(value)
    if header.kind != BatchKind.SAMPLES:
        raise BatchError(f"a batch of {header.kind.name} in the topic of samples")
    return header


def check_message(value: bytes | None, append_ms: int) -> BatchHeader:
    """Return the header of a whole, undamaged batch of samples, not too old. Raises BatchError with the reason."""
    header = parse_header(value)
    if header.poll_ms < append_ms - FORGET_MS:
        raise BatchError(f"polled at {header.poll_ms}, more than 90 days before it was appended at {append_ms}")
    return header


def check_partition(header: BatchHeader, partition: int, partitions: int) -> None:
    """Check that a batch is in the partition of its lane: its repeat in the right one would not be found otherwise.
    `partitions` 0: not checked. Raises BatchError."""
    if partitions and (right := partition_of(*header.id.lane_id, partitions)) != partition:
        raise BatchError(
            f"lane {header.id.lane_id} belongs to partition {right} of {partitions}, not {partition}: it was written"
            " after the topic was altered; a replay stores it"
        )


def decode(header: BatchHeader, value: bytes) -> Any:
    """Return the columns of a checked batch (SAMPLE_SCHEMA). Raises BatchError if they cannot be stored."""
    with _errors_as_batch_errors():
        return _decode(header, value)


def _decode(header: BatchHeader, value: bytes) -> Any:
    try:
        body = decode_columns(header, value)
    except MemoryError:
        raise
    except pa.ArrowException as error:
        raise BatchError(f"body of {header.id}: {error}") from error
    for i, name in enumerate(("series", "time", "birth")):
        column = body.column(i)
        if column.null_count:
            raise BatchError(f"column {name} of {header.id} has nulls")
        # as unsigned numbers, times before 1970 are beyond the year 9999 too
        if i and numbers_of(column, np.uint64).max(initial=0) > MAX_TIME_MS:
            raise BatchError(f"column {name} of {header.id} leaves the years 1970 to 9999")
    return body


@contextmanager
def _errors_as_batch_errors() -> Iterator[None]:
    """Turn an unexpected error of the decoder into a BatchError: this one message becomes a dead letter, to be replayed
    once the program is fixed. Raised as it is, the error would stop the query at this offset for ever."""
    try:
        yield
    except (BatchError, MemoryError):  # low memory is not the message's fault (pipeline/spark/decoder_trial.py)
        raise
    except Exception as error:
        raise BatchError(f"this program failed to decode it: {type(error).__name__}: {error}") from error
