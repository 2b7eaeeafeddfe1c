"""What the end-to-end tests share; the stack itself is the fixture `whole_stack` of tests/conftest.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.stack import Stack
from tests.e2e.whole import ROOT
from varstore.client import VarstoreClient

__all__ = ["ROOT", "eventually"]
T = TypeVar("T")


@pytest.fixture
def store(whole_stack: Stack) -> Iterator[VarstoreClient]:
    """The memory store of the whole stack."""
    with VarstoreClient(whole_stack.zookeeper) as client:
        yield client


def eventually(check: Callable[[], T], seconds: float = 60, pause: float = 0.25) -> T:
    """The first true answer of `check`; fails with the last one when it does not come in time."""
    deadline = SYSTEM_CLOCK.monotonic() + seconds
    while True:
        answer = check()
        if answer or SYSTEM_CLOCK.monotonic() > deadline:
            assert answer, f"{check} gave {answer!r} for {seconds} s"
            return answer
        threading.Event().wait(pause)
