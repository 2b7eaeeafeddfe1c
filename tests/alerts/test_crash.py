"""Kill -9 at every step between evaluation, commit, server and mark: no mail lost, none twice but in the one window."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.alerts.mailboxes import Mailbox
from tests.forked import run_forked

pytestmark = pytest.mark.programs

A_FAILS = ["[FIRING] down: a is 0", "[RESOLVED] down: a is 1"]
EXPECTED = [A_FAILS[0], "[FIRING] down: 1 firing, 1 resolved", "[RESOLVED] down: b is 1", *A_FAILS]


def run(folder: Path, mails: Mailbox, step: str, number: int) -> subprocess.CompletedProcess[str]:
    return run_forked("tests.alerts.crashing_engine", str(folder), mails.address, step, str(number))


def test_without_a_crash(tmp_path: Path, mails: Mailbox) -> None:
    assert run(tmp_path, mails, "never", 0).stdout == "done\n"
    assert mails.subjects == EXPECTED


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("step", ["evaluated", "committing", "committed", "sending", "accepted", "marked"])
def test_killed_at(tmp_path: Path, mails: Mailbox, step: str, number: int) -> None:
    killed = run(tmp_path, mails, step, number)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = run(tmp_path, mails, "never", 0)
    assert finished.stdout == "done\n", finished.stderr
    twice = [id for id, count in mails.ids.items() if count > 1]
    assert len(mails.ids) == len(EXPECTED)
    if step == "accepted":  # between the server's 250 and the mark: once more, under the same Message-ID
        assert (len(twice), len(mails.raw)) == (1, len(EXPECTED) + 1)
    else:
        assert mails.subjects == EXPECTED


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path, mails: Mailbox) -> None:
    """Each run gets one step further, if that."""
    steps = ["evaluated", "committing", "sending", "marked", "committed"] * 4
    for step in steps:
        if run(tmp_path, mails, step, 2).stdout == "done\n":
            break
    assert run(tmp_path, mails, "never", 0).stdout == "done\n"
    assert mails.subjects == EXPECTED
