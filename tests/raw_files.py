"""Files of the raw table in the form that tasks of the raw query write."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.spark import raw_file


def to_parquet(table: Any) -> Any:
    """Return the bytes of one file, a buffer."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=raw_file.ROW_GROUP, **raw_file.PARQUET)
    return sink.getvalue()
