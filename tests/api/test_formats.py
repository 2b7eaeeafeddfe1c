"""One matrix in three forms, each exact; what is too long is told before a byte of it is sent."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from artimon.api.api_limits import ApiLimits
from artimon.api.formats import csv_cell, json_pieces, notes_text
from query_dsl import Matrix, evaluate, parse
from tests.api.serving import NOW, Answer, Client, served
from tests.query_dsl.plain_store import MINUTE, PlainStore

EDGE = NOW // MINUTE * MINUTE - MINUTE  # the newest settled bucket ends here
ALL = "fetch('t.*').map(last, '1m').range('4m')"
BIG = 2**62 + 1
NASTY = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx", '"quoted", two\nlines', "-5", "ü\u2028", ""]


def mixed_store() -> PlainStore:
    """Each type, extremes, missing values, texts that a spreadsheet would run."""
    store = PlainStore(notes=("shard 1 is not there: its\r\nseries are missing é",), partial=True)
    store.add("t.int", {"a": "x"}, [(EDGE - 1, BIG), (EDGE - 2 * MINUTE, -(2**63))])
    store.add("t.double", {}, [(EDGE - 1, float("nan")), (EDGE - MINUTE - 1, float("-inf")), (EDGE - 3 * MINUTE, 0.1)])
    store.add("t.bool", {}, [(EDGE - 1, True), (EDGE - MINUTE - 1, False)])
    for i, text in enumerate(NASTY):
        store.add("t.text", {"i": str(i), "v": text}, [(EDGE - 1, text)])
    return store


@pytest.fixture(scope="module")
def mixed() -> Iterator[Client]:
    with served(mixed_store()) as client:
        yield client


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return evaluate(parse(ALL), mixed_store(), NOW)


def rows_of(answer: Answer) -> list[dict[str, str]]:
    text = answer.body.decode()
    assert all(line.endswith("\r") for line in text.split("\n")[:1])
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_json_is_that_of_the_matrix(mixed: Client, matrix: Matrix) -> None:
    answer = mixed.ask(ALL)
    assert answer.json == matrix.to_dict()
    assert answer.body.decode() == matrix.to_json()
    empty = Matrix((), matrix.grid, matrix.column)
    assert json.loads(b"".join(json_pieces(empty)))["series"] == []


def test_csv_has_a_line_for_each_value(mixed: Client, matrix: Matrix) -> None:
    answer = mixed.ask(ALL, format="csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = rows_of(answer)
    assert list(rows[0]) == ["series", "name", "type", "time_ms", "time", "value"]
    present = [value for _, _, value in matrix.points() if value is not None]
    assert len(rows) == len(present)
    told = {(row["name"], row["value"]) for row in rows}
    assert {("t.int", str(BIG)), ("t.int", str(-(2**63))), ("t.double", "NaN"), ("t.double", "-Infinity")} <= told
    assert {("t.double", "0.1"), ("t.bool", "true"), ("t.bool", "false")} <= told
    newest = next(row for row in rows if row["value"] == str(BIG))
    assert newest["series"] == 't.int{a="x"}'
    assert newest["time_ms"] == str(EDGE)
    assert newest["time"] == "2023-11-14T22:14:00.000Z"
    assert rows_of(mixed.ask("fetch('t.int').map(last, '1m').range('1m').offset('3m')", format="csv")) == []


def test_no_cell_is_a_formula(mixed: Client) -> None:
    texts = [row["value"] for row in rows_of(mixed.ask("fetch('t.text')", format="csv"))]
    assert sorted(texts) == sorted(text if text in ("-5", "") or text[0] in '"ü' else f"'{text}" for text in NASTY)
    for text in texts:
        assert not text.startswith(("=", "+", "@", "\t", "\r"))


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("plain", "plain"),
        ("-1.5e3", "-1.5e3"),
        ("+7", "+7"),
        ("-Infinity", "-Infinity"),
        ("-1+1", "'-1+1"),
        ("-", "'-"),
        ("=1", "'=1"),
        ("a,b", '"a,b"'),
        ('=a"b', '"\'=a""b"'),
    ],
)
def test_cells(text: str, cell: str) -> None:
    assert csv_cell(text) == cell


def test_arrow_is_exact(mixed: Client, matrix: Matrix) -> None:
    answer = mixed.ask(ALL, format="arrow")
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(answer.body).read_all()
    names = ["series", "name", "time", "integer", "double", "boolean", "string"]
    assert table.schema.names == names
    assert str(table.schema.field("time").type) == "timestamp[ms, tz=UTC]"
    assert pa.types.is_dictionary(table.schema.field("series").type)
    about = json.loads(table.schema.metadata[b"artimon"])
    assert about["grid"] == matrix.to_dict()["grid"]
    assert about["notes"] == list(matrix.notes)
    assert about["partial"] is True
    assert about["series"] == [{k: v for k, v in row.items() if k != "values"} for row in matrix.to_dict()["series"]]
    assert table.num_rows == len(matrix) * matrix.grid.n
    assert [repr(value) for value in merged(table)] == [repr(value) for _, _, value in matrix.points()]
    assert table.column("time").cast(pa.int64()).to_pylist() == matrix.times * len(matrix)
    assert table.column("series").to_pylist() == [name for name in matrix.series for _ in matrix.times]


def merged(table: Any) -> list[Any]:
    """The one value of each row, None where all columns are null."""
    columns = [table.column(name).to_pylist() for name in ("integer", "double", "boolean", "string")]
    rows = [[value for value in row if value is not None] for row in zip(*columns, strict=True)]
    assert all(len(row) <= 1 for row in rows)
    return [row[0] if row else None for row in rows]


def test_arrow_has_only_the_types_there_are(mixed: Client) -> None:
    table = pa.ipc.open_stream(mixed.ask("fetch('t.bool')", format="arrow").body).read_all()
    assert table.schema.names == ["series", "name", "time", "boolean"]
    assert table.to_pandas()["boolean"].tolist()[-1] is True


def test_an_answer_of_many_batches_is_whole() -> None:
    store = PlainStore()
    for i in range(9_000):
        store.add("wide", {"i": f"{i:05}"}, [(EDGE - 1, i), (EDGE - MINUTE - 1, -i)])
    text = "fetch('wide').range('4m')"
    with served(store) as client:
        table = pa.ipc.open_stream(client.ask(text, format="arrow").body).read_all()
        assert table.column("integer").to_pylist()[3::4] == list(range(9_000))
        values = [row["values"][-2:] for row in client.ask(text).json["series"]]
        assert values == [[-i, i] for i in range(9_000)]
        lines = rows_of(client.ask(text, format="csv"))
        assert sorted(int(line["value"]) for line in lines[1::2]) == list(range(9_000))


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/csv", "text/csv; charset=utf-8"),
        ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "application/json"),
        ("text/csv;q=0.5, application/json;q=0.4", "text/csv; charset=utf-8"),
        ("text/csv;q=0", "application/json"),
        ("text/csv;q=nan", "application/json"),
        ("nonsense;;;,,", "application/json"),
    ],
)
def test_accept_chooses_where_format_does_not(mixed: Client, accept: str, kind: str) -> None:
    query = "/api/query?q=fetch(%27t.int%27)"
    assert mixed.send("GET", query, headers={"Accept": accept}).headers["content-type"] == kind
    named = mixed.send("GET", query + "&format=json", headers={"Accept": accept})
    assert named.headers["content-type"] == "application/json"


def test_a_posted_format_and_an_unknown_one(mixed: Client) -> None:
    body = json.dumps({"q": "fetch('t.int')", "format": "csv"}).encode()
    posted = mixed.send("POST", "/api/query", body, {"Content-Type": "application/json"})
    assert posted.headers["content-type"].startswith("text/csv")
    bad = mixed.ask("fetch('t.int')", format="xml")
    assert bad.status == 400
    assert "json, csv, arrow" in bad.error
    number = mixed.send("POST", "/api/query", b'{"q": "a", "format": 5}', {"Content-Type": "application/json"})
    assert number.status == 400


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
def test_notes_stand_in_headers_that_they_cannot_break(mixed: Client, matrix: Matrix, form: str) -> None:
    answer = mixed.ask(ALL, format=form)
    assert json.loads(answer.headers["x-artimon-notes"]) == list(matrix.notes)
    assert answer.headers["x-artimon-partial"] == "true"
    assert answer.headers["x-artimon-complete"] == "true"


def test_many_notes_are_cut() -> None:
    notes = [f"note {i} " + "é" * 100 for i in range(100)]
    text = notes_text(notes)
    assert len(text) < 4_100
    kept = json.loads(text)
    assert kept[0] == notes[0]
    assert kept[-1] == f"and {100 - len(kept) + 1} more"


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
def test_gzip_for_who_takes_it(mixed: Client, form: str) -> None:
    path = f"/api/query?q=fetch(%27t.*%27).range(%2760m%27)&format={form}"
    plain = mixed.send("GET", path)
    packed = mixed.send("GET", path, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(packed.body) < len(plain.body)
    assert gzip.decompress(packed.body) == plain.body
    small = mixed.send("GET", "/api/health", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in small.headers


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
def test_an_answer_that_is_too_long_is_told_with_both_sizes(form: str) -> None:
    with served(mixed_store(), replace(ApiLimits(), answer_bytes=1_000)) as client:
        answer = client.ask("fetch('t.*').range('60m')", format=form)
        assert answer.status == 413
        for word in ("1000", "answer_bytes", "reduce"):
            assert word in answer.error
        assert client.get("/api/health").status == 200
