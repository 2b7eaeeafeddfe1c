"""The login in a browser: by keyboard, without findings of axe-core; hostile texts in the page are text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from artimon.access.authenticator import Authenticator
from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from artimon.model.clock import SYSTEM_CLOCK
from tests.access.asgi_client import ACCESS, PASSWORD, opened
from tests.api.serving import STATUS
from tests.chromium import chromium
from tests.query_dsl.plain_store import PlainStore

MARK = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Authenticator:
    return opened(ACCESS.replace("- name: vera", f"- name: '{MARK}'"), tmp_path_factory.mktemp("login"))


@pytest.fixture(scope="module")
def address(access: Authenticator) -> Iterator[str]:
    alert = {"rule": MARK, "labels": {"team": MARK}, "state": "firing", "summary": MARK, "value": 1, "since_ms": 1}
    rule = {"name": MARK, "expr": MARK, "state": "firing", "error": MARK, "file": MARK, "line": 1}
    told = {"engines": [], "rules": [rule], "recordings": [], "alerts": [alert], "truncated": 0, "problem": MARK}
    app = make_app(PlainStore(), lambda _: STATUS, SYSTEM_CLOCK, access=access, alerts=lambda: told)
    server = ApiServer(app)
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context()
    found = context.new_page()
    found.goto(f"{address}/?q=fetch('a')")
    yield found
    assert found.evaluate("window.broken") is None
    context.close()


def findings(page: Page) -> list[str]:
    return [f"{one['id']}: {one['help']}" for one in Axe().run(page).response["violations"]]


def test_a_user_logs_in_and_out_by_keyboard(page: Page, address: str) -> None:
    expect(page.locator("h1")).to_have_text("Artimon")
    assert page.url.startswith(f"{address}/login?next=")
    assert page.locator("script").count() == 0
    page.keyboard.type("ada")  # the field of the user has the focus
    page.keyboard.press("Tab")
    page.keyboard.type("a wrong password")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("wrong user or password")
    assert page.get_by_label("User").input_value() == "ada"
    page.get_by_label("Password").focus()
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#account .account-name")).to_have_text("ada")
    assert "q=fetch" in page.url
    page.get_by_role("button", name="Log out").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("User")).to_be_visible()
    page.goto(address)
    assert page.url.startswith(f"{address}/login")


def test_the_login_has_no_findings(page: Page) -> None:
    page.get_by_label("User").fill("ada")
    page.get_by_label("Password").fill("wrong wrong wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert findings(page) == []
    page.emulate_media(color_scheme="dark")
    assert findings(page) == []


def test_a_hostile_name_of_a_user_is_text(page: Page, access: Authenticator) -> None:
    name = next(iter(access.access.users))
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#account .account-name")).to_have_text(name)
    expect(page.locator("#alerts-body")).to_contain_text("onerror")
    assert page.locator("img[src=x]").count() == 0
    assert [one for one in findings(page) if "account" in one] == []


def test_an_ended_session_leads_to_the_login(page: Page, address: str, access: Authenticator, tmp_path: Path) -> None:
    page.get_by_label("User").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#account .account-name")).to_have_text("ada")
    page.context.clear_cookies()
    page.fill("#query", "fetch('b')")
    page.press("#query", "Enter")
    expect(page.get_by_label("User")).to_be_visible()
    assert page.url.startswith(f"{address}/login?next=")


def test_a_page_of_another_site_changes_nothing(browser: Browser, address: str) -> None:
    """Another origin of this machine: the cookie goes along as to a same site, and the origin is refused."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address}/login")
    page.get_by_label("User").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#account .account-name")).to_have_text("ada")
    page.route("http://127.0.0.1:9/*", lambda route: route.fulfill(body="<p>evil</p>", content_type="text/html"))
    page.goto("http://127.0.0.1:9/")
    page.set_content(f'<form method="post" action="{address}/logout"><button>click</button></form>')
    with page.expect_response(f"{address}/logout") as told:
        page.click("button")
    assert told.value.status == 403
    page.goto(address)
    expect(page.locator("#account .account-name")).to_have_text("ada")
    context.close()
