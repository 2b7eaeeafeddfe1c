"""Client of the memory store: asks one holder of each virtual shard, merges the answers, and reports missing virtual
shards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

from kazoo.client import KazooClient

from artimon.compute.aggregate import NOT_PUSHED, Aggregate, AggregateRequest, NotPushed, decode_aggregate
from artimon.compute.statistics import STATISTICS
from artimon.model.cardinality import MAX_TOP, Cardinality, merge_cardinality
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.grid import DEFAULT_LEVELS
from artimon.model.select import (
    Buckets,
    Matcher,
    SelectError,
    SelectRequest,
    Series,
    decode_buckets,
    too_many_series,
)
from artimon.model.values import Kind, ValueType
from artimon.model.vshards import ALL_VSHARDS, to_hex
from artimon.runtime.zookeeper_client import close_client, zookeeper_client
from varstore.cluster.cluster_directory import ClusterDirectory, ClusterState
from varstore.cluster.pushdown_merge import aggregate_all
from varstore.cluster.scatter_gather import ScatterGather
from varstore.cluster.shard_connections import RequestFor, ShardAnswer, ShardConnections, ShardRequest
from varstore.query.answer_merge import has_twins, merge_answers
from varstore.shard.shard_service import UNKNOWN_REQUEST

DEADLINE_S = 10.0
CARDINALITY_FACTOR = 10
"""Entries that each shard returns for one of the answer: an entry may be small in each shard and great in all."""
CONNECT_TIMEOUT_S = 5.0
"""Maximum time that the first request waits for ZooKeeper."""


class StoreUnavailable(SelectError):
    """No shard answered. The text names each with the reason."""

    of_query = False


class QueryGuard(Protocol):
    """Supervisor of one evaluation."""

    def check(self) -> object:
        """Raise the error that ends the evaluation, if any."""
        ...

    def seconds_left(self) -> float | None:
        """Return the seconds left for the evaluation; None: no limit."""
        ...

    def remark(self, notes: Sequence[str]) -> object:
        """Take the reasons why a list of series, names or values is not complete."""
        ...


class VarstoreClient:
    """Implements artimon.model.select.Store over all live shards. A context manager; thread-safe.

    Every request has one deadline for everything it needs. The best holder of each virtual shard is asked, and others
    when it fails or is slow. Virtual shards without an answer make the result partial, with a note of the reason; a
    refusal by any shard (too many series, unknown level) is a SelectError."""

    def __init__(
        self, zookeeper: str | KazooClient, deadline_s: float = DEADLINE_S, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._owns_client = isinstance(zookeeper, str)
        self._hosts = zookeeper if isinstance(zookeeper, str) else "its address"
        self._zookeeper = zookeeper_client(zookeeper) if isinstance(zookeeper, str) else zookeeper
        if self._owns_client:
            self._connecting = self._zookeeper.start_async()
        self._connected = not self._owns_client
        self._directory = ClusterDirectory(self._zookeeper, min(3.0, deadline_s), clock)
        self._deadline_s, self._clock = deadline_s, clock
        self._connections = ShardConnections(self._directory.read, self._directory.invalidate, clock, deadline_s)
        self._levels = tuple((level.step_ms, level.count) for level in DEFAULT_LEVELS)
        self._guard: QueryGuard | None = None

    def __enter__(self) -> VarstoreClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; running requests fail."""
        self._connections.close()
        if self._owns_client:
            close_client(self._zookeeper)

    def watching(self, watch: QueryGuard) -> VarstoreClient:
        """Return the same store for one evaluation: it checks `watch` while it waits for shards."""
        own = copy(self)
        own._guard, own._owns_client = watch, False
        return own

    # Store

    def select(self, request: SelectRequest) -> Buckets:
        """See Store. Raises SelectError; its subclass StoreUnavailable means that no shard answered."""
        deadline = self._deadline()
        outcomes, missing = self._select(request, deadline)
        parts = [outcome.answer for outcome in outcomes]
        if has_twins(parts):  # a series that two sources report: merging its buckets takes all statistics
            outcomes, missing = self._select(replace(request, statistics=STATISTICS), deadline)
            parts = [outcome.answer for outcome in outcomes]
        buckets = merge_answers(parts, request)
        if len(buckets.series) > request.limit:
            raise too_many_series(len(buckets.series), request.limit)
        notes = buckets.notes + missing
        return replace(buckets, notes=tuple(dict.fromkeys(notes)), partial=buckets.partial or bool(missing))

    def _select(self, request: SelectRequest, deadline: float) -> tuple[list[ShardAnswer], tuple[str, ...]]:
        def question(vshards: int) -> ShardRequest:
            wire = json.dumps({**replace(request, vshards=vshards).to_json(), "small": True}).encode()
            return ShardRequest("select", lambda _: (wire,), decode_buckets)

        return self._scatter(question, deadline)

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        """Return the partial results of all shards as one. Raises SelectError as `select` does; NotPushed if buckets
        must be requested instead."""
        deadline = self._deadline()

        def ask(asked: AggregateRequest) -> tuple[list[Aggregate], tuple[str, ...]]:
            outcomes, missing = self._scatter(_pushed(asked), deadline)
            return [outcome.answer for outcome in outcomes], missing

        alone = len(self._shards(deadline).live) == 1
        try:
            return aggregate_all(request, ask, self.select, alone)
        except SelectError as refusal:
            if str(refusal).startswith(NOT_PUSHED):
                raise NotPushed(str(refusal)) from refusal
            raise

    def levels(self) -> tuple[tuple[int, int], ...]:
        """See Store. Returns the default levels until ZooKeeper has named others."""
        try:
            shards = self._shards(self._deadline())
        except StoreUnavailable:
            return self._levels
        if shards.members:
            self._levels = tuple((level.step_ms, level.count) for level in shards.membership.levels)
        return self._levels

    def names(self) -> list[str]:
        return self._union(_find(what="names"))

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        return self._union(_find(what="label_values", label=label, limit=limit))[:limit]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        outcomes = self._remarked(_find(what="find", matchers=_wire(matchers), limit=limit), self._deadline())
        found = {item[0]: _series(item) for outcome in outcomes for item in outcome.answer}
        return sorted(found.values(), key=lambda s: (s.name, sorted(s.labels.items())))[:limit]

    def matching_values(self, label: str | None, matchers: tuple[Matcher, ...], limit: int = 10_000) -> list[str]:
        """Return the values of a label among matching series, sorted; label None: their labels."""
        return self._union(_find(what="matching_values", label=label, matchers=_wire(matchers), limit=limit))[:limit]

    def metadata(self, names: Sequence[str] | None) -> dict[str, tuple[str, str]]:
        """Return help and unit of these names (None: all), as far as the announcements that shards read tell them."""
        try:
            outcomes = self._remarked(_find(what="metadata", names=names), self._deadline())
        except SelectError as refusal:
            if str(refusal).startswith(UNKNOWN_REQUEST):  # a shard of an older version
                return {}
            raise
        return {name: (help_, unit) for outcome in outcomes for name, help_, unit in outcome.answer}

    def cardinality(self, top: int) -> Cardinality:
        """Count the series, each virtual shard once; `top`: entries of each list."""
        taken = min(MAX_TOP, CARDINALITY_FACTOR * top)

        def question(vshards: int) -> ShardRequest:
            wire = json.dumps({"what": "cardinality", "top": taken, "vshards": to_hex(vshards)}).encode()
            return ShardRequest("find", lambda _: (wire,), lambda reply: json.loads(reply)["found"][0])

        outcomes = self._remarked(question, self._deadline())
        return merge_cardinality([Cardinality.from_json(outcome.answer) for outcome in outcomes], top)

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return the status of each shard that answers, by id."""
        return {id: {key: one[key] for key in one if key != "polls"} for id, one in self._statuses()[0].items()}

    def feed_statuses(self) -> dict[str, dict[str, Any]]:
        """Return the status of every shard with the times of polls, which name sources. Raises StoreUnavailable unless
        all shards answer."""
        told, places = self._statuses()
        if told.keys() != places:
            raise StoreUnavailable(f"{len(places - told.keys())} shards did not answer: {self._reason()}")
        return told

    def _statuses(self) -> tuple[dict[str, dict[str, Any]], set[str]]:
        """Return the statuses by id, and the ids of all shards."""
        deadline = self._deadline()
        places = self._shards(deadline)
        told = self._connections.ask_each(places, ShardRequest("status", lambda _: (), json.loads), deadline)
        if not told:
            raise StoreUnavailable(f"no shard of the memory store answered: {self._reason()}")
        return told, {place.id for place in places.live}

    def _union(self, question: RequestFor) -> list[str]:
        outcomes = self._remarked(question, self._deadline())
        return sorted({str(item) for outcome in outcomes for item in outcome.answer})

    # asking

    def _deadline(self) -> float:
        left = None if self._guard is None else self._guard.seconds_left()
        return self._clock.monotonic() + (self._deadline_s if left is None else min(left, self._deadline_s))

    def _remarked(self, question: RequestFor, deadline: float) -> list[ShardAnswer]:
        """Return the answers to a request of metadata. Reasons for missing answers are passed to the guard."""
        outcomes, notes = self._scatter(question, deadline)
        if notes and self._guard is not None:
            self._guard.remark(notes)
        return outcomes

    def _scatter(self, question: RequestFor, deadline: float) -> tuple[list[ShardAnswer], tuple[str, ...]]:
        """Return the answers, with disjoint virtual shards, and a note for each reason why some are missing. Raises
        StoreUnavailable if no shard answers."""
        check = None if self._guard is None else self._guard.check
        outcomes, notes = ScatterGather(self._connections, self._shards(deadline), question, deadline, check).ask(
            ALL_VSHARDS
        )
        if not outcomes:
            raise StoreUnavailable("no shard of the memory store answered: " + "; ".join([*notes, self._reason()]))
        return outcomes, tuple(notes)

    def _shards(self, deadline: float) -> ClusterState:
        if not self._connected:  # give a new client time to connect; later the known shards are used
            self._connecting.wait(min(CONNECT_TIMEOUT_S, max(0.0, deadline - self._clock.monotonic())))
            if not self._connecting.is_set():
                raise StoreUnavailable(f"ZooKeeper at {self._hosts} does not answer: is the stack running?")
            self._connected = True
        return self._directory.read()

    def _reason(self) -> str:
        return self._directory.stale or "start shards with `artimon shard`, or `artimon up`"


def _pushed(request: AggregateRequest) -> RequestFor:
    """Return the requests of a pushdown, each with the time left until the deadline."""

    def question(vshards: int) -> ShardRequest:
        asked = replace(request, vshards=vshards)

        def wire(seconds: float) -> tuple[bytes, ...]:
            return (json.dumps(replace(asked, deadline_ms=int(seconds * 1000)).to_json()).encode(),)

        return ShardRequest("aggregate", wire, decode_aggregate)

    return question


def _find(**question: Any) -> RequestFor:
    """Return a request whose answers may overlap: each shard returns everything it knows."""
    wire = json.dumps(question).encode()
    ask = ShardRequest("find", lambda _: (wire,), lambda reply: json.loads(reply)["found"])
    return lambda _vshards: ask


def _wire(matchers: tuple[Matcher, ...]) -> list[list[str]]:
    return [[m.label, m.op, m.value] for m in matchers]


def _series(item: Sequence[Any]) -> Series:
    print_, name, labels, type_, kind = item
    return Series(print_, name, labels, ValueType(type_), Kind(kind))
