"""Caps per name and per process: nothing is lost, memory is bounded, and the guilty label is named."""

from __future__ import annotations

import logging
import sys

import pytest

import bookkeeper
from bookkeeper import Bookkeeper, VariableRefused
from bookkeeper.runtime.process_settings import MAX_SERIES, read_counting_settings
from bookkeeper.runtime.series_limits import SERIES, SERIES_PER_NAME
from bookkeeper.variables.cell_table import OVERFLOW_NAMES
from tests.bookkeeper.books import replaced, shown

OVER = ("overflow", "true")


def test_beyond_the_cap_of_a_name_counts_add_up_in_one_series() -> None:
    """The sum over all series of the name is every add that was made; `add` returns the overflow's value."""
    book = Bookkeeper(online=False, max_per_name=10)
    returned = [book.add_to_integer_var("n", {"user": str(i % 50)}, 1) for i in range(500)]
    found = shown(book)
    assert sum(value for key, value in found.items() if key[0] == "n") == 500
    assert found[("n", *OVER)] == 400 == max(returned)
    assert sum(key[0] == "n" for key in found) == 11
    assert found[("bookkeeper.overflow", "variable", "n")] == 400
    assert book.refusals() == {}
    assert book.add_to_integer_var("other", {"user": "77"}, 1) == 1  # no other name pays for it


def test_the_last_gauge_and_text_are_kept() -> None:
    """A set value does not accumulate: the last value remains."""
    book = Bookkeeper(online=False, max_per_name=2)
    for i in range(5):
        book.set_double_var("g", {"i": str(i)}, i / 2)
        book.set_string_var("s", {"i": str(i)}, str(i))
        book.set_boolean_var("b", {"i": str(i)}, i % 2 == 0)
    found = shown(book)
    assert [found[(name, *OVER)] for name in "gsb"] == [2.0, "4", True]


def test_a_handle_without_room_stays_valid_and_gets_room_later() -> None:
    """It writes to the overflow series until another series ends; then it begins one of its own."""
    book = Bookkeeper(online=False, max_per_name=2)
    handles = [book.integer("n", {"i": str(i)}) for i in range(3)]
    for handle in handles:
        handle.add(5)
    assert [handle.get() for handle in handles] == [5, 5, None]
    assert handles[2].add(1) == 6
    handles[0].remove()
    assert handles[2].add(1) == 1
    assert handles[0].add(1) == 7  # now this one has none: the overflow series goes on
    assert {key: value for key, value in shown(book).items() if key[0] == "n"} == {
        ("n", "i", "1"): 5,
        ("n", "i", "2"): 1,
        ("n", *OVER): 7,
    }


def test_handles_that_were_never_written_take_no_room() -> None:
    """Neither those nor what a forked child inherits keeps a living series out."""
    book = Bookkeeper(online=False, max_per_name=10, max_variables=20)
    for name in ("a", "b", "c"):
        for i in range(30):
            book.integer(name, {"i": str(i)})
    for i in range(100, 110):
        assert book.add_to_integer_var("a", {"i": str(i)}, 1) == 1
        assert book.add_to_integer_var("b", {"i": str(i)}, 1) == 1
    assert book.add_to_integer_var("c", {"i": "0"}, 3) == 3
    found = shown(book)
    assert found[("c", *OVER)] == 3
    assert sum(key[0] in "ab" for key in found) == 20
    book.forget_values()
    assert book.add_to_integer_var("c", {"i": "7"}, 1) == 1
    assert ("c", "i", "7") in shown(book)


def test_integers_and_doubles_add_up_in_one_overflow_series() -> None:
    """It becomes a DOUBLE when a double comes, and takes integers all the same."""
    book = Bookkeeper(online=False, max_per_name=1)
    book.add_to_integer_var("n", {"i": "0"}, 1)
    assert book.add_to_integer_var("n", {"i": "1"}, 2) == 2
    assert book.add_to_double_var("n", {"i": "2"}, 0.5) == 2.5
    assert book.add_to_integer_var("n", {"i": "3"}, 2) == 4
    book.set_integer_var("n", {"i": "4"}, 7)
    assert shown(book)[("n", *OVER)] == 7.0
    assert type(shown(book)[("n", *OVER)]) is float
    book.set_string_var("n", {"i": "5"}, "x")
    assert book.refusals() == {"type": 1}


def test_the_cap_of_a_process_bounds_names_too() -> None:
    """Names without end first go to series of their own that are few, then they are refused."""
    book = Bookkeeper(online=False, max_variables=10)
    for i in range(10 + OVERFLOW_NAMES + 50):
        book.add_to_integer_var(f"n{i}", {"a": "x"}, 1)
    refused = book.refusals()["limit"]
    names = {key[0] for key in shown(book) if key[0].startswith("n")}
    assert len(names) + refused == 10 + OVERFLOW_NAMES + 50
    assert refused > 0
    assert len(book.table.all_cells()) <= 2 * (10 + OVERFLOW_NAMES) + 10  # and as many figures that say so
    assert book.add_to_integer_var("n3", {"a": "x"}, 1) == 2


def test_endless_labels_cost_bounded_memory() -> None:
    """100,000 values of a label leave no more behind than the cap allows."""
    book = Bookkeeper(online=False, max_per_name=100)
    for i in range(5_000):
        book.add_to_integer_var("n", {"user": str(i)}, 1)
    assert len(book.table.all_cells()) == 102
    assert sum(len(cells) for cells in book.integers.values()) <= 103


def test_the_label_with_the_most_values_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """One warning of each name, however often it happens."""
    with caplog.at_level(logging.WARNING, "bookkeeper"):
        book = Bookkeeper(online=False, max_per_name=20)
        for i in range(200):
            book.add_to_integer_var("n", {"route": str(i % 3), "user": str(i)}, 1)
            book.add_to_integer_var("m", {"client": str(i)}, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "n: no room for more series, their writes go to overflow=\"true\": label 'user' has 20 values",
        "m: no room for more series, their writes go to overflow=\"true\": label 'client' has 20 values",
    ]


def test_strict_mode_raises_at_the_cap() -> None:
    """An application's test should find the label that has too many values."""
    with replaced(strict=True, max_per_name=1) as book:
        bookkeeper.add_to_integer_var("n", {"i": "0"}, 1)
        with pytest.raises(VariableRefused, match="fewer label values") as caught:
            bookkeeper.add_to_integer_var("n", {"i": "1"}, 1)
    assert caught.value.reason == "limit"
    assert book.get_integer_var("n", {"overflow": "true"}) is None


def test_churn_leaves_nothing_behind() -> None:
    """Series that come and go do not fill the table, nor the cache of look-ups, nor the names."""
    book = Bookkeeper(online=False, max_variables=50)
    for i in range(3_000):
        book.add_to_integer_var(f"n{i}", {"i": str(i)}, 1)
        book.remove_integer_var(f"n{i}", {"i": str(i)})
    assert book.refusals() == {}
    assert book.table.all_cells() == []
    assert book.table.count == 0
    assert not any(book.table.routes)
    assert len(book.table._families) <= 50 + OVERFLOW_NAMES + 1


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with the first write, so that a program may set them itself."""
    book = Bookkeeper(online=False)
    monkeypatch.setenv("ARTIMON_SERIES_PER_NAME", "3")
    monkeypatch.setenv("ARTIMON_SERIES", "5")
    for i in range(5):
        book.add_to_integer_var("a", {"i": str(i)}, 1)
        book.add_to_integer_var("b", {"i": str(i)}, 1)
    found = shown(book)
    assert found[("a", *OVER)] == 2
    assert book.table.limit == 5
    monkeypatch.setenv("ARTIMON_SERIES", "many")
    other = Bookkeeper(online=False)
    other.add_to_integer_var("n", {}, 1)
    assert other.table.limit == SERIES
    assert other.refusals() == {"settings": 1}


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "x", "١", str(MAX_SERIES + 1)])
def test_limits_that_make_no_sense(given: str) -> None:
    """The default is used, and the problem is told."""
    found = read_counting_settings({"ARTIMON_SERIES_PER_NAME": given})
    assert found.series_per_name == SERIES_PER_NAME
    assert "ARTIMON_SERIES_PER_NAME" in found.problems[0]


def test_off_switches_everything_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """ARTIMON_OFF=1: nothing is counted, called or started; the program runs as before."""
    monkeypatch.setenv("ARTIMON_OFF", "1")
    before = bookkeeper.use(Bookkeeper())
    try:
        handle, histogram = bookkeeper.integer("n"), bookkeeper.histogram("h")
        assert handle.add(3) == 0
        assert bookkeeper.add_to_integer_var("n", {}, 1) == 0
        assert bookkeeper.add_to_double_var("d", {}, 1.0) == 0.0
        bookkeeper.set_string_var("a b", {}, "x")
        bookkeeper.callback("c", {}, lambda: sys.exit("called"))
        histogram.observe(1.0)
        with bookkeeper.timer("t"), bookkeeper.in_flight("f"):
            pass
        assert bookkeeper.collect() == []
        assert bookkeeper.refusals() == {}
        assert bookkeeper.get_integer_var("n", {}) is None
        bookkeeper.default().start()
        assert bookkeeper.default().endpoint is None
    finally:
        bookkeeper.use(before)
