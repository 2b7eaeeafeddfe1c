"""Timeout for calls of libraries without one: HDFS and Delta clients wait for ever on a stopped server."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")


class DeadlineExceededError(TimeoutError):
    """The call timed out. It may still take effect later: the outcome is unknown."""


def call_with_timeout(seconds: float, what: str, call: Callable[[], T]) -> T:
    """Run `call` in a new thread and return its result; abandon it after `seconds`. Raises DeadlineExceededError."""
    outcome: queue.SimpleQueue[tuple[bool, T | BaseException]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((True, call()))
        except BaseException as error:
            outcome.put((False, error))

    threading.Thread(target=run, name=f"within-{what}", daemon=True).start()
    try:
        fine, value = outcome.get(timeout=seconds)
    except queue.Empty:
        raise DeadlineExceededError(
            f"{what} timed out after {seconds:.0f} s: is the server down or overloaded?"
        ) from None
    if fine:
        return value  # type: ignore[return-value]
    raise value  # type: ignore[misc]


@contextmanager
def shut_down_after(seconds: float, connected: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Shut down a connection at the deadline, which ends all waits on it, however slowly the other side answers.

    `connected`: returns the socket, or None while there is none."""

    def cut() -> None:
        sock = connected()
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
