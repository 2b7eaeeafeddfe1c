"""Series found by the index of names and labels are those that a scan of all rows finds."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.labels import canonical
from artimon.model.select import Matcher
from artimon.rawtable import merged_files, merged_table
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.parquet_reader import GroupReader
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
SERIES = st.lists(
    st.tuples(
        st.sampled_from(["cpu", "cpu.user", "mem"]),
        st.dictionaries(
            st.sampled_from(["pod", "node", "x"]), st.sampled_from(["a", "b", "a|b", "é", "1.5"]), max_size=3
        ),
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
    rows, refused = rows_of([block("a", 0, version, {canonical(*one) for one in series})], {"a": 1})
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


@given(parts=st.lists(SERIES, min_size=1, max_size=3), merged=st.integers(0, 3))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_index_finds_what_a_scan_finds(
    small_files: None, hdfs: str, parts: list[list[tuple[str, Labels]]], merged: int
) -> None:
    """Announcements before and after a merge, and after the removal of series."""
    hdfs = f"{hdfs}/{uuid.uuid4().hex}"
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


def test_a_file_without_an_index_is_scanned(small_files: None, hdfs: str) -> None:
    """An older program wrote it."""
    table = SeriesTable(hdfs)
    announce(table, [("cpu", {"pod": f"p{n}"}) for n in range(10)], 1)
    for path, _, _ in files.list_files(table.uri):
        if path.startswith(TERMS_FOLDER):
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
    assert present == named | {index_path(path) for path in named}


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
