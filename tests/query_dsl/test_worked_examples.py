"""The worked examples of the semantics reference, E1 to E21, each through text, tree and evaluator over an offline
store; by raw samples where the example is about single points. Ticks are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from query_dsl import QueryError, offline
from tests.query_dsl.plain_store import by_series

Points = Sequence[tuple[int, Any]]
NAN = float("nan")
NA = None


def of(series: Mapping[str, Points], text: str, end: int, step: str = "10ms", start: int = 0) -> dict[str, list[Any]]:
    store = offline({name: list(points) for name, points in series.items()}, step=step)
    found = store.query(f"({text}).between({start}, {end})", at=end + 15_030)  # windows of `after` are settled, too
    return by_series(found)


def ticks(values: Sequence[Any], by: int = 10, first: int | None = None) -> list[tuple[int, Any]]:
    """Values at `first` and every `by` after it."""
    begin = by if first is None else first
    return [(begin + i * by, v) for i, v in enumerate(values)]


DOWN = [(t, 10 - i) for i, t in enumerate([*range(100, 600, 100), *range(700, 1200, 100)])]


@pytest.mark.parametrize(
    ("start", "step", "rows"),
    [
        pytest.param(95, 201, [10, 8, 6, 5, 3], id="E1"),
        pytest.param(100, 200, [9, 7, 5, 4, 2], id="E1 by 200"),
    ],
)
def test_bucketize_cuts_left_open_buckets(start: int, step: int, rows: list[int]) -> None:
    for source in ("fetch", "samples"):
        text = f"{source}('x').bucketize(max, '{step}ms')"
        store = offline({"x": DOWN}, step="1ms")
        found = store.query(f"{text}.between({start}, 1100)", at=1100 + 15_000)
        assert found.times == [1100 - step * i for i in reversed(range(5))]
        assert found.tolist(0) == rows


def case(*args: Any, id: str) -> Any:
    return pytest.param(*args, id=id)


TWO = {"A": ticks([5, 120]), "B": ticks([8, 42])}
BOTH = "fetch('{__name__=~\"A|B\"}')"
E3 = {"x": ticks([2, 8, 11, 20])}
E5 = {"x": ticks([42, 123, 342, 423])}
E9 = {"x": ticks([10] * 9, by=1)}
E11 = {'x{i="1"}': ticks([1] * 6), 'x{i="2"}': ticks([5] * 3), 'x{i="3"}': ticks([10] * 3)}
E12 = {
    'x{i="1",label0="1"}': ticks([1] * 6),
    'x{i="2",label0="1"}': ticks([5, 5]),
    'x{i="3",label0="1"}': ticks([10, 10], first=30),
    'x{i="4",label0="1"}': [(60, 20)],
}
E13 = {
    'a{label0="42"}': [(10, 46.5), (20, 23.0), (30, 42.0)],
    'b{label0="42"}': [(10, -4.5), (15, 2.0), (20, 19.0)],
    'a{label0="53"}': [(10, -42.0), (20, 42.0)],
    'b{label0="53"}': [(10, 0.0), (20, 0.0)],
}
E16 = {'GTS1{label0="42"}': ticks([42, 123]), 'GTS2{label0="43"}': ticks([211, 42])}
GTS = "fetch('{__name__=~\"GTS.\"}')"
THIRD = 16 / 3
E15 = "fetch('a') {} fetch('b')"

CASES = [
    case(
        {"x": [(t, i) for t, n in zip(range(100, 900, 100), [2, 2, 2, 2, 2, 1, 1, 3], strict=True) for i in range(n)]},
        "fetch('x').map(count, '100ms')", 800, {"x": [2, 2, 2, 2, 2, 1, 1, 3]}, id="E2",
    ),
    case(E3, "fetch('x').map(mean, '30ms')", 40, {"x": [2, 5, 7, 13]}, id="E3 mean"),
    case(E3, "fetch('x').map(median, '30ms')", 40, {"x": [2, 5, 8, 11]}, id="E3 median"),
    case(E3, "fetch('x').map(mean, '30ms', min_count=3)", 40, {"x": [NA, NA, 7, 13]}, id="E3 min_count"),
    case(E3, "fetch('x').map(mean, '20ms')", 40, {"x": [2, 5, 9.5, 15.5]}, id="E3 window 20"),
    case({"x": ticks([42, 123, 211, 132])}, "fetch('x').map(max, '10ms', after='20ms')", 40,
         {"x": [211, 211, 211, 132]}, id="E4"),
    case(E5, "fetch('x').map(last, '10ms', after='10ms')", 40, {"x": [123, 342, 423, 423]}, id="E5 last"),
    case(E5, "fetch('x').map(first, '60ms')", 40, {"x": [42, 42, 42, 42]}, id="E5 first of 60"),
    case(E5, "fetch('x').map(first, '30ms')", 40, {"x": [42, 42, 42, 123]}, id="E5 first of 30"),
    case(TWO, BOTH + ".delta('60ms')", 20, {"A": [NA, 115], "B": [NA, 34]}, id="E6"),
    case(TWO, BOTH + ".map(sd, '20ms', after='10ms')", 20,
         {"A": [81.31727983645297] * 2, "B": [24.041630560342615] * 2}, id="E7 sd"),
    case(TWO, BOTH + ".map(var, '20ms', after='10ms')", 20, {"A": [6612.5] * 2, "B": [578] * 2}, id="E7 var"),
    case(TWO, "fetch('A').map(sd, '20ms', after='10ms', ddof=0)", 20, {"A": [57.5] * 2}, id="E7 ddof 0, sd"),
    case(TWO, "fetch('A').map(var, '20ms', after='10ms', ddof=0)", 20, {"A": [3306.25] * 2}, id="E7 ddof 0, var"),
    case(TWO, BOTH + ".map(sd, '60ms')", 20,
         {"A": [NA, 81.31727983645297], "B": [NA, 24.041630560342615]}, id="E7 trailing"),
    case({"x": ticks([5.0, NAN, 5.0, 5.0])}, "fetch('x').map(count, '30ms')", 40, {"x": [1, 2, 3, 3]}, id="E8 NaN"),
    case({"x": [(10, 5.0), (30, 5.0), (40, 5.0)]}, "fetch('x').map(count, '30ms')", 40, {"x": [1, 1, 2, 2]},
         id="E8 NA"),
    case(E9, "fetch('x').map(sum, '3ms', after='2ms')", 9, {"x": [30, 40, 50, 50, 50, 50, 50, 40, 30]}, id="E9"),
    case(E9, "fetch('x').map(sum, '3ms', after='2ms').where(fetch('x').map(count, '3ms', after='2ms') < 5)", 9,
         {"x": [30, 40, *[NA] * 5, 40, 30]}, id="E9 windows of 3-4 points"),
    case(E9, "fetch('x').map(sum, '3ms', after='2ms', min_count=5)", 9,
         {"x": [NA, NA, *[50] * 5, NA, NA]}, id="E9 min_count"),
    case(E9, "fetch('x').map(sum, '3ms', min_count=3)", 9, {"x": [NA, NA, *[30] * 7]}, id="E9 trailing"),
    case({"x": ticks([42, 123, 211, 132])}, "fetch('x').map(max, '150s').range('30ms')", 40,
         {"x": [123, 211, 211]}, id="E10"),
    case(E11, "fetch('x').mean(by=[])", 60, {"{}": [THIRD] * 3 + [1] * 3}, id="E11 skip"),
    case(E11, "fetch('x').mean(by=[], nulls='propagate')", 60, {"{}": [THIRD] * 3 + [NA] * 3}, id="E11 propagate"),
    case(E11, "fetch('x').mean(by=[], min_count=3)", 60, {"{}": [THIRD] * 3 + [NA] * 3}, id="E11 min_count"),
    case(E12, "fetch('x').mean(by=[])", 60, {"{}": [3, 3, 5.5, 5.5, 1, 10.5]}, id="E12 by nothing"),
    case(E12, "fetch('x').mean(by=['label0'])", 60, {'{label0="1"}': [3, 3, 5.5, 5.5, 1, 10.5]}, id="E12 by a label"),
    case({"a": ticks([46.5, 23.0]), "b": ticks([4.5, -19.0])}, E15.format("-"), 20, {"{}": [42, 42]}, id="E14 minus"),
    case({"a": ticks([21, 14]), "b": ticks([2, 3])}, E15.format("*"), 20, {"{}": [42, 42]}, id="E14 times"),
    case({"a": ticks([2, 0.5]), "b": ticks([21.1, 84.1])}, E15.format("*"), 20, {"{}": [42.2, 42.05]},
         id="E14 fractions"),
    case({"a": ticks([126, 84]), "b": ticks([3, 2])}, E15.format("/"), 20, {"{}": [42, 42]}, id="E14 by"),
    case({"a": ticks([14, 21]), "b": ticks([0.33, 0.5])}, E15.format("/"), 20, {"{}": [42.42424242424242, 42]},
         id="E14 by fractions"),
    case({"a": ticks([46, 5]), "b": ticks([2, 42])}, E15.format("<"), 20, {"{}": [False, True]}, id="E15 less"),
    case({"a": ticks([46, 5]), "b": ticks([46, 42])}, E15.format(">="), 20, {"{}": [True, False]}, id="E15 at least"),
    case({"a": ticks([46.5, 5.0]), "b": ticks([46, 42])}, E15.format("!="), 20, {"{}": [True, True]}, id="E15 unlike"),
    case({"a": ticks([46.5, 5.0]), "b": ticks([46, 5])}, E15.format("!="), 20, {"{}": [True, False]},
         id="E15 5.0 is 5"),
    case({"a": ticks([False, True]), "b": ticks([True, True])}, E15.format("&"), 20, {"{}": [False, True]},
         id="E15 and"),
]  # fmt: skip


@pytest.mark.parametrize(("series", "text", "end", "rows"), CASES)
def test_rows_of_the_answer_are_those_of_the_example(
    series: Mapping[str, Points], text: str, end: int, rows: dict[str, list[Any]]
) -> None:
    step = {800: "100ms", 9: "1ms"}.get(end, "10ms")
    if ".range(" in text:
        found = offline(dict(series), step=step).query(text, at=end + 15_000)
        got = by_series(found)
    else:
        got = of(series, text, end, step)
    assert list(got) == list(rows)
    for name, values in rows.items():
        assert [v is None for v in got[name]] == [v is None for v in values]
        assert [v for v in got[name] if v is not None] == pytest.approx([v for v in values if v is not None], rel=1e-15)


def test_e13() -> None:
    """Only ticks where both have a value; without a partner left out, or an error on request."""
    text = "apply(add, fetch('a'), fetch('b'), on=['label0'])"
    assert of(E13, text, 30, "5ms", 5) == {
        '{label0="42"}': [42, NA, 42, NA, NA],
        '{label0="53"}': [-42, NA, 42, NA, NA],
    }
    lonely = {**E13, 'b{label0="4253"}': [(10, 1.0)]}
    with pytest.raises(QueryError, match=r"no partner.*4253"):
        of(lonely, text.replace("on=['label0']", "on=['label0'], unmatched='error'"), 30, "5ms", 5)
    dropped = of(lonely, text, 30, "5ms", 5)
    assert list(dropped) == ['{label0="42"}', '{label0="53"}']


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("'{__name__=~\"GTS1\"}'", "GTS1"),
        ("'{label0=\"42\"}'", "GTS1"),
        ("'last', '==', 123", "GTS1"),
        ("'last', '>=', 100", "GTS1"),
        ("'last', '>', 100", "GTS1"),
        ("'last', '<=', 100", "GTS2"),
        ("'last', '<', 100", "GTS2"),
        ("'last', '!=', 123", "GTS2"),
    ],
    ids=lambda value: f"E16 {value}" if value.startswith("'") else "",
)
def test_a_condition_on_the_last_value_filters_series(condition: str, kept: str) -> None:
    assert [name[:4] for name in of(E16, f"{GTS}.filter({condition})", 20)] == [kept]


def irregular(series: Mapping[str, Points], text: str, until: int) -> dict[str, list[tuple[int, Any]]]:
    found = offline({name: list(points) for name, points in series.items()}, step="1ms")
    answer: Any = found.query(f"{text}.between(0, {until})", at=until + 15_000)
    return {name: answer.tolist(i) for i, name in enumerate(answer.series)}


SECONDS = [((i + 1) * 1_000, v) for i, v in enumerate([1, 1, 1, 2, 2, 2, 3, 4, 4, 4])]
LATER = [(t, i) for i, t in enumerate([*range(100, 600, 100), *range(1_100, 1_600, 100)])]


def test_e10_without_bound() -> None:
    """A window longer than any history; its start saturates."""
    ticking = {"x": ticks([42, 123, 211, 132])}
    found = irregular(ticking, "samples('x').map(max, '14000000w').clip(10, 40)", 40)
    assert found["x"] == [(20, 123), (30, 211), (40, 211)]


def test_compact_drops_repeated_values() -> None:
    compact = irregular({"x": SECONDS}, "samples('x').compact()", 10_000)
    assert compact["x"] == [(1_000, 1), (4_000, 2), (7_000, 3), (8_000, 4), (10_000, 4)]
    ranges = irregular({"x": SECONDS}, "samples('x').compact(ranges=True)", 10_000)
    assert [t // 1_000 for t, _ in ranges["x"]] == [1, 3, 4, 6, 7, 8, 10]


def test_integrate_is_the_left_rectangle_sum() -> None:
    ones = [(i * 1_000, 1.0) for i in range(1, 11)]
    assert [v for _, v in irregular({"x": ones}, "samples('x').integrate()", 10_000)["x"]] == list(range(10))
    assert of({"x": ones}, "fetch('x').integrate()", 10_000, "1s") == {"x": list(range(10))}


def test_shift_split_and_modulo_move_ticks() -> None:
    shifted = irregular({"x": LATER}, "samples('x').transform('shift', '1s')", 3_000)
    assert [t for t, _ in shifted["x"]] == [*range(1_100, 1_600, 100), *range(2_100, 2_600, 100)]
    parts = irregular({"x": LATER}, "samples('x').split('250ms')", 3_000)
    assert [len(points) for points in parts.values()] == [5, 5]
    modulo = irregular({"x": LATER}, "samples('x').modulo('1s')", 3_000)
    assert list(modulo) == ['x{quotient="0"}', 'x{quotient="1"}']
    assert [[t for t, _ in points] for points in modulo.values()] == [[100, 200, 300, 400, 500]] * 2


def test_dedup_and_merge_keep_each_point_once() -> None:
    twice = [(100, 1), (100, 1), (200, 2), (200, 2), (300, 3), (400, 4), (500, 5)]
    assert len(irregular({"x": twice}, "samples('x').dedup()", 500)["x"]) == 5
    five, more = LATER[:5], LATER[5:]
    merged = irregular(
        {'x{p="1"}': five, 'x{p="2"}': more}, "samples('x').transform('relabel', 'p', '').merge()", 3_000
    )
    assert merged == {"x": LATER}


def test_value_split_and_mode_group_by_value() -> None:
    letters = [(i + 1, v) for i, v in enumerate("aaaabbbbcc")]
    found = irregular({"x": letters}, "samples('x').value_split()", 10)
    assert {name: len(points) for name, points in found.items()} == {
        'x{value="a"}': 4, 'x{value="b"}': 4, 'x{value="c"}': 2,
    }  # fmt: skip
    for divisor, modes in ((98, {1, 2}), (2, {0, 1})):
        values = [(k, k % divisor) for k in range(1, 101)]
        assert {v for _, v in irregular({"x": values}, "samples('x').transform('mode')", 100)["x"]} == modes
