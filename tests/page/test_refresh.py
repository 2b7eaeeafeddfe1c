"""Auto-refresh: one request at a time, given up when the question changes, slower after errors, honest about age."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.watched import CPU, LOAD, Watched, answer_with, asked, comes, drawn, matrix, racks, refuse

ROUTES = ("query", "status", "alerts", "endpoints")


class Traffic:
    """Requests to one route that are under way: `most` at once, `begun` in all. With `hold`, none is answered."""

    def __init__(self, page: Page, route: str) -> None:
        self.now = self.most = self.begun = 0
        self.held: list[Route] = []
        self.hold = True
        self._page, self._where = page, f"**/api/{route}*"
        page.route(self._where, self._asked)
        for event in ("requestfinished", "requestfailed"):
            page.on(event, lambda request: self._ended(f"api/{route}" in request.url))

    def _asked(self, route: Route) -> None:
        self.begun += 1
        self.now += 1
        self.most = max(self.most, self.now)
        if self.hold:
            self.held.append(route)
        else:
            route.fulfill(json=matrix(racks(2)))

    def release(self) -> None:
        """From now on the API itself answers."""
        self._page.unroute(self._where)

    def _ended(self, mine: bool) -> None:
        self.now -= mine


def clocked(watched: Watched) -> Page:
    """A page whose clock the test moves."""
    watched.page.clock.install()
    return watched.page


def answered(watched: Watched, **options: str) -> tuple[Page, Traffic]:
    """A page with a clock of the test's, on which a first answer is drawn; every question is answered at once."""
    page = clocked(watched)
    traffic = Traffic(page, "query")
    traffic.hold = False
    watched.open(LOAD, **options)
    drawn(page)
    return page, traffic


@pytest.mark.parametrize("route", ROUTES)
def test_requests_never_pile_up(watched: Watched, route: str) -> None:
    page = clocked(watched)
    traffic = Traffic(page, route)
    watched.open(LOAD)
    page.wait_for_function("() => document.querySelector('#result[aria-busy]')")
    for _ in range(4):
        page.clock.run_for(2_000)  # 8 s: many looks at the clock, less than the deadline of a request
    assert (traffic.begun, traffic.most) == (1, 1)
    page.keyboard.press("r")
    page.clock.run_for(1_000)
    assert traffic.begun == 1


def test_answers_let_the_next_request_go(watched: Watched) -> None:
    page, traffic = answered(watched)
    before = traffic.begun
    for _ in range(3):
        with page.expect_response(lambda answer: "api/query" in answer.url):
            page.clock.run_for(11_000)
    assert traffic.begun >= before + 3
    assert traffic.most == 1


def test_off_asks_nothing_more(watched: Watched) -> None:
    page, traffic = answered(watched, refresh="off")
    page.clock.run_for(120_000)
    assert traffic.begun == 1
    page.select_option("#refresh", "10s")
    with page.expect_response(lambda answer: "api/query" in answer.url):
        page.clock.run_for(11_000)
    assert "refresh" not in page.url


def test_a_hidden_tab_asks_nothing(watched: Watched) -> None:
    page, traffic = answered(watched)
    page.evaluate("() => Object.defineProperty(document, 'hidden', {get: () => window.gone, configurable: true})")
    page.evaluate("() => { window.gone = true; }")
    before = traffic.begun
    page.clock.run_for(60_000)
    assert traffic.begun == before
    with page.expect_response(lambda answer: "api/query" in answer.url):
        page.evaluate("() => { window.gone = false; document.dispatchEvent(new Event('visibilitychange')); }")


def test_another_question_gives_up_the_first(watched: Watched) -> None:
    page = watched.page
    traffic = Traffic(page, "query")
    given_up = threading.Event()
    page.on("requestfailed", lambda request: given_up.set() if "first" in request.url else None)
    watched.open("fetch('first')")
    page.wait_for_function("() => document.querySelector('#result').getAttribute('aria-busy') === 'true'")
    traffic.hold = False
    page.fill("#query", "fetch('second')")
    page.press("#query", "Enter")
    drawn(page)
    assert given_up.is_set()
    assert "second" in page.url


def failing(page: Page, ran: Callable[[int], bool], refused: bool = True) -> list[str]:
    """Every request to /api/query; those for which `ran` is false cannot be reached, or are answered with an error."""
    seen: list[str] = []

    def answer(route: Route) -> None:
        seen.append(asked(route))
        if ran(len(seen)):
            route.fulfill(json=matrix(racks(2)))
        elif refused:
            route.abort("connectionrefused")
        else:
            route.fulfill(status=500, json={"error": {"message": "it broke", "position": None, "length": None}})

    page.route("**/api/query*", answer)
    return seen


def test_it_is_slower_after_errors_and_says_stale(watched: Watched) -> None:
    watched.may_refuse = True
    page = clocked(watched)
    seen = failing(page, lambda count: count == 1, refused=False)
    watched.open(LOAD)
    drawn(page)
    for _ in range(60):
        page.clock.run_for(2_000)
    assert 3 <= len(seen) <= 5  # after 10, 20, 40 s: 12 without it
    expect(page.locator("#result-age")).to_contain_text("stale")
    expect(page.locator("#chart canvas")).to_be_visible()


def test_a_refused_connection_is_tried_again_soon(watched: Watched) -> None:
    watched.may_refuse = True
    page = clocked(watched)
    seen = failing(page, lambda count: count != 2)
    watched.open(LOAD)
    drawn(page)
    with page.expect_request("**/api/query*"):
        page.clock.run_for(10_000)
    expect(page.locator("#result-age")).to_contain_text("stale")
    page.clock.run_for(2_000)
    expect(page.locator("#result-age")).not_to_contain_text("stale")
    assert len(seen) == 3


def test_a_refused_connection_waits_ten_seconds_at_most(watched: Watched) -> None:
    watched.may_refuse = True
    page = clocked(watched)
    seen = failing(page, lambda count: count == 1)
    watched.open(LOAD, refresh="60s")
    drawn(page)
    with page.expect_request("**/api/query*"):
        page.clock.run_for(60_000)
    for _ in range(30):
        page.clock.run_for(2_000)
        page.wait_for_function("() => document.querySelector('#result').getAttribute('aria-busy') === 'false'")
    assert 8 <= len(seen) <= 11  # after 1, 2, 4, 8, 10, 10, ... s
    with page.expect_request("**/api/query*"):
        page.clock.run_for(12_000)


@pytest.mark.parametrize("panel", ["status", "alerts", "endpoints"])
def test_a_hung_api_is_told_within_two_turns(watched: Watched, panel: str) -> None:
    page = clocked(watched)
    watched.open()
    age = page.locator({"status": "#system-age", "alerts": "#alerts-age", "endpoints": "#endpoints-age"}[panel])
    expect(age).to_contain_text("ago")
    traffic = Traffic(page, panel)  # from now on it takes questions and answers none
    for _ in range(11):
        page.clock.run_for(1_000)
    comes(page, lambda: traffic.begun == 1)
    assert traffic.begun == 1
    expect(age).to_contain_text("ago")
    for _ in range(10):
        page.clock.run_for(1_000)
    expect(age).to_contain_text("stale")
    expect(age).to_have_attribute("title", "no answer within 10 s")
    if panel == "status":
        expect(page.locator("#health")).to_have_text("No answer")
    traffic.release()
    for _ in range(11):
        page.clock.run_for(1_000)
    expect(age).not_to_contain_text("stale")


def test_a_question_without_an_answer_is_stale_after_two_turns(watched: Watched) -> None:
    page, traffic = answered(watched)
    traffic.hold = True
    for _ in range(16):
        page.clock.run_for(1_000)
    expect(page.locator("#result-age")).not_to_contain_text("stale")
    for _ in range(8):
        page.clock.run_for(1_000)
    expect(page.locator("#result-age")).to_contain_text("stale", timeout=2_000)
    expect(page.locator("#chart canvas")).to_be_visible()


def test_an_api_that_is_gone_is_told_everywhere(watched: Watched) -> None:
    watched.may_refuse = True
    page = watched.open(LOAD)
    drawn(page)
    expect(page.locator(".hop").first).to_be_visible()
    for route in ROUTES:
        page.unroute(f"**/api/{route}*")
        refuse(page, route)
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("r")
    expect(page.locator("#health")).to_have_text("No answer")
    for panel in ("result", "system", "parts", "alerts", "endpoints"):
        expect(page.locator(f"#{panel}-age")).to_contain_text("stale")
    assert page.locator("#system-age").get_attribute("title") == "the API does not answer"
    page.unroute_all(behavior="ignoreErrors")
    page.keyboard.press("r")
    expect(page.locator("#health")).not_to_have_text("No answer")
    expect(page.locator("#result-age")).not_to_contain_text("stale")


def test_an_api_that_never_answered_is_told(watched: Watched) -> None:
    watched.may_refuse = True
    for route in (*ROUTES, "names", "labels"):
        refuse(watched.page, route)
    page = watched.open(LOAD)
    expect(page.locator("#error")).to_contain_text("the API does not answer")
    expect(page.locator("#system-age")).to_contain_text("the API does not answer")
    expect(page.locator("#find-problem")).to_contain_text("the API does not answer")


def test_too_busy_waits_as_long_as_it_is_told(watched: Watched) -> None:
    watched.may_refuse = True
    page = clocked(watched)
    error = {"error": {"message": "too many questions run", "position": None, "length": None}}
    seen: list[str] = []

    def busy(route: Route) -> None:
        seen.append(asked(route))
        route.fulfill(status=503, json=error, headers={"retry-after": "60"})

    page.route("**/api/query*", busy)
    watched.open(LOAD)
    expect(page.locator("#error")).to_contain_text("too many questions run")
    for _ in range(10):
        page.clock.run_for(5_000)
    assert len(seen) == 1


def test_old_answers_of_another_question_never_show(watched: Watched) -> None:
    page = watched.page
    answer_with(page, "query", matrix(racks(3)))
    watched.open("fetch('heat')", only='heat{rack="r1"}')
    drawn(page)
    page.unroute("**/api/query*")
    Traffic(page, "query")
    page.fill("#query", "fetch('other')")
    page.press("#query", "Enter")
    expect(page.locator("#panel-chart")).to_be_hidden()
    assert "only=" not in page.url


def test_a_refresh_keeps_what_was_chosen(watched: Watched) -> None:
    page = watched.open(CPU)
    drawn(page)
    first = page.locator("#legend tbody .name-cell button").first
    first.click()
    key = page.evaluate("() => document.activeElement.dataset.key")
    with page.expect_response(lambda answer: "api/query" in answer.url):
        page.keyboard.press("r")
    expect(page.locator("#legend tbody tr:not(.off) .name-cell")).to_have_count(1)
    assert page.evaluate("() => document.activeElement.dataset.key") == key
