"""Files of a newer format are refused by name with a remedy, and never read in part."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from artimon.model.batch import BatchError, UnknownFormatError
from artimon.model.batch_codec import verify
from artimon.model.feed_codec import decode_range
from artimon.model.ipc import read_ipc, write_ipc
from artimon.rawtable.table_state import TableStateError, from_json
from tests.upgrade.golden import batches

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def test_a_batch_of_a_newer_version() -> None:
    newer = bytearray(batches()[0][0].data)
    newer[4] = 2
    with pytest.raises(UnknownFormatError, match=r"version 2: this program reads version 1; upgrade it, then replay"):
        verify(bytes(newer))


def test_a_state_of_a_newer_format() -> None:
    said = json.loads((GOLDEN / "raw" / "state.json").read_text())
    with pytest.raises(TableStateError, match=r"format 2: this program reads format 1 and writes nothing"):
        from_json({**said, "format": 2})


def test_a_feed_with_another_column() -> None:
    parts = [(GOLDEN / "feed" / f"{name}.arrow").read_bytes() for name in ("entries", "samples", "strings")]
    entries = read_ipc(parts[0])
    arrays = [*entries.columns, pa.nulls(len(entries), pa.int64())]
    schema = entries.schema.append(pa.field("new", pa.int64()))
    parts[0] = write_ipc(pa.record_batch(arrays, schema=schema))
    with pytest.raises(BatchError, match="are the Spark application and this shard of one version"):
        decode_range(parts)
