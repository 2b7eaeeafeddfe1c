"""Series that end when nothing writes to them any more: after a poll has shown them, and never with a count in them."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import bookkeeper
from bookkeeper import Bookkeeper
from bookkeeper.variables import expiry
from bookkeeper.variables import histogram_table as buckets
from bookkeeper.variables.snapshot import SnapshotReader
from tests.bookkeeper.books import replaced, shown


class Clock:
    """Moves when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def book() -> Iterator[Bookkeeper]:
    with replaced() as mine:
        yield mine


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    hands = Clock()
    monkeypatch.setattr(expiry, "monotonic", hands)
    monkeypatch.setattr(buckets, "monotonic", hands)
    return hands


def poll(book: Bookkeeper, clock: Clock, seconds: float = 60.0) -> set[str]:
    """The names that a poll shows so much later."""
    clock.now += seconds
    return {key[0] for key in shown(book, ends=True)}


def test_what_nobody_writes_ends(book: Bookkeeper, clock: Clock) -> None:
    """And begins anew with the next write, through the handle that the program holds."""
    bookkeeper.expire("n", 100)
    handle, other = bookkeeper.integer("n", {"a": "x"}), bookkeeper.integer("other")
    handle.add(5)
    other.add(1)
    assert poll(book, clock) == {"n", "other"}
    assert poll(book, clock) == {"n", "other"}
    assert poll(book, clock) == {"other"}
    assert handle.get() is None
    assert handle.add(2) == 2
    assert poll(book, clock) == {"n", "other"}
    assert bookkeeper.integer("n", {"a": "x"}) is handle


WRITES: dict[str, Callable[[], object]] = {
    "add": lambda: bookkeeper.add_to_integer_var("n", {}, 1),
    "add_nothing": lambda: bookkeeper.add_to_integer_var("n", {}, 0),
    "handle_adds_nothing": lambda: bookkeeper.integer("n").add(0),
    "set_the_same": lambda: bookkeeper.set_integer_var("n", {}, 5),
    "add_double": lambda: bookkeeper.add_to_double_var("d", {}, 0.0),
    "set_the_same_double": lambda: bookkeeper.set_double_var("d", {}, 0.5),
    "set_the_same_text": lambda: bookkeeper.set_string_var("s", {}, "x"),
    "set_the_same_truth": lambda: bookkeeper.set_boolean_var("b", {}, True),
    "observe": lambda: bookkeeper.histogram("h").observe(0.0),
}


@pytest.mark.parametrize("watched", ["before", "after"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_every_write_keeps_a_series(book: Bookkeeper, clock: Clock, write: Callable[[], object], watched: str) -> None:
    """Also one that leaves the value as it was, and however late `expire` was called."""
    if watched == "after":
        write()
    for name in ("n", "d", "s", "b", "h"):
        bookkeeper.expire(name, 50)
    for _ in range(4):
        write()
        assert poll(book, clock)
    assert poll(book, clock) == set()
    assert book.refusals() == {}


def test_nothing_ends_before_a_poll_has_shown_it(book: Bookkeeper, clock: Clock) -> None:
    """However old it is; and looking at it otherwise does not count."""
    bookkeeper.expire("n", 10)
    bookkeeper.add_to_integer_var("n", {}, 5)
    clock.now += 1e6
    assert shown(book) == {("n",): 5}
    assert poll(book, clock, 1e6) == {"n"}
    assert poll(book, clock, 9) == {"n"}
    assert shown(book) == {("n",): 5}
    assert poll(book, clock, 2) == set()


def test_polls_over_the_wire_end_series(book: Bookkeeper, clock: Clock) -> None:
    """The service of an endpoint collects expired series."""
    bookkeeper.expire("n", 10)
    bookkeeper.add_to_integer_var("n", {}, 5)
    snapshots, sizes = SnapshotReader(book), []
    for _ in range(3):
        sizes.append(len(snapshots.columns()[1]))
        clock.now += 60.0
    assert sizes == [8, 0, 0]


def test_a_histogram_ends_whole(book: Bookkeeper, clock: Clock) -> None:
    """By its own name; its parts do not end by theirs."""
    bookkeeper.expire("h", 100)
    bookkeeper.expire("k.count", 100)
    histogram = bookkeeper.histogram("h")
    histogram.observe(1.0)
    bookkeeper.histogram("k").observe(1.0)
    everything = {f"{name}.{part}" for name in "hk" for part in ("bucket", "sum", "count")}
    assert [poll(book, clock) for _ in range(2)] == [everything] * 2
    assert poll(book, clock) == {"k.bucket", "k.sum", "k.count"}
    histogram.observe(2.0)
    assert (histogram.count(), histogram.sum()) == (1, 2.0)
    assert poll(book, clock) == everything


@pytest.mark.parametrize("never", [None, 0, -1])
def test_taken_back(book: Bookkeeper, clock: Clock, never: float | None) -> None:
    """None and 0: series stay."""
    bookkeeper.expire("n", 10)
    bookkeeper.expire("n", never)
    bookkeeper.add_to_integer_var("n", {}, 1)
    for _ in range(5):
        assert poll(book, clock) == {"n"}


@pytest.mark.parametrize(("name", "after"), [("a b", 1), ("n", math.nan), ("n", "x"), ("n", math.inf)])
def test_what_makes_no_sense(book: Bookkeeper, name: str, after: float) -> None:
    """Counted."""
    bookkeeper.expire(name, after)
    assert sum(book.refusals().values()) == 1


def test_a_series_that_ended_makes_room(clock: Clock) -> None:
    """With a limit, expiry is how a label with slowly changing values stays below it."""
    book = Bookkeeper(online=False, max_per_name=3)
    book.expire("n", 100)
    for i in range(30):
        assert book.add_to_integer_var("n", {"i": str(i)}, 1) == 1
        poll(book, clock, 70)
    assert book.refusals() == {}
    assert not [key for key in shown(book) if key[0] == "bookkeeper.overflow"]


def test_in_a_forked_child_all_begins_anew(book: Bookkeeper, clock: Clock) -> None:
    """Names still expire there."""
    bookkeeper.expire("n", 100)
    handle = bookkeeper.integer("n")
    handle.add(1)
    poll(book, clock)
    book.forget_values()
    handle.add(1)
    assert [poll(book, clock) for _ in range(3)] == [{"n"}, {"n"}, set()]


def test_a_counter_that_begins_anew_is_left_out_of_one_poll(book: Bookkeeper) -> None:
    """The collector has to see the end, or it would take 7 for 2 more than 5. What it does not collect shows it."""
    snapshots = SnapshotReader(book)
    counter, gauge, histogram = bookkeeper.integer("c"), bookkeeper.integer("g"), bookkeeper.histogram("h")

    def polled() -> dict[str, object]:
        layout, values = snapshots.rows()
        return {cell.name: value for cell, value in zip(layout.cells, values, strict=True)}

    counter.add(5)
    gauge.set(5)
    histogram.observe(1.0)
    assert polled()["c"] == 5
    counter.remove()
    gauge.remove()
    histogram.remove()
    counter.add(7)
    gauge.set(7)
    histogram.observe(2.0)
    histogram.observe(3.0)
    assert shown(book)[("c",)] == 7
    assert polled() == {"g": 7}
    assert polled()["c"] == 7
    assert polled()["h.sum"] == 5.0


def test_adds_during_polls_that_end_series_are_never_lost(book: Bookkeeper, clock: Clock) -> None:
    """8 threads, switches every microsecond, polls that end all that they have seen once: what was shown at the end of
    each life adds up to what was added."""
    bookkeeper.expire("n", 1)
    bookkeeper.expire("h", 1)
    before, interval = threading.Event(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work() -> None:
        handle, histogram = bookkeeper.integer("n"), bookkeeper.histogram("h", bounds=(1,))
        for i in range(2_000):
            handle.add(1)
            bookkeeper.add_to_integer_var("n", {}, 1)
            histogram.observe(0.5)
            if i % 100 == 0:
                before.wait(0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        total = {("n",): 0, ("h.count",): 0}
        last = dict(total)
        while any(thread.is_alive() for thread in threads):
            clock.now += 5.0
            found = shown(book, ends=True)
            for key in total:
                value = found.get(key, 0)
                if value < last[key]:  # it ended, with the value that was shown before, and may have begun anew
                    total[key] += last[key]
                last[key] = value
    finally:
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join(60)
    found = shown(book)
    for key in total:
        value = found.get(key, 0)
        total[key] += value if value >= last[key] else last[key] + value
    assert total == {("n",): 16_000, ("h.count",): 8_000}
