"""Grouping and pairing by labels: against plain loops, by hand, and fast with thousands of series."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query_dsl import QueryError
from query_dsl.functions.equivalence_classes import class_key, classes_of
from query_dsl.functions.join import NONE, check_labels, classifier, pair_rows
from query_dsl.results.label_table import LabelTable
from query_dsl.results.result_cells import SeriesKey
from query_dsl.tree.nodes import LabelMatching
from tests.query_dsl.reducing import context, joined, key, matrix, table

PROFILE = settings(max_examples=200, deadline=None)
LABELS = ("a", "b", "c", "__name__")


@st.composite
def keys(draw: Any, most: int = 10) -> list[SeriesKey]:
    """Distinct series of three labels, some of them absent, in canonical order."""
    found = {
        key(
            draw(st.sampled_from(["", "x", "y"])),
            a=draw(st.sampled_from(["", "1", "2"])),
            b=draw(st.sampled_from(["", "1", "10", "2"])),
            c=draw(st.sampled_from(["", "ü"])),
        )
        for _ in range(draw(st.integers(0, most)))
    }
    return sorted(found)


LISTS = st.lists(st.sampled_from(LABELS), max_size=3, unique=True).map(tuple)


@PROFILE
@given(keys(), LISTS, st.booleans())
def test_classes_are_those_of_a_plain_loop(found: list[SeriesKey], labels: tuple[str, ...], by: bool) -> None:
    own, without = (labels, None) if by else (None, labels)
    classify = classifier(own, without)
    expect: dict[SeriesKey, list[int]] = {}
    for row, one in enumerate(found):
        expect.setdefault(class_key(classify(one)), []).append(row)
    got = classes_of(LabelTable(found), own, without)
    assert list(got.keys) == sorted(expect)
    assert [[row for row in got.order.tolist() if got.codes[row] == i] for i in range(len(got.keys))] == [
        expect[one] for one in got.keys
    ]


def plain_pairs(left: list[SeriesKey], right: list[SeriesKey], match: LabelMatching) -> set[tuple[int, int]] | str:
    """(row, row) of equal labels; what is wrong, if something is."""
    classify = classifier(match.on, match.ignoring)
    mine, theirs = [classify(one) for one in left], [classify(one) for one in right]
    for side, many in ((mine, match.group_left), (theirs, match.group_right)):
        if many is None and len(set(side)) < len(side):
            return "the same key"
    found = {(i, j) for i, a in enumerate(mine) for j, b in enumerate(theirs) if a == b}
    lonely = [(i, NONE) for i, a in enumerate(mine) if a not in theirs]
    lonely += [(NONE, j) for j, b in enumerate(theirs) if b not in mine]
    if match.fill is not None:
        return found | set(lonely)
    return "no partner" if lonely and match.unmatched == "error" else found


@PROFILE
@given(
    keys(), keys(), LISTS, st.sampled_from(["on", "ignoring", "all"]), st.sampled_from(["left", "right", ""]),
    st.sampled_from([{}, {"unmatched": "error"}, {"fill": 0.0}]),
)  # fmt: skip
def test_pairs_are_those_of_a_plain_loop(
    left: list[SeriesKey], right: list[SeriesKey], labels: tuple[str, ...], how: str, group: str, rest: dict[str, Any]
) -> None:
    said: dict[str, Any] = dict(rest)
    if how != "all":
        said[how] = labels
    if group:
        said[f"group_{group}"] = ()
    match = LabelMatching(**said)
    both = [*left, *right]
    if how == "on" and both and not all(any(one.get(label) for one in both) for label in labels):
        with pytest.raises(QueryError, match="no selected series has the label"):
            pair_rows(left, right, match, "add")
        return
    expect = plain_pairs(left, right, match)
    if isinstance(expect, str):
        with pytest.raises(QueryError, match=expect):
            pair_rows(left, right, match, "add")
        return
    got = pair_rows(left, right, match, "add")
    assert set(zip(got.left.tolist(), got.right.tolist(), strict=True)) == expect
    assert len(got.keys) == len(expect)
    classify = classifier(match.on, match.ignoring)
    for i, j, made in zip(got.left.tolist(), got.right.tolist(), got.keys, strict=True):
        many = left[i] if group == "left" and i != NONE else right[j] if group == "right" and j != NONE else None
        one = left[i] if i != NONE else right[j]
        assert made == (SeriesKey("", many.labels) if many is not None else class_key(classify(one)))


@pytest.mark.parametrize(
    ("left", "right", "match", "message"),
    [
        (
            [key("a", host="1", v="x"), key("a", host="1", v="y")],
            [key("b", host="1")],
            LabelMatching(on=("host",)),
            'add: on the left two series have the same key {host="1"}: a{host="1",v="x"} and a{host="1",v="y"}; '
            "add 'v' to on=, or reduce that side, or allow many to one with group_left=[]",
        ),
        (
            [key("a", host="1")],
            [key("b", host="1", v="x"), key("b", host="1", v="y")],
            LabelMatching(ignoring=("v",)),
            "take 'v' out of ignoring=, or reduce that side, or allow many to one with group_right=[]",
        ),
        (
            [key("a", host="1"), key("c", host="1")],
            [key("b", host="1")],
            LabelMatching(),
            "or add on= with '__name__', or",
        ),
        (
            [key("a", host="1"), key("a", host="2")],
            [key("b", host="1")],
            LabelMatching(unmatched="error"),
            'add: 1 series have no partner; the first is a{host="2"} on the left: nothing on the right has the key '
            '{host="2"}',
        ),
        (
            [key("a", host="1")],
            [key("b", host="1"), key("b", host="3")],
            LabelMatching(unmatched="error"),
            'the first is b{host="3"} on the right: nothing on the left has the key {host="3"}',
        ),
        ([key("a", host="1")], [key("b", host="1")], LabelMatching(on=("hots",)), "'hots' of on=['hots']; near: host"),
    ],
)
def test_errors_show_key_series_and_remedy(
    left: list[SeriesKey], right: list[SeriesKey], match: LabelMatching, message: str
) -> None:
    with pytest.raises(QueryError) as caught:
        pair_rows(left, right, match, "add")
    assert message in str(caught.value)


def test_labels_are_taken_from_the_one_side() -> None:
    """Labels that the one side lacks are removed: their values would be wrong there."""
    left = [key("used", host="1", v="a", size="?"), key("used", host="1", v="b"), key("used", host="2", v="a")]
    right = [key("info", host="1", size="big"), key("info", host="2")]
    got = pair_rows(left, right, LabelMatching(on=("host",), group_left=("size",)), "mul")
    assert got.keys == [
        key("", host="1", v="a", size="big"),
        key("", host="1", v="b", size="big"),
        key("", host="2", v="a"),
    ]
    got = pair_rows(right, left, LabelMatching(on=("host",), group_right=("__name__",)), "mul")
    assert {one.name for one in got.keys} == {"info"}


def test_fill_stands_for_the_missing_side() -> None:
    left = matrix([(key("a", i="1"), int, [1, None]), (key("a", i="2"), int, [2, 2])])
    right = matrix([(key("b", i="2"), int, [10, 10]), (key("b", i="3"), int, [20, None])])
    found = joined("add", left, right, fill=100)
    assert table(found) == {'{i="1"}': [101.0, None], '{i="2"}': [12.0, 12.0], '{i="3"}': [120.0, None]}
    asked = context()
    assert table(joined("add", left, right, asked)) == {'{i="2"}': [12.0, 12.0]}
    assert asked.notes == [
        'add: left out 1 series on the left without a partner on the right: {i="1"}',
        'add: left out 1 series on the right without a partner on the left: {i="3"}',
    ]


def test_labels_that_nobody_has() -> None:
    said = "by=['__name__']"
    check_labels(("a", "__name__"), [key("x", a="1")], said)
    check_labels((), [key("x")], said)
    check_labels(("a",), [], said)
    with pytest.raises(QueryError, match=r"'__name__' of by=\['__name__'\]; there are: a"):
        check_labels(("__name__",), [key("", a="1")], said)
    with pytest.raises(QueryError, match="there are: no labels"):
        check_labels(("a",), [key("")], said)


def many(name: str, count: int) -> list[SeriesKey]:
    """Series of five labels, a hundred racks."""
    return [
        key(name, context="shop", dc=f"dc{i % 2}", host=f"h{i // 10:06d}", instance=str(i % 10), rack=f"r{i // 1000}")
        for i in range(count)
    ]


def fastest(run: Callable[[], object], times: int = 5) -> float:
    """Seconds of the processor."""
    best = 1e9
    for _ in range(times):
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best


def loop_s(found: Sequence[SeriesKey]) -> float:
    """Seconds of a loop over series with a dictionary of labels each."""
    return fastest(lambda: {tuple(sorted(dict(one.labels).items())) for one in found})


def test_30000_series_are_grouped_at_once() -> None:
    """18 to 34 ms measured on a busy machine; the loop takes three to six times as long."""
    found = many("x", 30_000)
    loop = loop_s(found)
    for by in (("rack",), ("dc", "rack"), ("__name__", "rack")):
        assert fastest(partial(group, found, by)) < loop, by


def group(found: Sequence[SeriesKey], by: tuple[str, ...]) -> object:
    return classes_of(LabelTable(found), by, None)


def test_10000_series_find_their_partners_at_once() -> None:
    """8 to 27 ms measured; comparing each with each takes thousands of times as long."""
    left, right = many("x", 10_000), many("y", 10_000)
    loop = loop_s([*left, *right] * 6)
    for match in (LabelMatching(), LabelMatching(on=("host", "instance")), LabelMatching(ignoring=("rack",))):
        got = pair_rows(left, right, match, "add")
        assert got.left.tolist() == got.right.tolist() == list(range(10_000))
        assert fastest(partial(pair_rows, left, right, match, "add")) < loop, match


def test_columns_of_series_with_unlike_labels() -> None:
    found = [key("x", a="1"), key("x"), key("y", b="2"), key("y", a="3", b="2"), key("y", b="4", c="5")]
    table = LabelTable(found)
    assert table.names == {"a", "b", "c", "__name__"}
    assert [_texts(table, label) for label in ("a", "b", "c", "d", "__name__")] == [
        ["1", "", "", "3", ""],
        ["", "", "2", "2", "4"],
        ["", "", "", "", "5"],
        ["", "", "", "", ""],
        ["x", "x", "y", "y", "y"],
    ]
    assert [table.has_label(label) for label in ("a", "d")] == [True, False]


def _texts(table: LabelTable, label: str) -> Sequence[str]:
    column = table.column(label)
    return [column.values[code] for code in column.codes.tolist()]
