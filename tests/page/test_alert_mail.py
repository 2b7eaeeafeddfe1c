"""An application is killed and started again: one mail each; the page shows the alert, its endpoint, and the end.

A mail takes minutes. The tests have turns, so that others run meanwhile; each does what must come before it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from artimon.runtime.settings import child_environment
from artimon.stack.mail_view import Mail, read_mails
from artimon.stack.mailbox import FOLDER
from artimon.stack.stack import Stack
from tests.page.watched import Watched
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

RULE = """\
rules:
  - name: doomed-down
    expr: fetch('artimon.endpoint.up{context="doomed"}')
    threshold: "< 1"
    for: 0s
    missing: keep
    labels: {severity: page}
    summary: "{context} {instance} is down"
"""
APPLICATION = "import bookkeeper, threading; bookkeeper.set_integer_var('doomed.life', {}, 1); threading.Event().wait()"
MINUTES_S = 240
"""The poll, the end of the bucket and the evaluation after it, twice over."""


class Doomed:
    """An application of the context `doomed`, instance 0, which may die and live again."""

    def __init__(self, zookeeper: str) -> None:
        self._environment = child_environment({"ARTIMON_ZOOKEEPER": zookeeper, "ARTIMON_CONTEXT": "doomed"})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", APPLICATION], env=self._environment)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None


@pytest.fixture(scope="session")
def rule(whole_stack: Stack) -> Iterator[Path]:
    path = whole_stack.data / "alerts" / "rules" / "doomed.yaml"
    path.write_text(RULE)
    yield path
    path.unlink()


@pytest.fixture(scope="session")
def killed(whole_stack: Stack, rule: Path) -> Iterator[Doomed]:
    """The application: it was polled, then killed."""
    application = Doomed(whole_stack.zookeeper)
    application.start()
    with VarstoreClient(whole_stack.zookeeper) as store:
        eventually(lambda: "doomed.life" in store.names())
    application.kill()
    yield application
    application.kill()


@pytest.fixture(scope="session")
def started(whole_stack: Stack, killed: Doomed) -> Doomed:
    """The application: it was started again once a mail had told its end."""
    eventually(lambda: len(mails(whole_stack)) == 1, seconds=MINUTES_S, pause=1)
    killed.start()
    return killed


def mails(stack: Stack) -> list[Mail]:
    return [mail for mail in read_mails(stack.data / FOLDER, 1_000) if "doomed-down" in mail.subject]


@pytest.mark.turn(1)
def test_an_application_dies(killed: Doomed) -> None:
    """Before the tests of the page."""
    assert not killed.alive


@pytest.mark.turn(3)
@pytest.mark.timeout(600)
def test_a_kill_is_a_mail_and_seen_on_the_page(whole_stack: Stack, killed: Doomed, watched: Watched) -> None:
    """After the tests of the page."""
    eventually(lambda: len(mails(whole_stack)) == 1, seconds=MINUTES_S, pause=1)
    fired = mails(whole_stack)[0]
    assert fired.subject == "[FIRING] doomed-down: doomed 0 is down"
    assert "severity" in fired.text
    assert "severity" in fired.html
    assert f"{whole_stack.addresses()['ARTIMON_API']}/?q=" in fired.text
    page = watched.open()
    expect(page.locator("#alerts li", has_text="doomed-down").first).to_contain_text("firing", timeout=60_000)
    expect(page.locator("#endpoints li", has_text="doomed").first).to_contain_text("down", timeout=60_000)


@pytest.mark.turn(4)
@pytest.mark.timeout(600)
def test_it_is_started_again(started: Doomed) -> None:
    """Before the tests of the notebook."""
    assert started.alive


@pytest.mark.turn(6)
@pytest.mark.timeout(600)
def test_a_new_start_is_another_mail_and_seen_on_the_page(
    whole_stack: Stack, started: Doomed, watched: Watched
) -> None:
    """After the tests of the notebook. The second mail may tell of other alerts too, if there were many before."""
    eventually(lambda: len(mails(whole_stack)) == 2, seconds=MINUTES_S, pause=1)
    told = mails(whole_stack)[1]
    alone = told.subject == "[RESOLVED] doomed-down: doomed 0 is down"
    ways = ("RESOLVED: doomed 0 is down", "RESOLVED doomed-down: doomed 0 is down")  # the first of a mail, and others
    assert alone or any(way in told.text for way in ways), (told.subject, told.text)
    alert = watched.open().locator("#alerts li", has_text="doomed-down").first
    expect(alert).to_contain_text("resolved", timeout=60_000)
    assert len(mails(whole_stack)) == 2
