"""Drawing of 100,000 points by the page: 200 series of 500 points in Chromium, without a graphics card.

An API serves the page; the browser gets its answers from this process, so that no query is measured. Each answer has
other values. `chart.drawn`: from the chart's series to the end of drawing, a new chart each time; `@refresh`: the same
series with other values. `chart.shown`: from the last byte of the answer to the first frame after the drawing: JSON,
series, chart, legend. Medians.

python -m benchmarks.chart [--series 200] [--points 500] [--rounds 15]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlencode

from playwright.sync_api import Page, Route, sync_playwright

from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.select import Buckets, Matcher, SelectError, SelectRequest, Series
from artimon.runtime.settings import load
from benchmarks.common import Parts, emit, say
from query_dsl.stores.engine_store import EngineStore
from scripts.programs import ensure

SERIES, POINTS, ROUNDS = 200, 500, 15
QUERY = "fetch('load')"
STEP_MS = 60_000
WAIT_MS, POLL_MS = 30_000, 20
WATCH = """() => {
  const figure = document.getElementById("chart");
  window.shown = [];
  performance.setResourceTimingBufferSize(10_000);
  new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
    const asked = performance.getEntriesByType("resource").filter((one) => one.name.includes("/api/query?")).at(-1);
    window.shown.push([Number(figure.dataset.ms), performance.now() - asked.responseEnd]);
  }))).observe(figure, { attributes: true, attributeFilter: ["data-ms"] });
}"""
"""Notes, after the frame in which each drawing is shown, its time and the time since the answer."""


class EmptyStore(EngineStore):
    """Store without series."""

    def select(self, request: SelectRequest) -> Buckets:  # noqa: ARG002
        raise SelectError("this store has no series")

    def levels(self) -> tuple[tuple[int, int], ...]:
        return ((STEP_MS, 60),)

    def names(self) -> list[str]:
        return []

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:  # noqa: ARG002
        return []

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:  # noqa: ARG002
        return []


def answer(series: int, points: int, turn: int) -> str:
    """Return an answer to a query with values of this turn."""
    rows = [
        {
            "name": "load",
            "labels": {"host": f"host-{row:04}"},
            "type": "DOUBLE",
            "values": [row + ((column * 7 + turn * 3 + row) % 23) / 7 for column in range(points)],
        }
        for row in range(series)
    ]
    end_ms = SYSTEM_CLOCK.now_ms() // STEP_MS * STEP_MS
    grid = {"start_ms": end_ms - points * STEP_MS, "end_ms": end_ms, "step_ms": STEP_MS, "n": points}
    return json.dumps({"grid": grid, "complete": True, "partial": False, "notes": [], "series": rows})


@contextmanager
def opened(made: Callable[[], str]) -> Iterator[tuple[Page, str]]:
    """Yield a page of the browser and the address of the API; `made` answers the queries of the page."""
    program = ensure(("chromium",), load().cache, say)["chromium"]
    server = ApiServer(make_app(EmptyStore(), lambda _: {"healthy": True, "hops": []}, SYSTEM_CLOCK))
    server.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=str(program.path),
                args=["--no-sandbox"] if os.geteuid() == 0 else [],
                env={**os.environ, **program.environment},
            )
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.set_default_timeout(WAIT_MS)
            page.route("**/api/query?*", lambda route: fulfil(route, made()))
            yield page, f"http://127.0.0.1:{server.port}"
            browser.close()
    finally:
        server.stop()


def fulfil(route: Route, body: str) -> None:
    """Answer a request of the page with JSON."""
    route.fulfill(body=body, content_type="application/json")


def shown(page: Page, act: Callable[[], object]) -> tuple[float, float]:
    """Return the times of the drawing that `act` causes: of the drawing itself, and since the answer."""
    before = int(page.evaluate("window.shown.length"))
    act()
    for _ in range(WAIT_MS // POLL_MS):  # wait_for_function would need eval, which the page forbids
        page.wait_for_timeout(POLL_MS)
        found = page.evaluate("window.shown")
        if len(found) > before:
            return float(found[-1][0]), float(found[-1][1])
    raise TimeoutError(f"the page drew nothing within {WAIT_MS} ms")


def measure(series: int, points: int, rounds: int) -> None:
    """Measure and print the lines."""
    turns = iter(range(1_000_000))
    with opened(lambda: answer(series, points, next(turns))) as (page, address):
        page.goto(f"{address}/?{urlencode({'q': QUERY, 'refresh': 'off'})}")
        page.wait_for_selector("#chart canvas")
        page.evaluate(WATCH)
        again = [shown(page, lambda: page.keyboard.press("r")) for _ in range(rounds)]
        fresh = [shown(page, partial(ask, page, f"{QUERY} * {turn}")) for turn in range(1, rounds + 1)]
    size = f"ms ({series} series of {points} points, {rounds} drawings), p50"
    emit("chart.drawn", statistics.median(drawn for drawn, _ in fresh), size)
    emit("chart.drawn@refresh", statistics.median(drawn for drawn, _ in again), size)
    emit("chart.shown", statistics.median(since for _, since in fresh), size)
    emit("chart.shown@refresh", statistics.median(since for _, since in again), size)


def ask(page: Page, text: str) -> None:
    """Run another query, which makes a new chart."""
    page.fill("#query", text)
    page.press("#query", "Enter")


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.chart", description=__doc__, formatter_class=form)
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(args)
    parts = Parts()
    parts.run("chart.drawn", lambda: measure(options.series, options.points, options.rounds))
    parts.finish()


if __name__ == "__main__":
    run(sys.argv[1:])
