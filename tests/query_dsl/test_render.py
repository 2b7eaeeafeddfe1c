"""Tables: NA is not NaN, lines fit the terminal, and labels cannot inject anything."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from query_dsl import Matrix, evaluate, parse, render_table
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import PlainStore

EVIL = '"><script>alert(1)</script>\x1b[2J'


def typed_store() -> PlainStore:
    filled = PlainStore(level_table=((10, 100),))
    filled.add("v", {"host": "a" * 30, "t": "int"}, [(10, 1), (20, 2), (60, 3)])
    filled.add("v", {"t": "float"}, [(10, math.nan), (20, math.inf), (30, 1.5), (60, math.nan)])
    filled.add("v", {"t": "bool"}, [(10, True), (20, False)])
    return filled.add("v", {"t": "日本"}, [(50, "é"), (60, "up")])


def asked(filled: PlainStore, end: int = 60) -> Matrix:
    return evaluate(parse(f"fetch('v').between(0, {end})"), filled, end + SETTLE_MS)


def cells(matrix: Matrix, width: int) -> int:
    import unicodedata

    lines = render_table(matrix, sparks=True, width=width).split("\n")
    return max(sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) for line in lines)


@pytest.mark.parametrize("width", [200, 120, 100, 80, 60, 40, 30])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    matrix = asked(typed_store()).with_notes(("a note that is rather long and " * 5,), True, False)
    assert cells(matrix, width) <= width
    assert render_table(matrix, width=width).count("rather long") > 0


def test_narrow_tables_drop_columns_before_labels() -> None:
    matrix = asked(typed_store())
    wide = render_table(matrix, sparks=True, width=200)
    assert f'v{{host="{"a" * 30}",t="int"}}' in wide
    assert "00:00:00.010" in wide
    narrow = render_table(matrix, sparks=True, width=70)
    assert f'v{{host="{"a" * 30}",t="int"}}' in narrow
    assert "00:00:00.010" not in narrow
    assert "last 1 shown" in narrow
    smallest = render_table(matrix, sparks=True, width=30)
    assert "…" in smallest
    assert "NaN" in smallest


def test_na_nan_and_text_are_told_apart() -> None:
    lines = render_table(asked(typed_store())).splitlines()
    shown = {line.split("  ")[0]: line.split()[1:] for line in lines[2:]}
    assert shown['v{t="float"}'] == ["NaN", "inf", "1.5", "NA", "NA", "NaN"]
    assert shown['v{t="bool"}'] == ["true", "false", "NA", "NA", "NA", "NA"]
    assert shown['v{t="日本"}'][-2:] == ['"é"', '"up"']


def test_ascii_is_ascii() -> None:
    for width in (None, 100, 40):
        assert render_table(asked(typed_store()), sparks=True, ascii_only=True, width=width).isascii()


def test_columns_stand_under_each_other() -> None:
    import unicodedata

    lines = render_table(asked(typed_store()), sparks=True).split("\n")[1:]
    widths = {sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) for line in lines}
    assert len(widths) == 1


def test_html_has_charts_and_no_scripts() -> None:
    filled = typed_store()
    filled.add("v", {"x": EVIL}, [(10, 1), (20, EVIL and 2)])
    page = asked(filled)._repr_html_()
    assert page.count("<svg") == 4  # not of the texts
    assert "<script" not in page
    assert "\x1b" not in page
    tree = ElementTree.fromstring(page)
    assert {child.tag for child in tree.iter()} == {
        *("div", "p", "table", "thead", "tbody", "tr", "th", "td", "svg", "title", "polyline", "circle")
    }
    assert not [name for child in tree.iter() for name in child.attrib if name.startswith("on")]


def test_html_of_many_series_is_bounded() -> None:
    filled = PlainStore(level_table=((10, 100),))
    for i in range(100):
        filled.add("v", {"i": str(i)}, [(10, i), (20, 2 * i)])
    page = asked(filled, 20)._repr_html_()
    assert page.count("<svg") == 40
    assert "and 60 more series" in page


def test_one_bucket_has_no_chart() -> None:
    matrix = evaluate(parse("fetch('v').at(60)"), typed_store(), 60 + SETTLE_MS)
    assert "<svg" not in matrix._repr_html_()
    assert "▁" not in repr(matrix)


def test_arrow_keeps_types_na_and_nan() -> None:
    table = asked(typed_store()).to_arrow()
    assert [str(field.type) for field in table.schema] == [
        *("timestamp[ms, tz=UTC]", "int64", "bool", "double", "string")
    ]
    named = {field.name: table.column(i).to_pylist() for i, field in enumerate(table.schema)}
    assert named['v{t="bool"}'] == [True, False, None, None, None, None]
    floats = named['v{t="float"}']
    assert [v is None for v in floats] == [False, False, False, True, True, False]
    assert math.isnan(floats[0])
    assert named['v{t="日本"}'] == [None, None, None, None, "é", "up"]
    assert table.column("time").cast(pa.int64()).to_pylist() == [10, 20, 30, 40, 50, 60]


def test_polars_has_the_same() -> None:
    frame = asked(typed_store()).to_polars()
    assert frame.shape == (6, 5)
    assert frame['v{t="bool"}'].null_count() == 4
    assert frame['v{t="float"}'].is_nan().sum() == 2


def test_a_series_called_time_takes_nothing_away() -> None:
    filled = PlainStore(level_table=((10, 100),)).add("time", {}, [(10, 7)])
    matrix = evaluate(parse("fetch('time').at(10)"), filled, 10 + SETTLE_MS)
    assert matrix.to_arrow().column("time").to_pylist() == [7]
    assert matrix.to_polars().columns == ["__time__", "time"]


def test_an_empty_matrix_has_every_form() -> None:
    filled = typed_store()
    matrix = evaluate(parse("fetch('v').filter('last', '>', 100).between(0, 60)"), filled, 60 + SETTLE_MS)
    assert len(matrix) == 0
    assert matrix.to_arrow().shape == (6, 1)
    assert "<table" not in matrix._repr_html_()
    assert repr(matrix).startswith("0 series")
