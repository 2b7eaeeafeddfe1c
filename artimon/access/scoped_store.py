"""Part of a store that a role may see: its matchers are added to every request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from artimon.compute.aggregate import Aggregate, AggregateRequest
from artimon.model.cardinality import Cardinality
from artimon.model.select import NAME, Buckets, Matcher, SelectRequest, Series
from query_dsl.stores.engine_store import EngineStore, ForwardingStore
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.tree.query_errors import QueryError
from varstore.index.matchers import compile_matcher

MAX_NAMES = 1_000_000
Visible = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class ScopedStore(ForwardingStore):
    """Wrapper that shows only series which fulfil `sees`. It is below every other wrapper of a query."""

    store: EngineStore
    sees: tuple[Matcher, ...]

    def select(self, request: SelectRequest) -> Buckets:
        return self.store.select(replace(request, matchers=self._within(request.matchers)))

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        return self.store.aggregate(replace(request, matchers=self._within(request.matchers)))

    def samples(self, request: SampleRequest) -> RawSamples:
        return self.store.samples(replace(request, matchers=self._within(request.matchers)))

    def newest(self, matchers: tuple[Matcher, ...], end_ms: int, prints: Collection[int] = ()) -> dict[int, int]:
        return self.store.newest(self._within(matchers), end_ms, prints)

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        return self.store.find(self._within(matchers), limit)

    def matching_values(self, label: str | None, matchers: tuple[Matcher, ...], limit: int = 10_000) -> list[str]:
        return self.store.matching_values(label, self._within(matchers), limit)

    def names(self) -> list[str]:
        return self.store.matching_values(NAME, self.sees, MAX_NAMES)

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        return self.store.matching_values(label, self.sees, limit)

    def metadata(self, names: Sequence[str] | None) -> dict[str, tuple[str, str]]:
        visible = set(self.names())
        return self.store.metadata(sorted(visible if names is None else visible.intersection(names)))

    def cardinality(self, top: int) -> Cardinality:  # noqa: ARG002
        raise QueryError("the cardinality counts all series, and this role sees a part of them only")

    def history(self) -> EngineStore:
        return replace(self, store=self.store.history())

    def watching(self, watch: QueryBudget) -> EngineStore:
        return replace(self, store=self.store.watching(watch))

    def _within(self, matchers: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
        return (*matchers, *self.sees)


def restrict(store: EngineStore, sees: tuple[Matcher, ...]) -> EngineStore:
    """Return the part of a store that fulfils `sees`; the store itself for ()."""
    return ScopedStore(store, sees) if sees else store


def visibility(sees: Iterable[Matcher]) -> Visible:
    """Return a test of label sets (`__name__` for the name), such as those of alerts."""
    tests = [(one.label, compile_matcher(one)) for one in sees]
    return lambda labels: all(test(labels.get(label, "")) for label, test in tests)
