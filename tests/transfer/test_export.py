"""Exports: what is imported from one is what was exported, as far as its format carries it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from artimon.cli.history_export import export_samples
from artimon.cli.history_output import write_batches
from artimon.model.values import Value
from pipeline.history.importer import Importer
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.result import Sample
from query_dsl.tree.query_errors import QueryError
from tests.transfer.importing import START_MS, run, samples
from tests.transfer.rows import Row, chunk_of

ALL = '{__name__!=""}'
SPECIAL = ("\r", "\n", "\r\n", "\t", '"', ",")
"""Texts that CSV must quote."""
EVERY_FORM = ("parquet", "arrow", "csv", "openmetrics")
VALUES: st.SearchStrategy[Value | None] = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.none(),
)
LABELS = st.dictionaries(st.sampled_from(["host", "le", "x_y"]), st.text(min_size=1, max_size=5), max_size=2)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["plc/a", "plc/b"]),
        st.sampled_from(["room.temp", "req_total", "b"]),
        LABELS,
        st.integers(START_MS - 2 * 86_400_000, START_MS),
        st.integers(1, START_MS),
        VALUES,
    ),
    min_size=1,
    max_size=30,
)


def store(hdfs: str, folder: Path, rows: list[Row]) -> None:
    Importer(hdfs, folder / uuid.uuid4().hex, "default").run(uuid.uuid4().hex, [chunk_of(rows)])


def export(hdfs: str, target: Path, form: str, selector: str = ALL, after: object = 0) -> list[str]:
    with History(hdfs) as history:
        series = history.described(selector, after)
        batches = history.batches(selector, after, described=True)
        return export_samples(batches, series, target, form, target.parent / "data")


def described(hdfs: str) -> list[Any]:
    with History(hdfs) as history:
        rows = history.described(ALL, 0).to_pylist()
    return [(row["text"], row["source_name"], row["kind"], row["unit"], row["help"]) for row in rows]


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv"])
@given(rows=ROWS)
@example(rows=[("a", "b", {"host": f"a{text}"}, START_MS, 1, f"{text}x") for text in SPECIAL])
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_import_of_an_export_is_the_same(hdfs: str, tmp_path: Path, form: str, rows: list[Row]) -> None:
    one, other = (f"{hdfs}/{uuid.uuid4().hex}" for _ in range(2))
    store(one, tmp_path, rows)
    target = tmp_path / f"x-{uuid.uuid4().hex}.{form}"
    export(one, target, form)
    result, rejects = run(target, other)
    assert (result.samples, rejects.counts.total()) == (len(rows), 0)
    assert list(map(repr, samples(other))) == list(map(repr, samples(one)))
    if form != "csv":
        assert described(other) == described(one)


def test_openmetrics_carries_numbers_and_starts(hdfs: str, tmp_path: Path) -> None:
    rows: list[Row] = [
        ("a", "req_total", {"code": 'a"b\\\n'}, START_MS + n * 1000, START_MS - 5, 0.1 * n) for n in range(3)
    ]
    rows += [("a", "load", {}, START_MS, 1, value) for value in (float("-inf"),)]
    rows += [("a", "up", {}, START_MS, 1, True), ("a", "big", {}, START_MS, 1, 2**53)]
    rows += [("a", "name", {}, START_MS, 1, "text"), ("a", "load", {}, START_MS + 1, 1, None)]
    store(hdfs, tmp_path, rows)
    target = tmp_path / "x.om"
    notes = export(hdfs, target, "openmetrics")
    assert notes == [
        "6 samples",
        "1 ends of series are left out: OpenMetrics has none",
        "1 texts are left out: OpenMetrics has none",
    ]
    other = f"{hdfs}-other"
    run(target, other, source="a")

    def as_double(one: Sample) -> Sample:
        assert one.value is not None
        return one._replace(type="double", value=float(one.value))

    kept = [one for one in samples(hdfs) if one.type not in ("string", "ended")]
    assert samples(other) == [as_double(one) for one in kept]


def test_openmetrics_is_sorted_by_family_and_read_by_others(hdfs: str, tmp_path: Path) -> None:
    days = range(3)
    rows: list[Row] = [
        ("a", name, {"n": str(n)}, START_MS - day * 86_400_000, 5, float(day))
        for day in days
        for n in range(2)
        for name in ("b.x", "a.x")
    ]
    store(hdfs, tmp_path, rows)
    export(hdfs, tmp_path / "x.om", "openmetrics")
    lines = (tmp_path / "x.om").read_text().splitlines()
    assert lines[0] == "# TYPE a_x unknown"
    assert [line.split("{")[0] for line in lines if not line.startswith("#")] == ["a_x"] * 6 + ["b_x"] * 6
    assert lines[-1] == "# EOF"
    times = [float(line.split()[-1]) for line in lines[2:5]]
    assert times == sorted(times)
    store(hdfs, tmp_path, [("a", "a_x", {}, START_MS, 5, 1.0)])
    with pytest.raises(QueryError, match=r"a_x and a\.x are both a_x"):
        export(hdfs, tmp_path / "y.om", "openmetrics")
    assert not list(tmp_path.glob("*y.om*"))


def test_a_failure_leaves_the_older_file(tmp_path: Path) -> None:
    target = tmp_path / "x.csv"
    target.write_text("old")

    def fail(batches: Any, out: Any) -> int:
        out.write(b"new")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_batches(iter([1]), target, fail)
    assert [target.read_text(), len(list(tmp_path.iterdir()))] == ["old", 1]


def test_columns_of_parquet(hdfs: str, tmp_path: Path) -> None:
    store(hdfs, tmp_path, [("a", "b", {}, START_MS, 5, 2**63 - 1)])
    export(hdfs, tmp_path / "x.parquet", "parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.schema.field("integer").type == pa.int64()
    assert table.column("integer").to_pylist() == [2**63 - 1]
    assert table.column("kind").to_pylist() == ["unknown"]
