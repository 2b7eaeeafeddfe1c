"""Ranges from an hour to years: the picker, its texts, zones and keys, on the page of queries and on dashboards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.watched import Watched, comes, drawn, findings, given, module
from tests.page.years import MARK

LOAD = "fetch('host.load')"
NOW = 1_795_860_000_000


@pytest.fixture(scope="module")
def modules(browser: Browser, years_address: str) -> Iterator[Page]:
    """One page whose modules are called."""
    made = Watched(browser, years_address, "light", 800, 600)
    yield made.open()
    made.close()


@pytest.mark.parametrize(
    ("text", "zone", "found"),
    [
        ("30d", "", "30d"),
        ("1h30m", "", "1h30m"),
        ("now-30d", "", "30d"),
        (" now - 2y ", "", "2y"),
        ("now-60d to now-30d", "", "now-60d to now-30d"),
        ("2026-11-01 to 2026-11-02 08:00", "UTC", "2026-11-01T00:00:00Z to 2026-11-02T08:00:00Z"),
        ("2026-11-01 to 2026-11-02", "Europe/Berlin", "2026-10-31T23:00:00Z to 2026-11-01T23:00:00Z"),
        ("2026-10-25 01:00 to 2026-10-25 04:00", "Europe/Berlin", "2026-10-24T23:00:00Z to 2026-10-25T03:00:00Z"),
        ("2026-11-01T00:00:00+02:00 to now", "UTC", "2026-10-31T22:00:00Z to now"),
        *(
            (text, "", "")
            for text in ("", "soon", "30", "1s", "99y", "now to now-1h", "a to b to c", "2026-13-01", MARK)
        ),
    ],
)
def test_texts_of_ranges(modules: Page, text: str, zone: str, found: str) -> None:
    assert module(modules, "time_range.js", "m.normalized(a[0], a[1], a[2])", [text, zone, NOW]) == found


MOVES = {
    "m.shifted('1h', -0.5, a)": "2026-11-28T08:30:00Z to 2026-11-28T09:30:00Z",
    "m.shifted(m.shifted('1h', -0.5, a), 0.5, a)": "1h",
    "m.shifted('30d', 9, a)": "30d",
    "m.zoomed('30d', 2, a)": "60d",
    "m.zoomed('2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z', 2, a)": "2026-10-31T12:00:00Z to 2026-11-02T12:00:00Z",
    "m.zoomed('1m', 0.1, a)": "1m",
    "m.zoomed('20y', 2, a)": "7300d",
    "m.leastInterval('1h', a)": 0,
    "m.leastInterval('30d', a)": 300_000,
    "[900, 3600, 43200, 259200, 2592000, 63072000].map((s) => m.stepFor(s * 1000))": [60, 60, 300, 1200, 7200, 172_800],
}


@pytest.mark.parametrize(("call", "found"), MOVES.items(), ids=range(len(MOVES)))
def test_ranges_move_zoom_and_have_steps(modules: Page, call: str, found: Any) -> None:
    assert module(modules, "time_range.js", call, NOW) == found


@pytest.mark.parametrize("lang", ["artimon", "promql"])
def test_thirty_days_come_from_memory_and_history_and_the_page_says_so(explorer: Watched, lang: str) -> None:
    text = LOAD if lang == "artimon" else 'avg_over_time({"host.load"}[2h])'
    page = explorer.open(text, lang=lang, range="30d")
    drawn(page)
    expect(page.get_by_role("radio", name="30 d")).to_be_checked()
    points = "720 points of 60 min" if lang == "artimon" else "360 points of 2 h"
    expect(page.locator("#summary")).to_contain_text(f"3 series · {points}")
    stores = (
        "memory and history" if lang == "artimon" else "(memory and )?history"
    )  # a step may end before memory begins
    expect(page.locator("#origin")).to_contain_text(re.compile(f"Read from {stores} · history: "))
    expect(page.locator("#notes")).to_be_hidden()
    expect(page.locator("#legend")).to_contain_text(MARK)


def test_a_year_is_read_from_roll_ups_of_days(explorer: Watched) -> None:
    page = explorer.open(LOAD, range="365d")
    drawn(page)
    expect(page.locator("#summary")).to_contain_text("365 points of 24 h")
    expect(page.locator("#origin")).to_contain_text("buckets of 1d")


def test_a_range_is_written_moved_and_kept_in_the_address(explorer: Watched) -> None:
    page = explorer.open(LOAD)
    drawn(page)
    expect(page.locator("#origin")).to_have_text("Read from memory")
    page.locator(".range-menu summary").press("Enter")
    expect(page.locator("#range-free")).to_be_focused()
    assert findings(page) == []
    page.fill("#range-free", "yesterday")
    page.keyboard.press("Enter")
    expect(page.locator("#range-problem")).to_contain_text("yesterday is not a range of at least a minute")
    page.fill("#range-free", "now-40d to now-10d")
    page.keyboard.press("Enter")
    expect(page.locator("#summary")).to_contain_text("720 points of 60 min")
    expect(page.locator("#origin")).to_contain_text("Read from history")
    assert given(page, "range") == "now-40d to now-10d"
    page.keyboard.press(",")
    expect(page.locator("#range-text")).not_to_contain_text("last")
    assert re.fullmatch(r"\S+Z to \S+Z", given(page, "range"))
    page.keyboard.press("-")
    expect(page.locator("#summary")).to_contain_text("240 points of 6 h")
    page.go_back()
    page.go_back()
    expect(page.locator("#summary")).to_contain_text("720 points")
    assert given(page, "range") == "now-40d to now-10d"


def test_a_zoomed_part_is_loaded_in_more_detail(explorer: Watched) -> None:
    page = explorer.open(LOAD, range="365d")
    drawn(page)
    page.focus("#chart")
    for key in ("Home", *["ArrowRight"] * 9, "+", "+", "+", "+", "+"):
        page.keyboard.press(key)
    page.get_by_role("button", name="Load zoom").click()
    expect(page.locator("#summary")).to_contain_text(re.compile("points of (15|60) min"))
    assert " to " in given(page, "range")
    assert given(page, "zoom") == ""


def test_an_ended_range_is_not_asked_again(explorer: Watched) -> None:
    page = explorer.open(LOAD, range="2026-01-01T00:00:00Z to 2026-01-02T00:00:00Z", refresh="10s")
    expect(page.locator("#result-age")).to_contain_text("ago")
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/api/query?" in one.url else None)
    page.clock.install()
    page.clock.run_for(60_000)
    assert asked == []
    expect(page.locator("#result-age")).not_to_contain_text("stale")


def test_times_are_shown_in_the_zone_of_the_address(explorer: Watched) -> None:
    page = explorer.open(LOAD, range="2026-11-01T00:00:00Z to 2026-11-01T12:00:00Z", zone="Asia/Tokyo")
    expect(page.locator("#range-text")).to_have_text(
        re.compile("1 Nov( 2026)? 09:00 – 1 Nov( 2026)? 21:00, Asia/Tokyo")
    )
    page.locator(".range-menu summary").click()
    expect(page.locator("#range-free")).to_be_focused()  # the menu has its values
    page.fill("#range-zone", "Mars/Base")
    page.keyboard.press("Enter")
    expect(page.locator("#range-problem")).to_contain_text("is not a time zone")
    page.fill("#range-zone", "UTC")
    page.keyboard.press("Enter")
    expect(page.locator("#range-text")).to_have_text(re.compile("1 Nov( 2026)? 00:00 – 1 Nov( 2026)? 12:00, UTC"))
    assert given(page, "zone") == "UTC"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dashboards_reach_as_far(browser: Browser, years_address: str, scheme: str) -> None:
    watched = Watched(browser, years_address, scheme, 1440, 900)
    page, asked = watched.page, list[str]()
    page.on("request", lambda one: asked.append(one.url) if "/api/query" in one.url else None)
    page.goto(f"{years_address}/dashboards?{urlencode({'name': 'years', 'zone': 'UTC'})}")
    expect(page.locator("#age")).to_contain_text("ago")
    expect(page.locator("#range-text")).to_have_text("last 90d, UTC")
    expect(page.locator(".panel .note").first).to_have_attribute("title", re.compile("Read from memory and history"))
    expect(page.locator(".panel .legend tbody tr")).to_have_count(4)
    assert any("21600s" in one for one in asked)
    page.keyboard.press("-")
    expect(page.locator("#range-text")).to_have_text("last 180d, UTC")
    assert given(page, "range") == "180d"
    page.locator(".range-menu summary").click()
    expect(page.locator("#range-free")).to_be_focused()
    assert findings(page) == []
    page.fill("#range-free", "now-2d to now-1d")
    page.keyboard.press("Enter")
    comes(page, lambda: any("300s" in one for one in asked))
    watched.close()
