"""Waiting for what another thread or process does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
FIRST_S = 0.02


def eventually(check: Callable[[], T], what: str = "", seconds: float = 120.0, pause: float = 0.3) -> T:
    """The first true answer of `check`; fails, and says `what`, if none comes in time. It is asked soon at first, then
    less and less often, every `pause` seconds in the end."""
    deadline, wait, wait_s = monotonic() + seconds, threading.Event(), min(FIRST_S, pause)
    while not (answer := check()):
        assert monotonic() < deadline, f"{what or check}: not within {seconds:.0f} s, but {answer!r}"
        wait.wait(wait_s)
        wait_s = min(1.5 * wait_s, pause)
    return answer
