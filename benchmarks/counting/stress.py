"""Stress test of counting: 8 threads that switch every microsecond lose no add and get no return value twice.

The benchmark runs it before timing, on the same interpreter; the tests run it on every interpreter that they find:
`python -m benchmarks.counting.stress [--locked]`. Needs only the standard library.
"""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

THREADS, ADDS = 8, 10_000
SWITCH_S = 1e-6


def stress(adds: int = ADDS) -> list[str]:
    """Return the errors as texts; uses a separate Bookkeeper."""
    import bookkeeper

    before, interval = bookkeeper.use(bookkeeper.Bookkeeper(online=False)), sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        return [*_adders(adds), *_gauge(adds), *_histogram(adds), *_refused()]
    finally:
        sys.setswitchinterval(interval)
        bookkeeper.use(before)


def _adders(adds: int) -> list[str]:
    """Check handles and functions for both number types: the sum is exact, and return values are distinct."""
    import bookkeeper

    labels = {"a": "x", "b": "y"}
    ways: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "integer.add": (bookkeeper.integer("i", labels).add, 1),
        "double.add": (bookkeeper.double("d", labels).add, 1.0),
        "add_to_integer_var": (lambda one: bookkeeper.add_to_integer_var("fi", {"a": "x", "b": "y"}, one), 1),
        "add_to_double_var": (lambda one: bookkeeper.add_to_double_var("fd", {"a": "x", "b": "y"}, one), 1.0),
    }
    wrong = []
    for name, (add, one) in ways.items():
        seen = [value for values in together(partial(_added, add, one, adds)) for value in values]
        if len(set(seen)) != THREADS * adds or max(seen) != THREADS * adds:
            wrong.append(f"{name}: {len(seen)} adds gave {len(set(seen))} values up to {max(seen)}")
    return wrong


def _added(add: Callable[[Any], Any], one: Any, adds: int) -> list[Any]:
    return [add(one) for _ in range(adds)]


def _gauge(adds: int) -> list[str]:
    """Check that alternating adds of 1 and -1 end at 0, with adds through the lock among them."""
    import bookkeeper

    gauge = bookkeeper.integer("g")

    def work() -> None:
        for _ in range(adds // 2):
            gauge.add(1)
            gauge.add(-1)
            gauge.add(True)
            gauge.add(-1)

    together(work)
    return [] if gauge.get() == 0 else [f"gauge: {gauge.get()} instead of 0"]


def _histogram(adds: int) -> list[str]:
    """Check that each bucket and the sum are exact while polls read them."""
    import bookkeeper

    histogram = bookkeeper.histogram("h", {}, (1.0, 2.0))

    def work() -> None:
        for _ in range(adds // 2):
            histogram.observe(0.5)
            histogram.observe(4.0)
        bookkeeper.collect()

    together(work)
    found = {(entry.name, entry.labels.get("le")): entry.value for entry in bookkeeper.collect() if entry.family == "h"}
    half = THREADS * (adds // 2)
    wanted = {
        ("h.bucket", "1.0"): half,
        ("h.bucket", "2.0"): half,
        ("h.bucket", "+Inf"): 2 * half,
        ("h.sum", None): 4.5 * half,
        ("h.count", None): 2 * half,
    }
    return [] if found == wanted else [f"histogram: {found} instead of {wanted}"]


def _refused() -> list[str]:
    import bookkeeper

    return [f"refused: {bookkeeper.refusals()}"] if bookkeeper.refusals() else []


def together(work: Callable[[], Any]) -> list[Any]:
    """Run `work()` in threads that start at the same time; return their results."""
    results: list[Any] = [None] * THREADS
    barrier = threading.Barrier(THREADS)

    def run(i: int) -> None:
        barrier.wait(30)
        results[i] = work()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def main() -> int:
    """Print the errors; return 1 if there are any."""
    if "--locked" in sys.argv:  # as in an interpreter without a GIL
        sys._is_gil_enabled = lambda: False  # type: ignore[attr-defined]
    from bookkeeper.variables.cell import LOCK_FREE

    way = "without a lock" if LOCK_FREE else "with a lock"
    wrong = stress(ADDS if LOCK_FREE else ADDS // 4)  # a contended lock is slow
    sys.stdout.write(f"{platform.python_implementation()} {platform.python_version()} {way}: {wrong or 'exact'}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
