"""Every page of the running stack as each role, in Chromium and in Firefox: data, accessibility, what a role may do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest

from artimon.runtime.settings import child_environment
from artimon.stack.stack import Stack
from tests.access.asgi_client import ACCESS, HASH, PASSWORD
from tests.page.tabs import Tab, tab_of_chromium, tab_of_firefox
from tests.page.watched import CPU, LOAD
from tests.sockets import free_port
from tests.waiting import eventually

HOSTILE = "<img src=x onerror=window.broken=1>"
"""Name of an editor, and text of his silence."""
VIEWER, EDITOR, ADMINISTRATOR = "vera", "eddie", "ada"
BOARD = "title: Mine\npanels:\n- {title: Load, queries: [{q: fetch('host.load')}]}\n"
SILENCE = json.dumps({"matchers": 'host="nobody"', "duration": "1m", "comment": "none"})
LogIn = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Visit:
    """Address of a page, element and pattern of the data that it shows, and the control that viewers do not have: its
    element and text."""

    path: str
    place: str
    data: str
    control: tuple[str, str] = ("", "")


VISITS = (
    Visit(f"?{urlencode({'q': CPU})}", "#legend tbody", "idle"),
    Visit("start", "#facts", r"\d+ variables of 1 host \("),
    Visit("dashboards", ".board-list", "One host", ("#head a", "New dashboard")),
    Visit("dashboards?name=host&range=15m", "[data-panel='3'] .big", r"\d %", ("#head button", "Edit")),
    Visit("dashboards?name=host&view=edit", "#side", "Name", ("#side button", "Save")),
    Visit("alerts", "#rule-list", r"took .+, for ", ("#new-silence", "New silence")),
    Visit("fleet", "#list tbody", "shard-0"),
    Visit("variables?name=host.load", "#labels", "window"),
    Visit("cardinality", "#list tbody", r"\d %"),
    Visit("queries", "#count", r"\d quer"),
)
EMPTY = {
    "host": {"Volumes", "Network", "Disks", "Fullest volume"},
    "artimon": {"Endpoints that do not answer"},
    "jvm-hdfs": set[str](),
}
"""Panels of a dashboard of the package that may be empty: this machine has no such device, or nothing is wrong."""
ROLES = ((VIEWER, "light"), (EDITOR, "dark"), pytest.param(ADMINISTRATOR, "light", marks=pytest.mark.slow))
SEND = """return fetch(arguments[0], {method: arguments[1], body: arguments[2], headers: arguments[3]})
  .then((answer) => answer.status)"""


@pytest.fixture(scope="module", params=["chromium", pytest.param("firefox", marks=pytest.mark.slow)])
def browser_tab(request: pytest.FixtureRequest) -> Iterator[Tab]:
    """The tab of one browser for all tests of this file."""
    is_chromium = request.param == "chromium"
    with tab_of_chromium(request.getfixturevalue("browser")) if is_chromium else tab_of_firefox() as found:
        yield found


@pytest.fixture
def tab(browser_tab: Tab) -> Iterator[Tab]:
    """A tab without a session; its pages may have no errors."""
    browser_tab.forget()
    yield browser_tab
    browser_tab.forget()
    assert browser_tab.problems() == []


@pytest.fixture(scope="module")
def guarded(whole_stack: Stack, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a second API of the stack, which has a login and a folder of dashboards."""
    folder, port = tmp_path_factory.mktemp("guarded"), free_port()
    access = folder / "access.yaml"
    access.write_text(ACCESS.replace("users:\n", f"users:\n- name: '{HOSTILE}'\n  role: editor\n  password: {HASH}\n"))
    options = {
        "id": "api-guarded", "zookeeper": whole_stack.zookeeper, "port": port, "thrift-port": 0, "access": access,
        "data": whole_stack.data, "dashboards": folder / "dashboards", "history-cache": 0,
    }  # fmt: skip
    given = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    process = subprocess.Popen([sys.executable, "-m", "artimon.cli", "api", *given], env=child_environment({}))
    base = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"{base}/login", timeout=5).close()
        except OSError:  # refused, or slower than the timeout
            return False
        return True

    try:
        eventually(answers, "an API with a login")
        yield base
    finally:
        process.terminate()  # it unregisters
        process.wait(30)


@pytest.fixture
def log_in(tab: Tab, guarded: str) -> LogIn:
    """Logs a user in, by the form: log_in("vera")."""

    def enter(user: str) -> None:
        tab.forget()
        tab.open(guarded)
        tab.wait(lambda: tab.count("#password"), "the login")
        assert tab.findings() == []
        tab.type("#user", user)
        tab.type("#password", PASSWORD)
        tab.click("button[type=submit]")
        tab.wait(lambda: user in tab.text("#account"), f"{user} is logged in")

    return enter


@pytest.mark.parametrize(("user", "scheme"), ROLES)
def test_every_page_as_each_role(tab: Tab, log_in: LogIn, guarded: str, user: str, scheme: str) -> None:
    log_in(user)
    tab.click(f"#theme label:has([value={scheme}])")
    found = {}
    for visit in VISITS:
        tab.open(f"{guarded}/{visit.path}")
        tab.wait(lambda: re.search(visit.data, tab.text(visit.place)), f"data of {visit.path}")  # noqa: B023
        tab.wait(lambda: user in tab.text("#account"), f"the account on {visit.path}")
        selector, text = visit.control
        if selector:
            assert (text in tab.texts(f"{selector}:not([hidden])")) == (user != VIEWER), visit.path
        refused = [] if "name=host" in visit.path else tab.refused()  # queries of devices that the host does not have
        found[visit.path] = [*tab.findings(), *tab.problems(), *refused]
    assert {path: problems for path, problems in found.items() if problems} == {}


@pytest.mark.parametrize(("user", "status"), [(VIEWER, 403), (EDITOR, 200), (ADMINISTRATOR, 200)])
def test_the_session_of_a_viewer_changes_nothing(tab: Tab, log_in: LogIn, user: str, status: int) -> None:
    """The requests that the controls send, from the page of a user."""
    log_in(user)
    board, yaml = f"api/dashboards/of-{user}", {"content-type": "application/yaml", "if-none-match": "*"}
    assert tab.run(SEND, board, "PUT", BOARD, yaml) == status
    assert tab.run(SEND, "api/alerts/silences", "POST", SILENCE, {"content-type": "application/json"}) == status
    listed = tab.run("return fetch('api/dashboards').then((one) => one.json())")["dashboards"]
    assert (f"of-{user}" in {one["name"] for one in listed}) == (status == 200)


def test_a_silence_with_html_is_shown_as_text(tab: Tab, log_in: LogIn, guarded: str) -> None:
    """Matcher, reason and author, as another user sees them."""
    log_in(HOSTILE)
    tab.open(f"{guarded}/alerts")
    tab.wait(lambda: tab.count("#new-silence"), "the page of an editor")
    tab.click("#new-silence")
    tab.type("#matchers", f'host="{HOSTILE}"')
    tab.type("#comment", HOSTILE)
    tab.click("#action-send")
    tab.wait(lambda: HOSTILE in tab.text("#silence-list"), "the silence")
    for user in (VIEWER, EDITOR):
        log_in(user)
        tab.open(f"{guarded}/alerts")
        tab.wait(lambda: HOSTILE in tab.text("#silence-list"), "the silence of another user")
        told = next(text for text in tab.texts(".silence") if HOSTILE in text)
        assert f'host="{HOSTILE}"\n' in told
        assert told.count(HOSTILE) == 3
        assert f"{HOSTILE}, active" in told
        assert ("Expire" in told) == (user == EDITOR)
        assert tab.count("main img") == 0
    tab.click(f"[aria-label*='{HOSTILE}']")
    tab.wait(lambda: HOSTILE not in tab.text("#silence-list"), "the end of the silence")


@pytest.mark.parametrize("name", EMPTY)
def test_the_dashboards_of_the_package_show_the_stack(tab: Tab, address: str, name: str) -> None:
    tab.open(f"{address}/dashboards?name={name}&range=15m&refresh=10s")
    tab.wait(lambda: "ago" in tab.text("#age"), "the answers")

    def is_full() -> bool:
        empty = set(tab.texts(".panel:has(.nothing) h3"))
        return empty <= EMPTY[name] and "–" not in tab.texts(".panel .big")

    eventually(is_full, "values in all panels", pause=1)  # rates need two minutes of the stack
    assert [text for text in tab.texts(".panel .problem") if text] == []
    assert tab.count(".panel canvas") >= 4


@pytest.mark.slow
def test_explore_runs_queries_in_both_languages(tab: Tab, address: str) -> None:
    """In Chromium the files beside this one say more."""
    tab.open(address)
    tab.type("#query", "fetch('host.load').raet()")
    tab.click("#run")
    tab.wait(lambda: "rate" in tab.text("#error"), "the error")
    tab.type("#query", LOAD)
    tab.click("#run")
    tab.wait(lambda: tab.count("#chart canvas") and tab.count("#legend tbody tr") == 3, "a chart with its legend")
    promql = 'max({"host.load"})'
    tab.open(f"{address}/?{urlencode({'q': promql, 'lang': 'promql'})}")
    inside = "return document.querySelector('#promql').shadowRoot.querySelector('.cm-content').innerText"
    tab.wait(lambda: tab.run(inside) == promql, "the editor of PromQL")
    tab.wait(lambda: tab.count("#chart canvas"), "the chart of PromQL")


def follows(tab: Tab, panel: str, place: float | None) -> None:
    """Wait until the vertical line of a chart stands at `place`, from 0 (left) to 1; None: it has no line."""

    def cursor() -> float | None:
        line, left, width = tab.box(f"{panel} .u-cursor-x")[0], *tab.box(f"{panel} .u-over")[::2]
        return None if line < left - 1 else (line - left) / width

    wanted = None if place is None else pytest.approx(place, abs=0.02)
    tab.wait(lambda: cursor() == wanted, f"the cursor of {panel} at {place}")


def test_the_cursors_of_the_charts_of_a_dashboard_move_together(tab: Tab, address: str) -> None:
    tab.open(f"{address}/dashboards?name=host&range=15m&refresh=off")
    one, other = "[data-panel='6']", "[data-panel='7']"
    tab.wait(lambda: tab.count(f"{one} canvas") and tab.count(f"{other} canvas"), "the charts")
    left, top, width, height = tab.box(f"{one} .u-over")
    follows(tab, other, None)
    for place in (0.3, 0.6):
        tab.move(left + place * width, top + height / 2)
        follows(tab, one, place)
        follows(tab, other, place)
    assert tab.count(f"{one} .tooltip")
    assert not tab.count(f"{other} .tooltip")
    tab.move(1, 1)
    follows(tab, other, None)
