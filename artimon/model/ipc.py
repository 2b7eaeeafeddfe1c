"""One Arrow record batch as the bytes of an Arrow IPC stream, and back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")
_READ = pa.ipc.IpcReadOptions(use_threads=False)
"""Handing the few buffers of a batch to a pool of threads costs more than to decompress them."""


def write_ipc(batch: pa.RecordBatch, options: Any = None, before: bytes = b"") -> bytes:
    """The bytes of a stream that holds `batch` and nothing else, after the bytes `before`."""
    sink = pa.BufferOutputStream()
    if before:
        sink.write(before)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def read_ipc(data: bytes, at: int = 0) -> Any:
    """The first batch of the stream that begins at byte `at`, as views of `data` where they can be.

    Raises pyarrow.ArrowException, OSError, ValueError or StopIteration for bytes that are no such stream."""
    with pa.ipc.open_stream(pa.py_buffer(data).slice(at), options=_READ) as reader:
        return reader.read_next_batch()
