"""Spark reads compacted files like every other reader."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from artimon.rawtable.table_reader import read_raw
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.compactor import Compactor
from tests.compaction.builder import DAY_MS, HOUR_MS, START_MS, Builder, walk

pytestmark = [pytest.mark.stack, pytest.mark.slow]
COLUMNS = ["source", "series", "time", "birth", "future", "integer", "double", "boolean", "string"]


@pytest.mark.parametrize("kind", ["hour", "day"])
def test_spark_reads_compacted_files(session: SparkSession, hdfs: str, tmp_path: Path, kind: str) -> None:
    """Every encoding that compaction may choose, all four types, and nulls."""
    builder = Builder(f"{hdfs}/s{uuid.uuid4().hex[:10]}")
    polls = walk(3, 40, 60, START_MS)
    builder.append_tables([(START_MS, "default", table) for table in polls[:4]])
    values = [1, -1.5, True, "text", None]
    builder.append([(START_MS, "default", [(9, n, START_MS + n, values[n % 5]) for n in range(50)])])
    builder.settle(START_MS + (DAY_MS if kind == "day" else HOUR_MS))
    Compactor(CompactorConfig("", builder.hdfs, tmp_path), None).run_due(threading.Event())
    uris = DeltaTable(builder.table.uri).file_uris()
    assert len(uris) == 1
    assert f"/{kind}-" in uris[0]
    rows = read_raw(builder.table.uri, columns=COLUMNS)
    found = session.read.parquet(*uris).select(*COLUMNS).toArrow()
    assert len(found) == 4 * 120 + 50
    assert _texts(found) == _texts(rows)


def _texts(rows: object) -> list[str]:
    return sorted(repr(list(row.values())) for row in rows.to_pylist())  # type: ignore[attr-defined]
