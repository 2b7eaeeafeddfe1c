"""Iteration whose next item is made by a thread while the caller uses the one before."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
_END: Any = object()


def read_ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """Yield the items; one is made ahead. An error of the items is raised in place of the next one. Close it to end the
    thread."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, "read-ahead") as thread:
        ahead = thread.submit(next, iterator, _END)
        while (item := ahead.result()) is not _END:
            ahead = thread.submit(next, iterator, _END)
            yield item
