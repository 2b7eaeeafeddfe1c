"""For everyone: the keyboard alone, axe-core, dark mode, small windows, less motion."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.page.conftest import Opener
from tests.page.test_panels import ALERTS
from tests.page.watched import CPU, LOAD, Watched, answer_with, colours, drawn, matrix, racks

SERIOUS = ("serious", "critical")
DOWN = {"context": "shop", "instance": "0", "host": "h", "labels": {}, "up": False, "since_ms": 1, "time_ms": 2}


def findings(page: Page) -> list[str]:
    """Return the serious and critical findings of axe-core."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_serious_findings(opener: Opener, scheme: str) -> None:
    watched = opener(scheme=scheme)
    watched.may_refuse = True
    page = watched.page
    answer_with(page, "alerts", ALERTS)
    answer_with(page, "endpoints", {"endpoints": [DOWN], "found": 1, "down": 1, "unknown": 0, "up": 0})
    watched.open()
    expect(page.locator(".hop").first).to_be_visible()
    page.click("#alerts summary")
    assert not findings(page), "empty"
    page.fill("#query", CPU)
    page.press("#query", "Enter")
    drawn(page)
    page.locator("#legend tbody .name-cell button").first.click()
    page.fill("#find-text", "host.load{}")
    expect(page.locator("#find-list tbody tr").first).to_be_visible()
    assert not findings(page), "chart"
    page.get_by_role("tab", name="Table").click()
    assert not findings(page), "table"
    page.fill("#query", "fetch('host.load').raet")
    page.press("#query", "Enter")
    expect(page.locator("#error p")).to_be_visible()
    assert not findings(page), "error"
    page.fill("#query", "fetch('host.l")
    open_suggestions(page)
    assert not findings(page), "suggestions"
    page.keyboard.press("Escape")
    page.click("#help-button")
    assert not findings(page), "help"


def open_suggestions(page: Page, most: int = 5) -> None:
    """Press the key of the suggestions until they are there: a list whose request fails on a busy machine stays
    closed."""
    for turn in range(most):
        page.press("#query", "Control+Space")
        try:
            expect(page.locator("#suggestions")).to_be_visible(timeout=4_000)
        except AssertionError:
            if turn == most - 1:
                raise
        else:
            return


def tab_to(page: Page, wanted: str, most: int = 60) -> None:
    """Press Tab until the element that matches `wanted` has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("(wanted) => document.activeElement.matches(wanted)", wanted):
            return
    raise AssertionError(f"{wanted} is not reached by Tab")


def test_a_walk_with_the_keyboard_only(watched: Watched) -> None:
    page = watched.open()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the query"
    page.keyboard.press("Enter")
    tab_to(page, "button.example")
    page.keyboard.press("Enter")
    drawn(page)
    page.keyboard.press("/")
    tab_to(page, 'input[name="range"]')
    page.keyboard.press("ArrowLeft")  # a longer range has no bucket that is over yet, where the stack is new
    expect(page.get_by_role("radio", name="15 min")).to_be_checked()
    tab_to(page, "#tab-chart")
    tab_to(page, "#chart")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#live")).not_to_be_empty()
    tab_to(page, "#legend [data-key^='pick']")
    page.keyboard.press("Enter")
    expect(page.locator("#legend tbody tr:not(.off)")).to_have_count(1)
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.locator("#table")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.locator("#find-text")).to_be_focused()
    page.keyboard.type("host.load")
    expect(page.locator("#find-list button")).to_have_count(1)
    tab_to(page, "#find-list button")
    page.keyboard.press("Enter")
    expect(page.locator("#find-list tbody")).to_be_visible()
    tab_to(page, "#find-list tbody button")
    page.keyboard.press("Enter")
    assert page.input_value("#query").startswith("fetch('host.load{")


def test_focus_is_always_seen(watched: Watched) -> None:
    page = watched.open(LOAD)
    drawn(page)
    page.focus("body")
    for _ in range(25):
        page.keyboard.press("Tab")
        seen = """() => {
          const one = document.activeElement, style = getComputedStyle(one);
          const next = one.nextElementSibling ? getComputedStyle(one.nextElementSibling) : style;
          const plain = one === document.body || one.matches(".skip");
          return plain || style.outlineStyle !== "none" || next.outlineStyle !== "none";
        }"""
        assert page.evaluate(seen), page.evaluate("() => document.activeElement.outerHTML.slice(0, 200)")


def test_the_help_lists_the_keys(watched: Watched) -> None:
    page = watched.open()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.focus("#query")
    page.keyboard.type("?r/")
    assert page.input_value("#query") == "?r/"


def ground(page: Page) -> int:
    """Return the mean brightness of the page, 0 to 255."""
    return int(page.evaluate("() => Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"))


def test_dark_mode_follows_the_system_and_the_switch(opener: Opener) -> None:
    page = opener(scheme="dark").open(LOAD)
    drawn(page)
    assert ground(page) < 60
    page.get_by_role("radio", name="Light").check()
    assert ground(page) > 200
    page.reload()
    drawn(page)
    assert ground(page) > 200
    page.get_by_role("radio", name="Auto").check()
    assert ground(page) < 60
    page.emulate_media(color_scheme="light")
    assert ground(page) > 200
    assert colours(page) > 5


@pytest.mark.parametrize(("width", "height"), [(360, 740), (720, 450)])
def test_nothing_is_cut_off_in_small_windows(opener: Opener, width: int, height: int) -> None:
    """720 x 450 is a desk's window at 200 %."""
    watched = opener(width=width, height=height)
    answer_with(watched.page, "alerts", ALERTS)
    answer_with(watched.page, "query", matrix(racks(30)))
    page = watched.open("fetch('heat')")
    drawn(page)
    for view in ("Chart", "Table"):
        page.get_by_role("tab", name=view).click()
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_less_motion_is_respected(watched: Watched) -> None:
    watched.page.emulate_media(reduced_motion="reduce")
    page = watched.open(LOAD)
    moving = """() => [...document.querySelectorAll("*")].filter((one) =>
      getComputedStyle(one).transitionDuration.split(",").some((s) => parseFloat(s) > 0)).length"""
    assert page.evaluate(moving) == 0
    assert page.evaluate("() => getComputedStyle(document.documentElement).scrollBehavior") == "auto"
