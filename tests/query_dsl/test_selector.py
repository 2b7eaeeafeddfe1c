"""The selector's own grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.select import NAME, Matcher
from query_dsl import QueryError, parse_selector
from query_dsl.tree.selector import accepts

CASES = [
    ("a", [(NAME, "=", "a")]),
    ("a.b:c/d-e", [(NAME, "=", "a.b:c/d-e")]),
    ("a.*", [(NAME, "prefix", "a.")]),
    ("a{}", [(NAME, "=", "a")]),
    ('a{b="x"}', [(NAME, "=", "a"), ("b", "=", "x")]),
    (' a { b != "x" , } ', [(NAME, "=", "a"), ("b", "!=", "x")]),
    ('a{b=~"x{1,2}"}', [(NAME, "=", "a"), ("b", "=~", "x{1,2}")]),
    ('a{b!~"x,y}"}', [(NAME, "=", "a"), ("b", "!~", "x,y}")]),
    ("a{b='it''s'}", None),
    (r'a{b="q\"\\\n\d"}', [(NAME, "=", "a"), ("b", "=", 'q"\\\n\\d')]),
    ('{b="x"}', [("b", "=", "x")]),
    ('{__name__=~"a.+"}', [(NAME, "=~", "a.+")]),
    ('a{b=""}', [(NAME, "=", "a"), ("b", "=", "")]),
]


@pytest.mark.parametrize(("text", "matchers"), CASES)
def test_grammar(text: str, matchers: list[tuple[str, str, str]] | None) -> None:
    if matchers is None:
        with pytest.raises(QueryError):
            parse_selector(text)
        return
    selector = parse_selector(text)
    assert selector.matchers == tuple(Matcher(*m) for m in matchers)
    assert parse_selector(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0), ("a b", 2), ("a{", 2), ("a{b", 3), ("a{b=", 4), ("a{b=x}", 4), ('a{b="x', 4), ('a{b="x" c="y"}', 8),
        ('a{=""}', 2), ('a{b=="x"}', 4), ("a*", 1), ('{b=""}', 0), ('{b!="x"}', 0), ('{b=~".*"}', 0), ('{b!~"x"}', 0),
        ('a{b=~"["}', 5), ('a{b="x"}}', 8), ("1a", 0), ('a{b=~"' + "x" * 2_000 + '"}', 5),
    ],
)  # fmt: skip
def test_errors_have_a_place(text: str, position: int) -> None:
    with pytest.raises(QueryError) as caught:
        parse_selector(text)
    assert caught.value.position == position


@given(st.text(max_size=40))
def test_any_text_is_a_selector_or_an_error(text: str) -> None:
    try:
        selector = parse_selector(text)
    except QueryError:
        return
    assert parse_selector(str(selector)) == selector


@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20))
def test_any_value_can_be_quoted(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    selector = parse_selector(f'a{{b="{escaped}"}}')
    assert selector.matchers[1].value == value
    assert parse_selector(str(selector)) == selector


@pytest.mark.parametrize(
    ("op", "value", "given_value", "fits"),
    [
        ("=", "a", "a", True), ("=", "", "", True), ("!=", "a", "", True), ("=~", "a|b", "b", True),
        ("=~", "a", "ab", False), ("!~", "a", "ab", True), ("!~", "a.*", "ab", False), ("prefix", "a.", "a.b", True),
        ("prefix", "a.", "a", False),
    ],
)  # fmt: skip
def test_matchers_match_the_whole_value(op: str, value: str, given_value: str, fits: bool) -> None:
    assert accepts(Matcher("l", op, value), given_value) is fits
