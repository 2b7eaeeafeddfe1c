"""The page of dashboards in a browser, over the API with a small fleet in memory and a folder of dashboards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Response, expect

from artimon.dashboards.dashboard_store import DashboardStore
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.values import Kind
from artimon.stack.demo_fleet import METRICS, MINUTE_MS, DemoFleet
from tests.api.serving import served
from tests.chromium import chromium
from tests.page.watched import PICTURES, START_MS, WAIT_MS, Watched, answer_with, matrix, module, save_picture
from tests.query_dsl.plain_store import PlainStore, Sample
from tests.waiting import eventually

MARK = "<img src=x onerror=alert(1)>"
HOSTILE = f"""\
title: '{MARK}'
description: '{MARK}'
variables:
- {{name: v, title: '{MARK}', values: ['{MARK}', b], multi: true}}
panels:
- {{kind: text, title: '{MARK}', text: '{MARK}', links: [{{title: '{MARK}', url: 'https://example.org/$v'}}]}}
- {{kind: value, title: '$v', repeat: v, queries: [{{q: fetch('host.load'), legend: '{MARK}'}}]}}
"""
SHOP = """\
title: Shop
panels:
- {kind: value, title: Load, queries: [{q: "fetch('host.load{window=\\"5m\\"}').max(by=[])"}]}
- {kind: table, title: Again, queries: [{q: "fetch('host.load{window=\\"5m\\"}').max(by=[])"}]}
- kind: states
  title: Busy
  names: [{value: 0, text: idle, state: good}, {value: 1, text: busy, state: warn}]
  queries: [{q: "(fetch('host.load{window=\\"5m\\"}') > 3).max(by=['host'])", legend: "{host}"}]
"""
MARKED = """\
title: Marked
variables:
- {name: shop, values: [web]}
- {name: host, label: host, series: host.load, multi: true}
marks:
  alerts: true
  starts: "fetch('shop.version{shop=\\"$shop\\"}')"
  queries:
  - {q: "fetch('shop.version{shop=\\"$shop\\"}') == '1.1'", title: "new in {shop} of $shop"}
  - {q: nobody_sends, lang: promql, title: none}
  - {q: fetch('nobody.sends'), title: none}
panels:
- {title: Load, queries: [{q: "fetch('host.load{window=\\"5m\\"}').max(by=[])"}]}
"""
LACKING = """\
title: Lacking
panels:
- {kind: value, title: Load, queries: [{q: "fetch('host.load{window=\\"5m\\"}').max(by=[])"}]}
- {kind: value, title: Prom, queries: [{q: 'max({__name__="host.load"})', lang: promql}]}
- {kind: value, title: Again, queries: [{q: 'max({__name__="host.load"})', lang: promql}]}
"""
LACK = {
    "text": "96.66 % of expected points; host a silent since 2026-11-28T14:02:00Z (late)",
    "series": 2,
    "share": 0.9666,
    "silent_hosts": 1,
    "silent": [{"host": MARK, "state": "late"}],
}
PANELS = 200
Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("boards")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Half an hour of six hosts up to now."""
    end_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
    fleet, store = DemoFleet(6, 1, end_ms), PlainStore()
    times = np.arange(end_ms - 30 * MINUTE_MS, end_ms + 1, MINUTE_MS, dtype=np.int64)
    found = fleet.at(times, MINUTE_MS)
    for (name, labels), values in zip(fleet.series, found.values, strict=True):
        samples = [Sample(int(at), float(value), 1) for at, value in zip(times, values, strict=True)]
        store.add(name, labels, samples, Kind[METRICS[name].kind.upper()])
    versions = [Sample(int(at), "1.0" if at < end_ms - 10 * MINUTE_MS else "1.1", 1) for at in times]
    for shop in ("web", "other"):
        store.add("shop.version", {"shop": shop}, versions)
    (folder / "marked.yaml").write_text(MARKED)
    (folder / "hostile.yaml").write_text(HOSTILE)
    panels = [f"- {{title: P{n}, queries: [{{q: \"fetch('host.load') + {n}\"}}]}}\n" for n in range(PANELS)]
    (folder / "large.yaml").write_text(f"title: Large\nrefresh: off\npanels:\n{''.join(panels)}")
    with served(store, clock=SYSTEM_CLOCK, dashboards=DashboardStore(folder)) as client:
        yield f"http://127.0.0.1:{client.port}"


@pytest.fixture
def opener(browser: Browser, address: str) -> Iterator[Opener]:
    made: list[Watched] = []

    def new(scheme: str = "light", **state: str) -> Page:
        made.append(Watched(browser, address, scheme, 1440, 1000))
        made[-1].may_refuse = True
        made[-1].page.goto(f"{address}/dashboards?{urlencode(state)}")
        return made[-1].page

    yield new
    for one in made:
        one.close()


def findings(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]


def filled(page: Page) -> None:
    """Wait until every panel has its answer."""
    expect(page.locator("#age")).to_contain_text("ago")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_shipped_dashboards_are_shown_and_accessible(opener: Opener, scheme: str) -> None:
    page = opener(scheme)
    expect(page.get_by_role("link", name="Web application")).to_be_visible()
    assert findings(page) == []
    page.get_by_role("link", name="Web application").click()
    filled(page)
    expect(page.locator(".panel .big").first).to_contain_text("/s")
    expect(page.locator(".heat")).to_be_visible()
    expect(page.locator(".panel .problem:not(:empty)")).to_have_count(0)
    assert findings(page) == []
    if PICTURES and scheme == "light":
        before = page.locator(".heat-told").inner_text()
        page.get_by_role("radio", name="15 min").check()
        expect(page.locator(".heat-told")).not_to_have_text(before)
        save_picture(page, "dashboard", 1000)


def test_a_panel_fills_the_window_by_keyboard_and_the_address_says_so(opener: Opener) -> None:
    page = opener(name="hosts")
    filled(page)
    page.locator('[data-panel="5"] .full').focus()
    page.keyboard.press("f")
    expect(page.locator(".panel:visible")).to_have_count(1)
    assert "panel=5" in page.url
    page.reload()
    expect(page.locator(".panel:visible")).to_have_count(1)
    page.locator(".menu summary").click()
    page.get_by_role("checkbox", name="demo-web-001").check()
    expect(page.locator(".menu strong")).to_have_text("demo-web-001")
    assert "var-host=demo-web-001" in page.url
    expect(page.locator(".panel:visible .legend tbody tr")).to_have_count(1)


def test_equal_questions_are_asked_once_and_a_snapshot_needs_no_server(
    opener: Opener, folder: Path, tmp_path: Path, browser: Browser
) -> None:
    (folder / "shop.yaml").write_text(SHOP)
    page = opener(name="hosts")
    shop = page.url.replace("hosts", "shop")
    page.goto("about:blank")  # the page before asks no more
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/api/query" in one.url else None)
    page.goto(shop)
    filled(page)
    assert len(asked) == 2
    expect(page.locator(".part.good, .part.warn").first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Snapshot").click()
    file = tmp_path / "shop.html"
    download.value.save_as(file)
    text = file.read_text()
    assert "<script src" not in text
    assert "http://127.0.0.1" not in text
    alone = browser.new_page()
    requests: list[str] = []
    alone.on("request", lambda one: requests.append(one.url))
    alone.goto(file.as_uri())
    expect(alone.locator(".panel .big")).to_have_text(page.locator(".panel .big").inner_text())
    assert [one for one in requests if not one.startswith(("file:", "data:"))] == []
    alone.close()


def test_panels_mark_missing_data_and_lead_to_the_query(opener: Opener, folder: Path) -> None:
    """Measured once for equal queries, after the answers, and not again with the next refresh."""
    (folder / "lacking.yaml").write_text(LACKING)
    page = opener(name="marked")
    board = page.url.replace("marked", "lacking")
    page.goto("about:blank")
    told: list[Response] = []
    page.on("response", lambda one: told.append(one) if "/api/completeness" in one.url else None)
    page.goto(board)
    filled(page)
    while len(told) < 2:  # the timeout of the browser ends it
        page.wait_for_event("response")
    assert [(one.status, one.json()["series"] > 0) for one in told] == [(200, True)] * 2
    page.goto("about:blank")
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/api/completeness" in one.url else None)
    answer_with(page, "completeness", LACK)
    page.goto(board)
    marks = page.locator(".panel-head .lack")
    expect(marks).to_have_count(3)
    expect(marks.first).to_have_accessible_name(f"Data is missing: {LACK['text']}")
    expect(marks.first).to_have_attribute("title", f"{LACK['text']}\n{MARK} (late)")
    assert findings(page) == []
    page.keyboard.press("r")
    page.wait_for_timeout(500)
    assert len(asked) == 2
    page.unroute("**/api/completeness*")
    marks.nth(1).click()
    expect(page.locator("#completeness")).to_contain_text("% of expected points")
    assert "lang=promql" in page.url


def test_whole_data_has_no_mark(opener: Opener, folder: Path) -> None:
    (folder / "lacking.yaml").write_text(LACKING)
    page = opener(name="marked")
    answer_with(page, "completeness", {**LACK, "share": 0.9995, "silent_hosts": 0, "silent": []})
    with page.expect_response("**/api/completeness*"):
        page.goto(page.url.replace("marked", "lacking"))
    filled(page)
    page.wait_for_timeout(300)
    expect(page.locator(".panel-head .lack")).to_have_count(0)


def test_alerts_and_deploys_are_marked_in_charts(opener: Opener) -> None:
    """Of the chosen shop only; marks that do not answer are told, and the panels are shown all the same."""
    page = opener(name="marked")
    filled(page)
    expect(page.locator("#mark-count")).to_have_text("2 marks, incomplete")
    expect(page.locator("#mark-problem")).to_contain_text("Marks of alerts: no alert engine is known here")
    expect(page.locator("#problem")).to_be_empty()
    at_ms = int(time.time() * 1000) - 20 * MINUTE_MS
    one = {"time_ms": at_ms, "change": "firing", "rule": "Hot", "labels": {}, "summary": "", "reason": ""}
    other = {**one, "rule": "Other", "labels": {"host": "demo-web-002"}}
    answer_with(page, "alerts/history", {"history": [one, other]})

    def answered() -> bool:
        page.keyboard.press("r")  # while a refresh runs, the key starts none
        page.wait_for_timeout(200)
        return page.locator("#mark-problem").count() == 0

    eventually(answered, "the marks answer")
    expect(page.locator("#mark-count")).to_have_text("4 marks")
    page.locator("figure.chart").focus()
    page.keyboard.press("Home")
    told = []
    for _ in range(60):
        page.keyboard.press("ArrowRight")
        told.append(page.locator("#live").text_content() or "")
    marks = {mark for text in told for mark in text.split("; ")[1:]}
    assert len(marks) == 4
    assert any(text.endswith("fires: Hot") for text in marks)
    assert any("event: new in web of web" in text for text in marks)
    assert any("1.0 → 1.1" in text and "web" in text for text in marks)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_are_listed_and_read_by_keyboard(opener: Opener, scheme: str) -> None:
    """Alerts of a host that is not chosen are left out."""
    page = opener(scheme, name="marked", **{"var-host": "demo-web-001"})
    at_ms = int(time.time() * 1000) - 20 * MINUTE_MS
    one = {"time_ms": at_ms, "change": "firing", "rule": MARK, "labels": {"host": "demo-web-001"}}
    answer_with(page, "alerts/history", {"history": [one, {**one, "labels": {"host": "demo-web-002"}}]})
    page.reload()
    expect(page.locator("#mark-count")).to_have_text("3 marks")
    page.locator("#mark-count").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#mark-kinds")).to_have_text("▲ fires (1), ◆ starts (1), ● event (1)")
    expect(page.locator("#mark-lines li").first).to_contain_text(f"▲ fires: {MARK} host=demo-web-001")
    assert findings(page) == []
    page.keyboard.press("Tab")
    expect(page.get_by_role("region", name="Marks")).to_be_focused()
    page.keyboard.press("r")
    filled(page)
    expect(page.get_by_role("region", name="Marks")).to_be_focused()


ASK_MARKS = """await m.marksIn(
  { marks: "", starts: "", events: [{ q: "a", title: "{rack}" }, { q: "wrong", title: "" }] },
  { start_ms: 0, end_ms: Infinity }, new AbortController().signal,
  async (q) => { if (q === "wrong") throw new Error("no"); return a.matrix; }, (one) => one.time_ms < a.before_ms)"""


def events(page: Page, before: int, **series: object) -> tuple[list[int], str, set[str]]:
    """Buckets of a series in which events are marked, up to `before`; what is told; texts of the marks."""
    given = {"matrix": matrix([{"labels": {"rack": MARK}, **series}]), "before_ms": START_MS + (before + 1) * MINUTE_MS}
    found = module(page, "marks.js", ASK_MARKS, given)
    at = [(one["time_ms"] - START_MS) // MINUTE_MS - 1 for one in found["found"]]
    return at, found["problem"], {one["text"] for one in found["found"]}


def test_events_begin_where_a_value_becomes_other_than_0(opener: Opener) -> None:
    """A missing value, NaN and an empty text count as 0. A query that fails is told with its place."""
    page = opener()
    for values, kind, expected in (
        ([0.0, 1.5, 2.0, 0.0, -3.0], "DOUBLE", [1, 4]),
        ([None, 1.0, None, 1.0], "DOUBLE", [1, 3]),
        (["NaN", 0.0, "NaN", "Infinity"], "DOUBLE", [3]),
        ([1, 1], "INTEGER", []),
        ([False, True], "BOOLEAN", [1]),
        (["", "a", "b", "", "c"], "STRING", [1, 4]),
    ):
        found, problem, texts = events(page, 10, values=values, type=kind)
        assert (found, problem) == (expected, "Marks of queries[1]: no"), values
        assert texts == ({MARK} if found else set())


def test_the_newest_marks_are_shown_of_those_that_count(opener: Opener) -> None:
    """What is not shown takes no place of others."""
    page, values = opener(), [0.0, 1.0] * 400
    found, problem, _ = events(page, len(values), values=values)
    assert found == list(range(201, 800, 2))
    assert problem == "Marks of queries[1]: no; Marks: the newest 300 of 400"
    assert events(page, 100, values=values)[0] == list(range(1, 100, 2))


def test_users_of_a_dashboard_share_its_answers(opener: Opener) -> None:
    """Refusals are not shared: that of a query which selects nothing has no age."""
    ages: list[int] = []
    page = opener(name="marked")
    filled(page)
    other = opener()
    other.on(
        "response", lambda one: ages.append(int(one.headers["age"])) if "/api/query" in one.url and one.ok else None
    )
    other.goto(page.url)
    filled(other)
    assert len(ages) == 3  # the panel, starts and events


def test_variables_that_nobody_sends_are_no_error(opener: Opener) -> None:
    page = opener(name="kafka")
    filled(page)
    expect(page.locator(".nothing").first).to_contain_text("No data: kafka.")
    expect(page.locator(".panel .problem:not(:empty)")).to_have_count(0)


def test_stored_html_is_a_text(opener: Opener) -> None:
    page = opener(name="hostile")
    page.on("dialog", lambda _: pytest.fail("a stored text ran"))
    filled(page)
    expect(page.locator(".board-head h2")).to_have_text(MARK)
    expect(page.locator(".panel-body.text")).to_contain_text(MARK)
    expect(page.locator(".panel")).to_have_count(3)
    assert page.locator("img").count() == 0
    assert page.locator(".panel-links a").first.get_attribute("href") == "https://example.org/"


def test_a_dashboard_is_made_changed_and_restored(opener: Opener) -> None:
    page = opener(view="edit")
    page.get_by_label("Name").fill("mine")
    area = page.get_by_label("Text of the dashboard")
    good = area.input_value()
    area.fill(good.replace("window=", "windows?="))
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#edit-problem")).to_contain_text("mine.yaml:8:")
    script = "() => { const a = document.activeElement; return a.value.slice(a.selectionStart, a.selectionEnd); }"
    assert page.evaluate(script).startswith("  - q: fetch")
    area.fill(good)
    page.get_by_role("button", name="Save").click()
    filled(page)
    other = opener(name="mine", view="edit")
    other.get_by_label("Text of the dashboard").fill(good.replace("My dashboard", "Theirs"))
    page.keyboard.press("e")
    page.get_by_label("Text of the dashboard").fill(good.replace("My dashboard", "Ours"))
    other.get_by_role("button", name="Save").click()
    expect(other.locator(".board-head h2")).to_have_text("Theirs")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#edit-problem")).to_contain_text("changed since")
    page.get_by_role("button", name="Show the present text").click()
    expect(page.locator("#edit-problem pre")).to_contain_text("title: Theirs")
    assert findings(page) == []
    page.goto(page.url.split("?")[0] + "?name=mine&view=versions")
    page.get_by_role("button", name="Difference of version 1").click()
    expect(page.locator(".diff .removed")).to_have_text("-title: My dashboard")
    assert findings(page) == []
    page.get_by_role("button", name="Restore version 1").click()
    expect(page.locator(".board-head h2")).to_have_text("My dashboard")


def test_panels_of_a_large_dashboard_ask_when_they_are_near(opener: Opener) -> None:
    page = opener(name="large")
    filled(page)
    asked: list[str] = []
    drawn = page.locator(".panel canvas")
    expect(drawn.nth(1)).to_be_visible()
    first = drawn.count()
    assert 2 <= first < PANELS / 4
    page.on("request", lambda request: asked.append(request.url))
    page.locator(f'[data-panel="{PANELS}"]').scroll_into_view_if_needed()
    expect(page.locator(f'[data-panel="{PANELS}"] canvas')).to_be_visible()
    assert 1 <= len([url for url in asked if "/api/query" in url]) < PANELS / 2
    with page.expect_download(timeout=60_000) as saved:
        page.get_by_role("button", name="Snapshot").click()
    text = Path(saved.value.path()).read_text()
    assert text.count("<img") == PANELS, "a snapshot has all panels"
