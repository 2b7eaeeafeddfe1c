"""Collectors run expressions: an expression uses its own collector, or else the one opened last.

The language does not depend on servers; a session (artimon/session.py) is a collector."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from query_dsl.results.matrix import Matrix
from query_dsl.tree.errors import QueryError

Query = TypeVar("Query", contravariant=True)
"""Type of the expressions that a collector runs."""


class Collector(Protocol[Query]):
    """Runs expressions."""

    def query(self, query: Query, at: object = None, **options: Any) -> Matrix:
        """Return the result as of the instant `at` (None: now)."""
        ...

    def explain(self, query: Query, at: object = None, **options: Any) -> Any:
        """Return the plan of the query: see query_dsl/evaluation/explain.py."""
        ...


class _Last:
    """Holder of the collector opened last: one per process, as a notebook has one kernel."""

    collector: Collector[Any] | None = None


def open_collector(collector: Collector[Any]) -> None:
    """Make this the default collector of expressions."""
    _Last.collector = collector


def close_collector(collector: Collector[Any]) -> None:
    """Remove the default collector if it is this one."""
    if _Last.collector is collector:
        _Last.collector = None


def collector_of(own: Collector[Any] | None) -> Collector[Any]:
    """Return `own`, else the collector opened last. QueryError if there is none."""
    found = own or _Last.collector
    if found is None:
        raise QueryError("this query has no session: open one with artimon.connect(), or begin with session.fetch(...)")
    return found


def shared(left: Collector[Any] | None, right: Collector[Any] | None) -> Collector[Any] | None:
    """Return the collector of two operands (None if neither has one). QueryError if theirs differ."""
    if left is not None and right is not None and left is not right:
        raise QueryError("the operands belong to two sessions: a query runs in one, so fetch both from the same")
    return left if left is not None else right
