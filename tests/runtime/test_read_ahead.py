"""Iteration by a thread ahead of its reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from pipeline.history.importer import read_ahead


def test_items_come_in_order() -> None:
    assert list(read_ahead(range(100))) == list(range(100))
    assert list(read_ahead([None, 0])) == [None, 0]


def test_one_item_is_made_ahead_and_no_more() -> None:
    made: list[int] = []
    ahead = threading.Event()

    def items() -> Iterator[int]:
        for n in range(9):
            made.append(n)
            if n == 1:
                ahead.set()
            yield n

    with closing(read_ahead(items())) as found:
        assert next(found) == 0
        assert ahead.wait(30)
        assert made == [0, 1]
    assert made == [0, 1]
    assert not [one for one in threading.enumerate() if one.name.startswith("read-ahead")]


def test_an_error_comes_at_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("two")

    found = read_ahead(items())
    assert next(found) == 1
    with pytest.raises(LookupError, match="two"):
        next(found)
