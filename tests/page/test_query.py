"""The query box: running, errors under their place, completion, history."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.test_access import open_suggestions
from tests.page.watched import CPU, LOAD, Watched, asked, colours, drawn, matrix, module, racks


def test_a_query_is_run_and_drawn(watched: Watched) -> None:
    page = watched.open()
    expect(page.get_by_text("Ask a question")).to_be_visible()
    page.fill("#query", CPU)
    page.press("#query", "Enter")
    drawn(page)
    assert colours(page) > 20
    expect(page.locator("#summary")).to_contain_text("series · 60 points of 1 min")
    assert page.locator("#legend tbody tr").count() > 1


def test_an_answer_tells_how_complete_its_data_are(watched: Watched) -> None:
    page = watched.open(CPU)
    drawn(page)
    expect(page.locator("#completeness")).to_contain_text("% of expected points")
    page.get_by_role("radio", name="PromQL").check()
    page.get_by_role("radio", name="Artimon").check()
    expect(page.locator("#completeness")).to_contain_text("% of expected points")


def test_an_example_runs(watched: Watched) -> None:
    page = watched.open()
    page.click(f'button:has-text("{LOAD}")')
    drawn(page)
    assert page.input_value("#query") == LOAD


def test_ranges_choose_the_level(watched: Watched) -> None:
    page = watched.open(LOAD)
    drawn(page)
    page.get_by_role("radio", name="3 h").check()
    expect(page.locator("#summary")).to_contain_text("36 points of 5 min")
    assert "range=3h" in page.url


def test_a_range_in_the_text_wins(watched: Watched) -> None:
    page = watched.open(f'{LOAD}.range("5m")', range="3h")
    drawn(page)
    expect(page.locator("#summary")).to_contain_text("5 points of 1 min")
    expect(page.locator("#range-note")).to_be_visible()


@pytest.mark.parametrize(
    ("text", "wrong", "told"),
    [
        ("fetch('host.load')\n  .raet()", "raet", "rate"),
        ("fetch('host.load{hots=\"x\"}')", "hots", "host"),
        ("\"💥\" + fetch('host.load').raet()", "raet", "rate"),
        ("fetch('host.load'", "(", "not closed"),
    ],
)
def test_an_error_stands_under_its_place(watched: Watched, text: str, wrong: str, told: str) -> None:
    watched.may_refuse = True
    page = watched.open()
    page.fill("#query", text)
    page.press("#query", "Control+Enter")
    expect(page.locator("#error")).to_contain_text(told)
    marked = page.locator("#backdrop .wrong")
    expect(marked).to_contain_text(wrong)
    chosen = "() => { const q = document.activeElement; return q.value.slice(q.selectionStart, q.selectionEnd); }"
    assert page.evaluate(chosen) == marked.text_content()
    line = next(line for line in text.splitlines() if wrong in line)
    expect(page.locator("#error pre")).to_contain_text(line)
    assert page.get_attribute("#query", "aria-invalid") == "true"
    page.fill("#query", LOAD)
    page.press("#query", "Enter")
    drawn(page)
    expect(page.locator("#error")).to_be_empty()


def test_an_unknown_variable_says_what_comes_near(watched: Watched) -> None:
    watched.may_refuse = True
    page = watched.open("fetch('host.cpu.msec')")
    expect(page.locator("#error")).to_contain_text("host.cpu.ms")
    expect(page.get_by_text("No answer", exact=True)).to_be_visible()


def pick(page: Page, typed: str, wanted: str) -> None:
    """Type, go down to `wanted` in the list, take it."""
    page.keyboard.type(typed)
    expect(page.locator("#suggestions li", has_text=wanted).first).to_be_visible()
    page.keyboard.press("Control+Space")  # a list of the text before may still come, without a choice
    chosen = page.locator('#suggestions [aria-selected="true"]')
    expect(chosen).to_be_visible()
    for _ in range(60):
        if (chosen.locator("span").first.text_content() or "").strip("(") == wanted:
            break
        page.keyboard.press("ArrowDown")
    assert page.get_attribute("#query", "aria-activedescendant")
    page.keyboard.press("Enter")
    expect(page.locator("#suggestions")).to_be_hidden()


def test_a_query_is_written_with_completion_only(watched: Watched) -> None:
    page = watched.open()
    page.focus("#query")
    pick(page, "fe", "fetch")
    pick(page, "'host.cpu", "host.cpu.ms")
    pick(page, "{", "mode")
    pick(page, '="us', "user")
    pick(page, "\"}').ra", "rate")
    pick(page, ").s", "sum")
    pick(page, 'by=["c', "cpu")
    page.keyboard.type('"])')
    page.keyboard.press("Enter")
    assert page.input_value("#query") == 'fetch(\'host.cpu.ms{mode="user"}\').rate().sum(by=["cpu"])'
    drawn(page)


def test_suggestions_close_and_tab_goes_on(watched: Watched) -> None:
    page = watched.open()
    open_suggestions(page)
    page.keyboard.press("Escape")
    expect(page.locator("#suggestions")).to_be_hidden()
    page.keyboard.press("Tab")
    expect(page.locator("#run")).to_be_focused()


def test_an_error_is_not_covered_by_suggestions(watched: Watched) -> None:
    watched.may_refuse = True
    page = watched.page
    page.clock.install()
    watched.open()
    page.focus("#query")
    text = "fetch('shop.requests').rat('1m')"
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    expect(page.locator("#error p")).to_be_visible()
    page.clock.run_for(1_000)
    page.wait_for_timeout(200)  # a list that is wrongly asked for would come now
    expect(page.locator("#suggestions")).to_be_hidden()
    page.keyboard.press("Tab")
    expect(page.locator("#run")).to_be_focused()
    assert page.input_value("#query") == text


@pytest.mark.parametrize("key", ["Home", "ArrowLeft", "Alt+ArrowUp"])
def test_suggestions_close_when_the_caret_goes(watched: Watched, key: str) -> None:
    page = watched.open(LOAD)
    page.fill("#query", "")
    page.focus("#query")
    page.keyboard.type("fetch('host.l")
    open_suggestions(page)
    page.keyboard.press(key)
    expect(page.locator("#suggestions")).to_be_hidden()


def test_values_are_escaped_for_the_text_they_stand_in(watched: Watched) -> None:
    from query_dsl import parse  # what the page writes must be read back

    page = watched.open()
    value = 'it\'s "a\\b"\nc'
    text = "fetch('x{a=\"" + module(
        page, "completion.js", "m.written(m.contextAt('fetch(\\'x{a=\"', 12), {text: a, about: ''})", value
    )
    parsed = str(parse(text + "\"}')"))
    by_hand = str(parse(module(page, "language.js", "m.fetchText(a)", 'x{a="it\'s \\"a\\\\b\\"\\nc"}')))
    assert parsed == by_hand


def test_the_history_comes_back(watched: Watched) -> None:
    page = watched.open()
    for text in (LOAD, CPU):
        page.fill("#query", text)
        page.press("#query", "Enter")
        drawn(page)
    page.fill("#query", "draft")
    for key, wanted in (("ArrowUp", CPU), ("ArrowUp", LOAD), ("ArrowDown", CPU), ("ArrowDown", "draft")):
        page.press("#query", f"Alt+{key}")
        assert page.input_value("#query") == wanted
    page.reload()
    page.press("#query", "Alt+ArrowUp")
    assert page.input_value("#query") in (LOAD, CPU)


def test_shift_enter_begins_a_line(watched: Watched) -> None:
    page = watched.open()
    page.focus("#query")
    page.keyboard.type("fetch('host.load')")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type(".abs()")
    assert page.input_value("#query") == "fetch('host.load')\n.abs()"
    with page.expect_request(lambda request: "api/query" in request.url) as sent:
        page.click("#run")
    assert "abs" in asked(sent.value)


def test_a_query_beyond_a_soft_limit_runs_after_a_confirmation_alone(watched: Watched) -> None:
    watched.may_refuse = True
    page, limits = watched.page, list[str]()
    told = {"error": {"message": "more series match than the limit of 10 (series): add matchers"}}

    def answer(route: Route) -> None:
        hard = "limits=hard" in asked(route)
        limits.append("hard" if hard else "soft")
        if hard:
            route.fulfill(json=matrix(racks(3)))
        else:
            route.fulfill(status=413, json=told)

    page.route("**/api/query?*", answer)
    watched.open(LOAD)
    expect(page.locator("#error p")).to_contain_text("limit of 10 (series)")
    assert set(limits) == {"soft"}
    page.get_by_role("button", name="Run it within the hard limits").click()
    drawn(page)
    expect(page.locator("#error")).to_be_empty()
    assert limits[-1] == "hard"
    page.reload()
    expect(page.locator("#error p")).to_contain_text("limit of 10 (series)")
    assert limits[-1] == "soft"
