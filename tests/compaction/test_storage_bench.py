"""Input of the storage benchmark: its walk, its copy, its steps, and the data for peers."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from artimon.rawtable.schema import FILE_SCHEMA, raw_uri
from artimon.rawtable.table_reader import read_raw
from benchmarks.peers import prometheus, victoria
from benchmarks.peers.prometheus import _write
from benchmarks.peers.series import Content, PeerFailed, PeerSeries, plain_name, series_of
from benchmarks.peers.victoria import export_line
from benchmarks.storing import recorded, table, walk
from pipeline.compaction.row_order import sort_rows
from tests.compaction.builder import HOUR_MS, START_MS, Builder, Row, expected, file_table, held


def test_a_copy_is_compacted_and_loses_nothing(builder: Builder, place: str, tmp_path: Path) -> None:
    """One full hour between two that were collected in part."""
    for hour, polls in ((0, 9), (1, 20), (2, 9)):
        for poll in range(polls):
            at = START_MS + hour * HOUR_MS + poll * 60_000
            builder.append([(at, "default", [(1, n, at, n * poll) for n in range(40)])])
    builder.settle(START_MS + 2 * HOUR_MS + HOUR_MS // 2)
    copy = f"{place}/copy"
    table._copy_table(raw_uri(place), raw_uri(copy))
    assert held(raw_uri(copy)) == expected(builder.ledger)
    before = table.appended_bytes(copy)
    assert table.only_full_hour(copy) == "2026-11-18T01"
    assert len(read_raw(raw_uri(copy))) == 20 * 40
    kept = table.appended_bytes(copy)
    assert before is not None
    assert kept is not None
    assert kept < before
    table.compact(copy, tmp_path, days=False)
    after = table.size(copy)
    assert after.data < kept
    assert after.log < 30_000
    assert len(read_raw(raw_uri(copy))) == 20 * 40
    assert table.appended_bytes(copy) is None
    assert held(raw_uri(place)) == expected(builder.ledger)  # the table itself stays as it is


def test_without_a_full_hour_everything_counts(builder: Builder) -> None:
    builder.append([(START_MS + n * 60_000, "default", [(1, 1, START_MS + n, n)]) for n in range(3)])
    assert table.only_full_hour(builder.hdfs) is None
    assert held(builder.table.uri) == expected(builder.ledger)


def test_the_walk_is_in_the_table_and_with_the_peers(place: str, tmp_path: Path) -> None:
    made = walk.make_walk(START_MS, 2, 2_000, polls=3)
    assert made.samples == 2 * walk.SERIES * 3
    assert np.abs(np.diff(made.values, axis=2)).max() <= walk.STEP
    walk.fill(place, made)
    rows = read_raw(raw_uri(place))
    theirs = list(made.peer_series())
    assert len(rows) == made.samples == sum(len(one.values) for one in theirs)
    assert sum(one.name == "walk_value" for one in theirs) == 2_000
    assert rows.column("integer").to_numpy().sum() == sum(one.values.sum() for one in theirs)
    assert {tuple(one.times_ms) for one in theirs} == {tuple(times) for times in made.times_ms}
    table.compact(place, tmp_path, days=True)
    assert len(read_raw(raw_uri(place))) == made.samples


def test_peers_get_numbers_without_doubles() -> None:
    """Booleans as 0 and 1; no strings, ends and repeated times; a series of two sources once."""
    given: list[Row] = [(1, 5, 1_000, 3), (1, 5, 2_000, 4), (1, 5, 2_000, 4), (1, 5, 3_000, None)]
    given += [(1, 6, 1_000, 0.5), (1, 6, 2_000, True), (1, 7, 1_000, "text"), (2, 5, 9_000, 7), (3, 1, 1_000, 1)]
    texts = {(1, 5): ("a.b", {"x": "1"}), (1, 6): ("c", {}), (1, 7): ("d", {}), (2, 5): ("a.b", {"x": "1"})}
    found = series_of(sort_rows(file_table(given)), texts)
    assert [(one.name, dict(one.labels), one.integer) for one in found] == [("a_b", {"x": "1"}, True), ("c", {}, False)]
    assert [one.times_ms.tolist() for one in found] == [[1_000, 2_000], [1_000, 2_000]]
    assert [one.values.tolist() for one in found] == [[3.0, 4.0], [0.5, 1.0]]


def test_forms_of_the_peers() -> None:
    one = PeerSeries(plain_name("a.b-c"), {"x": 'q"é'}, np.array([1_000, 2_500]), np.array([3.0, 2.0**40]), True)
    out = io.StringIO()
    assert _write(out, one) == 2
    assert out.getvalue() == 'a_b_c{x="q\\"é"} 3 1.000\na_b_c{x="q\\"é"} 1099511627776 2.500\n'
    assert export_line(one).decode() == (
        '{"metric":{"__name__": "a_b_c", "x": "q\\"é"},"values":[3,1099511627776],"timestamps":[1000,2500]}\n'
    )


def test_the_walk_has_the_schema_of_the_table() -> None:
    made = walk.make_walk(START_MS, 1, 1, polls=1)
    order = [walk._Order(1, np.arange(walk.SERIES), np.arange(walk.SERIES))]
    assert walk._poll(made, order, 0).schema == pa.schema(FILE_SCHEMA)


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (prometheus._check, b'{"values":[[1.5,"5"],[2,"-7"]]}'),
        (victoria._check, b'{"metric":{},"values":[5],"timestamps":[1]}\n{"values":[-7],"timestamps":[2]}\n'),
    ],
    ids=["prometheus", "victoriametrics"],
)
def test_answers_of_peers_are_counted_and_summed(check: Callable[[bytes, Content], None], answer: bytes) -> None:
    check(answer, Content(2, -2))
    for wrong in (Content(1, -2), Content(2, -1)):
        with pytest.raises(PeerFailed):
            check(answer, wrong)


def test_the_total_of_a_walk_is_that_of_its_named_series() -> None:
    made = walk.make_walk(0, 2, 1_600, polls=3)
    assert made.total == int(made.values[0].sum()) + int(made.values[1, :100].sum())


def test_the_recorded_hour_is_whole() -> None:
    hour = recorded.read()
    assert len(set(hour.series.tolist())) == len(hour.source)
    assert 0 <= hour.times_ms.min() <= hour.times_ms.max() < 3_600_000
    texts = [recorded._text(number, int(source)) for number, source in enumerate(hour.source)]
    assert len(set(texts)) == len(texts)
