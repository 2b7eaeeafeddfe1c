"""Completions at every position of an unfinished query."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query_dsl.language.completion import complete
from query_dsl.language.methods import FUNCTIONS, METHODS
from tests.query_dsl.plain_store import MINUTE, PlainStore


def disks() -> PlainStore:
    filled = PlainStore()
    filled.add("disk.used", {"rack": "r1", "host": "a"}, [(MINUTE, 1)])
    filled.add("disk.used", {"rack": "r2", "host": "b"}, [(MINUTE, 1)])
    filled.add("disk.size", {"rack": "r1", "volume": "it's"}, [(MINUTE, 1)])
    return filled.add("load", {"dc": "jb", "rack": "r9"}, [(MINUTE, 1)])


@pytest.mark.parametrize(
    ("text", "begun", "words"),
    [
        ("fetch('", "", ["disk.size", "disk.used", "load"]),
        ("fetch('disk.u", "disk.u", ["disk.used"]),
        ('samples("lo', "lo", ["load"]),
        ("absent('disk.s", "disk.s", ["disk.size"]),
        ("apply(sub, fetch('disk.size'), fetch('disk.u", "disk.u", ["disk.used"]),
        ("fetch('load').filter('{d", "d", ["dc", "host", "rack", "volume"]),
        ("fetch('disk.used{", "", ["host", "rack"]),
        ("fetch('disk.used{ra", "ra", ["rack"]),
        ('fetch(\'disk.used{rack="r1",', "", ["host", "rack"]),
        ("fetch('disk.used{rack=\"", "", ["r1", "r2"]),
        ("fetch('disk.used{rack!=\"r", "r", ["r1", "r2"]),
        ('fetch(\'disk.used{rack="r1",host="', "", ["a"]),
        ("fetch('{__name__=\"lo", "lo", ["load"]),
        ("fetch('disk.size{volume=\"", "", ["it\\'s"]),
        ("fetch(\"disk.size{volume='", "", ["it\\\\'s"]),
        ("fetch('nothing{", "", ["dc", "host", "rack", "volume"]),
        ("fetch('load').map('mea", "mea", ["mean"]),
        ("fetch('load').map(mea", "mea", ["mean"]),
        ("apply('su", "su", ["sub"]),
        ("fetch('load').reduce('cou", "cou", ["count", "count_distinct", "count_values"]),
        ("fetch('disk.used').sum(by=['", "", ["host", "rack"]),
        ("fetch('disk.used').sum(by=['rack', 'h", "h", ["host"]),
        ("fetch('load').sum(without=[\"", "", ["dc", "rack"]),
        ("fe", "fe", ["fetch"]),
        ("fetch('load') + fe", "fe", ["fetch"]),
        ("fetch('load').offs", "offs", ["offset"]),
        ("fetch('load').rate('5", "", []),
        ("fetch('load') fe", "", []),
        ("1.5", "", []),
        ("fetch('load').named('", "", []),
    ],
)
def test_completions_at_the_cursor(text: str, begun: str, words: list[str]) -> None:
    wanted = [word for word in words if word.startswith(begun)] if begun else words
    found = complete(text, None, disks())
    assert list(found.words) == wanted
    if words:
        assert text[found.start : found.end] == begun


def test_the_place_may_lie_within_the_text() -> None:
    text = "fetch('disk.u').mean(by=['rack'])"
    found = complete(text, text.index("u") + 1, disks())
    assert (text[found.start : found.end], found.words, found.kind) == ("disk.u", ("disk.used",), "name")


def test_methods_and_functions_are_all_there() -> None:
    assert complete("fetch('load').", None, disks()).words == tuple(sorted(METHODS))
    assert complete("", None, disks()).words == tuple(sorted(FUNCTIONS))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os\nx = session.fetch('loa", ["load"]),
        ("# it's a comment\nsession['loa", ["load"]),
        ("text = '''\nmany lines'''\nsession.find(\"loa", ["load"]),
        ("frame['loa", []),
        ("other.find('loa", []),
        ("imp", []),
        ("x = 'fetch(", []),
        ("session.history('loa", ["load"]),
        ("session.fetch('disk.used').sum(by=['", ["host", "rack"]),
    ],
)
def test_cells_of_notebooks(code: str, words: list[str]) -> None:
    found = complete(code, None, disks(), code=True, sessions={"session"})
    assert list(found.words) == words


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="fetch('\"{}[]=~,.\\# \nload", max_size=40), st.booleans())
def test_any_text_has_an_answer(text: str, code: bool) -> None:
    found = complete(text, None, disks(), code=code)
    assert 0 <= found.start <= found.end == len(text) or not found.words


def test_a_long_text_is_read_from_its_end_on() -> None:
    text = "(" * 200_000 + "fetch('loa"
    assert complete(text, None, disks()).words == ("load",)
