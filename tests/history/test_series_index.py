"""Series found by the index of names and labels are those that a scan of all rows finds."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.labels import canonical
from artimon.model.select import Matcher
from artimon.rawtable import clustered_copy, merged_files, merged_table
from artimon.rawtable.announced_rows import SERIES_SCHEMA, rows_of
from artimon.rawtable.clustered_copy import COPIES_FOLDER, ClusteredCopyBuilder, copy_path
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.schema import STAMP
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.term_index import TERMS_FOLDER, TermIndex, index_path, term_of
from artimon.runtime import file_access as files
from query_dsl.stores.history import series_lookup
from query_dsl.stores.history.sample_query import TooMuchHistory
from query_dsl.stores.history.series_lookup import read_announced, read_label_values
from query_dsl.tree.selector import accepts, parse_selector
from tests.compaction.later import Later
from tests.series.world import block
from tests.spark.local_files import local_files

Labels = dict[str, str]
VALUES = ["a", "b", "a|b", "é", "1.5"]
SERIES = st.lists(
    st.tuples(
        st.sampled_from(["cpu", "cpu.user", "mem"]),
        st.dictionaries(st.sampled_from(["pod", "node", "x"]), st.sampled_from(VALUES), max_size=3),
    ),
    min_size=1,
    max_size=40,
)
SELECTORS = [
    "cpu",
    'cpu{pod="a"}',
    '{pod="a"}',
    '{pod=~"a|b"}',
    '{pod=~"a|1.5"}',
    '{pod="a",node!="b"}',
    'cpu.user{x=""}',
    '{node=~"é",pod="b"}',
    '{x="nowhere"}',
    'cpu.*{pod="a"}',
    '{pod="a|b"}',
]


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file has an index, of row groups of three rows; a merge makes several passes and files."""
    monkeypatch.setattr(merged_files, "MIN_INDEXED_ROWS", 1)
    monkeypatch.setattr(series_lookup, "MIN_INDEXED_ROWS", 1)
    monkeypatch.setattr(merged_files, "FILE_ROWS", 12)
    monkeypatch.setattr(merged_table, "MERGE_PASS_ROWS", 5)
    monkeypatch.setattr(SeriesTable, "row_group", 3)


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[str]:
    with local_files(SYSTEM_CLOCK):
        yield f"file://{tmp_path}/{uuid.uuid4().hex}"


def announce(table: SeriesTable, series: Sequence[tuple[str, Labels]], version: int) -> None:
    """Add an announcement by each source: the value of the label `node`."""
    texts: dict[str, set[str]] = {}
    for name, labels in series:
        texts.setdefault(labels.get("node", ""), set()).add(canonical(name, labels))
    numbers = {source: number for number, source in enumerate(["", *VALUES], 1)}
    rows, refused = rows_of([block(source, 0, version, told) for source, told in texts.items()], numbers)
    assert not refused
    before = table.positions("t", 1)
    assert table.add(rows, "t", before, {0: before[0] + 1})


def found(hdfs: str, selector: str) -> list[int]:
    rows, _ = read_announced(hdfs, parse_selector(selector).matchers)
    return sorted(rows.column("series").to_pylist())


def expected(series: Sequence[tuple[str, Labels]], selector: str) -> list[int]:
    def fits(name: str, labels: Labels, matcher: Matcher) -> bool:
        return accepts(matcher, name if matcher.label == "__name__" else labels.get(matcher.label, ""))

    matchers = parse_selector(selector).matchers
    texts = {canonical(*one) for one in series if all(fits(*one, matcher) for matcher in matchers)}
    return sorted(signed(fingerprint(text)) for text in texts)


@given(parts=st.lists(SERIES, min_size=1, max_size=3), merged=st.integers(0, 3), few=st.sampled_from([0, 1, 100]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_index_finds_what_a_scan_finds(
    small_files: None, hdfs: str, parts: list[list[tuple[str, Labels]]], merged: int, few: int
) -> None:
    """Announcements before and after a merge, and after the removal of series; read from files and from copies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series_lookup, "FEW_GROUPS", few)
        check_lookups(f"{hdfs}/{uuid.uuid4().hex}", parts, merged)


def check_lookups(hdfs: str, parts: list[list[tuple[str, Labels]]], merged: int) -> None:
    table, series = SeriesTable(hdfs), list[tuple[str, Labels]]()
    for number, part in enumerate(parts):
        announce(table, part, number)
        series += part
        if number < merged:
            assert table.merge(table.live(), True)
    assert {selector: found(hdfs, selector) for selector in SELECTORS} == {
        selector: expected(series, selector) for selector in SELECTORS
    }
    assert read_label_values(hdfs, "__name__") == {name for name, _ in series}
    assert read_label_values(hdfs, None) == {label for _, labels in series for label in labels}
    assert read_label_values(hdfs, "pod") == {labels["pod"] for _, labels in series if "pod" in labels}
    gone = [one for one in series if one[0] == "cpu"]
    prints = np.array([signed(fingerprint(canonical(*one))) for one in gone], np.int64)
    table.remove(lambda rows: np.isin(rows.column("series").to_numpy(), prints))
    left = [one for one in series if one not in gone]
    for selector in SELECTORS[:5]:
        assert found(hdfs, selector) == expected(left, selector)


def test_only_row_groups_with_the_term_are_named(small_files: None, hdfs: str) -> None:
    table = SeriesTable(hdfs)
    announce(table, [("cpu", {"pod": f"p{n}"}) for n in range(10)], 1)
    (file,) = table.live()
    index = TermIndex(GroupReader(f"{table.uri}/{index_path(file.path)}"))
    each = [index.groups([[term_of("pod", f"p{n}")]]) for n in range(10)]
    assert all(len(groups) == 1 for groups in each)
    assert sorted({groups[0] for groups in each}) == [0, 1, 2, 3]
    assert index.groups([[term_of("__name__", "cpu")]]) == [0, 1, 2, 3]
    assert index.groups([[term_of("pod", "p1"), term_of("pod", "p2")]]) == sorted({*each[1], *each[2]})
    assert index.groups([[term_of("pod", "p1")], [term_of("pod", "x")]]) == []


@pytest.mark.parametrize("kept", [COPIES_FOLDER, TERMS_FOLDER])
def test_series_of_files_of_an_older_program_are_found(small_files: None, hdfs: str, kept: str) -> None:
    """It wrote no copy, or no index either: the file is scanned."""
    table = SeriesTable(hdfs)
    announce(table, [("cpu", {"pod": f"p{n}"}) for n in range(10)], 1)
    for path, _, _ in files.list_files(table.uri):
        if COPIES_FOLDER in path or (kept != TERMS_FOLDER and path.startswith(TERMS_FOLDER)):
            files.delete_file(f"{table.uri}/{path}")
    assert found(hdfs, 'cpu{pod="p3"}') == [signed(fingerprint('cpu{pod="p3"}'))]


def test_indexes_go_with_their_files(small_files: None, hdfs: str) -> None:
    clock = Later()
    table = SeriesTable(hdfs, clock)
    for number in range(3):
        announce(table, [("cpu", {"pod": f"p{n}"}) for n in range(10 * number, 10 * number + 10)], number)
    assert table.merge(table.live(), True)
    for _ in range(2):
        clock.seconds += 7 * 3600.0
        table.delete_orphans()
    named = {file.path for file in table.live()}
    present = {path for path, _, _ in files.list_files(table.uri) if not path.startswith("_delta_log/")}
    data = named | {copy_path(path) for path in named}
    assert present == data | {index_path(path) for path in data}


def test_the_series_of_a_pod_are_neighbours_in_the_copy(
    small_files: None, hdfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pod has 12 names and begins at another time: four row groups of three rows hold it, or five."""
    monkeypatch.setattr(merged_files, "FILE_ROWS", 1_000)
    monkeypatch.setattr(merged_table, "MERGE_PASS_ROWS", 1_000)
    table = SeriesTable(hdfs)
    for pod in range(20):
        announce(table, [(f"metric.{n}", {"pod": f"p{pod}"}) for n in range(12)], 2_000 * pod)
    assert table.merge(table.live(), True)
    (file,) = table.live()
    in_file, in_copy = (
        TermIndex(GroupReader(f"{table.uri}/{index_path(path)}")) for path in (file.path, copy_path(file.path))
    )
    for pod in range(20):
        term = term_of("pod", f"p{pod}")
        assert len(in_copy.groups([[term]])) in (4, 5)
        assert len(in_file.groups([[term]])) >= 10
    read = note_reads(monkeypatch)
    assert len(found(hdfs, '{pod="p7"}')) == 12
    assert {uri for uri, _ in read} == {f"{table.uri}/{copy_path(file.path)}"}
    assert sum(len(groups) for _, groups in read) <= 5
    read.clear()
    assert len(found(hdfs, "metric.3")) == 20
    assert {uri for uri, _ in read} == {f"{table.uri}/{file.path}"}


def note_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[int]]]:
    """Return a list to which every read of row groups of series is added."""
    read: list[tuple[str, list[int]]] = []
    reading = series_lookup._read_share

    def noted(opened: GroupReader, groups: list[int], matchers: tuple[Matcher, ...]) -> list[Any]:
        read.append((opened.uri, groups))
        return reading(opened, groups, matchers)

    monkeypatch.setattr(series_lookup, "_read_share", noted)
    return read


@given(
    passes=st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(-2, 9)), min_size=1), min_size=1, max_size=5),
    sorted_rows=st.sampled_from([2, 500_000]),
)
@settings(max_examples=50, deadline=None)
def test_a_copy_has_the_rows_of_all_passes_in_order(passes: list[list[tuple[int, int]]], sorted_rows: int) -> None:
    """Rows of few sources and times, so that many keys are equal and ranges unequal; times before 1970, too."""
    made = ClusteredCopyBuilder(SERIES_SCHEMA, 3)
    tables = []
    for number, keys in enumerate(passes):
        series = [("cpu", {"n": f"{number}-{n}"}) for n in range(len(keys))]
        rows, _ = rows_of([block("a", 0, 1, [canonical(*one) for one in series])], {"a": 1})
        source = pa.array([source for source, _ in keys], pa.int32())
        begin = pa.array([second * 1_000_000 for _, second in keys], STAMP)
        tables.append(rows.set_column(0, "source", source).set_column(9, "first_seen", begin).cast(SERIES_SCHEMA))
        made.add(tables[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clustered_copy, "SORTED_ROWS", sorted_rows)
        copy, index = made.to_bytes()
    rows = pq.read_table(pa.BufferReader(copy))
    given_rows = pa.concat_tables(tables)
    by_series = [("series", "ascending")]
    assert rows.cast(SERIES_SCHEMA).sort_by(by_series).equals(given_rows.sort_by(by_series))
    if sorted_rows > len(rows):
        begins = [max(0, begin // 1_000_000) for begin in rows.column("first_seen").cast(pa.int64()).to_pylist()]
        in_order = list(zip(rows.column("source").to_pylist(), begins, strict=True))
        assert in_order == sorted(in_order)
    file = pq.ParquetFile(pa.BufferReader(copy))
    terms = pq.read_table(pa.BufferReader(index))
    for group in range(file.num_row_groups):
        values = [dict(labels)["n"] for labels in file.read_row_group(group).column("labels").to_pylist()]
        for value in values:
            listed = terms.filter(pc.equal(terms.column("term"), term_of("n", value))).column("group").to_pylist()
            assert listed == [group]


def test_a_merge_fills_files(small_files: None, hdfs: str) -> None:
    """Passes of few rows do not make as many files."""
    table = SeriesTable(hdfs)
    announce(table, [("cpu", {"pod": f"p{n}"}) for n in range(40)], 1)
    result = table.merge(table.live(), True)
    assert result is not None
    assert (result.rows, result.files) == (40, len(table.live()))
    assert result.files <= 4


def test_more_series_than_the_limit_are_not_read(small_files: None, hdfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_lookup, "MERGED_ROWS", 10)
    table = SeriesTable(hdfs)
    for number in range(4):
        announce(table, [("cpu", {"pod": f"p{n}"}) for n in range(20)], number)
    matchers = parse_selector("cpu").matchers
    before = threading.active_count()  # the worker of the tests has threads of its own
    with pytest.raises(TooMuchHistory, match="fits more than 19 series"):
        read_announced(hdfs, matchers, 19)
    assert len(read_announced(hdfs, matchers, 20)[0]) == 20
    assert threading.active_count() < before + 20
