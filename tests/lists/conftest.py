"""Pages with lists in a browser: an API with users of every level over a store of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from artimon.access.authenticator import Authenticator
from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from artimon.api.fleet_status import FleetPage
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.select import Store
from tests.access.asgi_client import ACCESS, PASSWORD
from tests.access.asgi_client import opened as open_access
from tests.api.serving import STATUS
from tests.chromium import chromium
from tests.page.watched import WAIT_MS, Watched

MARK = '<img src=x onerror="window.broken=1">'
Opener = Callable[..., Page]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/lists/" in item.nodeid:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Authenticator:
    """Users: vera is a viewer, eddie an editor, ada an administrator, sam sees a part of the series."""
    return open_access(ACCESS, tmp_path_factory.mktemp("access"), SYSTEM_CLOCK)


@contextmanager
def serving(
    store: Store,
    access: Authenticator | None = None,
    status: Callable[[FleetPage], Any] = lambda _: STATUS,
    configuration: Callable[[], Mapping[str, Any]] | None = None,
) -> Iterator[str]:
    """Yield the address of an API over a store."""
    server = ApiServer(make_app(store, status, SYSTEM_CLOCK, access=access, configuration=configuration))
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


@contextmanager
def opening(browser: Browser) -> Iterator[Opener]:
    """Yield a function that opens a page: opener(address, "queries?filter=a", user="vera", scheme="dark")."""
    made: list[Watched] = []

    def new(address: str, path: str, user: str = "", scheme: str = "light", width: int = 1280) -> Page:
        watched = Watched(browser, address, scheme, width, 800)
        watched.may_refuse = True
        made.append(watched)
        page = watched.page
        page.on("dialog", lambda _: pytest.fail("a text ran as code"))
        page.goto(f"{address}/{path}")
        if user:
            page.get_by_label("User").fill(user)
            page.get_by_label("Password").fill(PASSWORD)
            page.keyboard.press("Enter")
        return page

    yield new
    for one in made:
        assert one.page.evaluate("window.broken") is None
        one.close()


@pytest.fixture
def opener(browser: Browser) -> Iterator[Opener]:
    with opening(browser) as found:
        yield found


def findings(page: Page) -> list[str]:
    """Return all findings of axe-core."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]
