"""The page's copy of the query language equals the language."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from query_dsl import parse
from query_dsl.language.methods import FUNCTIONS, METHODS
from tests.page.watched import Watched, module


@pytest.fixture(scope="module")
def page(browser: Browser, plain_address: str) -> Iterator[Page]:
    """One page for all of them: nothing on it changes."""
    watched = Watched(browser, plain_address, "light", 800, 600)
    yield watched.open()
    watched.close()


def test_it_offers_what_the_language_has(page: Page) -> None:
    assert set(module(page, "language.js", "Object.keys(m.FUNCTIONS)")) == set(FUNCTIONS)
    assert set(module(page, "language.js", "Object.keys(m.METHODS)")) == set(METHODS)


@pytest.mark.parametrize(
    ("text", "timed"),
    [
        ("fetch('a')", False),
        ("fetch('a') + 1 # .range(", False),
        ("fetch('a{b=\".range(\"}')", False),
        ('fetch("a").range("5m")', True),
        ("fetch('a').at('now')", True),
        ("fetch('a') . between('now-1h', 'now')", True),
        ("fetch('a')\n\n > 5", False),
    ],
)
def test_a_range_is_added_where_none_is_said(page: Page, text: str, timed: bool) -> None:
    sent = module(page, "language.js", "m.withRange(a, '1h')", text)
    assert (sent["q"] == text) is timed
    parse(sent["q"])
    assert sent["q"][sent["shift"] : sent["shift"] + len(text)] == text


@pytest.mark.parametrize("text", ["fetch('a'", "fetch('a", "fetch('a'))", "", "  "])
def test_what_is_not_closed_is_sent_as_it_is(page: Page, text: str) -> None:
    assert module(page, "language.js", "m.withRange(a, '1h')", text) == {"q": text, "shift": 0}


def test_the_server_counts_characters_and_the_browser_its_own(page: Page) -> None:
    place = module(page, "language.js", "m.place('💥💥ab', 5, 1, 2)")
    assert place == {"start": 5, "end": 6}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234, "1.234k"), (999.99, "1k"), (999_999, "1M"), (-2.5e9, "-2.5G"), (0.00012, "1.20e-4"), (12, "12")],
)
def test_numbers_are_short(page: Page, value: float, text: str) -> None:
    assert module(page, "format.js", "m.compact(a)", value) == text


def test_large_integers_stay_exact(page: Page) -> None:
    text = '{"values":[9007199254740993,1.5,null,"12345678901234567890"]}'
    script = "m.parse(a).values.map(String)"
    assert module(page, "api.js", script, text) == ["9007199254740993", "1.5", "null", "12345678901234567890"]
