"""Waiting for another thread or process.

One timeout for all, large enough that a slow machine never exceeds it. A test that asserts speed measures it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import monotonic
from typing import Literal, TypeVar

T = TypeVar("T")
LIMIT_S = 120.0
FIRST_S = 0.01


class _Turns:
    """Pauses between polls in seconds: short at first, `pause` in the end."""

    def __init__(self, what: object, seconds: float, pause: float) -> None:
        self._what, self._seconds, self._pause = what, seconds, pause
        self._deadline, self._next = monotonic() + seconds, min(FIRST_S, pause)

    def next(self, answer: object) -> float:
        """Seconds to wait. Raises AssertionError after the timeout."""
        assert monotonic() < self._deadline, f"{self._what}: not within {self._seconds:.0f} s, but {answer!r}"
        wait, self._next = self._next, min(1.5 * self._next, self._pause)
        return wait


def eventually(
    check: Callable[[], T | Literal[False] | None], what: str = "", seconds: float = LIMIT_S, pause: float = 0.1
) -> T:
    """Return the first true answer of `check`; fail with `what` after the timeout."""
    turns, wait = _Turns(what or check, seconds, pause), threading.Event()
    while not (answer := check()):
        wait.wait(turns.next(answer))
    return answer


async def until(
    check: Callable[[], T | Literal[False] | None], what: str = "", seconds: float = LIMIT_S, pause: float = 0.1
) -> T:
    """`eventually` for a test that runs in an event loop."""
    turns = _Turns(what or check, seconds, pause)
    while not (answer := check()):
        await asyncio.sleep(turns.next(answer))
    return answer
