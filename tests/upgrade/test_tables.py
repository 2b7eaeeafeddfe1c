"""Tables of version 1 under today's program: read, added to, compacted; with a column more; and of a newer format."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties
from deltalake.schema import PrimitiveType

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.values import ValueType
from artimon.rawtable import table_state as states
from artimon.rawtable.announced_rows import rows_of as series_rows
from artimon.rawtable.commit import RawTable
from artimon.rawtable.file_statistics import statistics_of
from artimon.rawtable.head import METADATA_KEY, HeadReader
from artimon.rawtable.schema import PARTITION_BY, DataFile, period_of, raw_uri, series_uri, sources_uri
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable, read_sources
from artimon.rawtable.table_state import Increment, TableStateError, TableTotals, to_json
from artimon.runtime import file_access as files
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.sorted_runs import RunError
from query_dsl.stores.history.engine import History
from tests.compaction.builder import Builder, file_table
from tests.raw_files import to_parquet
from tests.spark.helpers import table_rows_at
from tests.upgrade.golden import ABOUT, rows_of
from tests.upgrade.make_golden import HOUR_MS, PARTITIONS, SOURCES, START_MS, block

IN_TABLE = range(ABOUT["in_table"])
NEWER_ROWS = [(1, 78, START_MS + HOUR_MS + n, n) for n in range(3)]
NEW = Field("new", PrimitiveType("string"), nullable=True)


class Later(Builder):
    """Today's appends on top of what is there."""

    def __init__(self, hdfs: str) -> None:
        self.hdfs, self.partitions = hdfs, PARTITIONS
        self.table = RawTable(hdfs)
        _, self.state = self.table.head()
        self.ledger = Counter()


def append_more(hdfs: str) -> int:
    """An append of today, three hours later, after which all that is older is settled; its number of rows."""
    later = Later(hdfs)
    given = [(1, 77, START_MS + 3 * HOUR_MS + n, n) for n in range(5)]
    later.append([(START_MS + 3 * HOUR_MS, "default", given)])
    later.settle(START_MS + 4 * HOUR_MS)
    return len(given)


def compacted(hdfs: str, tmp_path: Path) -> dict[str, Any]:
    compactor = Compactor(CompactorConfig("", hdfs, tmp_path / "runs"), None)
    compactor.run_due(threading.Event())
    return compactor.figures()


def history_of(hdfs: str) -> list[tuple[Any, ...]]:
    with History(hdfs) as history:
        answer = history.read("golden.requests", START_MS - 1, START_MS + 2 * HOUR_MS, engine="local")
    table = answer.to_arrow()
    return sorted(
        zip(table.column("time").cast(pa.int64()).to_pylist(), table.column("integer").to_pylist(), strict=True)
    )


def check_all(hdfs: str, tmp_path: Path) -> None:
    """Read, append, compact, read: nothing is lost and nothing is there twice."""
    assert table_rows_at(hdfs) == rows_of(IN_TABLE)
    before = history_of(hdfs)
    assert [value for _, value in before] == [2**63 - 1, -(2**63), 2, 3, 4, 5]
    more = append_more(hdfs)
    figures = compacted(hdfs, tmp_path)
    assert figures["jobs"] >= 1
    assert figures["alarms"] == 0
    held = table_rows_at(hdfs)
    assert held.total() == len(IN_TABLE) * 5 + more
    assert {row: n for row, n in held.items() if row[1] != 77} == rows_of(IN_TABLE)
    assert history_of(hdfs) == before


def test_version_1_goes_on(tables: str, tmp_path: Path) -> None:
    check_all(tables, tmp_path)


def test_the_series_of_version_1_go_on(tables: str) -> None:
    table = SeriesTable(tables)
    info = SeriesInfo("golden.late{}", ValueType.INTEGER, first_seen_ms=START_MS)
    found, _ = series_rows([*map(block, SOURCES), SeriesBlock(SOURCES[0], 1, START_MS, (info,))], ids(tables))
    assert table.positions(ABOUT["topic_id"], 1) == {0: 2}
    assert table.add(found, ABOUT["topic_id"], {0: 2}, {0: 5})
    table.live()
    merged = table.merge(table.live(), True)
    assert merged is not None
    assert (merged.rows_before, merged.rows, merged.clashes) == (21, 11, ())


def ids(hdfs: str) -> dict[str, int]:
    return {name: number for number, name in read_sources(sources_uri(hdfs)).items()}


def add_column(uri: str) -> None:
    """The first action of a newer writer: the table has one more column from then on."""
    DeltaTable(uri).alter.add_columns([NEW])


def columns(uri: str) -> list[str]:
    return [field.name for field in DeltaTable(uri).schema().fields]


def test_a_column_that_a_newer_writer_added_disturbs_nobody(tables: str, tmp_path: Path) -> None:
    uris = [raw_uri(tables), sources_uri(tables), series_uri(tables)]
    for uri in uris:
        add_column(uri)
    check_all(tables, tmp_path)
    sources = SourcesTable(tables)
    assert sources.assign(["new/h/0", SOURCES[1]]) == {SOURCES[1]: 2, "new/h/0": 3}
    series = SeriesTable(tables)
    found, _ = series_rows(map(block, SOURCES), ids(tables))
    assert series.add(found, ABOUT["topic_id"], {0: 2}, {0: 5})
    assert series.merge(series.live(), True) is not None
    for uri in uris:
        assert columns(uri)[-1] == "new"


def with_new_column(file: Any) -> Any:
    """As a newer writer writes this file: with a value in a column of its own."""
    table = pq.read_table(file)
    sink = pa.BufferOutputStream()
    pq.write_table(table.append_column("new", pa.array(["x"] * len(table))), sink)
    return sink.getvalue()


def rows_file() -> Any:
    return to_parquet(file_table(NEWER_ROWS))


def live(uri: str) -> list[str]:
    found: list[str] = pa.table(DeltaTable(uri).get_add_actions(flatten=True)).column("path").to_pylist()
    return found


def test_what_a_newer_writer_said_is_not_compacted_away(tables: str, tmp_path: Path) -> None:
    """Compaction by an older program would drop the values of the column: it refuses, loudly, and the rest goes on."""
    raw, series = raw_uri(tables), series_uri(tables)
    later = Later(tables)
    data = with_new_column(pa.BufferReader(rows_file()))
    at = START_MS + HOUR_MS + 50 * 60_000
    told = {"period": period_of(at), "keep": "default"}
    statistics = statistics_of(file_table(NEWER_ROWS))
    newer = DataFile("newer.parquet", len(data), len(NEWER_ROWS), told, statistics)
    files.write_file(f"{raw}/{newer.path}", data)
    later.commit([newer], at)
    append_more(tables)
    compactor = Compactor(CompactorConfig("", tables, tmp_path / "runs"), None)
    with pytest.raises(RunError, match=r"columns that this program does not know and would lose: new; run"):
        compactor.run_due(threading.Event())
    assert compactor.figures()["alarms"] == 1
    assert newer.path in live(raw)
    assert table_rows_at(tables).total() == len(IN_TABLE) * 5 + 5 + len(NEWER_ROWS)
    table = SeriesTable(tables)
    before = live(series)
    path = f"{series}/{before[0]}"
    files.write_file(path, with_new_column(pa.BufferReader(files.read_file(path))))
    assert table.merge(table.live(), True) is None
    assert live(series) == before


def write_newer(hdfs: str) -> None:
    """An append by a program whose state has format 3."""
    table = RawTable(hdfs)
    _, before = table.head()
    after = states.advance(before, "newer", Increment({}, {}, {}, TableTotals(), before.newest_append_ms))
    said = {METADATA_KEY: {**to_json(after, before), "format": 3}}
    DeltaTable(table.uri).create_write_transaction(
        [],
        "append",
        table._schema,
        PARTITION_BY,
        commit_properties=CommitProperties(custom_metadata=said, max_commit_retries=0),
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
    )


def test_a_table_of_a_newer_format_is_not_written(tables: str, tmp_path: Path) -> None:
    """Neither by a driver that is running when the newer one begins, nor by one that starts, nor by the compactor."""
    running = Later(tables)
    reader = HeadReader(tables)
    reader.head()
    write_newer(tables)
    before = sorted(files.list_files(raw_uri(tables)))
    for act in (
        lambda: running.settle(START_MS + 4 * HOUR_MS),
        lambda: RawTable(tables).head(),
        reader.head,
        lambda: HeadReader(tables).head(),
        lambda: compacted(tables, tmp_path),
    ):
        with pytest.raises(
            TableStateError, match=r"format 3: this program reads formats 1 to 2 and writes nothing.*docs/upgrade"
        ):
            act()
    assert sorted(files.list_files(raw_uri(tables))) == before
    assert table_rows_at(tables) == rows_of(IN_TABLE)  # who only reads samples is not concerned
