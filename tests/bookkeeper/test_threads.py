"""No add is lost and no return value comes twice, on the interpreter that runs this test."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import bookkeeper
from bookkeeper import Bookkeeper
from bookkeeper.variables.snapshot import SnapshotReader

THREADS, ADDS = 8, 20_000


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Threads give way as often as the interpreter allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def book() -> Iterator[Bookkeeper]:
    """The default object of the module, replaced for one test."""
    mine = Bookkeeper(online=False)
    before = bookkeeper.use(mine)
    yield mine
    bookkeeper.use(before)


def together(work: Callable[[int], Any]) -> list[Any]:
    """Return the results of `work(i)` in each of 8 threads that begin together."""
    results: list[Any] = [None] * THREADS
    barrier = threading.Barrier(THREADS)

    def run(i: int) -> None:
        barrier.wait(60)
        results[i] = work(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return results


ADDERS: list[Any] = [
    pytest.param(lambda: bookkeeper.integer("n", {"a": "x"}).add, 1, id="integer_handle"),
    pytest.param(lambda: bookkeeper.double("n", {"a": "x"}).add, 1.0, id="double_handle"),
    pytest.param(lambda: lambda o: bookkeeper.add_to_integer_var("n", {"a": "x"}, o), 1, id="integer_function"),
    pytest.param(lambda: lambda o: bookkeeper.add_to_double_var("n", {"a": "x"}, o), 1.0, id="double_function"),
]


@pytest.mark.parametrize(("adder", "one"), ADDERS)
def test_no_add_is_lost(book: Bookkeeper, adder: Callable[[], Callable[[float], float]], one: float) -> None:
    """8 threads, switch interval 1 us: the sum is exact and each caller saw a value of its own."""
    add = adder()

    def work(_: int) -> list[float]:
        return [add(one) for _ in range(ADDS)]

    seen = [value for values in together(work) for value in values]
    assert len(set(seen)) == THREADS * ADDS
    assert max(seen) == THREADS * ADDS
    assert book.refusals() == {}


def test_short_and_long_ways_mix(book: Bookkeeper) -> None:
    """Negative and foreign addends go through the lock, plain ones do not; together they are exact."""

    def work(i: int) -> None:
        handle = bookkeeper.integer("n")
        for _ in range(ADDS // 10):
            handle.add(3)
            handle.add(-1 if i % 2 else True)

    together(work)
    assert bookkeeper.get_integer_var("n", {}) == THREADS * (ADDS // 10) * 3
    assert bookkeeper.refusals() == {}


def test_removal_splits_but_never_loses(book: Bookkeeper) -> None:
    """Every add either is in the final value or was in a value that a removal took away."""
    taken: list[int] = []

    def work(i: int) -> int:
        handle = bookkeeper.integer("n")
        if i == 0:
            for _ in range(300):
                before = handle.get()
                handle.remove()
                taken.append(before or 0)
            return 0
        return sum(1 for _ in range(2000) if handle.add(1) > 0)

    done = sum(together(work))
    assert done == 2000 * (THREADS - 1)
    assert (bookkeeper.get_integer_var("n", {}) or 0) <= done


def test_change_of_type_under_load_loses_nothing(book: Bookkeeper) -> None:
    """Adds that succeeded before and after INTEGER became DOUBLE are all in the sum; refused ones were counted."""
    half = threading.Event()

    def work(i: int) -> int:
        done = 0
        for n in range(4000):
            if i == 0 and n == 1000:
                half.set()
                bookkeeper.add_to_double_var("n", {}, 0.5)
            elif n == 3000:
                half.wait(30)  # some come after the change, whoever is the fastest
            if not half.is_set() or i:
                done += bookkeeper.add_to_integer_var("n", {}, 1) > 0
        return done

    done = sum(together(work))
    assert bookkeeper.get_double_var("n", {}) == done + 0.5
    assert bookkeeper.refusals().get("type", 0) > 0


def test_snapshots_while_variables_come_and_go(book: Bookkeeper) -> None:
    """A poll in the middle of anything is whole: as many cells as the schema says, no value missing."""
    snapshots = SnapshotReader(book)

    def work(i: int) -> int:
        if i < 2:
            for _ in range(300):
                layout, values, _ = snapshots.columns()
                assert len(values) == 8 * len(layout.cells) == 8 * len(layout.types)
                assert None not in snapshots.rows()[1]
            return 1
        for n in range(300):
            labels = {"i": str(i), "n": str(n % 7)}
            bookkeeper.add_to_integer_var("n", labels, 1)
            bookkeeper.set_string_var("s", labels, str(n))
            bookkeeper.add_to_double_var("n", labels, 1.0)
            bookkeeper.remove_double_var("n", labels)
            bookkeeper.remove_string_var("s", labels)
        return 1

    assert together(work) == [1] * THREADS


def test_adds_beyond_the_limit_are_exact() -> None:
    """Own series, overflow series and those that are begun meanwhile hold every add, integers and doubles alike."""
    limited = Bookkeeper(online=False, max_per_name=20, max_variables=150)
    before = bookkeeper.use(limited)

    def work(i: int) -> int:
        for n in range(600):
            labels = {"n": str((i * 7 + n) % 60)}
            bookkeeper.add_to_integer_var("n", labels, 1)
            bookkeeper.integer("n", {**labels, "more": "x"}).add(1)
            bookkeeper.add_to_double_var(f"d{n % 7}", labels, 1.0)
            bookkeeper.histogram("h", labels, (1,)).observe(0.5)
        return 1

    try:
        assert together(work) == [1] * THREADS
        found = [(entry.name, entry.value) for entry in bookkeeper.collect()]
    finally:
        bookkeeper.use(before)
    for name, times in (("n", 2), ("d", 1), ("h.count", 1)):
        values = [value for seen, value in found if seen == name or (name == "d" and seen.startswith("d"))]
        assert sum(float(value) for value in values) == times * THREADS * 600
    assert limited.refusals() == {}
    assert limited.table.count == len(limited.table.all_cells())
