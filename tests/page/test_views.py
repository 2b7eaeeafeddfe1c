"""Heat map of a histogram over time, and raw samples of one series, on the page of queries."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.page.watched import Watched, answer_with, drawn, findings, given, matrix
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
