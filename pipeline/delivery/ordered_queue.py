"""Ordered queue whose items wait or are taken. Pure: no I/O, no clock, no threads, no locks.

Used for the lanes of a log and the branches of a channel: a taken item is either settled or returned to its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar


class SortableItem(Protocol):
    """Hashable item with an order."""

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=SortableItem)


class OrderedQueue(Generic[T]):
    """Priority queue with a set of taken items. Invariant: no item both waits and is out."""

    __slots__ = ("_waiting", "taken")

    def __init__(self) -> None:
        self._waiting: list[T] = []
        """Heap."""
        self.taken: set[T] = set()
        """Items taken, and neither settled nor returned."""

    def __len__(self) -> int:
        """Return the number of waiting items."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the waiting items, unordered."""
        return iter(self._waiting)

    def peek(self) -> T:
        """Return the first waiting item. Raises IndexError if there is none."""
        return self._waiting[0]

    def add(self, item: T) -> None:
        """Add a waiting item."""
        heappush(self._waiting, item)

    def pop(self) -> T:
        """Remove the first waiting item and return it."""
        return heappop(self._waiting)

    def take(self) -> T:
        """Take the first waiting item out, until `settle` or `back`."""
        item = heappop(self._waiting)
        self.taken.add(item)
        return item

    def remove_taken(self, items: Iterable[T]) -> list[T]:
        """Remove items that are out and return them. Items dropped meanwhile are ignored."""
        ended = [item for item in items if item in self.taken]
        self.taken.difference_update(ended)
        return ended

    def put_back(self, items: Iterable[T]) -> None:
        """Return items that are out to the queue, in their order. Items dropped meanwhile are ignored."""
        for item in self.remove_taken(items):
            heappush(self._waiting, item)

    def drop(self, gone: Callable[[T], bool]) -> list[T]:
        """Remove matching items, waiting or out, and return them sorted."""
        dropped = {item for item in (*self._waiting, *self.taken) if gone(item)}
        if dropped:
            self._waiting = [item for item in self._waiting if item not in dropped]
            heapify(self._waiting)
            self.taken -= dropped
        return sorted(dropped)
