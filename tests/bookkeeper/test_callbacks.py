"""Callbacks: values that are asked for at a poll never hold up a poll, and never harm the application."""

from __future__ import annotations

import itertools
import logging
import math
import signal
import sys
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

import bookkeeper
from bookkeeper import Bookkeeper
from bookkeeper.variables.callbacks import MAX_FAILURES
from bookkeeper.variables.snapshot import SnapshotReader
from tests.bookkeeper.books import replaced, shown
from tests.waiting import eventually


@pytest.fixture
def book() -> Iterator[Bookkeeper]:
    with replaced() as mine:
        yield mine


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    """Event that callbacks wait for; set at the end, so that no thread remains."""
    event = threading.Event()
    yield event
    event.set()
    eventually(lambda: not [one for one in threading.enumerate() if one.name == "bookkeeper-callback"])


def errors(book: Bookkeeper) -> dict[tuple[str, ...], int]:
    """Failures by variable and reason."""
    return {key[2::2]: value for key, value in shown_quietly(book).items() if key[0] == "bookkeeper.callback.errors"}


def shown_quietly(book: Bookkeeper) -> dict[tuple[str, ...], Any]:
    """As `shown`, without a poll."""
    cells = [cell for cell in book.table.all_cells() if cell.value is not None]
    return {(cell.name, *cell.key): cell.value for cell in cells}


@pytest.mark.parametrize(
    ("type_", "value"), [("integer", 7), ("double", 1.5), ("boolean", True), ("string", "x"), (0, 2**70), (1, 3)]
)
def test_each_poll_asks_anew(book: Bookkeeper, type_: str, value: object) -> None:
    """Of every type; as cells take them."""
    bookkeeper.callback("c", {"a": "x"}, lambda: value, type_)
    found = shown(book)[("c", "a", "x")]
    assert found == (2**63 - 1 if value == 2**70 else value)
    assert book.refusals() == {}


def test_counters_and_gauges(book: Bookkeeper) -> None:
    """The kind is what was told, from the first poll."""
    numbers = itertools.count()
    bookkeeper.callback("c", {}, lambda: next(numbers), "integer", "counter")
    bookkeeper.callback("g", None, lambda: math.nan)
    assert [(entry.name, entry.kind) for entry in book.collect()] == [("c", "counter"), ("g", "gauge")]
    assert [shown(book)[("c",)] for _ in range(3)] == [1, 2, 3]


def test_polls_and_files_ask_too(book: Bookkeeper) -> None:
    """A snapshot calls the function and shows its present value."""
    numbers = itertools.count()
    bookkeeper.callback("c", {}, lambda: next(numbers), "integer")
    snapshots = SnapshotReader(book)
    assert [snapshots.rows()[1] for _ in range(2)] == [[0], [1]]
    assert [len(snapshots.columns()[1]) for _ in range(2)] == [8, 8]
    assert bookkeeper.get_integer_var("c", {}) == 3


def test_it_runs_in_a_thread_of_its_own(book: Bookkeeper) -> None:
    """Not in the thread that polls; and what it sets itself is in the same poll."""
    names: list[str] = []

    def runtime() -> None:
        names.append(threading.current_thread().name)
        bookkeeper.set_integer_var("set.by.it", {}, 5)

    bookkeeper.on_poll(runtime)
    assert shown(book) == {("set.by.it",): 5}
    assert names == ["bookkeeper-callback"]


def raises() -> float:
    """Fails."""
    raise RuntimeError("mine")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (raises, "error"),
        (lambda: sys.exit(1), "error"),
        (lambda: "text", "value"),
        (lambda: object(), "value"),
        (lambda: next(iter(())), "error"),
    ],
)
def test_failures_are_counted_and_harm_nobody(book: Bookkeeper, function: Any, reason: str) -> None:
    """The others' values are there; the process goes on."""
    bookkeeper.callback("bad", {}, function)
    bookkeeper.callback("good", {}, lambda: 1.0)
    found = shown(book)
    assert found[("good",)] == 1.0
    assert ("bad",) not in found
    assert errors(book) == {(reason, "bad"): 1}


def test_what_is_wrong_is_logged_once_a_minute(book: Bookkeeper, caplog: pytest.LogCaptureFixture) -> None:
    """With the reason."""
    bookkeeper.callback("logged", {}, raises)
    with caplog.at_level(logging.WARNING, "bookkeeper"):
        for _ in range(3):
            book.collect()
    assert [record.getMessage() for record in caplog.records] == [
        "the callback of logged failed (error; further ones are only counted): RuntimeError('mine')"
    ]


def test_a_gauge_that_fails_keeps_its_value_for_a_while(book: Bookkeeper) -> None:
    """Then it ends; a counter stays, as it would begin anew; both come back."""
    works = True

    def value() -> int:
        if not works:
            raise RuntimeError
        return 5

    bookkeeper.callback("gauge", {}, value)
    bookkeeper.callback("counter", {}, value, kind="counter")
    both = {"gauge": 5.0, "counter": 5.0}
    assert {key[0]: value for key, value in shown(book).items() if len(key) == 1} == both
    works = False
    for left in range(MAX_FAILURES - 1, -1, -1):
        found = {key[0]: value for key, value in shown(book).items() if len(key) == 1}
        assert found == (both if left else {"counter": 5.0})
    works = True
    assert {key[0]: value for key, value in shown(book).items() if len(key) == 1} == both


def test_none_means_no_value(book: Bookkeeper) -> None:
    """The variable ends, and nothing has failed."""
    values = iter([1.0, None, 2.0])
    bookkeeper.callback("g", {}, lambda: next(values))
    assert [shown(book) for _ in range(3)] == [{("g",): 1.0}, {}, {("g",): 2.0}]


def test_one_that_hangs_delays_a_poll_by_its_deadline_at_most(book: Bookkeeper, hang: threading.Event) -> None:
    """The others are in time, wherever they stand; it is not called again until it has returned."""
    calls: list[int] = []

    def slow() -> float:
        calls.append(1)
        hang.wait(60)
        return 9.0

    for i in range(20):
        bookkeeper.callback(f"before{i}", {}, lambda: 1.0)
    bookkeeper.callback("slow", {}, slow, deadline_s=0.2)
    for i in range(20):
        bookkeeper.callback(f"after{i}", {}, lambda: 1.0)
    for n in (1, 2):
        begun = monotonic()
        found = shown(book)
        assert monotonic() - begun < 10.0
        assert sum(key[0].startswith(("before", "after")) for key in found) == 40
        assert errors(book) == {("timeout", "slow"): n}
    assert calls == [1]
    assert ("slow",) not in shown_quietly(book)
    hang.set()
    eventually(lambda: shown(book).get(("slow",)) == 9.0)


def test_many_that_hang_delay_a_poll_by_one_deadline(book: Bookkeeper, hang: threading.Event) -> None:
    """Not one after another: all together."""
    for i in range(30):
        bookkeeper.callback(f"slow{i}", {}, lambda: hang.wait(60), "boolean", deadline_s=1.0)
    begun = monotonic()
    book.collect()
    assert monotonic() - begun < 25.0  # one after another: 30 s
    assert sum(errors(book).values()) == 30


def test_a_callback_that_reads_or_polls_does_not_wait_for_itself(book: Bookkeeper) -> None:
    """`collect` inside gives what there is."""
    bookkeeper.add_to_integer_var("n", {}, 3)
    bookkeeper.callback("c", {}, lambda: len(bookkeeper.collect()), "integer")
    begun = monotonic()
    assert shown(book)[("c",)] == 1
    assert monotonic() - begun < 10.0
    assert errors(book) == {}


def test_polls_at_the_same_time_share_a_round(book: Bookkeeper, hang: threading.Event) -> None:
    """Ten polls at once call a slow function once or twice, not ten times."""
    calls: list[int] = []

    def counted() -> float:
        calls.append(1)
        hang.wait(0.3)
        return 1.0

    bookkeeper.callback("c", {}, counted)
    threads = [threading.Thread(target=book.collect) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 1 <= len(calls) <= 3


def test_a_signal_handler_that_polls_in_the_middle_of_a_poll(book: Bookkeeper) -> None:
    """It gets what there is, and does not wait for the poll that it interrupts."""
    seen: list[object] = []
    main = threading.get_ident()

    def interrupts() -> float:
        signal.pthread_kill(main, signal.SIGUSR1)
        eventually(lambda: seen)
        return 1.0

    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(len(bookkeeper.collect())))
    try:
        bookkeeper.callback("c", {}, interrupts, deadline_s=9.0)
        begun = monotonic()
        assert shown(book) == {("c",): 1.0}
        assert monotonic() - begun < 9.0
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [0]


def test_removed_and_replaced(book: Bookkeeper) -> None:
    """The newest function of a variable counts; a removed one takes its variable along."""
    first = bookkeeper.callback("c", {"a": "x"}, lambda: 1.0)
    second = bookkeeper.callback("c", {"a": "x"}, lambda: 2.0)
    other = bookkeeper.callback("c", {"a": "y"}, lambda: 3.0)
    assert shown(book) == {("c", "a", "x"): 2.0, ("c", "a", "y"): 3.0}
    first.remove()
    assert shown(book) == {("c", "a", "x"): 2.0, ("c", "a", "y"): 3.0}
    second.remove()
    second.remove()
    other.remove()
    assert shown(book) == {}


@pytest.mark.parametrize(
    "settings",
    [
        {"function": 7},
        {"deadline_s": 0},
        {"deadline_s": 1e9},
        {"deadline_s": math.nan},
        {"deadline_s": "x"},
        {"kind": "histogram"},
        {"kind": []},
        {"type": "float"},
        {"type": []},
        {"name": "a b"},
        {"labels": {"a": 1}},
    ],
)
def test_what_makes_no_sense_is_refused(book: Bookkeeper, settings: dict[str, Any]) -> None:
    """Counted where it is given, not at each poll."""
    good: dict[str, Any] = {"name": "c", "labels": {}, "function": lambda: 1.0}
    bookkeeper.callback(**{**good, **settings})
    assert sum(book.refusals().values()) == 1
    book.collect()
    assert errors(book) == {}


def test_a_variable_that_is_something_else_stays(book: Bookkeeper) -> None:
    """Counted at each poll as a value that could not be used."""
    bookkeeper.set_string_var("c", {}, "mine")
    bookkeeper.callback("c", {}, lambda: 1.0)
    assert shown(book)[("c",)] == "mine"
    assert errors(book) == {("value", "c"): 1}


def test_after_a_fork_they_go_on(book: Bookkeeper, hang: threading.Event) -> None:
    """A thread that hung in the parent is not there in the child."""
    first = threading.Event()

    def once() -> float:
        if not first.is_set():
            first.set()
            hang.wait(60)
        return 2.0

    bookkeeper.callback("c", {}, once, deadline_s=0.1)
    book.collect()
    book.forget_values()
    assert shown(book) == {("c",): 2.0}
