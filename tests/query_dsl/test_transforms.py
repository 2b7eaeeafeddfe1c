"""Transforms on a grid: down-sampling, integrals and labels against plain loops, orders, limits, errors."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_dsl import Matrix, QueryError, evaluate, parse
from query_dsl.functions.transforms import integral
from query_dsl.functions.transforms_downsample import largest_triangles, stretch_extremes
from query_dsl.functions.transforms_labels import make_replacer, set_label
from query_dsl.results.result_cells import DOUBLE, INTEGER, Cells, SeriesKey
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import MINUTE, PlainStore

Row = list[float | None]
NUMBERS = st.none() | st.integers(-50, 50).map(float)
WILD = NUMBERS | st.sampled_from([math.nan, math.inf, -math.inf])
ROW = st.lists(NUMBERS, min_size=1, max_size=30)


def arrays(rows: list[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    width = max(len(row) for row in rows)
    padded = [[*row, *[None] * (width - len(row))] for row in rows]
    present = np.array([[v is not None for v in row] for row in padded], np.bool_)
    values = np.array([[0.0 if v is None else v for v in row] for row in padded], np.float64)
    return values, present, np.arange(1, width + 1, dtype=np.int64) * MINUTE


def plain_lttb(row: Row, n: int) -> list[int]:
    """The columns that are kept, by the description of the method, one point after another."""
    at = [i for i, v in enumerate(row) if v is not None]
    if len(at) <= n:
        return at
    points = [(float(i), float(row[i] or 0.0)) for i in at]
    kept, inner = [0], len(points) - 2

    def stretch(number: int) -> list[tuple[float, float]]:
        if number >= n - 2:
            return points[-1:]
        return points[1 + number * inner // (n - 2) : 1 + (number + 1) * inner // (n - 2)]

    for number in range(n - 2):
        begin = 1 + number * inner // (n - 2)
        after = stretch(number + 1)
        mean = (sum(x for x, _ in after) / len(after), sum(y for _, y in after) / len(after))
        old = points[kept[-1]]
        areas = [abs((old[0] - mean[0]) * (y - old[1]) - (old[0] - x) * (mean[1] - old[1])) for x, y in stretch(number)]
        kept.append(begin + areas.index(max(areas)))
    return [at[i] for i in [*kept, len(points) - 1]]


@given(st.lists(ROW, min_size=1, max_size=4), st.integers(2, 12))
def test_lttb_is_the_method(rows: list[Row], n: int) -> None:
    values, present, times = arrays(rows)
    keep = largest_triangles(values, present, times, n)
    for i, row in enumerate(rows):
        assert np.flatnonzero(keep[i]).tolist() == plain_lttb(row, n)


@given(st.lists(st.lists(WILD, min_size=1, max_size=40), min_size=1, max_size=4), st.integers(2, 12))
def test_down_sampling_keeps_what_it_promises(rows: list[Row], n: int) -> None:
    """Of points that were there, at most n, all if there are no more; lttb the first and the last."""
    values, present, times = arrays(rows)
    column = Cells(np.full(len(rows), DOUBLE, np.uint8), values.view(np.int64), present)
    for keep in (largest_triangles(values, present, times, n), stretch_extremes(column, n)):
        assert not (keep & ~present).any()
        assert (keep.sum(axis=1) <= n).all()
        few = present.sum(axis=1) <= n
        assert (keep[few] == present[few]).all()
    keep = largest_triangles(values, present, times, n)
    for i in range(len(rows)):
        known = np.flatnonzero(present[i])
        if len(known):
            assert keep[i, known[[0, -1]]].all()


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40), st.integers(2, 12))
def test_minmax_keeps_the_extremes_exactly(row: list[int | None], n: int) -> None:
    cells = np.array([[v or 0 for v in row]], np.int64)
    present = np.array([[v is not None for v in row]])
    keep = stretch_extremes(Cells(np.array([INTEGER], np.uint8), cells, present), n)[0]
    known = [v for v in row if v is not None]
    if len(known) <= n:
        assert keep.tolist() == present[0].tolist()
        return
    expected = set()
    for stretch in range(n // 2):
        inside = [(v, i) for i, v in enumerate(row) if v is not None and i * (n // 2) // len(row) == stretch]
        if inside:
            expected.add(min(inside)[1])
            expected.add(min(inside, key=lambda one: (-one[0], one[1]))[1])
    assert set(np.flatnonzero(keep).tolist()) == expected


@given(st.lists(st.lists(WILD, min_size=1, max_size=30), min_size=1, max_size=4), st.sampled_from([0, 10, -2.5]))
def test_integrate(rows: list[Row], initial: float) -> None:
    values, present, times = arrays(rows)
    found = integral(values, present, times, initial)
    for i, row in enumerate(rows):
        total, before = float(initial), -1
        for at, value in enumerate(row):
            if value is None:
                continue
            if before >= 0:
                total += float(row[before] or 0.0) * ((at - before) * 60_000) / 1000.0
            before = at
            assert found[i, at] == total or (math.isnan(total) and math.isnan(found[i, at]))


@given(
    st.sampled_from(["(a+)(b*)", "(?P<x>a)(?P<y>b)?.*", "c", ""]),
    st.sampled_from(["$1", "${1}-$2", "$x$y", "${x}!", "$$1", "$9", "$", "a$", "$1x", "${", "$-1"]),
    st.text("abc", max_size=4),
)
def test_replacing_by_groups(pattern: str, replacement: str, value: str) -> None:
    """As Python's own regular expressions would have it, with the groups put in by hand."""
    found = re.fullmatch(pattern, value)
    names = [a or b for _, a, b in re.findall(r"\$(?:(\$)|(\w+)|\{(\w+)\})", replacement) if a or b]
    known = {str(i) for i in range(re.compile(pattern).groups + 1)} | set(re.compile(pattern).groupindex)
    if not known.issuperset(names):
        with pytest.raises(QueryError, match="has no group"):
            make_replacer(pattern, replacement)
        return
    if found is None:
        assert make_replacer(pattern, replacement)(value) is None
        return
    groups = {str(i + 1): g or "" for i, g in enumerate(found.groups())} | {
        k: v or "" for k, v in found.groupdict().items()
    }
    expect = replacement.replace("$$", "\0")
    expect = re.sub(r"\$\{(\w+)\}", lambda m: groups.get(m[1], ""), expect)
    expect = re.sub(r"\$(\w+)", lambda m: groups.get(m[1], ""), expect).replace("\0", "$")
    assert make_replacer(pattern, replacement)(value) == expect


def labelled_store(count: int = 3) -> PlainStore:
    made = PlainStore()
    for i in range(count):
        made.add("x", {"i": str(i), "h": f"h{i % 2}"}, [(MINUTE, i), (2 * MINUTE, -i)])
    return made


def transformed(text: str, of: PlainStore | None = None) -> Matrix:
    return evaluate(parse(text), of or labelled_store(), 2 * MINUTE + SETTLE_MS)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ('fetch(\'x\').relabel("9", "v")', "not a label name"),
        ('fetch(\'x\').transform("relabel", "i")', "relabel needs value"),
        ('fetch(\'x\').relabel("h", "' + "v" * 1025 + '")', "labels have at most 1024"),
        ('fetch(\'x\').label_replace("a", "b", "i", "(")', "regular expression"),
        ('fetch(\'x\').label_replace("a", "b", "i", "' + "a" * 1001 + '")', "use at most"),
        ('fetch(\'x\').label_replace("i", "1", "h", ".*")', 'the same series x{h="h0",i="1"}'),
        ("fetch('x').join_labels(fetch('y'), on=[\"i\"], labels=[\"v\"])", "no variable is named 'y'"),
        ("fetch('x').join_labels(fetch('x'), on=[\"z\"], labels=[\"h\"])", "no selected series has the label 'z'"),
        ("fetch('x').join_labels(fetch('x'), on=[\"h\"], labels=[\"i\"])", "differ in i"),
        ('fetch(\'x\').transform("sort", rank="lats")', "rank cannot be 'lats'; near: last"),
        ("fetch('x').limit(0)", "at least 1"),
        ("fetch('x').transform(\"lttb\", 1)", "at least 2"),
        ('fetch(\'x\').transform("shfit", "1m")', "unknown transform 'shfit'; near: shift"),
        ('fetch(\'x\').transform("shift", "90s")', "use 2m"),
        ("fetch('x').clip(60000, 60000)", "is not before"),
        ("fetch('x').integrate(initial=\"a\")", "takes a number"),
        ("fetch('x').transform(\"mode\")", "mode takes raw samples"),
    ],
)
def test_errors(query: str, error: str) -> None:
    with pytest.raises(QueryError) as caught:
        transformed(query + ".between(0, 120000)")
    assert error in str(caught.value)


def test_a_key_has_at_most_40_labels() -> None:
    key = SeriesKey("x", tuple((f"l{i:02}", "v") for i in range(40)))
    with pytest.raises(QueryError, match="would have 41 labels"):
        set_label(key, "m", "v", "relabel")
    assert len(set_label(key, "l00", "w", "relabel").labels) == 40


def test_an_order_is_kept_by_what_leaves_the_keys() -> None:
    text = "fetch('x').transform(\"sort\", descending=True){}.between(0, 120000)"
    order = ["0", "1", "2"]
    for step in ("", '.fill("value", 0)', ".abs()", '.filter("size", ">", 1)', '.map("max", "2m")'):
        assert [labels["i"] for labels in transformed(text.format(step)).labels] == order
    ascending = "fetch('x').transform(\"sort\"){}.between(0, 120000)"
    assert [labels["i"] for labels in transformed(ascending.format("")).labels] == ["2", "1", "0"]
    assert [labels["i"] for labels in transformed(ascending.format(".abs()")).labels] == ["2", "1", "0"]
    for step in (' + fetch("x")', '.relabel("u", "v")', '.named("y")', ".sum(without=[])"):
        assert [labels["i"] for labels in transformed("(" + ascending.format("") + step + ")").labels] == [
            "0",
            "2",
            "1",
        ]


def test_join_labels_takes_no_values() -> None:
    found = transformed("fetch('x').join_labels(fetch('x') * 2, on=[\"i\"], labels=[\"h\"]).between(0, 120000)")
    assert found == transformed("fetch('x').between(0, 120000)")


def test_labels_of_100_000_series_are_quick() -> None:
    many = [SeriesKey("x", (("host", f"h{i}"), ("rack", f"r{i % 100}"))) for i in range(100_000)]
    replace = make_replacer("r(.*)", "row-$1")
    made = [set_label(key, "row", replace(key.get("rack")) or "", "label_replace") for key in many]
    assert made[101].labels == (("host", "h101"), ("rack", "r1"), ("row", "row-1"))


def test_down_sampling_of_many_series_needs_no_loop_over_them() -> None:
    values = np.random.default_rng(1).normal(size=(50_000, 60))
    present = np.ones(values.shape, np.bool_)
    keep = largest_triangles(values, present, np.arange(60, dtype=np.int64), 12)
    assert (keep.sum(axis=1) == 12).all()
