"""A program that counts 1, then 131 at SIGUSR1, and ends in order at SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

import bookkeeper


def main() -> None:
    more = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            sys.exit(0)
        more.set()

    signal.signal(signal.SIGUSR1, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    bookkeeper.add_to_integer_var("away.done", {}, 1)
    more.wait()
    bookkeeper.add_to_integer_var("away.done", {}, 131)
    threading.Event().wait()


if __name__ == "__main__":
    main()
