"""The PromQL editor of the page, over an API without a stack: completion, errors, links, no other origin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlparse

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.api.serving import EDGE, minutes, served
from tests.page.watched import Watched, drawn, module
from tests.query_dsl.plain_store import PlainStore

QUERY = 'sum by (route) ({"http.requests"})'
EDITOR = "#promql .cm-content"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    store = PlainStore()
    for route in ("/", "/a"):
        store.add("http.requests", {"route": route, "job": "shop"}, minutes([60 * i for i in range(40)]))
    store.add("heat", {"host": "h1"}, minutes([20.5, float("inf"), float("nan"), 21.5]))
    with served(store) as client:
        yield f"http://127.0.0.1:{client.port}"


@pytest.fixture
def watched(browser: Browser, server: str) -> Iterator[Watched]:
    found = Watched(browser, server, "light", 1280, 800)
    found.page.clock.install(time=datetime.fromtimestamp(EDGE / 1000, UTC))
    yield found
    found.close()


def written(page: Page) -> str:
    """Return the text of the editor."""
    return "\n".join(page.locator("#promql .cm-line").all_text_contents())


def write(page: Page, text: str) -> None:
    """Replace the text of the editor."""
    page.locator(EDITOR).press("Control+a")
    page.keyboard.type(text)


def switch(page: Page, name: str) -> None:
    page.get_by_role("radio", name=name).check(force=True)


def test_a_query_is_written_with_completion_and_drawn(watched: Watched) -> None:
    page = watched.open()
    switch(page, "PromQL")
    expect(page.locator(EDITOR)).to_be_focused()
    for typed, wanted in (("su", "sum"), (" by (ro", "route"), (") (ht", "http.requests")):
        page.keyboard.type(typed)
        option = page.locator("#promql .cm-tooltip-autocomplete li", has_text=re.compile(f"^{re.escape(wanted)}"))
        expect(option.first).to_be_visible()
        option.first.click()
    page.keyboard.press("Enter")
    drawn(page)
    assert re.sub(r"\s+", "", written(page)) == re.sub(r"\s+", "", QUERY)
    expect(page.locator("#summary")).to_contain_text("2 series · 60 points of 1 min")
    expect(page.locator("#csv")).to_be_hidden()


def test_the_link_holds_language_and_query(watched: Watched) -> None:
    page = watched.open(QUERY, lang="promql", range="3h")
    drawn(page)
    expect(page.locator(EDITOR)).to_have_text(QUERY)
    expect(page.get_by_role("radio", name="PromQL")).to_be_checked()
    write(page, "heat")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#legend tbody tr")).to_have_count(1)
    found = parse_qs(urlparse(page.url).query)
    assert found == {"q": ["heat"], "lang": ["promql"], "range": ["3h"]}
    page.go_back()
    expect(page.locator(EDITOR)).to_have_text(QUERY)
    drawn(page)


def test_each_language_keeps_its_text_and_history(watched: Watched) -> None:
    page = watched.open("fetch('heat')")
    drawn(page)
    switch(page, "PromQL")
    expect(page.get_by_text("Ask a question")).to_be_visible()
    assert "lang=promql" in page.url
    page.keyboard.type("heat")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    drawn(page)
    switch(page, "Artimon")
    expect(page.locator("#query")).to_be_visible()
    assert page.input_value("#query") == "fetch('heat')"
    page.press("#query", "Alt+ArrowUp")
    assert page.input_value("#query") == "fetch('heat')"
    switch(page, "PromQL")
    expect(page.locator(EDITOR)).to_have_text("heat")
    write(page, "x")
    page.keyboard.press("Escape")
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator(EDITOR)).to_have_text("heat")


def test_an_error_is_told(watched: Watched) -> None:
    watched.may_refuse = True
    page = watched.open("sum(heat", lang="promql")
    expect(page.locator("#error")).to_contain_text("is not closed")
    write(page, "sum()")
    page.keyboard.press("Escape")
    expect(page.locator("#promql .cm-lintRange-error").first).to_be_attached()
    write(page, "sum(heat)")
    page.keyboard.press("Control+Enter")
    drawn(page)
    expect(page.locator("#error")).to_be_empty()


def test_an_example_of_the_language_runs(watched: Watched) -> None:
    page = watched.open("", lang="promql")
    page.locator("button.example").first.click()
    expect(page.locator(EDITOR)).to_contain_text("host.cpu.ms")
    expect(page.get_by_text("The answer has no series")).to_be_visible()
    assert "lang=promql" in page.url


def test_nothing_is_asked_elsewhere(watched: Watched, server: str) -> None:
    asked: list[str] = []
    watched.page.on("request", lambda request: asked.append(request.url))
    page = watched.open(QUERY, lang="promql")
    drawn(page)
    assert any("vendor/codemirror" in url for url in asked)
    assert [url for url in asked if not url.startswith((server, "data:", "blob:"))] == []


def test_the_editor_is_not_loaded_for_the_other_language(watched: Watched) -> None:
    asked: list[str] = []
    watched.page.on("request", lambda request: asked.append(request.url))
    drawn(watched.open("fetch('heat')"))
    assert not any("vendor/codemirror" in url for url in asked)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(browser: Browser, server: str, scheme: str) -> None:
    watched = Watched(browser, server, scheme, 1280, 800)
    page = watched.open("heat", lang="promql")
    expect(page.locator(EDITOR)).to_have_text("heat")
    expect(page.locator("#promql").get_by_role("textbox", name="PromQL query")).to_be_visible()
    found = Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    watched.close()


def test_special_values_are_those_of_the_page(watched: Watched) -> None:
    page = watched.open()
    answer = {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [{"metric": {"__name__": "a", "b": "c"}, "values": [[60, "+Inf"], [180, "NaN"], [240, "1.5"]]}],
        },
        "warnings": ["w"],
        "infos": ["i"],
    }
    matrix = module(page, "promql.js", "m.toMatrix(a, {start: 60, end: 240, step: 60})", answer)
    assert matrix["series"] == [
        {"name": "a", "labels": {"b": "c"}, "type": "DOUBLE", "values": ["Infinity", None, "NaN", 1.5]}
    ]
    assert (matrix["notes"], matrix["grid"]) == (
        ["w", "i"],
        {"start_ms": 0, "end_ms": 240_000, "step_ms": 60_000, "n": 4},
    )
