"""One browser for all tests of the page, over the API of the one whole stack, or over a small store."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, expect

from artimon.runtime.settings import child_environment
from artimon.stack.stack import Stack
from tests.api.serving import served
from tests.chromium import chromium
from tests.page.watched import CPU, WAIT_MS, Watched
from tests.page.years import BOARD, years_beside
from tests.waiting import eventually

Opener = Callable[..., Watched]
APPLICATION = """
import bookkeeper, threading
bookkeeper.add_to_integer_var("page.visits", {"evil": "<img src=x onerror=alert(1)>"}, 2**53 + 1)
bookkeeper.set_string_var("page.version", {}, "2.1")
threading.Event().wait()
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them need the stack."""
    for item in items:
        if "tests/page/" in item.nodeid:
            item.add_marker(pytest.mark.stack)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="package")  # not longer: its event loop occupies the thread
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def address(whole_stack: Stack) -> str:
    """Address of the page, once the host has been measured for a whole minute."""
    base = whole_stack.addresses()["ARTIMON_API"]

    def known() -> bool:
        try:
            with urllib.request.urlopen(f"{base}/api/query?{urlencode({'q': CPU})}", timeout=30) as answer:
                return any(value is not None for one in json.load(answer)["series"] for value in one["values"])
        except OSError:  # an error of the API, or an answer that takes too long
            return False

    eventually(known, seconds=240, pause=1)
    return base


@pytest.fixture(scope="session")
def plain_address() -> Iterator[str]:
    """Address of a page over a small store, for tests that answer its questions themselves."""
    with served() as client:
        yield f"http://127.0.0.1:{client.port}"


@pytest.fixture(scope="session")
def years_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a page over a history of 400 days."""
    boards = tmp_path_factory.mktemp("boards")
    (boards / "years.yaml").write_text(BOARD)
    with years_beside(tmp_path_factory.mktemp("years"), boards) as found:
        yield found


@pytest.fixture
def explorer(browser: Browser, years_address: str) -> Iterator[Watched]:
    """A watched page over a history of 400 days."""
    made = Watched(browser, years_address, "light", 1440, 900)
    yield made
    made.close()


@pytest.fixture
def opener(browser: Browser, address: str) -> Iterator[Opener]:
    """Makes watched pages: opener(scheme="dark", width=400, height=800)."""
    made: list[Watched] = []

    def new(scheme: str = "light", width: int = 1440, height: int = 900) -> Watched:
        made.append(Watched(browser, address, scheme, width, height))
        return made[-1]

    yield new
    for one in made:
        one.close()


@pytest.fixture
def watched(opener: Opener) -> Watched:
    """One watched page, light, as wide as a desk's."""
    return opener()


@pytest.fixture(scope="session")
def visitor(whole_stack: Stack) -> Iterator[subprocess.Popen[bytes]]:
    """An application that registers, with a label value that no page may run and a number beyond 2^53."""
    environment = child_environment({"ARTIMON_ZOOKEEPER": whole_stack.zookeeper, "ARTIMON_CONTEXT": "visitor"})
    process = subprocess.Popen([sys.executable, "-c", APPLICATION], env=environment)
    yield process
    process.kill()
    process.wait()
