"""Refreshes that ask for the newest points: what they join is equal to a new answer of the whole range."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from artimon.dashboards.dashboard_store import DashboardStore
from artimon.model.clock import ManualClock
from tests.api.serving import Client, served
from tests.chromium import chromium
from tests.dashboards.growing_world import ASKED, GrowingWorld
from tests.page.watched import START_MS, WAIT_MS, Watched, comes, matrix, module
from tests.query_dsl.asking import agree
from tests.query_dsl.plain_store import MINUTE

BEGIN_MS = 1_700_000_000_000 // 3_600_000 * 3_600_000
QUERIES = [
    ("artimon", "fetch('load').sum(by=['rack'])"),
    ("artimon", "fetch('requests').rate('5m').sum(by=['rack'])"),
    ("artimon", "fetch('load').count(by=['host'])"),
    ("artimon", "fetch('load').topk(2, by=[])"),
    ("artimon", "fetch('load').topk(2, rank='mean', by=[])"),
    ("artimon", "fetch('load').where('> 30')"),
    ("artimon", "fetch('load').fill('linear')"),
    ("artimon", "fetch('load{host=\"e\"}', default=0) + fetch('load{host=\"a\"}').sum(by=[])"),
    ("artimon", "time() - fetch('load')"),
    ("artimon", "now() - fetch('load')"),
    ("artimon", "fetch('duration.bucket').rate('5m').histogram_quantile(0.9, by=[])"),
    ("artimon", "fetch('shop.version')"),
    ("promql", "sum(load) by (rack)"),
    ("promql", "sum(rate(requests[5m]))"),
    ("promql", "topk(2, load)"),
    ("promql", "load - load @ end()"),
    ("promql", "absent(load{host='e'})"),
]
MINUTES = 22
"""Until the sample that comes later than the overlap is shown: nine minutes late, and then within a slot of ten."""
BOARD = """\
title: Grows
range: 1h
refresh: 10s
marks:
  starts: fetch('shop.version')
  queries: [{q: "fetch('load').max(by=['host'])", title: "{host} comes"}]
panels:
- {title: Sum, queries: [{q: "fetch('load').sum(by=['rack'])", legend: "{rack}"}, {q: sum(load), lang: promql}]}
- {title: Top, queries: [{q: "fetch('load').topk(3, by=[])"}]}
- {title: Each, kind: table, reduce: mean, queries: [{q: "fetch('load')"}]}
- {title: Now, kind: value, queries: [{q: "fetch('requests').rate('5m').sum(by=[])"}]}
- {title: Bars, kind: bars, reduce: max, queries: [{q: "fetch('load').max(by=['host'])", legend: "{host}"}]}
- {title: Heat, kind: heatmap, queries: [{q: "fetch('duration.bucket').rate('5m').sum(by=['le'])"}]}
- {title: Version, kind: states, queries: [{q: "fetch('shop.version')"}]}
- {title: Same, queries: [{q: sum(load), lang: promql}]}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with chromium() as found:
        yield found


class Growing:
    """A server over a world that grows, and pages whose clock is that of the world."""

    def __init__(self, browser: Browser, client: Client, world: GrowingWorld, clock: ManualClock) -> None:
        self._browser, self._world, self._clock = browser, world, clock
        self._address = f"http://127.0.0.1:{client.port}"
        self.opened: list[Watched] = []

    def open(self, path: str, shares: bool = True) -> Page:
        """`shares`: take answers of others."""
        watched = Watched(self._browser, self._address, "light", 1440, 2400)
        watched.may_refuse = True
        self.opened.append(watched)
        watched.page.clock.install(time=datetime.fromtimestamp(self._world.now_ms / 1000, UTC))
        if not shares:
            watched.page.route("**/api/**", _without_age)
        watched.page.goto(f"{self._address}/{path}")
        return watched.page

    def grow(self) -> None:
        """Let a minute pass."""
        self._world.grow()
        self._clock.advance(MINUTE)

    @property
    def now_ms(self) -> int:
        return self._world.now_ms


def _without_age(route: Route) -> None:
    route.continue_(headers={**route.request.headers, "cache-control": "no-cache"})


@contextmanager
def growing(browser: Browser, folder: Path) -> Iterator[Growing]:
    world = GrowingWorld(BEGIN_MS)
    world.grow(ASKED)
    clock = ManualClock(world.now_ms)
    (folder / "grows.yaml").write_text(BOARD)
    with served(world.store, clock=clock, dashboards=DashboardStore(folder)) as client:
        made = Growing(browser, client, world, clock)
        try:
            yield made
        finally:
            for one in made.opened:
                one.close()


ASK = """async ([queries, now_ms]) => {
  const { Increments } = await import("./static/increments.js");
  const { answerOf, questionOf } = await import("./static/question.js");
  window.increments ??= new Increments();
  const span = { start_ms: now_ms - 3_600_000, end_ms: now_ms, now_ms, live: true }, { signal } = new AbortController();
  const failed = (error) => ({ grid: {}, series: [], notes: [error.message] });
  const shown = (one) => one.then(({ grid, series, notes }) => ({ grid, series, notes }), failed);
  return Promise.all(queries.map(async ([lang, query]) => {
    const ours = await shown(window.increments.answer(query, lang, span, signal, 0));
    return { ours, whole: await shown(answerOf(questionOf(query, lang, span), signal)) };
  }));
}"""


def asked_points(request: Request) -> int:
    """Number of points that a request asks for; 0: of the whole range."""
    given = {name: values[0] for name, values in parse_qs(urlparse(request.url).query).items()}
    if "newest" in given:
        return int(given["newest"])
    points = (int(given["end"]) - int(given["start"])) // int(given["step"]) + 1 if "step" in given else 0
    return points if points < 60 else 0


def rows(matrix: dict[str, Any]) -> dict[str, Any]:
    """Values by series, but those without any: a series that has left the range may still be named in a new answer."""
    found = {
        json.dumps([one["name"], sorted(one["labels"].items()), one["type"]]): one["values"] for one in matrix["series"]
    }
    return {name: values for name, values in found.items() if any(value is not None for value in values)}


def differences(ours: dict[str, Any], whole: dict[str, Any]) -> list[Any]:
    """Differences in series, times and values."""
    mine, theirs = rows(ours), rows(whole)
    if list(mine) != list(theirs) or ours["grid"] != whole["grid"]:
        return [list(mine), list(theirs), ours["grid"], whole["grid"]]
    pairs = [(name, at, a, b) for name in mine for at, (a, b) in enumerate(zip(mine[name], theirs[name], strict=True))]
    return [one for one in pairs if not (one[2] is None is one[3] or agree(float_of(one[2]), float_of(one[3])))]


def float_of(value: Any) -> Any:
    """JSON of a browser writes 1.0 as 1."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def test_what_grows_is_equal_to_the_whole_answer(browser: Browser, tmp_path: Path) -> None:
    """Also around late samples, and hosts that come and go. A sample later than the overlap appears within a slot."""
    with growing(browser, tmp_path) as world:
        page = world.open("dashboards")
        points: list[int] = []
        page.on("request", lambda one: points.append(asked_points(one)) if "query" in one.url else None)
        late = dict.fromkeys([query for _, query in QUERIES], 0)
        for _ in range(MINUTES):
            world.grow()
            for (_, query), found in zip(QUERIES, page.evaluate(ASK, [QUERIES, world.now_ms]), strict=True):
                if differences(found["ours"], found["whole"]):
                    late[query] += 1
                    assert late[query] <= 10, (query, differences(found["ours"], found["whole"])[:3])
                else:
                    late[query] = 0
                assert found["ours"]["notes"] == found["whole"]["notes"], query
        assert sum(late.values()) == 0
        assert points.count(8) > len(QUERIES) * MINUTES // 2, "most refreshes ask for the newest points only"


PANELS_ASKED = 8
"""Different queries of the board: two of its panels ask the same, and the marks ask what a panel asks."""


def refreshed(page: Page) -> list[Request]:
    """Refresh a page whose time has come, and return its queries once all panels are drawn."""
    sent: list[Request] = []
    done: list[Request] = []

    def collector(found: list[Request]) -> Callable[[Request], None]:
        return lambda one: found.append(one) if "query" in one.url else None

    begun, ended = collector(sent), collector(done)
    page.on("request", begun)
    page.on("requestfinished", ended)
    page.clock.fast_forward(MINUTE)
    comes(page, lambda: len(done) >= PANELS_ASKED and len(done) == len(sent))
    expect(page.locator(".panel[aria-busy=true]")).to_have_count(0)
    page.remove_listener("request", begun)
    page.remove_listener("requestfinished", ended)
    return sent


def shown(page: Page) -> list[Any]:
    """Data of the panels, as a snapshot has it."""
    with page.expect_download() as saved:
        page.get_by_role("button", name="Snapshot").click()
    text = Path(saved.value.path()).read_text()
    found: list[Any] = json.loads(text.split('id="data">')[1].split("</script>")[0])["panels"]
    return found


def test_panels_that_refresh_show_what_a_new_page_shows(browser: Browser, tmp_path: Path) -> None:
    """Charts, tables, values, bars, heat maps, states and marks."""
    with growing(browser, tmp_path) as world:
        page = world.open("dashboards?name=grows", shares=False)
        expect(page.locator("#age")).to_contain_text("ago")
        for minute in range(1, 7):
            world.grow()
            points = [asked_points(one) for one in refreshed(page)]
            assert 8 in points, points
            if minute % 3:
                continue
            other = world.open("dashboards?name=grows", shares=False)
            expect(other.locator("#age")).to_contain_text("ago")
            assert len(shown(other)) == 8
            assert shown(page) == shown(other)
            marks = other.locator("#mark-lines li").all_text_contents()
            assert any("e comes" in text for text in marks)
            expect(page.locator("#mark-lines li")).to_have_text(marks)
        assert page.locator(".panel .problem:not(:empty)").count() == 0


def test_users_ask_equal_questions_and_share_the_answers(browser: Browser, tmp_path: Path) -> None:
    """One page is open for longer than the other."""
    with growing(browser, tmp_path) as world:
        first = world.open("dashboards?name=grows")
        expect(first.locator("#age")).to_contain_text("ago")
        for _ in range(2):
            world.grow()
            refreshed(first)
        second = world.open("dashboards?name=grows")
        expect(second.locator("#age")).to_contain_text("ago")
        world.grow()
        asked = [{one.url for one in refreshed(page) if asked_points(one) == 8} for page in (first, second)]
        assert len(asked[0] & asked[1]) > PANELS_ASKED // 2, asked


def test_a_change_and_an_error_ask_for_the_whole_range(browser: Browser, tmp_path: Path) -> None:
    with growing(browser, tmp_path) as world:
        page = world.open("dashboards?name=grows")
        expect(page.locator("#age")).to_contain_text("ago")
        world.grow()
        assert 8 in {asked_points(one) for one in refreshed(page)}
        page.route("**/api/query?*", lambda one: one.fulfill(status=503, json={"error": {"message": "full"}}))
        world.grow()
        refreshed(page)
        page.unroute_all()
        world.grow()
        points = {asked_points(one) for one in refreshed(page) if "/api/query?" in one.url}
        assert points == {0}
        with page.expect_request(lambda one: "/api/query?" in one.url and not asked_points(one)):
            page.keyboard.press("r")
        page.wait_for_load_state("networkidle")
        expect(page.locator(".panel[aria-busy=true]")).to_have_count(0)
        world.grow()
        assert 8 in {asked_points(one) for one in refreshed(page)}
        with page.expect_request(lambda one: "range" in one.url and "newest" not in one.url and "3h" in one.url):
            page.get_by_role("radio", name="3 h").check()


HELD = [1.0, 2.0, None, 4.0]


@pytest.mark.parametrize(
    ("fresh", "begins", "expected"),
    [
        pytest.param([4.0, 5.0], 3, [2.0, None, 4.0, 5.0], id="the next point"),
        pytest.param([None, 4.5, 5.0], 2, [2.0, None, 4.5, 5.0], id="a correction within the overlap"),
        pytest.param([3.0, 4.0, 5.0], 2, None, id="a correction where the overlap begins"),
        pytest.param([6.0], 5, None, id="a gap"),
        pytest.param([4.0, 5.0, 6.0, 7.0], 3, [4.0, 5.0, 6.0, 7.0], id="nothing of before"),
        pytest.param([2.0, 3.0], 1, HELD, id="an answer of others from before"),
        pytest.param([2.0], 1, HELD, id="one point of before"),
    ],
)
def test_joined_answers(
    browser: Browser, tmp_path: Path, fresh: list[float | None], begins: int, expected: list[float | None] | None
) -> None:
    found = matrix([{"values": fresh}])
    shift = begins * MINUTE
    found["grid"] |= {"start_ms": START_MS + shift, "end_ms": START_MS + shift + len(fresh) * MINUTE}
    with growing(browser, tmp_path) as world:
        page = world.open("dashboards")
        joined = module(page, "increments.js", "m.joined(a[0], a[1])", [matrix([{"values": HELD}]), found])
    assert (joined and joined["series"][0]["values"]) == expected
