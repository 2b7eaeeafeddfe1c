"""Page of the alerts in a browser, over a real engine: silences with a preview, acknowledgements, hostile texts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from tests.alerts.api_client import api_of
from tests.alerts.test_alert_routes import HOSTILE, told_of
from tests.alerts.test_silences import routed  # noqa: F401
from tests.alerts.worlds import World
from tests.api.serving import STATUS, small_store
from tests.chromium import chromium
from tests.page.watched import PICTURES, save_picture

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
LACK = f"99.2 % of expected points; host {HOSTILE} silent since 14:02"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def address(routed: World) -> Iterator[str]:  # noqa: F811
    """Two hosts fire; one has a name that would run a script."""
    routed.tick({"a": 0, HOSTILE: 0})
    routed.engine.flush_due()
    rule = {
        "name": HOSTILE, "expr": HOSTILE, "threshold": "> 1", "state": "error", "error": HOSTILE, "file": "a.yaml",
        "line": 1, "duration_ms": 0.5, "for_ms": 60_000, "receivers": [],
    }  # fmt: skip
    with api_of(routed) as engine:
        in_force = {**rule, "name": "down", "expr": "fetch('up')", "error": "", "state": "firing", "completeness": LACK}
        told = told_of(engine.address, rules=[rule, in_force])
        past = lambda: routed.store  # noqa: E731
        app = make_app(small_store(), lambda _: STATUS, routed.clock, alerts=lambda: told, history=past)
        server = ApiServer(app)
        server.start()
        yield f"http://127.0.0.1:{server.port}"
        server.stop()


def opened(browser: Browser, address: str, scheme: str = "light", query: str = "") -> Page:
    context = browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    page = context.new_page()
    page.goto(f"{address}/alerts{query}")
    expect(page.locator(".group")).to_be_visible(timeout=30_000)
    return page


def without_hostile(asked: Route) -> None:
    """Answer with a plain name in place of the hostile one."""
    asked.fulfill(body=asked.fetch().text().replace(HOSTILE, "web-2"))


def findings(page: Page) -> list[str]:
    return [f"{one['id']}: {one['help']}" for one in Axe().run(page).response["violations"]]


def test_a_silence_is_previewed_made_and_expired_by_keyboard(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    page.keyboard.press("n")
    page.fill("#matchers", 'host="a"')
    expect(page.locator("#preview")).to_contain_text("It hides 1 alert now")
    page.fill("#comment", "work on it")
    page.fill("#author", "ana")
    page.keyboard.press("Enter")
    expect(page.locator("#silence-list")).to_contain_text("work on it")
    expect(page.locator("#silence-list")).to_contain_text("ana, active")
    expect(page.locator("#group-list")).to_contain_text("Silenced by")
    if PICTURES:
        page.route("**/api/alerts**", without_hostile)
        page.keyboard.press("r")
        expect(page.locator("main")).not_to_contain_text("onerror")
        save_picture(page, "alerts", 720)
        page.unroute("**/api/alerts**")
    page.get_by_role("button", name="Expire").press("Enter")
    expect(page.locator("#silence-list")).to_contain_text("No silence is in force")
    page.context.close()


def test_a_silence_for_everything_asks_back(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    page.get_by_role("button", name="New silence").click()
    page.fill("#matchers", 'host=~".*"')
    page.fill("#comment", "all")
    page.get_by_role("button", name="Silence", exact=True).last.click()
    expect(page.locator("#action-problem")).to_contain_text("force")
    page.get_by_label("Yes, hide every alert").check()
    page.get_by_role("button", name="Silence", exact=True).last.click()
    expect(page.locator("#silence-list")).to_contain_text('host=~".*"')
    page.context.close()


def test_an_alert_is_acknowledged_and_the_state_is_a_link(browser: Browser, address: str) -> None:
    page = opened(browser, address, query="?filter=host%3D%22a%22")
    expect(page.locator(".alert")).to_have_count(1)
    page.get_by_role("button", name="Acknowledge").click()
    page.fill("#comment", "looking at it")
    page.fill("#author", "ana")
    page.get_by_role("button", name="Acknowledge").last.click()
    expect(page.locator(".alert")).to_contain_text("Acknowledged by ana: looking at it")
    page.get_by_role("button", name="Withdraw acknowledgement").click()
    expect(page.locator(".alert")).not_to_contain_text("Acknowledged by")
    page.get_by_role("button", name="History").click()
    expect(page).to_have_url(f"{address}/alerts?filter=host%3D%22a%22&of={page.url.rpartition('of=')[2]}")
    expect(page.locator("#history-list")).to_contain_text("firing")
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_rule_is_tried_on_the_last_days_by_keyboard(browser: Browser, address: str, scheme: str) -> None:
    page = opened(browser, address, scheme)
    page.get_by_role("button", name="Try down on the last 30 days").press("Enter")
    trial = page.locator(".trial").last
    expect(trial).to_contain_text("fired 2 times", timeout=60_000)
    expect(trial.locator("tbody")).to_contain_text(f"host={HOSTILE}")
    assert "range=" in (trial.locator("tbody a").first.get_attribute("href") or "")
    page.keyboard.press("r")
    expect(trial).to_contain_text("fired 2 times")
    page.get_by_role("button", name=f"Try {HOSTILE}").click()
    expect(page.locator(".trial .problem")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0
    assert findings(page) == []
    page.get_by_role("button", name="Close the trial of down").press("Enter")
    expect(trial).to_be_empty()
    page.context.close()


def test_a_trial_is_cancelled(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    page.route("**/api/alerts/replay*", lambda _asked: None)  # an answer does not come
    page.get_by_role("button", name="Try down").click()
    page.get_by_role("button", name="Cancel", exact=True).last.click()
    expect(page.locator(".trial").last).to_have_text("Cancelled.")
    page.unroute_all(behavior="ignoreErrors")
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_findings_and_hostile_texts_are_text(browser: Browser, address: str, scheme: str) -> None:
    page = opened(browser, address, scheme)
    expect(page.locator("#rule-list")).to_contain_text(HOSTILE)
    expect(page.locator("#rule-list")).to_contain_text(LACK)
    expect(page.locator("#group-list")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0
    assert findings(page) == []
    page.keyboard.press("n")
    assert findings(page) == []
    page.context.close()
