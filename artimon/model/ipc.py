"""One Arrow record batch as the bytes of an Arrow IPC stream, and back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from artimon.model.ipc_limits import IpcError, IpcLimits, check_stream

ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")
_READ = pa.ipc.IpcReadOptions(use_threads=False)
"""Handing the few buffers of a batch to a pool of threads costs more than to decompress them."""


INSIDE = IpcLimits(10_000_000, 1 << 30, 1_024, 1 << 28, compressed=False, dictionaries=1_024)
"""Limits of what processes of one cluster answer one another: uncompressed, so never more than the frame it came in."""


def write_ipc(batch: pa.RecordBatch, options: Any = None, before: bytes = b"") -> bytes:
    """The bytes of a stream that holds `batch` and nothing else, after the bytes `before`."""
    sink = pa.BufferOutputStream()
    if before:
        sink.write(before)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def read_ipc(data: bytes | memoryview, at: int = 0, limits: IpcLimits = INSIDE) -> Any:
    """The first batch of the stream that begins at byte `at`, as views of `data` where they can be.

    Checks the limits before anything is decompressed, and every length, offset and text of the batch afterwards.
    Raises IpcError for bytes that are no such stream, MemoryError where memory is short."""
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
