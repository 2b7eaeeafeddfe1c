"""Every page in Firefox, as each role, in light and dark: it loads without an error and is accessible."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from artimon.access.authenticator import Authenticator
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.values import Kind
from tests.access.asgi_client import ACCESS, PASSWORD
from tests.access.asgi_client import opened as open_access
from tests.lists.conftest import serving
from tests.query_dsl.plain_store import PlainStore

pytest.importorskip("marionette_driver", reason="once: .venv/bin/pip install marionette-driver")
from tests.firefox.driver import Firefox, firefox

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(600)]
PAGES = ("", "dashboards", "alerts", "fleet", "variables", "cardinality", "queries", "start")
MINUTE = 60_000


@pytest.fixture(scope="module", params=["light", "dark"])
def browser(request: pytest.FixtureRequest) -> Iterator[Firefox]:
    with firefox(dark=request.param == "dark") as found:
        yield found


def store() -> PlainStore:
    """Two series of an hour."""
    made, now_ms = PlainStore(), SYSTEM_CLOCK.now_ms()
    for rack in ("r1", "r2"):
        times = range(now_ms - 60 * MINUTE, now_ms, MINUTE)
        made.add("heat", {"rack": rack}, [(at, 20.0 + at // MINUTE % 7) for at in times], Kind.GAUGE)
    return made


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Authenticator:
    return open_access(ACCESS, tmp_path_factory.mktemp("access"), SYSTEM_CLOCK)


@pytest.fixture(scope="module")
def address(access: Authenticator) -> Iterator[str]:
    with serving(store(), access) as found:
        yield found


def log_in(browser: Firefox, address: str, user: str) -> None:
    browser.forget()
    browser.open(f"{address}/login")
    browser.type("#user", user)
    browser.type("#password", f"{PASSWORD}\n")
    browser.wait(lambda: user in browser.text("#account"), f"{user} is logged in")


@pytest.mark.parametrize("user", ["vera", "eddie", "ada"])
def test_every_page_loads_for_each_role(browser: Firefox, address: str, user: str) -> None:
    log_in(browser, address, user)
    for page in PAGES:
        browser.open(f"{address}/{page}")
        browser.wait(lambda: browser.count("nav.pages-nav a") == len(PAGES), f"the frame of /{page}")
        browser.wait(lambda: user in browser.text("#account"), f"the account on /{page}")
        assert browser.problems() == [], page
        assert browser.findings() == [], page


def test_a_query_is_drawn_and_read_as_a_table(browser: Firefox, address: str) -> None:
    log_in(browser, address, "vera")
    browser.open(f"{address}/")
    browser.type("#query", "fetch('heat').range('30m')\n")
    browser.wait(lambda: browser.count("#chart canvas"), "the chart")
    assert "2 series" in browser.text("#summary")
    drawn = """
        const canvas = document.querySelector("#chart canvas"), at = canvas.getContext("2d");
        return new Set(new Uint32Array(at.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size;
    """
    browser.wait(lambda: browser.run(drawn) > 5, "lines in the chart")
    assert browser.problems() == []


def test_the_editor_of_promql_opens_and_runs_a_query(browser: Firefox, address: str) -> None:
    log_in(browser, address, "vera")
    browser.open(f"{address}/?q=max(heat)&lang=promql")
    inside = "return document.querySelector('#promql').shadowRoot.querySelector('.cm-content').innerText"
    browser.wait(lambda: browser.run(inside) == "max(heat)", "the editor")
    browser.wait(lambda: browser.count("#chart canvas"), "the chart")
    assert browser.problems() == []


def test_a_wrong_query_is_marked(browser: Firefox, address: str) -> None:
    log_in(browser, address, "vera")
    browser.open(f"{address}/")
    browser.type("#query", "fetch('heat').raet()\n")
    browser.wait(lambda: "rate" in browser.text("#error"), "the error")
    assert browser.problems() == []


def test_texts_of_data_are_never_code(access: Authenticator, browser: Firefox) -> None:
    hostile, now_ms = PlainStore(), SYSTEM_CLOCK.now_ms()
    mark = '<img src=x onerror="window.broken=1">'
    hostile.add("heat", {"evil": mark}, [(at, 1.0) for at in range(now_ms - 9 * MINUTE, now_ms, MINUTE)], Kind.GAUGE)
    with serving(hostile, access) as address:
        log_in(browser, address, "ada")
        for path in itertools.chain(["?q=fetch('heat')&view=table"], PAGES[1:]):
            browser.open(f"{address}/{path}")
            browser.wait(lambda: browser.count("nav.pages-nav a"), f"the frame of {path}")
            assert browser.run("return window.broken") is None
