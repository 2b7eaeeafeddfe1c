"""Tabs of different browsers behind one set of calls, for tests that run in each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Browser
from playwright.sync_api import Error as PlaywrightError

from tests.firefox import HEIGHT, WIDTH, Firefox, FirefoxError, firefox
from tests.page.watched import Watched
from tests.waiting import eventually

WAIT_S = 30
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
FINDINGS = """return axe.run({resultTypes: ["violations"]}).then((found) =>
  found.violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 150)}`)))"""
BOX = (
    "const at = document.querySelector(arguments[0]).getBoundingClientRect(); return [at.x, at.y, at.width, at.height]"
)
REFUSED = """return performance.getEntriesByType("resource").filter((one) => one.responseStatus >= 400)
  .map((one) => `${one.responseStatus}: ${one.name}`)"""
VISIBLE = "return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility()).length"


class Tab(ABC):
    """Tab of a browser. Selectors are those of CSS; scripts are bodies of functions."""

    @abstractmethod
    def open(self, address: str) -> None: ...

    @abstractmethod
    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page."""

    @abstractmethod
    def click(self, selector: str) -> None: ...

    @abstractmethod
    def type(self, selector: str, text: str) -> None:
        """Replace the text of a field."""

    @abstractmethod
    def move(self, x: float, y: float) -> None:
        """Move the mouse to a place of the window."""

    @abstractmethod
    def forget(self) -> None:
        """Forget cookies, and leave the page."""

    @abstractmethod
    def problems(self) -> list[str]:
        """Return the errors of the pages since the last call, refused requests left out."""

    def text(self, selector: str) -> str:
        """Text of the first element, "" without one."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        return list(
            self.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText)", selector)
        )

    def count(self, selector: str) -> int:
        """Number of the visible elements."""
        return int(self.run(VISIBLE, selector))

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of the first element."""
        x, y, width, height = self.run(BOX, selector)
        return x, y, width, height

    def wait(self, check: Callable[[], Any], what: str) -> Any:
        """Wait until `check` is true; a page that is replaced meanwhile counts as false."""

        def checked() -> Any:
            try:
                return check()
            except (PlaywrightError, FirefoxError):
                return False

        return eventually(checked, what, WAIT_S)

    def refused(self) -> list[str]:
        """Return the requests of the page that the server refused."""
        return list(self.run(REFUSED))

    def findings(self) -> list[str]:
        """Return all findings of axe-core."""
        self.run(AXE)
        return list(self.run(FINDINGS))


class ChromiumTab(Tab):
    """Tab of Chromium, in a context of its own."""

    def __init__(self, watched: Watched) -> None:
        self._watched, self._page = watched, watched.page
        watched.may_refuse = True

    def open(self, address: str) -> None:
        self._page.goto(address)

    def run(self, script: str, *arguments: Any) -> Any:
        return self._page.evaluate(f"async (arguments) => {{ {script} }}", arguments)

    def click(self, selector: str) -> None:
        self._page.locator(selector).click()

    def type(self, selector: str, text: str) -> None:
        self._page.locator(selector).fill(text)

    def move(self, x: float, y: float) -> None:
        self._page.mouse.move(x, y)

    def forget(self) -> None:
        self._page.goto("about:blank")
        self._watched.context.clear_cookies()

    def problems(self) -> list[str]:
        found, self._watched.problems = self._watched.problems, []
        return found


class FirefoxTab(Tab):
    """Tab of Firefox."""

    def __init__(self, session: Firefox) -> None:
        self._session = session

    def open(self, address: str) -> None:
        self._session.call("WebDriver:Navigate", url=address)

    def run(self, script: str, *arguments: Any) -> Any:
        return self._session.run(script, *arguments)

    def click(self, selector: str) -> None:
        self._session.call("WebDriver:ElementClick", id=self._session.element(selector))

    def type(self, selector: str, text: str) -> None:
        field = self._session.element(selector)
        self._session.call("WebDriver:ElementClear", id=field)
        self._session.call("WebDriver:ElementSendKeys", id=field, text=text)

    def move(self, x: float, y: float) -> None:
        step = {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [step]}
        self._session.call("WebDriver:PerformActions", actions=[mouse])

    def forget(self) -> None:
        self._session.call("WebDriver:DeleteAllCookies")
        self.open("about:blank")

    def problems(self) -> list[str]:
        return self._session.errors()


@contextmanager
def tab_of_chromium(browser: Browser) -> Iterator[Tab]:
    watched = Watched(browser, "", "light", WIDTH, HEIGHT)
    yield ChromiumTab(watched)
    watched.close()


@contextmanager
def tab_of_firefox() -> Iterator[Tab]:
    with firefox() as session:
        yield FirefoxTab(session)
