"""Test helpers for applications: snapshots, changes, a registry of their own."""

from __future__ import annotations

import math

import pytest

import bookkeeper
from bookkeeper import Bookkeeper, VariableRefused, testing

variables = pytest.fixture(testing.variables)


def test_a_snapshot_is_a_mapping_of_what_there_is() -> None:
    book = Bookkeeper(online=False)
    book.add_to_integer_var("sales", {"item": "book", "shop": "a"}, 3)
    book.add_to_integer_var("sales", {"item": "book", "shop": "b"}, 4)
    book.add_to_double_var("weight", {}, 0.5)
    book.set_boolean_var("open", {}, True)
    book.set_string_var("name", {}, "ü")
    found = testing.snapshot(book)
    assert dict(found) == {
        'sales{item="book",shop="a"}': 3,
        'sales{item="book",shop="b"}': 4,
        "weight{}": 0.5,
        "open{}": True,
        "name{}": "ü",
    }
    assert found.value("sales", {"shop": "a", "item": "book"}) == 3
    assert found.value("sales") is None
    assert found.total("sales", item="book") == 7
    assert found.total("sales", shop="b") == 4
    assert found.total("nothing") == 0
    assert found.series("sales", shop="a") == [({"item": "book", "shop": "a"}, 3)]
    book.add_to_integer_var("sales", {"item": "book", "shop": "a"}, 1)
    assert found.total("sales") == 7, "it does not move"


def test_changes_see_handles_that_are_older() -> None:
    book = Bookkeeper(online=False)
    handle = book.integer("sales", {"item": "book"})
    handle.add(40)
    with testing.changes(book) as seen:
        handle.add(2)
        book.set_double_var("load", {}, math.nan)
        book.set_double_var("same", {}, math.nan)
    assert seen.added("sales", {"item": "book"}) == 2
    assert seen.total("sales") == 2
    assert seen.added("never") == 0
    with testing.changes(book) as again:
        book.set_double_var("load", {}, math.nan)
        book.remove_integer_var("sales", {"item": "book"})
    assert again.all() == {'sales{item="book"}': (42, None)}


def test_changes_are_known_after_a_failure_too() -> None:
    book = Bookkeeper(online=False)

    def fail() -> None:
        book.add_to_integer_var("tried", {})
        raise RuntimeError

    with pytest.raises(RuntimeError), testing.changes(book) as seen:
        fail()
    assert seen.added("tried") == 1


def test_a_text_is_not_added_to() -> None:
    book = Bookkeeper(online=False)
    with testing.changes(book) as seen:
        book.set_string_var("name", {}, "x")
    with pytest.raises(TypeError, match="compare values"):
        seen.added("name")
    assert seen.all() == {"name{}": (None, "x")}


def test_isolated_is_empty_strict_and_gone_afterwards() -> None:
    before = bookkeeper.default()
    with testing.isolated() as book:
        assert bookkeeper.default() is book
        bookkeeper.add_to_integer_var("n", {})
        with pytest.raises(VariableRefused):
            bookkeeper.add_to_integer_var("1", {})
        assert testing.snapshot().value("n") == 1
        assert book.endpoint is None
    assert bookkeeper.default() is before
    with testing.isolated(strict=False):
        assert bookkeeper.add_to_integer_var("1", {}) == 0
        assert bookkeeper.refusals() == {"name": 1}


@pytest.mark.parametrize("i", [1, 2])
def test_the_fixture_is_anew_for_each_test(variables: Bookkeeper, i: int) -> None:
    assert bookkeeper.add_to_integer_var("n", {}, i) == i
    assert testing.snapshot(variables).value("n") == i
