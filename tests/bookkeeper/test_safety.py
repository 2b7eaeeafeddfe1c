"""No call raises, deadlocks or loses a count, in any state of the application and with any argument."""

from __future__ import annotations

import gc
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import bookkeeper
from bookkeeper import Bookkeeper, VariableRefused
from bookkeeper.process import process_endpoint as endpoint
from bookkeeper.variables.snapshot import SnapshotReader
from tests.bookkeeper.books import replaced, shown


@pytest.fixture
def book() -> Iterator[Bookkeeper]:
    with replaced() as mine:
        yield mine


def count_everything(i: int) -> None:
    """Every way of counting, short and long: what exists, what is new, what goes."""
    bookkeeper.add_to_integer_var("n", {"a": "x"}, 1)
    bookkeeper.integer("n", {"a": "x"}).add(1)
    bookkeeper.add_to_double_var("d", {"i": str(i % 7)}, 1.0)
    bookkeeper.set_string_var("s", {}, str(i))
    bookkeeper.histogram("h", {"i": str(i % 3)}).observe(0.5)
    with bookkeeper.timer("t"):
        bookkeeper.add_to_integer_var(f"new{i % 50}", {"i": str(i % 11)}, 1)
    bookkeeper.remove_integer_var(f"new{(i + 25) % 50}", {"i": str(i % 11)})
    bookkeeper.describe(f"new{i % 50}", str(i))


def test_signal_handlers_may_count(book: Bookkeeper) -> None:
    """A handler interrupts the main thread anywhere in here, hundreds of times, beside polls in another thread."""
    handled, main, stop = [0], threading.get_ident(), threading.Event()

    def handler(*_: object) -> None:
        handled[0] += 1
        count_everything(handled[0])
        if handled[0] % 10 == 0:
            bookkeeper.collect()

    def polls() -> None:
        snapshots = SnapshotReader(book)
        while not stop.is_set():
            snapshots.columns()

    def signals() -> None:
        sent = 0
        while sent < 150 and not stop.is_set():
            if handled[0] == sent:  # the one before has at least begun
                sent += 1
                signal.pthread_kill(main, signal.SIGUSR1)
            stop.wait(0.0003)

    before = signal.signal(signal.SIGUSR1, handler)
    threads = [threading.Thread(target=work, daemon=True) for work in (polls, signals)]
    done = 0
    try:
        for thread in threads:
            thread.start()
        while threads[1].is_alive():
            done += 1
            count_everything(done)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
        signal.signal(signal.SIGUSR1, before)
    assert not any(thread.is_alive() for thread in threads)
    total = done + handled[0]
    assert handled[0] > 50
    assert bookkeeper.get_integer_var("n", {"a": "x"}) == 2 * total
    assert sum(bookkeeper.get_double_var("d", {"i": str(i)}) or 0.0 for i in range(7)) == total
    assert sum(bookkeeper.histogram("h", {"i": str(i)}).count() for i in range(3)) == total
    assert book.refusals() == {}


def test_finalizers_and_collections_may_count(book: Bookkeeper) -> None:
    """Garbage that counts when it is collected, which may be inside any method of ours, polls included."""
    died = [0]

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            died[0] += 1
            count_everything(died[0])

    def collected(phase: str, _: dict[str, int]) -> None:
        if phase == "stop":
            bookkeeper.add_to_integer_var("gc", {}, 1)

    threshold = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(20)
    snapshots, done = SnapshotReader(book), 0
    try:
        for i in range(400):
            Cycle()
            count_everything(i)
            done += 1
            if i % 10 == 0:
                assert len(snapshots.columns()[1]) > 0
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collected)
        gc.collect()  # none of them is left for the tests that follow
    assert died[0] > 100
    total = done + died[0]
    assert bookkeeper.get_integer_var("n", {"a": "x"}) == 2 * total
    assert sum(bookkeeper.histogram("h", {"i": str(i)}).count() for i in range(3)) == total
    assert book.refusals() == {}


class Hostile:
    """Raises whatever one does with it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    __str__ = __hash__ = __eq__ = __index__ = __float__ = __len__ = __iter__ = __bool__ = __repr__  # type: ignore


class HostileText(str):
    """A str that raises."""

    def __hash__(self) -> int:
        raise RuntimeError("hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __lt__ = __format__ = __repr__ = __str__ = __eq__  # type: ignore


class HostileLabels(Mapping[str, str]):
    """Labels that raise."""

    def __getitem__(self, key: str) -> str:
        raise RuntimeError("getitem")

    def __len__(self) -> int:
        raise RuntimeError("len")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("iter")


BAD: list[Any] = [Hostile(), HostileText("n"), HostileLabels(), None, 7, b"n", [], object(), float("nan"), type]
CALLS: dict[str, Callable[[Any], object]] = {
    "name": lambda bad: bookkeeper.add_to_integer_var(bad, {"a": "x"}, 1),
    "labels": lambda bad: bookkeeper.add_to_integer_var("n", bad, 1),
    "value": lambda bad: bookkeeper.add_to_integer_var("n", {}, bad),
    "label": lambda bad: bookkeeper.add_to_double_var("n", {"a": bad}, 1.0),
    "double": lambda bad: bookkeeper.add_to_double_var("d", {}, bad),
    "set": lambda bad: bookkeeper.set_integer_var("n", {}, bad),
    "set_double": lambda bad: bookkeeper.set_double_var("d", {}, bad),
    "string": lambda bad: bookkeeper.set_string_var("s", {}, bad),
    "boolean": lambda bad: bookkeeper.set_boolean_var("b", {}, bad),
    "get": lambda bad: bookkeeper.get_integer_var(bad, {}),
    "get_labels": lambda bad: bookkeeper.get_double_var("d", bad),
    "remove": lambda bad: bookkeeper.remove_string_var(bad, {}),
    "remove_labels": lambda bad: bookkeeper.remove_integer_var("n", bad),
    "handle": lambda bad: bookkeeper.integer(bad).add(1),
    "handle_labels": lambda bad: bookkeeper.boolean("b", bad).set(True),
    "describe": lambda bad: bookkeeper.describe(bad, bad, bad, bad),
    "kind": lambda bad: bookkeeper.describe("n", kind=bad),
    "histogram": lambda bad: bookkeeper.histogram(bad, {}, bad).observe(1.0),
    "histogram_labels": lambda bad: bookkeeper.histogram("h", bad).observe(bad),
    "observe": lambda bad: bookkeeper.histogram("h").observe(bad),
    "timer": lambda bad: bookkeeper.timer(bad, bad).observe(bad),
    "in_flight": lambda bad: bookkeeper.in_flight(bad, bad).begin(),
    "expire": lambda bad: bookkeeper.expire(bad, 1.0),
    "expire_after": lambda bad: bookkeeper.expire("n", bad),
    "callback": lambda bad: bookkeeper.callback(bad, bad, bad, bad, bad, bad),
    "on_poll": lambda bad: bookkeeper.on_poll(bad),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_nothing_that_is_passed_raises(book: Bookkeeper, call: Callable[[Any], object]) -> None:
    """Counted as refused, or taken for what it means; and the poll afterwards is whole."""
    for bad in BAD:
        call(bad)
    bookkeeper.add_to_integer_var("after", {}, 1)
    found = shown(book)
    assert found[("after",)] == 1
    assert "internal" not in book.refusals()
    assert all(type(text) is str for key in found for text in key)


def test_a_text_that_raises_is_taken_as_text(book: Bookkeeper) -> None:
    """A stored text is a plain str."""
    bookkeeper.set_string_var("s", {}, HostileText("x"))
    assert shown(book) == {("s",): "x"}


def test_a_logging_handler_that_raises_or_counts(book: Bookkeeper) -> None:
    """Log records pass through the application's handlers: their errors must not reach the application."""
    seen: list[str] = []

    class Handler(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            seen.append(record.getMessage())
            bookkeeper.add_to_integer_var("not a name", {}, 1)
            raise RuntimeError("mine")

    handler = Handler()
    logging.getLogger("bookkeeper").addHandler(handler)
    try:
        bookkeeper.add_to_integer_var("not a name", {}, 1)
        book.table.per_name = 1
        for i in range(3):
            bookkeeper.add_to_integer_var("handled.n", {"i": str(i)}, 1)
        bookkeeper.callback("handled", {}, lambda: 1 / 0)
        book.collect()
        book.collect()
    finally:
        logging.getLogger("bookkeeper").removeHandler(handler)
    assert len(seen) == 3
    assert book.refusals() == {"name": 4}


def test_at_the_end_of_the_stack(book: Bookkeeper) -> None:
    """A call deep in a recursion either counts or does not; nothing is left locked or half done."""
    handle = bookkeeper.integer("n", {"a": "x"})
    counted = [0]

    def down() -> None:
        try:
            counted[0] += handle.add(True) > 0  # the long way
            down()
        except RecursionError:
            pass

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        down()
    finally:
        sys.setrecursionlimit(limit)
    assert handle.get() == counted[0] > 50
    locked: list[bool] = []
    thread = threading.Thread(target=lambda: locked.append(book.lock.acquire(timeout=60)))
    thread.start()
    thread.join(60)
    assert locked == [True]


def test_strict_by_function_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand wins over ARTIMON_STRICT, which is read with the first write."""
    with replaced():
        bookkeeper.strict()
        with pytest.raises(VariableRefused, match="variable name"):
            bookkeeper.add_to_integer_var("a b", {}, 1)
        bookkeeper.strict(False)
        assert bookkeeper.add_to_integer_var("a b", {}, 1) == 0
    monkeypatch.setenv("ARTIMON_STRICT", "1")
    with replaced(), pytest.raises(VariableRefused, match="spoil"):
        bookkeeper.histogram("h").observe(float("nan"))
    with replaced(strict=False) as book:
        assert bookkeeper.add_to_integer_var("a b", {}, 1) == 0
        assert book.refusals() == {"name": 1}


def test_every_logger_of_the_package_has_its_rate_limited() -> None:
    """A filter of a logger does not see what the loggers below it record."""
    sources = [path.read_text() for path in Path(bookkeeper.__file__).parent.rglob("*.py")]
    assert {name for text in sources for name in re.findall(r'getLogger\("([\w.]+)"\)', text)} == set(endpoint.LOGGERS)
