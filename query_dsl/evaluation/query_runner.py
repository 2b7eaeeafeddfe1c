"""Queries of programs and notebooks: text or expression in, answer out."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random
from typing import Any, cast

import re2

from artimon.model.select import Matcher, Store
from query_dsl.evaluation.completeness import measure_completeness, measure_promql
from query_dsl.evaluation.evaluator import answer, prepare, read_query
from query_dsl.evaluation.explain import Explanation, explain
from query_dsl.evaluation.host_acks import add_host_states
from query_dsl.evaluation.query_cost import QueryCost, estimate_cost
from query_dsl.language.expression import Expr
from query_dsl.language.expression import fetch as fetch_unbound
from query_dsl.language.parser import parse
from query_dsl.promql.dsl_text import PromqlMatrix
from query_dsl.promql.promql_query import query_store
from query_dsl.promql.promql_settings import PromqlSettings
from query_dsl.promql.tree import parse as parse_promql
from query_dsl.results.expected_points import Completeness
from query_dsl.results.matrix import Matrix
from query_dsl.stores.engine_store import as_engine_store
from query_dsl.stores.query_limits import DEFAULT_LIMITS, make_budget
from query_dsl.tree import nodes
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import parse_duration, parse_instant

MAX_SAMPLED = 200_000
"""Series of a selector among which a sample is chosen."""
LANGUAGES = ("artimon", "promql")
_SELECTING = (nodes.Fetch, nodes.Samples, nodes.Absent)


class QueryRunner:
    """Collector: answers queries from its own stores, at its own time."""

    default_limits = DEFAULT_LIMITS
    """Limits of queries that do not set their own."""
    promql_settings = PromqlSettings()
    """Settings of queries in PromQL."""

    @property
    def now_ms(self) -> int:
        """Evaluation time of queries without `at`, in epoch milliseconds."""
        raise NotImplementedError

    def _engine(self, engine: str) -> AbstractContextManager[Store]:
        """Open the store that answers one query."""
        raise NotImplementedError

    def query(self, query: str | Expr, at: object = None, *, engine: str = "auto", **options: Any) -> Matrix:
        """Answer a text or an expression as of the instant `at`: ISO 8601, a datetime, epoch ms or "now-1h". Returns an
        RawSeries if the query yields raw samples.

        `engine`: "memory"; "history", which puts raw samples into the same buckets; or "auto": memory where one of its
        levels reaches, else the history, or both combined. `options`: `limits`, the resources that it may use
        (query_dsl.stores.query_limits.Limits); `stop`, a threading.Event that ends the query once set;
        `partial_windows`, to answer windows that the store does not hold whole, which are NA else. With `at` a repeated
        query has the same answer while its data is retained. Raises QueryError (as LimitExceeded,
        QueryCancelled or HistoryError) and SelectError."""
        expression = read_query(query)
        with self._engine(engine) as store:
            found = answer(expression, store, self._at(at), **self._limited(options))
        return cast(Matrix, found.with_query(str(expression)))

    def promql(
        self,
        query: str,
        at: object = None,
        *,
        start: object = None,
        step: str = "1m",
        engine: str = "auto",
        exact_increase: bool | None = None,
        **options: Any,
    ) -> PromqlMatrix:
        """Answer a query in PromQL at the instant `at`, or with `start` at each `step` from there to `at`. Instants as
        in `query`. Samples are the raw ones: those of the finest level in memory, else of the history. Notes are the
        warnings. `exact_increase`: `increase` and `rate` count from the starts of processes, without extrapolation;
        None: as `promql_settings` say.
        `options`: `limits` and `stop`, as in `query`. Raises PromqlError, QueryError and SelectError."""
        made, stop = options.pop("limits", None) or self.default_limits, options.pop("stop", None)
        if options:
            raise QueryError(f"promql takes no {', '.join(options)}: its only options are limits and stop")
        first = None if start is None else parse_instant(start, "start").resolve(self.now_ms)
        with self._engine(engine) as store:
            found = query_store(
                query,
                as_engine_store(store),
                self.now_ms,
                start_ms=first,
                end_ms=self._at(at),
                step_ms=parse_duration(step, "step"),
                budget=make_budget(made, None, stop),
                exact_increase=self.promql_settings.exact_increase if exact_increase is None else exact_increase,
                similar_names=self.promql_settings.similar_names,
            )
        return found.to_matrix().with_query(query)

    def explain(
        self, query: str | Expr, at: object = None, *, engine: str = "auto", run: bool = True, **options: Any
    ) -> Explanation:
        """Plan of a query: grid, engine, level and the reason. With `run` the query is executed, and the plan includes
        its reads and times."""
        with self._engine(engine) as store:
            return explain(query, store, self._at(at), run, **self._limited(options))

    def cost(self, query: str | Expr, at: object = None, *, engine: str = "auto", **options: Any) -> QueryCost:
        """Return what a query would read: series and buckets. It does not run. `options` as in `query`."""
        found = self._limited(options)
        budget = make_budget(found["limits"], None, found.get("stop"))
        with self._engine(engine) as store, self._engine("memory") as memory:
            return estimate_cost(prepare(query, store, self._at(at), budget), memory)

    def completeness(
        self,
        query: str | Expr,
        at: object = None,
        *,
        engine: str = "auto",
        lang: str = "artimon",
        start: object = None,
        **options: Any,
    ) -> Completeness:
        """Completeness of what a query reads over its range: samples that are due, those that are there, and the hosts
        that are silent, with the state of each by the acks of its agent. `lang`: "promql" for a query in PromQL, with
        `start` as in `promql`. `options` as in `query`."""
        if lang not in LANGUAGES:
            raise QueryError(f"unknown language {lang!r:.40}: use one of {', '.join(LANGUAGES)}")
        limited, instant = self._limited(options), self._at(at)
        budget = make_budget(limited["limits"], None, limited.get("stop"))
        with self._engine(engine) as store, self._engine("memory") as memory:
            if lang == "promql":
                first = instant if start is None else parse_instant(start, "start").resolve(self.now_ms)
                names = self.promql_settings.similar_names
                parsed = parse_promql(str(query))
                found = measure_promql(parsed, store, self.now_ms, first, instant, budget, similar_names=names)
            else:
                found = measure_completeness(query, store, instant, budget)
            return add_host_states(found, memory, instant)

    def sample(self, query: str | Expr, count: int = 20, *, label: str = "host", seed: int = 0) -> Expr:
        """Return the query over at most `count` values of a label, chosen at random among those of the series that it
        selects; the same `seed` chooses the same ones while the series stay. Raises QueryError, SelectError."""
        if count < 1:
            raise QueryError("a sample has at least one value: give a count of 1 or more")
        expression = read_query(query)
        selectors = [leaf.selector for leaf in nodes.walk(expression.node) if isinstance(leaf, _SELECTING)]
        with self._engine("memory") as store:
            series = [one for selector in selectors for one in store.find(selector.matchers, MAX_SAMPLED)]
        values = sorted({one.labels.get(label, "") for one in series} - {""})
        if not values:
            raise QueryError(f"no series of {expression} has the label {label}: name another one with label=")
        chosen = sorted(Random(seed).sample(values, min(count, len(values))))
        matcher = Matcher(label, "=~", "|".join(re2.escape(value) for value in chosen))

        def narrowed(leaf: nodes.Node) -> nodes.Node:
            if not isinstance(leaf, _SELECTING):
                return leaf
            return replace(leaf, selector=replace(leaf.selector, matchers=(*leaf.selector.matchers, matcher)))

        return Expr(nodes.map_leaves(expression.node, narrowed), expression.depth, None, expression.collector or self,
                    expression.parts)  # fmt: skip

    def _limited(self, options: dict[str, Any]) -> dict[str, Any]:
        return options if options.get("limits") else options | {"limits": self.default_limits}

    def _at(self, at: object) -> int:
        now_ms = self.now_ms
        return now_ms if at is None else parse_instant(at, "at").resolve(now_ms)

    def fetch(self, selector: str) -> Expr:
        """Return matching series as an expression that runs here: `session.fetch('shop.requests')`."""
        return fetch_unbound(selector).bound(self)

    def parse(self, text: str) -> Expr:
        """Parse a query text, as in the API and alert rules, to an expression that runs here."""
        return parse(text).bound(self)
