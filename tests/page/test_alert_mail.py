"""An application is killed and started again: one mail each; the page shows the alert, its endpoint, and the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from artimon.settings import child_environment
from artimon.stack.mail_view import Mail, read_mails
from artimon.stack.mailbox import FOLDER
from artimon.stack.stack import Stack
from tests.page.watched import Watched
from tests.waiting import eventually
from varstore.cluster.client import VarstoreClient

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


@pytest.fixture
def rule(whole_stack: Stack) -> Iterator[Path]:
    path = whole_stack.data / "alerts" / "rules" / "doomed.yaml"
    path.write_text(RULE)
    yield path
    path.unlink()


@pytest.fixture
def doomed(whole_stack: Stack, rule: Path) -> Iterator[Doomed]:
    application = Doomed(whole_stack.zookeeper)
    application.start()
    yield application
    application.kill()


def mails(stack: Stack) -> list[Mail]:
    return [mail for mail in read_mails(stack.data / FOLDER, 1_000) if "doomed-down" in mail.subject]


@pytest.mark.timeout(900)
def test_a_kill_and_a_new_start_are_two_mails_and_seen_on_the_page(
    whole_stack: Stack, watched: Watched, doomed: Doomed
) -> None:
    with VarstoreClient(whole_stack.zookeeper) as store:
        eventually(lambda: "doomed.life" in store.names())
    page = watched.open()
    doomed.kill()
    eventually(lambda: len(mails(whole_stack)) == 1, seconds=MINUTES_S, pause=1)
    fired = mails(whole_stack)[0]
    assert fired.subject == "[FIRING] doomed-down: doomed 0 is down"
    assert "severity" in fired.text
    assert "severity" in fired.html
    assert f"{whole_stack.addresses()['ARTIMON_API']}/?q=" in fired.text
    alert = page.locator("#alerts li", has_text="doomed-down").first
    expect(alert).to_contain_text("firing", timeout=60_000)
    expect(page.locator("#endpoints li", has_text="doomed").first).to_contain_text("down", timeout=60_000)
    doomed.start()
    eventually(lambda: len(mails(whole_stack)) == 2, seconds=MINUTES_S, pause=1)
    assert mails(whole_stack)[1].subject == "[RESOLVED] doomed-down: doomed 0 is down"
    expect(alert).to_contain_text("resolved", timeout=60_000)
    assert len(mails(whole_stack)) == 2
