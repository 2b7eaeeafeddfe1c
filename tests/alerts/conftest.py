"""Real SMTP servers, and a world in which an engine runs minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.alerts.mailboxes import Mailbox, mailbox
from tests.alerts.worlds import World


@pytest.fixture(autouse=True)
def _all_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The annotations of messages do not depend on the load of the machine: every rule that is due is measured."""
    monkeypatch.setattr("alerts.evaluation.rule_completeness.BUDGET_S", 600.0)


@pytest.fixture
def mails() -> Iterator[Mailbox]:
    """A server that takes every mail."""
    with mailbox() as box:
        yield box


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An engine over a plain store, with its own folders."""
    made = World(tmp_path)
    yield made
    made.close()
