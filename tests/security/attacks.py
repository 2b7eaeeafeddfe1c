"""Small messages that ask for much: what a hostile agent, process or writer of Kafka may send."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from artimon.model.batch import BatchId, BatchKind
from artimon.model.batch_codec import assemble
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.ipc import ZSTD, write_ipc
from artimon.model.sample_columns import SAMPLE_SCHEMA

ROWS = 8_000_000


def bomb(source: str, rows: int = ROWS, told: int = 1) -> bytes:
    """A batch of some KiB with `rows` rows of 24 bytes; its header tells of `told`."""
    column = np.zeros(rows, np.int64)
    arrays = [pa.array(column.view(np.uint64)), pa.array(column), pa.array(column)]
    body = write_ipc(pa.record_batch(arrays, schema=pa.schema([SAMPLE_SCHEMA.field(i) for i in range(3)])), ZSTD)
    id_ = BatchId("mallory", 1, 0, 0)
    return assemble(BatchKind.SAMPLES, id_, source, bytes(16), 0, SYSTEM_CLOCK.now_ms(), told, 0, "", body).data
