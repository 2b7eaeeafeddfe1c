"""Warnings about the query in the box, and the dialog that saves it, over an API without a stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from alerts.rules.rule_file import parse_rules
from artimon.dashboards.dashboard_store import DashboardStore
from artimon.model.values import Kind
from tests.api.serving import EDGE, minutes, served
from tests.page.watched import Watched, answer_with, drawn, findings
from tests.query_dsl.plain_store import PlainStore

MARK = "<img src=x onerror=alert(1)>"
BOARD = "title: Shop # ours\npanels:\n- {title: One, queries: [{q: fetch('heat')}]}\n"
COUNTER = "fetch('http.requests')"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.yaml").write_text(BOARD)
    return tmp_path


@pytest.fixture
def watched(browser: Browser, folder: Path) -> Iterator[Watched]:
    store = PlainStore().add("heat", {"host": "h1"}, minutes([20.5, 21.5, 20.0, 21.0]), Kind.GAUGE)
    for route in (MARK, "~"):
        store.add("http.requests", {"route": route}, minutes([60 * i for i in range(40)]), Kind.COUNTER)
    with served(store, dashboards=DashboardStore(folder)) as client:
        found = Watched(browser, f"http://127.0.0.1:{client.port}", "light", 1280, 900)
        found.page.clock.install(time=datetime.fromtimestamp(EDGE / 1000, UTC))
        yield found
        found.close()


def warnings(page: Page) -> Locator:
    return page.get_by_role("list", name="Warnings about the query").get_by_role("listitem")


def test_warnings_stand_below_the_query_and_select_their_place(watched: Watched) -> None:
    page = watched.open(f"fetch('heat') + {COUNTER}")
    expect(warnings(page)).to_have_count(2)
    expect(page.locator("#lint")).to_contain_text("is a counter, which only grows")
    expect(page.locator("#lint")).to_contain_text(MARK)
    assert findings(page) == []
    page.get_by_role("button", name=COUNTER, exact=True).click()
    chosen = "() => { const q = document.activeElement; return q.value.slice(q.selectionStart, q.selectionEnd); }"
    assert page.evaluate(chosen) == COUNTER


def test_they_do_not_keep_a_query_from_its_answer(watched: Watched) -> None:
    page = watched.open(COUNTER)
    drawn(page)
    expect(warnings(page)).to_have_count(1)
    page.fill("#query", f"{COUNTER}.rate()")
    page.press("#query", "Enter")
    drawn(page)
    expect(page.locator("#lint")).to_be_empty()


def test_they_come_while_one_writes_and_stand_back_for_an_error(watched: Watched) -> None:
    watched.may_refuse = True
    page = watched.open()
    page.fill("#query", "fetch('heat').rate(")
    page.clock.run_for(2_000)
    page.wait_for_timeout(200)
    expect(page.locator("#lint")).to_be_empty()
    page.fill("#query", "fetch('heat{hots!=\"a\"}')")
    page.clock.run_for(2_000)
    expect(warnings(page)).to_contain_text(["near: host"])
    page.fill("#query", "fetch('haet')")
    page.press("#query", "Enter")
    expect(page.locator("#error")).to_contain_text("near: heat")
    expect(page.locator("#lint")).to_be_hidden()


def test_promql_has_them_too(watched: Watched) -> None:
    page = watched.open("rate(heat[5m]) + haet", lang="promql")
    expect(warnings(page)).to_contain_text(["delta is meant", "near: heat"])
    page.get_by_role("button", name="haet", exact=True).click()
    page.keyboard.type("heat")
    expect(page.locator("#promql .cm-content")).to_have_text("rate(heat[5m]) + heat")
    page.clock.run_for(2_000)
    expect(warnings(page)).to_have_count(1)


def test_the_history_may_know_what_memory_does_not(watched: Watched) -> None:
    page = watched.open("rate(heat[5m]) + haet", lang="promql", range="30d")
    expect(warnings(page)).to_have_count(1)


def test_a_query_becomes_a_panel_of_a_dashboard(watched: Watched, folder: Path) -> None:
    page = watched.open("fetch('heat').map('mean', '5m')")
    drawn(page)
    page.get_by_role("button", name="Save…").click()
    dialog = page.get_by_role("dialog", name="Save the query")
    dialog.get_by_role("combobox", name="Dashboard").select_option(label="Shop")
    dialog.get_by_label("Title of the panel").fill(MARK)
    dialog.get_by_label("Kind").select_option("value")
    assert findings(page) == []
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("Saved.")
    text = (folder / "shop.yaml").read_text()
    assert text.startswith(BOARD)
    assert f"title: {MARK}" in text
    dialog.get_by_role("button", name="Save").click()  # once more, to the text as it is now
    expect(dialog.get_by_role("link", name="Open the dashboard")).to_be_visible()
    dialog.get_by_role("link", name="Open the dashboard").click()
    expect(page.locator(".panel")).to_have_count(3)


def test_a_change_in_between_is_told_and_saving_again_adds_to_it(watched: Watched, folder: Path) -> None:
    watched.may_refuse = True
    page = watched.open('{"heat"}', lang="promql")
    drawn(page)
    page.get_by_role("button", name="Save…").click()
    dialog = page.get_by_role("dialog", name="Save the query")
    with page.expect_response(re.compile(r"/api/dashboards/shop$")):
        dialog.get_by_role("combobox", name="Dashboard").select_option("shop")
    (folder / "shop.yaml").write_text(BOARD.replace("One", "Two"))
    dialog.get_by_label("Title of the panel").fill("Heat")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("load it again")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("Saved.")
    text = (folder / "shop.yaml").read_text()
    assert "title: Two" in text
    assert "lang: promql" in text


def test_a_query_becomes_a_new_dashboard(watched: Watched, folder: Path) -> None:
    watched.may_refuse = True
    page = watched.open("fetch('heat')")
    page.get_by_role("button", name="Save…").click()
    dialog = page.get_by_role("dialog", name="Save the query")
    dialog.get_by_label("Name of the new dashboard").fill("shop")
    dialog.get_by_label("Title of the panel").fill("Heat")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("shop exists")
    dialog.get_by_label("Name of the new dashboard").fill("heat-1")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("Saved.")
    assert (folder / "heat-1.yaml").exists()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_a_viewer_saves_no_panel_but_gets_a_rule(watched: Watched) -> None:
    answer_with(watched.page, "whoami", {"user": "vera", "role": "viewer", "level": "viewer", "login": True})
    page = watched.open("fetch('heat')")
    page.get_by_role("button", name="Save…").click()
    dialog = page.get_by_role("dialog", name="Save the query")
    expect(dialog.get_by_role("button", name="Save")).to_be_disabled()
    expect(dialog).to_contain_text("level editor")
    dialog.get_by_role("radio", name="Alert rule").check(force=True)
    dialog.get_by_label("Name").fill("too-hot")
    dialog.get_by_label("Alert if the value is").fill("> 30")
    dialog.get_by_role("button", name="Write the rule").click()
    expect(dialog.locator("pre").last).to_contain_text("rules:")
    (rule,) = parse_rules(dialog.locator("pre").last.inner_text(), "too-hot.yaml").rules
    assert (rule.name, rule.expr, rule.threshold_text, rule.hold_ms) == ("too-hot", "fetch('heat')", "> 30", 300_000)
    expect(dialog).to_contain_text("too-hot.yaml")
    assert findings(page) == []


def test_what_is_wrong_with_a_rule_is_told(watched: Watched) -> None:
    watched.may_refuse = True
    page = watched.open("fetch('heat')")
    page.get_by_role("button", name="Save…").click()
    dialog = page.get_by_role("dialog", name="Save the query")
    dialog.get_by_role("radio", name="Alert rule").check(force=True)
    dialog.get_by_label("Name").fill("too hot")
    dialog.get_by_label("Alert if the value is").fill("30")
    dialog.get_by_role("button", name="Write the rule").click()
    expect(dialog.get_by_role("alert")).to_contain_text("cannot be a name")
    expect(dialog.get_by_role("alert")).to_contain_text("threshold")


def test_without_a_query_there_is_nothing_to_save(watched: Watched) -> None:
    page = watched.open()
    expect(page.get_by_role("button", name="Save…")).to_be_disabled()
