"""Heat map of a histogram over time, raw samples of one series, and explanation of a query, on the page of queries."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.page.watched import Watched, answer_with, asked, comes, drawn, findings, given, matrix, save_picture
from tests.page.years import MARK

LOAD = "fetch('host.load')"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_histogram_is_a_heat_map_by_keyboard(browser: Browser, years_address: str, scheme: str) -> None:
    watched = Watched(browser, years_address, scheme, 1440, 900)
    bounds = {"+Inf": [3.0, 9.0], "0.5": [2.0, 9.0], "0.1": [1.0, None]}
    series = [{"name": "x", "labels": {"le": le}, "values": values} for le, values in bounds.items()]
    answer_with(watched.page, "query", matrix(series))
    page = watched.open(LOAD)
    drawn(page)
    page.locator("#tab-chart").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-heat")).to_be_focused()
    expect(page.locator("#heat .heat-names li")).to_have_text(["≤ +Inf", "≤ 0.5", "≤ 0.1"])
    page.locator("#heat canvas").focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    expect(page.locator("#live")).to_contain_text("≤ 0.5: 1")
    assert findings(page) == []
    assert given(page, "view") == "heat"
    page.reload()
    expect(page.locator("#heat canvas")).to_be_visible()
    watched.close()


def test_a_heat_map_of_hostile_names(explorer: Watched) -> None:
    page = explorer.open(LOAD, view="heat")
    expect(page.locator("#heat .heat-names")).to_contain_text(MARK)


def test_samples_of_one_series_are_listed(explorer: Watched) -> None:
    page = explorer.open(LOAD, view="samples", range="now-20d to now-19d")
    expect(page.locator("#samples-tools")).to_contain_text("24 samples, from history")
    expect(page.locator("#samples tbody tr")).to_have_count(24)
    expect(page.locator("#samples tbody tr").first).to_contain_text("60 min")
    page.get_by_label("Series", exact=True).select_option(f'host.load{{host="{MARK}"}}')
    expect(page.locator("#samples tbody td").nth(1)).to_contain_text(re.compile("2[1-9]"))
    assert findings(page) == []
    page.keyboard.press("g")
    page.keyboard.press("c")
    drawn(page)


def test_a_computed_series_has_no_samples(explorer: Watched) -> None:
    page = explorer.open(f"{LOAD}.max(by=[]) + 1", view="samples")
    expect(page.locator("#samples-tools")).to_contain_text("it has no samples of its own")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_query_is_explained_by_keyboard(browser: Browser, years_address: str, scheme: str) -> None:
    watched = Watched(browser, years_address, scheme, 1440, 900)
    explained: list[str] = []
    watched.page.on("request", lambda one: explained.append(asked(one)) if "explain=1" in one.url else None)
    page = watched.open(f"fetch('host.load{{host!=\"{MARK}\"}}').max(by=['host']).max(by=[]) * 2", range="30d")
    drawn(page)
    page.locator("#tab-chart").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#tab-explain")).to_be_focused()
    rows = page.get_by_role("table", name="Plan").locator("tbody tr")
    expect(rows).to_have_count(6)
    fetch = rows.filter(has_text="fetch(")
    expect(fetch).to_contain_text(MARK)
    expect(fetch).to_contain_text("buckets of")
    expect(rows.filter(has_text="max(by=[])").locator("td").nth(3)).to_have_text("1")
    ms, own_ms = (float(text.replace(",", "")) for text in rows.first.locator("td").all_text_contents()[1:3])
    assert ms >= own_ms >= 0
    reads = page.get_by_role("table", name="Read from the stores").locator("tbody tr")
    expect(reads).to_have_count(1)
    expect(reads).to_contain_text("history")
    assert findings(page) == []
    assert given(page, "view") == "explain"
    with page.expect_response("**/api/query*"):
        page.keyboard.press("r")
    page.keyboard.press("g")
    page.keyboard.press("x")
    expect(page.locator("#explain")).to_be_focused()
    assert len(explained) == 1
    page.get_by_role("button", name="Measure again").press("Enter")
    comes(page, lambda: len(explained) == 2)
    page.reload()
    expect(rows).to_have_count(6)
    assert len(explained) == 3
    watched.close()


def test_the_edited_query_is_explained(explorer: Watched) -> None:
    text = "fetch('host.load{host=~\"a|b\"}')"
    page = explorer.open(text, view="explain", range="3d")
    plan = page.get_by_role("table", name="Plan")
    expect(plan).to_contain_text("fetch('host.load")
    page.get_by_role("button", name="Add query").click()
    page.get_by_role("radio", name="PromQL").check(force=True)
    expect(page.locator("#promql .cm-content")).to_be_focused()
    page.keyboard.type('max({"host.load"})')
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#explain-tools")).to_contain_text("not PromQL")
    expect(plan).to_have_count(0)
    page.get_by_role("button", name=text).click()
    expect(plan).to_contain_text("fetch('host.load")
    expect(page.locator("#explain-tools")).to_contain_text("A: ")
    save_picture(page, "explain", 650, 1018)
    page.keyboard.press("Escape")
    page.locator("#tab-explain").press("ArrowRight")
    drawn(page)
    expect(page.locator("#legend tbody tr")).to_have_count(3)
    save_picture(page, "explore", 900, 1018)
