"""Functions of single values: types, exact integers, texts, the calendar, and wrong arguments."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.values import INT64_MAX, INT64_MIN, Value
from query_dsl import QueryError, evaluate, parse
from query_dsl.functions import points_casts, points_texts
from query_dsl.functions.points_calendar import PARTS, part_of
from query_dsl.functions.points_casts import read_double, read_integer
from query_dsl.functions.registry import PointContext
from query_dsl.functions.tables import POINTS
from query_dsl.results.result_cells import DOUBLE, INTEGER, STRING, Cells, Ints, doubles, of_type
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import PlainStore

NAN, INF = math.nan, math.inf
BIG = 2**53 + 1


def asked(call: str, *row: Value | None) -> tuple[str, list[Any]]:
    """Type and values of `fetch('x').call` over a row, a bucket of 10 ms each."""
    samples = [(10 * (i + 1), v) for i, v in enumerate(row) if v is not None]
    store = PlainStore(level_table=((10, 100),)).add("x", {}, samples)
    end = 10 * len(row)
    matrix = evaluate(parse(f"fetch('x'){call}.between(0, {end})"), store, end + SETTLE_MS)
    return matrix.to_dict()["series"][0]["type"], list(matrix.tolist(0))


@pytest.mark.parametrize("name", ["abs", "round", "ceil", "floor"])
def test_whole_numbers_stay_whole(name: str) -> None:
    assert asked(f".{name}()", BIG, None, 7) == ("INTEGER", [BIG, None, 7])
    assert asked(f".{name}()", True, None, False) == ("INTEGER", [1, None, 0])


@pytest.mark.parametrize(
    ("call", "given", "expect"),
    [
        (".round(1)", 0.25, 0.2),
        (".round(1)", 0.35, 0.3),  # is 0.34999999999999997
        (".round(2)", 2.675, 2.67),
        (".round(2)", -1.005, -1.0),
        (".round(-1)", 25.0, 20.0),
        (".round(-1)", 35.0, 40.0),
        (".round(15)", 10.3, 10.3),
        (".round(15)", 1e300, 1e300),
        (".round(-18)", 4e17, 0.0),
        (".round(2)", INF, INF),
        (".clamp(-1, 1)", 3.0, 1.0),
        (".clamp(-1, 1)", -INF, -1.0),
        (".clamp(0.5, 0.5)", 9.0, 0.5),
        (".sqrt()", 2.25, 1.5),
        (".exp()", 1000.0, INF),
        (".log()", 1.0, 0.0),
        (".log()", 0.0, -INF),
        (".log(base=2)", 8.0, 3.0),
        (".log(base=10)", 1000.0, 3.0),
        (".log(base=0.5)", 8.0, -3.0),
        (".pow(0.5)", 9.0, 3.0),
        (".pow(-1)", 0.0, INF),
        (".mod(3)", 7.0, 1.0),
        (".mod(3)", -7.0, 2.0),
        (".mod(-3)", 7.0, -2.0),
        (".mod(0.1)", 0.3, 0.3 % 0.1),
    ],
)
def test_doubles(call: str, given: float, expect: float) -> None:
    assert asked(call, given, None) == ("DOUBLE", [expect, None])


@pytest.mark.parametrize("call", [".sqrt()", ".log()", ".pow(0.5)", ".clamp(0, 1)", ".mod(3)", ".round(2)", ".exp()"])
def test_nan_stays(call: str) -> None:
    kind, row = asked(call, NAN, -1.0)
    assert kind == "DOUBLE"
    assert math.isnan(row[0])


@pytest.mark.parametrize("call", [".sqrt()", ".log(base=3)", ".pow(0.5)"])
def test_results_that_are_not_real_are_nan(call: str) -> None:
    assert math.isnan(asked(call, -1.0)[1][0])


def test_mod_by_nothing_is_nan() -> None:
    assert math.isnan(asked(".mod(0)", 5.0)[1][0])


def test_tens_of_whole_numbers() -> None:
    assert asked(".round(-1)", 25, 35, -25, -35, BIG) == ("INTEGER", [20, 40, -20, -40, BIG - 3])
    assert asked(".round(-18)", INT64_MAX, INT64_MIN, 4 * 10**17) == ("INTEGER", [9 * 10**18, -9 * 10**18, 0])
    assert asked(".round(-1)", INT64_MAX, 5, 15) == ("INTEGER", [None, 0, 20])


@given(st.lists(st.integers(INT64_MIN, INT64_MAX), min_size=1), st.integers(-18, 0))
@settings(max_examples=50, deadline=None)
def test_whole_numbers_round_as_python_does(values: list[int], digits: int) -> None:
    column = of_type(INTEGER, np.array([values], np.int64), np.ones((1, len(values)), np.bool_))
    out = POINTS["round"].run(column, {"digits": digits}, PointContext(np.zeros(1, np.int64), []))
    expect = [round(v, digits) for v in values]
    assert out.present[0].tolist() == [INT64_MIN <= v <= INT64_MAX for v in expect]
    assert [v for v, p in zip(out.cells[0].tolist(), out.present[0], strict=True) if p] == [
        v for v in expect if INT64_MIN <= v <= INT64_MAX
    ]


@given(st.lists(st.floats() | st.decimals(-1000, 1000, places=3).map(float), min_size=1), st.integers(-18, 15))
@settings(max_examples=200, deadline=None)
def test_doubles_round_as_python_does(values: list[float], digits: int) -> None:
    column = doubles(np.array([values]), np.ones((1, len(values)), np.bool_))
    out = POINTS["round"].run(column, {"digits": digits}, PointContext(np.zeros(1, np.int64), []))
    expect = [round(v, digits) if math.isfinite(v) else v for v in values]
    got = out.cells.view(np.float64)[0].tolist()
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(got, expect, strict=True)), (got, expect)


def test_finite() -> None:
    assert asked(".finite()", 1.5, NAN, INF, -INF, None) == ("DOUBLE", [1.5, None, None, None, None])
    assert asked(".finite()", BIG, None) == ("INTEGER", [BIG, None])
    assert asked(".finite()", True) == ("BOOLEAN", [True])


def test_to_integer() -> None:
    row = (-1.9, 1.9, NAN, INF, 2.0**63, -(2.0**63), None)
    assert asked(".to_integer()", *row) == ("INTEGER", [-1, 1, None, None, None, INT64_MIN, None])
    assert asked(".to_integer()", BIG) == ("INTEGER", [BIG])
    assert asked(".to_integer()", True, False) == ("INTEGER", [1, 0])
    texts = ("42", "-7.9", "1e3", "x", "", " 1", "1_0", str(BIG), str(2**63), "NaN", "٣")
    assert asked(".to_integer()", *texts)[1] == [42, -7, 1000, None, None, None, None, BIG, None, None, None]


def test_to_double() -> None:
    assert asked(".to_double()", BIG, 1) == ("DOUBLE", [2.0**53, 1.0])
    assert asked(".to_double()", True, None) == ("DOUBLE", [1.0, None])
    kind, row = asked(".to_double()", "1.5", "-.5e1", "1.", "inf", "one", "", "NaN", "0x10")
    assert kind == "DOUBLE"
    assert row[:6] == [1.5, -5.0, 1.0, INF, None, None]
    assert math.isnan(row[6])
    assert row[7] is None


def test_to_boolean() -> None:
    assert asked(".to_boolean()", 0.0, -0.0, 0.1, NAN, None) == ("BOOLEAN", [False, False, True, True, None])
    assert asked(".to_boolean()", 0, BIG) == ("BOOLEAN", [False, True])
    assert asked(".to_boolean()", "true", "false", "True", "1") == ("BOOLEAN", [True, False, None, None])


def test_to_string() -> None:
    assert asked(".to_string()", BIG, -1) == ("STRING", [str(BIG), "-1"])
    assert asked(".to_string()", 1.0, 0.1, 1e16, NAN, -INF, None) == (
        "STRING",
        ["1.0", "0.1", "1e+16", "nan", "-inf", None],
    )
    assert asked(".to_string()", True, False) == ("STRING", ["true", "false"])
    assert asked(".to_string()", "a", None) == ("STRING", ["a", None])
    assert asked(".to_string() == '7'", 7, 8)[1] == [True, False]


@given(st.integers(INT64_MIN, INT64_MAX))
@settings(max_examples=50, deadline=None)
def test_texts_of_integers_are_read_back(value: int) -> None:
    assert read_integer(str(value)) == value


@given(st.floats(allow_nan=False))
@settings(max_examples=50, deadline=None)
def test_texts_of_doubles_are_read_back(value: float) -> None:
    assert read_double(repr(value)) == value


@given(st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_missing(text: str) -> None:
    number, value = read_integer(text), read_double(text)
    assert number is None or value is not None
    assert number is None or abs(number - int(value or 0)) <= abs(number) / 2**52


def test_a_long_number_is_no_number() -> None:
    assert read_integer("9" * 1_001) is None
    assert read_double("9" * 1_001) is None
    assert read_integer("9" * 1_000) is None
    assert read_double("9" * 1_000) == INF


def test_match() -> None:
    assert asked(".match('2[.]\\\\d+')", "2.1", "2.10", "12.1", "2.1 ", None) == (
        "BOOLEAN",
        [True, True, False, False, None],
    )
    assert asked(".match('')", "", "a")[1] == [True, False]


def test_replace() -> None:
    assert asked(".replace('(\\\\w)(\\\\d)', '\\\\2\\\\1')", "a1b2", "ä1", None) == ("STRING", ["1a2b", "ä1", None])
    assert asked(".replace('b*', '-')", "ab")[1] == ["-a--"]
    assert asked(".replace('(a)|(b)', '<\\\\2>')", "ab")[1] == ["<><b>"]
    assert asked(".replace('a', '\\\\\\\\\\\\0')", "a")[1] == ["\\a"]


def test_equal_texts_are_one_cell() -> None:
    """Equal texts share one cell, so they compare as cells."""
    store = PlainStore(level_table=((10, 100),)).add("x", {}, [(10, "a-1"), (20, "a-2"), (30, "b")])
    text = "fetch('x').replace('-.*', '').map('changes', '20ms').between(0, 30)"
    assert evaluate(parse(text), store, 30 + SETTLE_MS).tolist(0) == [0, 0, 1]
    matrix = evaluate(parse("fetch('x').replace('-.*', '').between(0, 30)"), store, 30 + SETTLE_MS)
    assert len(set(matrix.strings)) == len(matrix.strings)


def test_texts_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points_casts, "MAX_TEXTS", 2)
    assert asked(".to_string()", 1, 1, 2)[1] == ["1", "1", "2"]
    with pytest.raises(QueryError, match="more than 2 texts"):
        asked(".to_string()", 1, 2, 3)
    monkeypatch.setattr(points_texts, "MAX_TEXT", 10)
    with pytest.raises(QueryError, match="a text of 11 characters"):
        asked(".replace('', 'aa')", "bbb")


def at(*moments: datetime) -> Ints:
    return np.array([int(m.timestamp() * 1000) for m in moments], np.int64)


@pytest.mark.parametrize(
    ("part", "expect"),
    [("year", 2024), ("month", 2), ("day", 29), ("weekday", 4), ("yearday", 60), ("hour", 23), ("minute", 30)],
)
def test_calendar(part: str, expect: int) -> None:
    assert part_of(part, "UTC", at(datetime(2024, 2, 29, 23, 30, 59, tzinfo=UTC)))[0].tolist() == [expect]


def test_calendar_of_zones() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    before, after = datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert part_of("hour", "Europe/Berlin", at(before, after))[0].tolist() == [2, 2]  # the clock goes back
    assert part_of("day", "Pacific/Kiritimati", at(datetime(2026, 1, 1, 10, tzinfo=UTC)))[0].tolist() == [2]
    assert part_of("minute", "Asia/Kathmandu", at(before))[0].tolist() == [15]
    assert part_of("weekday", "Europe/Berlin", at(datetime(2026, 11, 22, tzinfo=berlin)))[0].tolist() == [7]


def test_calendar_outside_of_the_years() -> None:
    found, known = part_of("year", "UTC", np.array([INT64_MIN, 0, INT64_MAX], np.int64))
    assert known.tolist() == [False, True, False]
    assert found.tolist()[1] == 1970


@pytest.mark.parametrize("part", PARTS)
def test_calendar_of_any_type(part: str) -> None:
    for value in ("text", 1, 1.5, True, NAN):
        kind, row = asked(f".calendar('{part}')", value, None)
        assert kind == "INTEGER"
        assert row[0] is not None
        assert row[1] is None


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (".clamp(2, 1)", "clamp: low=2 is not at most high=1"),
        (".clamp(1)", "high"),
        (".log(base=0)", "base=0: use a number that is more than 0"),
        (".log(base=1)", "base must be finite"),
        (".round(1.5)", "digits takes a whole number"),
        (".round(16)", "at most 15"),
        (".calendar('hours')", "hour"),
        (".calendar('hour', zone='Europe/Berln')", "Europe/Berlin"),
        (".match('(')", "not valid RE2"),
        (".match('a', 'b')", "too many arguments"),
        (".replace('a', '\\\\1')", "the pattern has 0 groups"),
        (".replace('(a)', '\\\\q')", "write"),
        (".replace('(a)', '\\\\')", "write"),
        (".pow()", "exponent"),
        (".mod('3')", "divisor takes a number"),
    ],
)
def test_wrong_arguments_are_named(call: str, problem: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(f"fetch('x'){call}")
    assert problem in str(caught.value)


@pytest.mark.parametrize("call", [".match('a')", ".replace('a', 'b')"])
def test_texts_only(call: str) -> None:
    store = PlainStore(level_table=((10, 100),)).add("x", {"i": "1"}, [(10, 1)]).add("x", {"i": "2"}, [(10, "a")])
    matrix = evaluate(parse(f"fetch('x'){call}.at(10)"), store, 10 + SETTLE_MS)
    assert matrix.series == ['x{i="2"}']
    assert any("left out" in note for note in matrix.notes)
    with pytest.raises(QueryError, match="STRING"):
        asked(call, 1)


def test_masked_cells_may_hold_anything() -> None:
    """A cell that is not present has no meaning, and breaks nothing."""
    absent = np.zeros((1, 2), np.bool_)
    for name, args in (("to_string", {}), ("to_integer", {}), ("match", {"pattern": "a"})):
        for kind in (STRING,) if name == "match" else (STRING, DOUBLE, INTEGER):
            column = Cells(np.array([kind], np.uint8), np.full((1, 2), 99, np.int64), absent)
            out = POINTS[name].run(column, args, PointContext(np.zeros(2, np.int64), []))
            assert not out.present.any()
