"""Comparison with an earlier time, and marks of alerts and starts, on the page of queries."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.watched import Watched, answer_with, asked, comes, drawn, findings, given, module
from tests.page.years import MARK

LOAD = "fetch('host.load')"
LEGEND = "#legend tbody tr"
MINUTE = 60_000


def entry(minutes: float, change: str) -> dict[str, object]:
    """An entry of the history of alerts, some minutes ago."""
    at_ms = int(time.time() * 1000 - minutes * MINUTE)
    return {"time_ms": at_ms, "change": change, "rule": "Hot", "labels": {"host": MARK}, "summary": "", "reason": ""}


def with_alerts(page: Page) -> None:
    answer_with(
        page, "alerts/history", {"history": [entry(20, "resolved"), entry(40, "firing"), entry(9000, "firing")]}
    )


@pytest.mark.parametrize(("lang", "rows"), [("artimon", 6), ("promql", 2)])
def test_the_week_before_is_drawn_dashed_on_the_same_times(explorer: Watched, lang: str, rows: int) -> None:
    requests: list[str] = []
    explorer.page.on("request", lambda one: requests.append(asked(one)) if "/api/" in one.url else None)
    text = LOAD if lang == "artimon" else 'max(avg_over_time({"host.load"}[2h]))'
    page = explorer.open(text, lang=lang, range="7d")
    drawn(page)
    page.get_by_label("Compare with").fill("a while")
    page.keyboard.press("Enter")
    expect(page.locator("#compare-problem")).to_contain_text("a while is not a duration")
    page.get_by_label("Compare with").fill("7d")
    page.keyboard.press("Enter")
    expect(page.locator(LEGEND)).to_have_count(rows)
    expect(page.locator(LEGEND).last).to_contain_text(", 7d before")
    expect(page.locator("#summary")).to_contain_text("168 points" if lang == "artimon" else "points")
    dashes = page.evaluate(
        "() => [...document.querySelectorAll('#legend line')].map((one) => one.getAttribute('stroke-dasharray') ?? '')"
    )
    assert dashes == [""] * (rows // 2) + ["5 4"] * (rows // 2)
    colours = page.evaluate(
        "() => [...document.querySelectorAll('#legend line')].map((one) => one.getAttribute('stroke'))"
    )
    assert colours[: rows // 2] == colours[rows // 2 :]
    assert any("time_ms=" in one or lang == "promql" for one in requests)
    assert given(page, "compare") == "7d"
    page.reload()
    expect(page.locator(LEGEND)).to_have_count(rows)


def test_times_of_before_become_those_of_now(explorer: Watched) -> None:
    page = explorer.open()
    grid = {"start_ms": 0, "end_ms": 120_000, "step_ms": 60_000, "n": 2}
    one: dict[str, object] = {"grid": grid, "series": [{"name": "x", "labels": {}, "type": "DOUBLE", "values": [1, 2]}]}
    old = {**one, "grid": {**grid, "start_ms": -3_540_000, "end_ms": -3_420_000}}
    found = module(
        page, "series.js",
        "m.united([{matrix: a[0], name: ''}, {matrix: a[1], name: '', back_ms: 3600000}], null)",
        [one, old],
    )  # fmt: skip
    assert found["grid"]["ends_ms"] == [60_000, 120_000, 180_000]
    assert [row["numbers"] for row in found["rows"]] == [[1, 2, None], [None, 1, 2]]
    assert [row["key"] for row in found["rows"]] == ["x", "x, 1h before"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_alerts_and_starts_are_marked(browser: Browser, years_address: str, scheme: str) -> None:
    watched = Watched(browser, years_address, scheme, 1440, 900)
    with_alerts(watched.page)
    page = watched.open(LOAD)
    drawn(page)
    expect(page.locator("#mark-list")).to_be_hidden()
    page.get_by_role("checkbox", name="Alerts").press("Space")
    expect(page.locator("#mark-count")).to_have_text("2 marks")
    page.get_by_role("checkbox", name="Starts").press("Space")
    expect(page.locator("#mark-count")).to_have_text("3 marks")
    page.locator("#mark-count").press("Enter")
    expect(page.locator("#mark-lines li").nth(0)).to_have_text(re.compile(rf"fires: Hot host={re.escape(MARK)}$"))
    expect(page.locator("#mark-lines li").nth(1)).to_contain_text("starts: artimon.process.uptime.ms")
    assert findings(page) == []
    page.focus("#chart")
    page.keyboard.press("Home")
    for _ in range(59):
        page.keyboard.press("ArrowRight")
        if "fires: Hot" in (page.locator("#live").text_content() or ""):
            break
    expect(page.locator("#live")).to_contain_text("fires: Hot host=")
    expect(page.locator(".tooltip")).to_contain_text("fires: Hot host=")
    assert given(page, "marks") == "alerts starts"
    page.reload()
    expect(page.locator("#mark-count")).to_have_text("3 marks")
    watched.close()


def test_changes_of_a_version_are_starts_and_failures_are_told(explorer: Watched) -> None:
    explorer.may_refuse = True
    page = explorer.open(LOAD, marks="alerts starts", starts="fetch('shop.version')")
    expect(page.locator("#mark-count")).to_have_text("1 mark")
    expect(page.locator("#marks-problem")).to_contain_text("Marks of alerts: no alert engine is known here")
    page.get_by_role("checkbox", name="Alerts").uncheck()
    expect(page.locator("#marks-problem")).to_be_empty()
    page.locator("#mark-count").click()
    expect(page.locator("#mark-lines li")).to_contain_text(f"shop.version 1.0{MARK} → 1.1{MARK}")
    page.get_by_label("Query of starts").fill("fetch('shop.version'")
    page.keyboard.press("Enter")
    expect(page.locator("#marks-problem")).not_to_be_empty()
    page.get_by_role("checkbox", name="Starts").uncheck()
    comes(page, lambda: page.locator("#mark-list").is_hidden())
