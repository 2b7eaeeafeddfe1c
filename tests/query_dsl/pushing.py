"""Stores for tests of push-down: some shards as one, and a store that cannot aggregate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from artimon.compute.aggregate import (
    Aggregate,
    AggregateRequest,
    NotPushed,
    decode_aggregate,
    encode_aggregate,
)
from artimon.compute.statistics import STATISTICS
from artimon.model.select import (
    Buckets,
    Matcher,
    SelectError,
    SelectRequest,
    Series,
    decode_buckets,
    encode_buckets,
)
from varstore.cluster.pushdown_merge import aggregate_all
from varstore.query.answer_merge import has_twins, merge_answers
from varstore.shard.shard import Shard


@dataclass
class Together:
    """Shards as the client sees them, everything over the wire format. `pushed` counts what was aggregated."""

    shards: Sequence[Shard]
    pushed: int = 0
    refused: list[str] = field(default_factory=list)

    def select(self, request: SelectRequest) -> Buckets:
        parts = [
            decode_buckets(encode_buckets(s.select(SelectRequest.from_json(request.to_json())), small=True))
            for s in self.shards
        ]
        if has_twins(parts) and set(request.statistics) != set(STATISTICS):
            return merge_answers([s.select(replace(request, statistics=STATISTICS)) for s in self.shards], request)
        return merge_answers(parts, request)

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        try:
            found = aggregate_all(request, self._ask, self.select, alone=len(self.shards) == 1)
        except (NotPushed, SelectError) as why:
            self.refused.append(str(why))
            raise
        self.pushed += 1
        return found

    def _ask(self, request: AggregateRequest) -> tuple[list[Aggregate], tuple[str, ...]]:
        wired = AggregateRequest.from_json(request.to_json())
        assert wired == request
        return [decode_aggregate(encode_aggregate(s.aggregate(wired))) for s in self.shards], ()

    def levels(self) -> tuple[tuple[int, int], ...]:
        return self.shards[0].levels()

    def names(self) -> list[str]:
        return sorted({name for s in self.shards for name in s.names()})

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        return sorted({v for s in self.shards for v in s.label_values(label, limit)})[:limit]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        found = {x.fingerprint: x for s in self.shards for x in s.find(matchers, limit)}
        return sorted(found.values(), key=lambda x: (x.name, sorted(x.labels.items())))[:limit]


@dataclass
class Plain:
    """The same store without push-down."""

    store: Together

    def select(self, request: SelectRequest) -> Buckets:
        return self.store.select(request)

    def levels(self) -> tuple[tuple[int, int], ...]:
        return self.store.levels()

    def names(self) -> list[str]:
        return self.store.names()

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        return self.store.label_values(label, limit)

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        return self.store.find(matchers, limit)
