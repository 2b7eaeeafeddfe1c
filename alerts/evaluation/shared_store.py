"""Store wrapper that sends one query to the store for many rules with equal queries or parts of the same variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.aggregate import Aggregate, AggregateRequest, AggregatingStore, NotPushed
from artimon.model.grid import Grid
from artimon.model.select import NAME, Buckets, Matcher, SelectError, SelectRequest, Series, Store
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.tree import nodes
from query_dsl.tree.nodes import Node, walk
from query_dsl.tree.selector import accepts
from varstore.cluster.varstore_client import StoreUnavailable

MIN_SHARED_SELECTORS = 16
"""Minimum number of different selectors of a variable that are answered by one query for the whole variable."""
MAX_SHARED_CELLS = 4_000_000
MAX_SHARED_SERIES = 50_000

RowIndexes = npt.NDArray[np.intp]
BucketsSource = Callable[[], Buckets]
"""Returns the buckets of a query, if necessary by sending it now. Raises SelectError."""
T = TypeVar("T")


def popular_names(trees: Iterable[Node]) -> frozenset[str]:
    """Names of variables that the queries select by at least SHARED_FROM different selectors."""
    selectors = {
        node.selector.matchers for tree in trees for node in walk(tree) if isinstance(node, nodes.Fetch | nodes.Absent)
    }
    counts = Counter(name for matchers in selectors if (name := _one_name(matchers)) is not None)
    return frozenset(name for name, count in counts.items() if count >= MIN_SHARED_SELECTORS)


def _one_name(matchers: tuple[Matcher, ...]) -> str | None:
    names = [m.value for m in matchers if m.label == NAME and m.op == "="]
    return names[0] if len(names) == 1 else None


class SharedStore:
    """Store of one evaluation; belongs to one thread.

    After a query without any answering shard, all further queries raise the same error. `begin` starts a rule: `asked`
    and `partial` describe the queries since then."""

    def __init__(self, store: Store, popular: frozenset[str] = frozenset()) -> None:
        self._store, self._popular = store, popular
        self._answers: dict[SelectRequest, Buckets] = {}
        self._whole: dict[tuple[str, Grid, tuple[str, ...]], _WholeVariable | None] = {}
        self._levels: tuple[tuple[int, int], ...] | None = None
        self._unavailable: StoreUnavailable | None = None
        self._aggregates: dict[AggregateRequest, Aggregate] = {}
        self.answers: list[BucketsSource] = []
        self._notes: list[tuple[str, ...]] = []
        """Notes of incomplete answers."""
        self.queries = 0

    def begin(self) -> None:
        """Start a new rule."""
        self.answers, self._notes = [], []

    @property
    def partial(self) -> str:
        """Reason why an answer for this rule is incomplete; "" if all are complete."""
        return next(("; ".join(notes) or "a shard did not answer" for notes in self._notes), "")

    # Store

    def select(self, request: SelectRequest) -> Buckets:
        found = self._answers.get(request)
        if found is None:
            found = self._from_whole(request) or self._query(request)
            self._answers[request] = found
        self.answers.append(lambda: found)
        if found.partial:
            self._notes.append(found.notes)
        return found

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        """See Aggregating. NotPushed if the store cannot aggregate, or fetches the whole variable for many rules."""
        store = self._store
        if not isinstance(store, AggregatingStore) or _one_name(request.matchers) in self._popular:
            raise NotPushed("shared with other rules")
        found = self._aggregates.get(request)
        if found is None:
            found = self._aggregates[request] = self._query_once(lambda: store.aggregate(request))
        self.answers.append(lambda: self._query(request.buckets()))  # rarely needed: only for alerts without a value
        if found.partial:
            self._notes.append(found.notes)
        return found

    def watching(self, watch: QueryBudget) -> SharedStore:  # noqa: ARG002
        """Return this store, whose answers the rules share: its requests have deadlines of their own."""
        return self

    def levels(self) -> tuple[tuple[int, int], ...]:
        if self._levels is None:
            self._levels = self._store.levels()
        return self._levels

    def names(self) -> list[str]:
        """Return nothing: only hints in messages use it, and 10,000 rules would send 10,000 queries."""
        return []

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:  # noqa: ARG002
        """See `names`."""
        return []

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:  # noqa: ARG002
        """See `names`."""
        return []

    def _query(self, request: SelectRequest) -> Buckets:
        return self._query_once(lambda: self._store.select(request))

    def _query_once(self, question: Callable[[], T]) -> T:
        if self._unavailable is not None:
            raise self._unavailable
        self.queries += 1
        try:
            return question()
        except StoreUnavailable as problem:
            self._unavailable = problem
            raise

    def _from_whole(self, request: SelectRequest) -> Buckets | None:
        """Answer from the whole variable, if it is popular and not too large."""
        name = _one_name(request.matchers)
        if name not in self._popular or name is None:
            return None
        key = (name, request.grid, request.statistics)
        if key not in self._whole:
            self._whole[key] = self._fetch_whole(name, request)
        whole = self._whole[key]
        return None if whole is None else whole.select(request.matchers)

    def _fetch_whole(self, name: str, request: SelectRequest) -> _WholeVariable | None:
        limit = min(MAX_SHARED_SERIES, MAX_SHARED_CELLS // (request.grid.n * len(request.statistics)))
        if limit < 1:
            return None
        try:
            return _WholeVariable(self._query(replace(request, matchers=(Matcher(NAME, "=", name),), limit=limit)))
        except StoreUnavailable:
            raise
        except SelectError:  # too many series: each rule sends its own query
            return None


class _WholeVariable:
    """All series of a variable, with an index of their labels."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._births = buckets.births
        self._starts = np.searchsorted(buckets.births["row"], np.arange(len(buckets.series) + 1))
        self._index: dict[str, dict[str, RowIndexes]] = {}

    def select(self, matchers: tuple[Matcher, ...]) -> Buckets:
        """Rows that match, as the store itself would answer."""
        rows: RowIndexes | None = None
        for matcher in matchers:
            if matcher.label != NAME:
                fit = self._fit(matcher)
                rows = fit if rows is None else np.intersect1d(rows, fit, assume_unique=True)
        whole = self._buckets
        if rows is None:
            return whole
        chosen = rows.tolist()
        return Buckets(
            whole.grid,
            tuple(whole.series[row] for row in chosen),
            {name: matrix[rows] for name, matrix in whole.statistics.items()},
            whole.strings,
            self._lives(chosen),
            whole.ended_ms[rows],
            whole.newest_ms[rows],
            whole.notes,
            whole.partial,
        )

    def _lives(self, rows: list[int]) -> npt.NDArray[np.void]:
        parts = []
        for place, row in enumerate(rows):
            lives = self._births[self._starts[row] : self._starts[row + 1]].copy()
            lives["row"] = place
            parts.append(lives)
        return np.concatenate(parts) if parts else self._births[:0]

    def _fit(self, matcher: Matcher) -> RowIndexes:
        values = self._values(matcher.label)
        if matcher.op == "=":
            return values.get(matcher.value, np.zeros(0, np.intp))
        fit = [rows for value, rows in values.items() if accepts(matcher, value)]
        return np.sort(np.concatenate(fit)) if fit else np.zeros(0, np.intp)

    def _values(self, label: str) -> dict[str, RowIndexes]:
        if label not in self._index:
            rows: dict[str, list[int]] = {}
            for row, series in enumerate(self._buckets.series):
                rows.setdefault(series.labels.get(label, ""), []).append(row)
            self._index[label] = {value: np.array(places, np.intp) for value, places in rows.items()}
        return self._index[label]
