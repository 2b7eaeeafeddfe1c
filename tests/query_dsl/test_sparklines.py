"""Small charts: each mark has a meaning, and no chart exceeds its maximum length."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from artimon.model.values import Value
from query_dsl import Matrix, evaluate, parse
from query_dsl.results.sparklines import ASCII_BLOCKS, BLOCKS, spark, spark_svg
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import PlainStore

STEP = 10


def matrix_of(*values: Value | None) -> Matrix:
    points = [(STEP * (i + 1), value) for i, value in enumerate(values) if value is not None]
    store = PlainStore(level_table=((STEP, 1000),)).add("v", {}, points)
    end = STEP * len(values)
    return evaluate(parse(f"fetch('v').between(0, {end})"), store, end + SETTLE_MS)


@pytest.mark.parametrize(
    ("values", "wanted", "in_ascii"),
    [
        ((0, 1, 2, 3, 4, 5, 6, 7), BLOCKS, ASCII_BLOCKS),
        ((1.0, None, 3.0), "▁ █", "_ @"),
        ((1.0, math.nan, 3.0), "▁×█", "_x@"),
        ((1.0, math.inf, -math.inf, 3.0), "▁↑↓█", "_^v@"),
        ((5, 5, 5), "▅▅▅", "+++"),
        ((math.nan, math.inf), "×↑", "x^"),
        ((True, True, False), "██▁", "@@_"),
        ((True, True), "██", "@@"),
        (("up", "down"), "", ""),
        ((-1e308, 1e308), "▁█", "_@"),
        ((2**62, -(2**62)), "█▁", "@_"),
    ],
)
def test_each_value_has_its_character(values: tuple[Value | None, ...], wanted: str, in_ascii: str) -> None:
    matrix = matrix_of(*values)
    assert spark(matrix, 0, 30) == wanted
    assert spark(matrix, 0, 30, ascii_only=True) == in_ascii


def test_more_buckets_than_characters_show_the_greatest() -> None:
    matrix = matrix_of(*[9.0 if i == 17 else float(i % 2) for i in range(100)])
    assert spark(matrix, 0, 10) == "▁█" + "▁" * 8
    assert len(spark(matrix, 0, 7)) == 7
    assert spark(matrix, 0, 0) == ""


def test_a_gap_is_a_gap_only_where_all_is_missing() -> None:
    matrix = matrix_of(1.0, None, None, None, 2.0, None)
    assert spark(matrix, 0, 3) == "▁ █"


def parsed(matrix: Matrix) -> ElementTree.Element:
    return ElementTree.fromstring(spark_svg(matrix, 0))


def test_a_picture_has_lines_between_gaps_and_dots_alone() -> None:
    picture = parsed(matrix_of(1.0, 2.0, None, 3.0, math.nan, 1.0, 4.0))
    assert [child.tag for child in picture] == ["title", "polyline", "circle", "polyline"]
    assert picture.attrib["aria-label"] == "1 to 4"
    heights = [
        float(point.split(",")[1]) for line in picture.iter("polyline") for point in line.attrib["points"].split()
    ]
    assert all(0 <= y <= 24 for y in heights)
    assert heights.index(min(heights)) == 3


def test_a_picture_of_nothing_says_so() -> None:
    picture = parsed(matrix_of(math.nan, 1.0).with_notes((), True, False))
    assert picture.attrib["aria-label"] == "1 to 1"
    assert parsed(matrix_of(math.nan, math.inf)).attrib["aria-label"] == "no values"
    assert spark_svg(matrix_of("a", "b"), 0) == ""


def test_a_picture_stays_small() -> None:
    matrix = matrix_of(*[math.sin(i) for i in range(5_000 // 10)])
    assert len(spark_svg(matrix, 0)) < 4_000
    (line,) = parsed(matrix).iter("polyline")
    assert len(line.attrib["points"].split()) <= 240
