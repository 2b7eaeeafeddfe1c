"""A Store in front of another one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from artimon.model.select import Matcher, Series, Store
from query_dsl.stores.levels import Reach, Recalling, reach_of

T = TypeVar("T")


class PassingStore:
    """What a store in front of another one says, unless it has a word of its own: what the other one says. Every
    question goes through `_ask`."""

    store: Store

    def _ask(self, question: Callable[[], T]) -> T:
        return question()

    def reach(self) -> Reach:
        """See Reaching."""
        return reach_of(self.store)

    def levels(self) -> tuple[tuple[int, int], ...]:
        """See Store."""
        return self._ask(self.store.levels)

    def names(self) -> list[str]:
        """See Store."""
        return self._ask(self.store.names)

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """See Store."""
        return self._ask(lambda: self.store.label_values(label, limit))

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """See Store."""
        return self._ask(lambda: self.store.find(matchers, limit))

    def newest(self, matchers: tuple[Matcher, ...], end_ms: int, prints: Collection[int] = ()) -> dict[int, int]:
        """See Recalling: nothing, where the other one recalls nothing."""
        store = self.store
        return self._ask(lambda: store.newest(matchers, end_ms, prints)) if isinstance(store, Recalling) else {}
