"""A page of the browser that is watched: any error in its console, or of its own code, fails the test at the end."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlparse

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, FloatRect, Page, Request, Response, Route, ViewportSize, expect

CPU = 'fetch(\'host.cpu.ms\').increase().sum(by=["cpu", "mode"])'
LOAD = "fetch('host.load')"
WAIT_MS = 60_000
"""Limit of every wait for the browser, large enough for a busy machine."""
START_MS = 1_700_000_040_000
MINUTE = 60_000
PICTURES = os.environ.get("ARTIMON_PICTURES", "")
"""Folder for pictures of the pages; those of the documents are made with docs/pictures."""
REFUSED = re.compile(
    r"Failed to load resource: the server responded with a status of \d+|Failed to load resource: net::"
)


class Watched:
    """One page over the API at `address`, in a browser context of its own."""

    def __init__(self, browser: Browser, address: str, scheme: str, width: int, height: int) -> None:
        size = ViewportSize(width=width, height=height)
        self.context = browser.new_context(viewport=size, color_scheme="dark" if scheme == "dark" else "light")
        self.context.set_default_timeout(WAIT_MS)
        self.page: Page = self.context.new_page()
        self.address = address
        self.problems: list[str] = []
        self.may_refuse = False
        """Whether the console may tell of requests that were refused: the browser does so by itself."""
        self.page.on("console", lambda told: self._told(told.type, told.text))
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))

    def _told(self, kind: str, text: str) -> None:
        # the tests read the canvas, the page does not; tests of networks, at the same time, add links to this machine
        ours = "willReadFrequently" in text or "net::ERR_NETWORK_CHANGED" in text
        if kind in ("error", "warning") and not ours and not (self.may_refuse and REFUSED.match(text)):
            self.problems.append(f"{kind}: {text}")

    def open(self, query: str = "", **state: str) -> Page:
        """Go to the page with this query and state in its address."""
        parameters = {key: value for key, value in {"q": query, **state}.items() if value}
        self.page.goto(f"{self.address}/?{urlencode(parameters)}" if parameters else f"{self.address}/")
        return self.page

    def close(self) -> None:
        """Close it; fails if anything went wrong in it."""
        problems = list(self.problems)  # what breaks because the page goes is nobody's fault
        self.page.unroute_all(behavior="ignoreErrors")
        self.context.close()
        assert not problems, problems[:5]


def drawn(page: Page) -> None:
    """Wait until a chart stands there."""
    expect(page.locator("#chart canvas")).to_be_visible(timeout=WAIT_MS)


def answer_with(page: Page, route: str, answer: Mapping[str, Any]) -> None:
    """From now on /api/`route` answers this."""
    page.route(f"**/api/{route}*", lambda asked: asked.fulfill(json=answer))


def refuse(page: Page, route: str) -> None:
    """From now on /api/`route` cannot be reached."""
    page.route(f"**/api/{route}*", lambda asked: asked.abort())


def matrix(series: Sequence[Mapping[str, Any]], **more: object) -> dict[str, Any]:
    """An answer to a query: `series` are given without name, labels or type where those do not matter."""
    full = [{"name": "heat", "labels": {}, "type": "DOUBLE", **one} for one in series]
    n = max((len(one["values"]) for one in full), default=1)
    grid = {"start_ms": START_MS, "end_ms": START_MS + n * MINUTE, "step_ms": MINUTE, "n": n}
    return {"grid": grid, "complete": True, "partial": False, "notes": [], "series": full, **more}


def racks(count: int, n: int = 30) -> list[dict[str, Any]]:
    """`count` series of `n` points that differ by their label rack."""
    return [{"labels": {"rack": f"r{i}"}, "values": [float(i + j % 5) for j in range(n)]} for i in range(count)]


def asked(request: Request | Response | Route) -> str:
    """Path and parameters of a request to the API."""
    return (request.request if isinstance(request, Route) else request).url.partition("/api/")[2]


def given(page: Page, name: str) -> str:
    """First value of a parameter of the page's address, "" without one."""
    return parse_qs(urlparse(page.url).query).get(name, [""])[0]


def findings(page: Page) -> list[str]:
    """What axe finds on the page."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]


def save_picture(page: Page, name: str, bottom: int = 800, right: int = 1440) -> None:
    """Save a picture of the page, at most down to `bottom` and up to `right`, if ARTIMON_PICTURES names a folder."""
    if PICTURES:
        end = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
        width = page.evaluate("innerWidth")
        area = FloatRect(x=0, y=0, width=min(width, right), height=min(end, bottom))
        page.screenshot(path=Path(PICTURES) / f"{name}.png", clip=area)


def comes(page: Page, check: Callable[[], bool]) -> None:
    """Wait until `check` is true, while the events of the page go on; at most as long as for all else."""
    for _ in range(WAIT_MS // 50):
        if check():
            return
        page.wait_for_timeout(50)
    assert check()


def colours(page: Page) -> int:
    """Return the number of colours on the canvas of the chart: an empty one has 1."""
    script = """() => {
      const canvas = document.querySelector("#chart canvas");
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return new Set(new Uint32Array(data.buffer)).size;
    }"""
    return int(page.evaluate(script))


def module(page: Page, name: str, expression: str, argument: object = None) -> Any:
    """The value of `expression` (a function of `m`, a module of the page, and `a`, the argument), as JSON has it."""
    script = f"async (a) => {{ const m = await import('./static/{name}'); return ({expression}); }}"
    return json.loads(json.dumps(page.evaluate(script, argument)))
