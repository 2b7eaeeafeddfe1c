"""A program that counts 1, then 131 at SIGUSR1, and ends in order at SIGTERM."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import bookkeeper


def main() -> None:
    more, end = threading.Event(), threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        (end if number == signal.SIGTERM else more).set()

    signal.signal(signal.SIGUSR1, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    bookkeeper.add_to_integer_var("away.done", {}, 1)
    while not more.wait(0.1) and not end.is_set():
        pass
    if more.is_set():
        bookkeeper.add_to_integer_var("away.done", {}, 131)
    end.wait()


if __name__ == "__main__":
    main()
