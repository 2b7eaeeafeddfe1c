"""Codec of one Arrow record batch as an Arrow IPC stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from artimon.model.ipc_limits import IpcError, IpcLimits, check_stream

ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")
_READ = pa.ipc.IpcReadOptions(use_threads=False)
"""Single-threaded: a thread pool costs more than the decompression of the few buffers of a batch."""


TRUSTED_LIMITS = IpcLimits(10_000_000, 1 << 30, 1_024, 1 << 28, compressed=False, dictionaries=1_024)
"""Limits of answers between processes of one cluster: uncompressed, so never larger than their frame."""


def write_ipc(batch: pa.RecordBatch, options: Any = None, before: bytes = b"") -> bytes:
    """Return the bytes `before`, followed by a stream that holds `batch` only."""
    sink = pa.BufferOutputStream()
    if before:
        sink.write(before)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def read_ipc(data: bytes | memoryview, at: int = 0, limits: IpcLimits = TRUSTED_LIMITS) -> Any:
    """Read the first batch of the stream that begins at byte `at`, as views of `data` where possible.

    Checks the limits before decompression, and every length, offset and text of the batch afterwards.
    Raises IpcError for an invalid stream, MemoryError if memory runs out."""
    check_stream(data, at, limits)
    try:
        with pa.ipc.open_stream(pa.py_buffer(data).slice(at), options=_READ) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
    except MemoryError:  # one of Arrow's own errors is a MemoryError
        raise
    except (pa.ArrowException, OSError, StopIteration, ValueError) as error:
        raise IpcError(f"{type(error).__name__}: {error}") from error
    return batch
