"""Queue of items: in one order, each waiting or out. Pure: no I/O, no clock, no threads, no locks.

The lanes of a log and the branches of a channel are such queues: what is taken out either ends there or comes back to
where it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar


class Ordered(Protocol):
    """An item with a place among the others, hashable."""

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=Ordered)


class OrderedQueue(Generic[T]):
    """Invariant: no item is both waiting and out."""

    __slots__ = ("_waiting", "out")

    def __init__(self) -> None:
        self._waiting: list[T] = []
        """Heap."""
        self.out: set[T] = set()
        """Taken, neither settled nor back."""

    def __len__(self) -> int:
        """Items that wait."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[T]:
        """Items that wait, in no order."""
        return iter(self._waiting)

    def peek(self) -> T:
        """Return the first that waits. Raises IndexError if none does."""
        return self._waiting[0]

    def add(self, item: T) -> None:
        """Let an item wait in its place."""
        heappush(self._waiting, item)

    def pop(self) -> T:
        """Remove the first that waits."""
        return heappop(self._waiting)

    def take(self) -> T:
        """Take out the first that waits."""
        item = heappop(self._waiting)
        self.out.add(item)
        return item

    def settle(self, items: Iterable[T]) -> list[T]:
        """End items that are out; those of them that were. What was dropped meanwhile is left aside."""
        ended = [item for item in items if item in self.out]
        self.out.difference_update(ended)
        return ended

    def back(self, items: Iterable[T]) -> None:
        """Let items that are out wait again, before everything younger. What was dropped meanwhile does not."""
        for item in self.settle(items):
            heappush(self._waiting, item)

    def drop(self, gone: Callable[[T], bool]) -> list[T]:
        """Remove items, those that are out as well; which."""
        dropped = {item for item in (*self._waiting, *self.out) if gone(item)}
        if dropped:
            self._waiting = [item for item in self._waiting if item not in dropped]
            heapify(self._waiting)
            self.out -= dropped
        return sorted(dropped)
