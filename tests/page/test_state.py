"""The address holds the whole state: links of alert mails, back and forward, reload."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.page.watched import CPU, LOAD, Watched, answer_with, drawn, matrix, racks


def test_a_link_of_a_mail_opens_its_query(watched: Watched) -> None:
    page = watched.open("fetch('host.load') > 0")
    drawn(page)
    assert page.input_value("#query") == "fetch('host.load') > 0"


def test_all_of_it_survives_a_reload(watched: Watched) -> None:
    answer_with(watched.page, "query", matrix(racks(4)))
    page = watched.open()
    page.fill("#query", "fetch('heat')")
    page.press("#query", "Enter")
    drawn(page)
    page.get_by_role("radio", name="12 h").check()
    page.select_option("#refresh", "60s")
    page.fill("#filter", "rack")
    page.click('#legend button:has-text("r2")')
    page.fill("#find-text", "host.l")
    page.get_by_role("tab", name="Table").click()
    expect(page).to_have_url(re.compile("find=host.l"))
    address = page.url
    page.reload()
    expect(page.locator("#table tbody tr")).to_have_count(4)
    assert page.url == address
    assert page.input_value("#query") == "fetch('heat')"
    assert page.input_value("#refresh") == "60s"
    assert page.input_value("#filter") == "rack"
    assert page.input_value("#find-text") == "host.l"
    expect(page.get_by_role("radio", name="12 h")).to_be_checked()
    page.get_by_role("tab", name="Chart").click()
    assert page.locator("#legend tbody tr:not(.off)").count() == 1


def test_back_and_forward_go_through_the_questions(watched: Watched) -> None:
    page = watched.open(LOAD)
    drawn(page)
    page.fill("#query", CPU)
    page.press("#query", "Enter")
    drawn(page)
    page.go_back()
    expect(page.locator("#query")).to_have_value(LOAD)
    drawn(page)
    page.go_forward()
    expect(page.locator("#query")).to_have_value(CPU)
    drawn(page)


def test_nonsense_in_the_address_does_no_harm(watched: Watched) -> None:
    page = watched.open("", range="9 years", view="<b>", refresh="1ms", zoom="x", only="none")
    expect(page.get_by_text("Ask a question")).to_be_visible()
    expect(page.get_by_role("radio", name="1 h", exact=True)).to_be_checked()
    assert page.input_value("#refresh") == "10s"
