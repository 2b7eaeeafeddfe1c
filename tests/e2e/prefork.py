"""A pre-fork server: four workers add known amounts; SIGHUP to the master restarts each by SIGTERM, SIGTERM ends all.

Each worker appends what it added to the file named by the argument, when it ends: that is the test's ledger.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import bookkeeper

WORKERS = 4
COUNTER = "prefork.done"
GAUGE = "prefork.alive"


def work(ledger: Path) -> None:
    """One worker: add until SIGTERM, then leave in order."""
    stop = threading.Event()

    def on_term(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_term)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    added = 0
    bookkeeper.set_integer_var(GAUGE, {}, 1)
    while True:
        amount = random.randrange(1, 100)
        bookkeeper.add_to_integer_var(COUNTER, {}, amount)
        added += amount
        if stop.wait(0.02):
            break
    with ledger.open("a") as file:
        file.write(f"{added}\n")
    # as at exit, where 5 s is all that a last poll may take: too little for a machine on which every test runs at once
    bookkeeper.default().close(100.0)
    sys.exit(0)


def spawn(ledger: Path) -> int:
    """Fork a worker; its exit runs the handlers of `atexit`, as a server's worker does. A SIGTERM that comes before
    it has its own handler waits."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid == 0:
        work(ledger)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return pid


def main() -> None:
    ledger = Path(sys.argv[1])
    bookkeeper.configure(context="prefork")
    again, stop = threading.Event(), threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: again.set())
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    workers = [spawn(ledger) for _ in range(WORKERS)]
    while not stop.wait(0.05):
        if again.is_set():
            again.clear()
            for number, pid in enumerate(workers):
                os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
                workers[number] = spawn(ledger)
            print("restarted", flush=True)
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    for pid in workers:
        os.waitpid(pid, 0)
    os._exit(0)  # the master counts nothing


if __name__ == "__main__":
    main()
