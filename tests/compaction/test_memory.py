"""Memory and limits of the compactor with hours that are large, or strange: a process of its own, its peak measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.rawtable.schema import FILE_SCHEMA
from pipeline.compaction.plan import HOUR_FILES
from pipeline.compaction.row_order import sort_rows
from tests.compaction.builder import DAY_MS, HOUR_MS, START_MS, Builder, table_digest, walk
from tests.compaction.measured import measured_turn
from tests.compaction.test_compactor import polled_rows
from tests.spark.local_files import local_files

GIB = 2**30
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Builder]:
    with local_files(SYSTEM_CLOCK):
        yield Builder(f"file://{tmp_path}/files")


def strings_table(texts: list[str | None], source: int, at_ms: int, seed: int = 1) -> Any:
    """A row for each text, of as many series of one source."""
    count = len(texts)
    names = np.sort(np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count))
    stamp = FILE_SCHEMA.field("time").type
    columns = [
        pa.array(np.full(count, source, np.int32)),
        pa.array(names),
        pa.array(np.full(count, at_ms * 1000)).view(stamp),
        pa.array(np.full(count, START_MS * 1000)).view(stamp),
        pa.array(np.zeros(count, bool)),
        *(pa.nulls(count, FILE_SCHEMA.field(name).type) for name in ("integer", "double", "boolean")),
        pa.array(texts, pa.utf8()),
    ]
    return pa.table(columns, schema=FILE_SCHEMA)


def compacted(builder: Builder, folder: Path, jobs: int = 1) -> dict[str, Any]:
    """Figures of a turn that compacts all that is there; the rows are the same, and the process stayed small."""
    before = table_digest(builder.table.uri)
    figures = measured_turn(builder.hdfs, folder)
    assert figures["jobs"] == jobs
    assert figures["peak_bytes"] <= GIB, figures
    assert table_digest(builder.table.uri) == before
    print({name: figures[name] for name in ("rows", "seconds", "cpu_s", "peak_bytes")})
    return figures


@pytest.mark.slow
def test_twenty_million_rows_in_480_files(local: Builder, tmp_path: Path) -> None:
    """28 sources of 1,500 series; with no more memory than any other hour."""
    for poll, table in enumerate(walk(28, 1_500, 480, START_MS, polled=7_500)):
        local.append_tables([(START_MS + poll * 7_500, "default", table)])
    local.settle(START_MS + HOUR_MS)
    assert compacted(local, tmp_path / "data")["live"]["closed_hour"] <= HOUR_FILES


LONG = {
    "the_longest_all_different": (32 * 1024, 1, 200),
    "the_longest_all_equal": (32 * 1024, 0, 2_000),
    "beyond_what_sources_allow": (1024 * 1024, 1, 8),
    "short_and_different": (60, 1, 20_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
def test_an_hour_of_strings(local: Builder, tmp_path: Path, kind: str) -> None:
    """60 files, each with a run of long strings among 20,000 short ones."""
    size, different, count = LONG[kind]
    random = np.random.default_rng(7)
    for n in range(60):
        texts = [random.bytes(size // 2).hex() if different else "x" * size for _ in range(count)]
        table = strings_table([*texts, *(f"state {k % 9}" for k in range(20_000))], 1 + n % 3, START_MS + n)
        local.append_tables([(START_MS + n * 30_000, "default", table)])
    local.settle(START_MS + HOUR_MS)
    compacted(local, tmp_path / "data")


@pytest.mark.slow
def test_one_series_has_all_rows(local: Builder, tmp_path: Path) -> None:
    """And half of them the same time."""
    for n in range(200):
        table = walk(1, 1, 1, START_MS)[0]
        table = pa.concat_tables([table] * 30_000).combine_chunks()
        times = np.where(np.arange(30_000) % 2 == 0, START_MS, START_MS + np.arange(30_000) * 7 + n) * 1_000
        column = pa.array(times).view(FILE_SCHEMA.field("time").type)
        local.append_tables([(START_MS + n * 10_000, "default", sort_rows(table.set_column(2, "time", column)))])
    local.settle(START_MS + HOUR_MS)
    compacted(local, tmp_path / "data")


@pytest.mark.slow
def test_thousands_of_small_files_after_long_downtime(local: Builder, tmp_path: Path) -> None:
    """Five days, 480 files an hour in some of them; every hour and day ends within its limits."""
    for day in range(5):
        for hour in (0, 7, 23):
            start = START_MS + day * DAY_MS + hour * HOUR_MS
            ats = [start + n * 7_000 for n in range(480 if hour == 7 else 20)]
            local.append([(at, "default", polled_rows(n)) for n, at in enumerate(ats)])
    local.settle(START_MS + 5 * DAY_MS)
    figures = compacted(local, tmp_path / "data", jobs=5 * 3 + 5)
    assert figures["live"]["files"] == 5
