"""Protocol between an evaluation and the stores: `EngineStore`, its adapter for a plain store, and its wrappers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from artimon.compute.aggregate import Aggregate, AggregateRequest, NotPushed
from artimon.model.cardinality import Cardinality
from artimon.model.select import NAME, Buckets, Matcher, SelectRequest, Series, Store
from query_dsl.stores.levels import MEMORY, StoreReach
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.tree.query_errors import QueryError

MAX_READ = 100_000
"""Series that the default of `matching_values` reads."""
POLL_S = 0.05
"""Interval of checks of the watch, in seconds, while a store answers in another thread."""
T = TypeVar("T")


class EngineStore:
    """Interface of the stores that an evaluation queries.

    Engines override the methods of the first group, and those of the second group that they support. The defaults are
    those of a store that holds only buckets in memory."""

    def select(self, request: SelectRequest) -> Buckets:
        """Return buckets of every matching series. Raises SelectError."""
        raise NotImplementedError

    def levels(self) -> tuple[tuple[int, int], ...]:
        """(step_ms, buckets kept) of each level, finest first."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """Every variable name, sorted."""
        raise NotImplementedError

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """Values of a label, sorted; label None: the names of all labels."""
        raise NotImplementedError

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """Matching series, with or without buckets, in canonical order."""
        raise NotImplementedError

    # --- supported by some engines only

    def matching_values(self, label: str | None, matchers: tuple[Matcher, ...], limit: int = 10_000) -> list[str]:
        """Values of a label among matching series, sorted; label None: their labels. This default
        reads at most MAX_READ series."""
        series = self.find(matchers, MAX_READ)
        if label is None:
            return sorted({one for found in series for one in found.labels})[:limit]
        found = [{NAME: one.name, **one.labels} for one in series]
        return sorted({labels[label] for labels in found if label in labels})[:limit]

    def cardinality(self, top: int) -> Cardinality:  # noqa: ARG002
        """Numbers of series and label values. Raises QueryError if the store does not count them."""
        raise QueryError("this store does not count its series: ask the shards")

    def metadata(self, names: Sequence[str] | None) -> dict[str, tuple[str, str]]:  # noqa: ARG002
        """Help and unit of these names (None: all), as far as the store knows them."""
        return {}

    def reach(self) -> StoreReach:
        """Reach of the next query into the past."""
        return MEMORY

    def history(self) -> EngineStore:
        """Return the history alone. Raises QueryError if there is none."""
        raise QueryError('resolution="raw" needs the history engine, and this store has none: leave it out')

    def appended_ms(self) -> int | None:
        """Return the append time of the newest batch in the history; None if unknown."""
        return None

    def samples(self, request: SampleRequest) -> RawSamples:  # noqa: ARG002
        """Return raw samples. Raises as `select`, and QueryError if the store holds only buckets."""
        raise QueryError(
            'samples(): the memory store holds buckets, not samples; ask with the history engine (engine="auto" or'
            ' "history"), or use fetch()'
        )

    def newest(self, matchers: tuple[Matcher, ...], end_ms: int, prints: Collection[int] = ()) -> dict[int, int]:  # noqa: ARG002
        """Map the fingerprint of each matching series to the time of its newest sample at or before `end_ms`, as far
        back as the store searches; only of `prints`, if there are any."""
        return {}

    def aggregate(self, request: AggregateRequest) -> Aggregate:  # noqa: ARG002
        """Reduce in the store. Raises SelectError, and NotPushed if buckets must be read instead."""
        raise NotPushed("the store does not aggregate")

    def watching(self, watch: QueryBudget) -> EngineStore:
        """Return the same store for one evaluation; its calls end when the watch ends."""
        return self if watch.is_unlimited else BudgetedStore(self, watch)

    # --- capabilities

    @property
    def has_history(self) -> bool:
        """True if `past` is supported."""
        return type(self).history is not EngineStore.history

    @property
    def can_aggregate(self) -> bool:
        """True if `aggregate` is supported."""
        return type(self).aggregate is not EngineStore.aggregate

    @property
    def checks_budget(self) -> bool:
        """True if the store itself checks a watch while it answers."""
        return type(self).watching is not EngineStore.watching


class MemoryStore(EngineStore):
    """Adapter for a plain store, such as the client of the shards, which may support aggregation and a watch."""

    store: Store

    def __init__(self, store: Store) -> None:
        self.store = store

    def _ask(self, question: Callable[[], T]) -> T:
        """Make one call to the underlying store."""
        return question()

    def select(self, request: SelectRequest) -> Buckets:
        return self._ask(lambda: self.store.select(request))

    def levels(self) -> tuple[tuple[int, int], ...]:
        return self._ask(self.store.levels)

    def names(self) -> list[str]:
        return self._ask(self.store.names)

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        return self._ask(lambda: self.store.label_values(label, limit))

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        return self._ask(lambda: self.store.find(matchers, limit))

    def matching_values(self, label: str | None, matchers: tuple[Matcher, ...], limit: int = 10_000) -> list[str]:
        store: Any = self.store
        if not hasattr(type(store), "matching_values"):
            return super().matching_values(label, matchers, limit)
        found: list[str] = self._ask(lambda: store.matching_values(label, matchers, limit))
        return found

    def cardinality(self, top: int) -> Cardinality:
        store: Any = self.store
        if not hasattr(type(store), "cardinality"):
            return super().cardinality(top)
        found: Cardinality = self._ask(lambda: store.cardinality(top))
        return found

    def metadata(self, names: Sequence[str] | None) -> dict[str, tuple[str, str]]:
        store: Any = self.store
        if not hasattr(type(store), "metadata"):
            return super().metadata(names)
        found: dict[str, tuple[str, str]] = self._ask(lambda: store.metadata(names))
        return found

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        store: Any = self.store
        if not self.can_aggregate:
            return super().aggregate(request)
        found: Aggregate = self._ask(lambda: store.aggregate(request))
        return found

    def watching(self, watch: QueryBudget) -> EngineStore:
        store: Any = self.store
        return MemoryStore(store.watching(watch)) if self.checks_budget else super().watching(watch)

    @property
    def can_aggregate(self) -> bool:
        return hasattr(type(self.store), "aggregate")

    @property
    def checks_budget(self) -> bool:
        return hasattr(type(self.store), "watching")


class ForwardingStore(MemoryStore):
    """Store wrapper that forwards every call it does not override."""

    store: EngineStore

    def reach(self) -> StoreReach:
        return self.store.reach()

    def history(self) -> EngineStore:
        return self.store.history()

    def appended_ms(self) -> int | None:
        return self._ask(self.store.appended_ms)

    def samples(self, request: SampleRequest) -> RawSamples:
        return self._ask(lambda: self.store.samples(request))

    def newest(self, matchers: tuple[Matcher, ...], end_ms: int, prints: Collection[int] = ()) -> dict[int, int]:
        return self._ask(lambda: self.store.newest(matchers, end_ms, prints))

    @property
    def has_history(self) -> bool:
        return self.store.has_history

    @property
    def can_aggregate(self) -> bool:
        return self.store.can_aggregate

    @property
    def checks_budget(self) -> bool:
        return self.store.checks_budget


@dataclass(frozen=True, slots=True)
class BudgetedStore(ForwardingStore):
    """Wrapper of a store that cannot check a watch itself. Each call runs in a separate thread, which is abandoned when
    the watch ends the evaluation."""

    store: EngineStore
    budget: QueryBudget

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        """Aggregate with the remaining time as the deadline of the request."""
        left = self.budget.seconds_left()
        if left is not None:
            most = max(1, int(left * 1000))
            request = replace(request, deadline_ms=min(request.deadline_ms or most, most))
        return self._ask(lambda: self.store.aggregate(request))

    def watching(self, watch: QueryBudget) -> EngineStore:
        return BudgetedStore(self.store, watch)

    def _ask(self, question: Callable[[], T]) -> T:
        return call_in_thread(question, self.budget)


def as_engine_store(store: Store) -> EngineStore:
    """Return the store as an EngineStore, through an adapter if necessary."""
    return store if isinstance(store, EngineStore) else MemoryStore(store)


def call_in_thread(question: Callable[[], T], watch: QueryBudget) -> T:
    """Return the result of `question`, run in a thread that is abandoned if the watch ends the evaluation."""
    watch.check()
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="query-store", daemon=True).start()
    while not wait([answer], POLL_S).done:
        watch.check()
    return answer.result()
