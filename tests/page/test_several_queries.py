"""Several queries in one chart: added, edited, hidden, removed; each with its language and error; all in the link."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.watched import Watched, drawn, findings, given
from tests.page.years import MARK

LOAD = "fetch('host.load{host=\"a\"}')"
LEGEND = "#legend tbody tr"


def add(page: Page, text: str) -> None:
    page.get_by_role("button", name="Add query").press("Enter")
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type(text)
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_two_languages_in_one_chart_by_keyboard(browser: Browser, years_address: str, scheme: str) -> None:
    watched = Watched(browser, years_address, scheme, 1440, 900)
    page = watched.open(LOAD, range="30d")
    drawn(page)
    expect(page.locator("#queries")).to_be_hidden()
    add(page, "fetch('host.load').max(by=[])")
    expect(page.locator(LEGEND)).to_have_count(2)
    expect(page.locator("#legend")).to_contain_text("A host.load")
    page.get_by_role("button", name="Add query").click()
    page.get_by_role("radio", name="PromQL").check()
    expect(page.locator("#promql .cm-content")).to_be_focused()
    page.keyboard.type('avg_over_time({"host.load"}[2h])')
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Enter")
    expect(page.locator(LEGEND)).to_have_count(5)
    expect(page.locator("#legend")).to_contain_text(f'C {{host="{MARK}"}}')
    assert findings(page) == []
    address = page.url
    page.reload()
    expect(page.locator(LEGEND)).to_have_count(5)
    expect(page.locator(".query-line")).to_have_count(3)
    assert page.url == address
    assert (given(page, "edit"), page.url.count("lang=")) == ("C", 3)
    watched.close()


def test_a_query_is_hidden_removed_and_edited(explorer: Watched) -> None:
    page = explorer.open(LOAD)
    drawn(page)
    add(page, "fetch('host.load').max(by=[])")
    expect(page.locator(LEGEND)).to_have_count(2)
    page.get_by_role("button", name="Hide A").press("Enter")
    expect(page.locator(LEGEND)).to_have_count(1)
    expect(page.get_by_role("button", name="Hide A")).to_be_focused()
    assert given(page, "hide") == "A"
    page.get_by_role("button", name="Hide B").click()
    expect(page.get_by_text("Every query is hidden")).to_be_visible()
    page.get_by_role("button", name="Hide B").click()
    page.get_by_role("button", name=LOAD).click()
    assert page.input_value("#query") == LOAD
    page.get_by_role("button", name="Remove B").click()
    expect(page.locator("#queries")).to_be_hidden()
    assert re.search(r"q=[^&]*&hide=A", page.url)


def test_each_query_has_its_own_error_and_the_others_are_drawn(explorer: Watched) -> None:
    explorer.may_refuse = True
    page = explorer.open(LOAD)
    drawn(page)
    add(page, "fetch('host.load').nope()")
    expect(page.locator(".query-line .problem")).to_have_count(1)
    expect(page.locator("#error")).to_contain_text("nope")
    expect(page.locator(LEGEND)).to_have_count(1)
    add(page, f"fetch('host.load{{host=\"{MARK}\"}}')")
    expect(page.locator(LEGEND)).to_have_count(2)
    expect(page.locator("#error")).to_be_empty()
    expect(page.locator(".query-line .problem")).to_contain_text("nope")
    page.get_by_role("tab", name="Table").click()
    expect(page.locator("#table tbody tr")).to_have_count(2)
