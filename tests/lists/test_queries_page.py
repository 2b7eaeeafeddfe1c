"""Page of the running queries: as each role, cancelled by keyboard, hostile texts."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from artimon.access.authenticator import Authenticator
from tests.access.conftest import basic
from tests.api.test_limits import HeldStore
from tests.lists.conftest import MARK, Opener, findings, serving
from tests.page.watched import save_picture
from tests.waiting import eventually

HOSTILE = "fetch('http.requests{route!=\"" + MARK.replace('"', '\\\\"') + "\"}')"


def send(address: str, query: str, user: str, ends: list[int]) -> threading.Thread:
    """Send a query in a thread; its status goes to `ends`."""

    def run() -> None:
        asked = urllib.request.Request(f"{address}/api/query?q={quote(query)}", headers=basic(user) if user else {})
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                ends.append(answer.status)
        except urllib.error.HTTPError as refused:
            ends.append(refused.code)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@contextmanager
def held(access: Authenticator | None, *sent: tuple[str, str]) -> Iterator[tuple[str, list[int]]]:
    """Yield an API whose store does not answer these (user, query), and the list of their status."""
    store, ends = HeldStore(), list[int]()
    with serving(store, access) as address:
        threads = [send(address, query, user, ends) for user, query in sent]
        try:
            for _ in sent:
                assert store.entered.acquire(timeout=20)
            yield address, ends
        finally:
            store.release.set()
            for thread in threads:
                thread.join(30)


def test_a_query_is_cancelled_by_keyboard(opener: Opener) -> None:
    with held(None, ("", "fetch('http.requests').rate()"), ("", "fetch('heat')")) as (address, ends):
        page = opener(address, "queries")
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("127.0.0.1")
        expect(rows.first).to_contain_text("soft, 20 s")
        save_picture(page, "queries")
        page.keyboard.press("/")
        page.keyboard.type("RATE")
        expect(page.locator("#count")).to_have_text("1 of 2 queries")
        assert page.url.endswith("queries?filter=RATE")
        page.reload()
        expect(rows).to_have_count(1)
        page.get_by_role("button", name="Cancel").press("Enter")
        expect(page.locator("#list")).to_contain_text("No running query has these words")
        expect(page.locator("#queries")).to_be_focused()
        eventually(lambda: ends == [503], "the end of the cancelled query")


def test_each_role_cancels_what_it_may(opener: Opener, access: Authenticator) -> None:
    """A viewer and an editor see their own queries; the address of another's answers a viewer with 404."""
    with held(access, ("ada", "fetch('heat')"), ("vera", "fetch('http.requests')")) as (address, ends):
        admin = opener(address, "queries", user="ada")
        expect(admin.locator("tbody tr")).to_have_count(2)
        expect(admin.locator("#who")).to_be_empty()
        editor = opener(address, "queries", user="eddie")
        expect(editor.locator("#list")).to_contain_text("No query runs or waits now")
        viewer = opener(address, "queries", user="vera")
        expect(viewer.locator("tbody tr")).to_have_count(1)
        expect(viewer.locator("tbody")).to_contain_text("http.requests")
        expect(viewer.locator("#who")).to_contain_text("your own")
        script = "async (id) => (await fetch(`api/queries/${id}`, {method: 'DELETE'})).status"
        other = admin.locator("tbody tr", has_text="ada").get_by_role("button").get_attribute("data-key") or ""
        assert viewer.evaluate(script, other.removeprefix("cancel ")) == 404
        assert ends == []
        viewer.get_by_role("button", name="Cancel").click()
        expect(viewer.locator("tbody tr")).to_have_count(0)
        eventually(lambda: ends == [503], "the end of the cancelled query")
        admin.get_by_role("button", name="Cancel fetch('heat')").click()
        expect(admin.locator("tbody tr")).to_have_count(0)
        eventually(lambda: ends == [503, 503], "the end of the other query")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_texts_are_text(opener: Opener, scheme: str) -> None:
    with held(None, ("", HOSTILE)) as (address, _):
        page = opener(address, "queries", scheme=scheme)
        expect(page.locator("tbody")).to_contain_text("onerror")
        assert page.locator("img").count() == 0
        assert findings(page) == []
        page.keyboard.press("?")
        assert findings(page) == []


def test_an_api_that_does_not_answer_is_told(opener: Opener) -> None:
    with held(None) as (address, _):
        page = opener(address, "queries?refresh=10s")
        expect(page.locator("#list")).to_contain_text("No query runs or waits now")
        page.route("**/api/queries*", lambda asked: asked.abort())
        page.keyboard.press("r")
        expect(page.locator("#problem")).to_have_text("the API does not answer")
        expect(page.locator("#age")).to_contain_text("stale")
