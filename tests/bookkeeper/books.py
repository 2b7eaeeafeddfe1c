"""The default object of the module, replaced for one test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import bookkeeper
from bookkeeper import Bookkeeper


@contextlib.contextmanager
def replaced(**settings: Any) -> Iterator[Bookkeeper]:
    """A Bookkeeper without a network that the functions of the module go to."""
    mine = Bookkeeper(online=False, **settings)
    before = bookkeeper.use(mine)
    try:
        yield mine
    finally:
        bookkeeper.use(before)


def shown(book: Bookkeeper, *, ends: bool = False) -> dict[tuple[str, ...], Any]:
    """Values by name and labels, as (name, label, value, label, value …)."""
    return {
        (entry.name, *(text for pair in sorted(entry.labels.items()) for text in pair)): entry.value
        for entry in book.collect(ends=ends)
    }
